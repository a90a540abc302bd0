# Sourced by the other scripts. Each value here can be set in the environment.

here=$(cd "$(dirname "$0")" && pwd)

# The output of `cargo xtask image`: kernel, initramfs, root file system, and the share with kernel
# module and provider.
VM=${VM:-$here/../target/vm}
# Directory of the sockets. Keep it short: the path of a socket has at most 107 bytes.
RUN=${RUN:-/tmp/vrdma}
# Set KVM=1 if KVM works.
KVM=${KVM:-0}
# QEMU 10.2 or later. The default is the QEMU in xtask's root, started by that root's own loader.
QEMU=${QEMU:-$VM/qemu-root/usr/lib64/ld-linux-x86-64.so.2
    --library-path $VM/qemu-root/usr/lib/x86_64-linux-gnu
    $VM/qemu-root/usr/bin/qemu-system-x86_64
    -L $VM/qemu-root/usr/share/qemu -L $VM/qemu-root/usr/share/seabios}

mkdir -p "$RUN"

# start_vm NAME IP MAC
start_vm() {
    if [ "$KVM" = 1 ]; then
        accel="-accel kvm -cpu host"
    else
        accel="-accel tcg,thread=multi -cpu max"
    fi
    # $QEMU and $accel are lists of words. What matters for vrdma:
    # * memory that the backend can map: memory-backend-memfd with share=on;
    # * as many queues as the backend serves: 2 + completion vectors (2) + channels (60);
    # * a doorbell page for each queue: page-per-vq=on;
    # * virtio-net with the MAC address that the backend knows, for the Ethernet function:
    #   * frames as long as the backend accepts (host_mtu);
    #   * many receive buffers;
    #   * reconnect-ms, so that it comes back after a restart of the backend.
    # shellcheck disable=SC2086
    exec $QEMU $accel -name "$1" -nodefaults -no-user-config -display none -no-reboot \
        -machine q35,memory-backend=mem -m 1024 \
        -object memory-backend-memfd,id=mem,size=1024M,share=on \
        -kernel "$VM/image/vmlinux" -initrd "$VM/image/initramfs" \
        -append "console=ttyS0 quiet mitigations=off vrdma.name=$1 vrdma.ip=$2/24 vrdma.mac=$3" \
        -drive "if=none,id=root,file=$VM/image/root.ext4,format=raw,readonly=on,file.locking=off" \
        -device virtio-blk-pci,drive=root \
        -virtfs "local,path=$VM/share,mount_tag=share,security_model=none,multidevs=remap" \
        -chardev "socket,id=ethernet,path=$RUN/$1-net.sock,reconnect-ms=200" \
        -netdev vhost-user,id=net,chardev=ethernet \
        -device "virtio-net-pci,netdev=net,mac=$3,host_mtu=9000,rx_queue_size=1024,romfile=" \
        -chardev "socket,id=rdma,path=$RUN/$1.sock" \
        -device vhost-user-test-device-pci,chardev=rdma,virtio-id=38,num_vqs=64,vq_size=256,config_size=256,page-per-vq=on \
        -serial mon:stdio
}
