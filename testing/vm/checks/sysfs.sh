# Checks what docs/sysfs.md promises. Runs in a VM.
set -e
fail() { echo "$*"; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }

device=/sys/class/infiniband/vrdma0
function=$(readlink -f $device/device)
virtio=$(readlink -f $function/virtio*)

# The device's parent is the PCI function, which has the virtio device, too.
case ${function##*/} in [0-9a-f]*:[0-9a-f]*:[0-9a-f]*.[0-7]) ;; *) fail "the parent is $function" ;; esac
same "subsystem of the parent" "$(basename $(readlink -f $function/subsystem))" pci
same "driver of the parent" "$(basename $(readlink -f $function/driver))" virtio-pci
case ${virtio##*/} in virtio[0-9]*) ;; *) fail "the virtio device is $virtio" ;; esac
same "driver of the virtio device" "$(basename $(readlink -f $virtio/driver))" vrdma
[ ! -e $virtio/infiniband ] || fail "the virtio device has the RDMA device"
for file in vendor device class subsystem_vendor subsystem_device numa_node local_cpulist local_cpus; do
    [ -r $function/$file ] || fail "no $function/$file"
done
same "vendor of the function" "$(cat $function/vendor)" 0x1af4
case $(cat $function/device) in 0x1066 | 0x106a) ;; *) fail "the function's id is $(cat $function/device)" ;; esac
# QEMU's test device has the class of other communication devices, and plugins of Kubernetes want 0x02.
same "class of the function" "$(cat $function/class)" 0x078000
grep -q '^pci:v00001AF4d000010\(66\|6A\)sv' $function/modalias || fail "modalias: $(cat $function/modalias)"
grep -q '^virtio:d000000\(26\|2A\)v00001AF4$' $virtio/modalias || fail "modalias: $(cat $virtio/modalias)"

# What the plugins of Kubernetes look up by the library rdmamap: the RDMA devices of a PCI function, of a netdev, and a device's files.
same "RDMA devices of the PCI function" "$(cd /sys/bus/pci/devices/${function##*/}/infiniband && ls)" vrdma0
[ -d /sys/bus/pci/devices/${function##*/}/infiniband/vrdma0 ] || fail "the PCI function's vrdma0 is no directory"
same "RDMA device of the netdev" "$(cd /sys/class/infiniband && grep -l '^eth0$' */ports/*/gid_attrs/ndevs/* 2>/dev/null | head -n 1 | cut -d / -f 1)" vrdma0
for class in infiniband_verbs infiniband_mad; do
    grep -q '^vrdma0$' /sys/class/$class/*/ibdev || fail "no file of vrdma0 in $class"
done
[ -c /dev/infiniband/rdma_cm ] || fail "no /dev/infiniband/rdma_cm"

# Attributes of the device.
grep -q -e '^1: CA$' -e '^4: RNIC$' $device/node_type || fail "node_type: $(cat $device/node_type)"
for file in node_guid sys_image_guid; do
    grep -q '^[0-9a-f]\{4\}:[0-9a-f]\{2\}ff:fe[0-9a-f]\{2\}:[0-9a-f]\{4\}$' $device/$file || fail "$file: $(cat $device/$file)"
done
same hca_type "$(cat $device/hca_type)" vrdma
for file in fw_ver hw_rev board_id; do
    [ -n "$(cat $device/$file)" ] || fail "$file is empty"
done

# The device's port.
port=$device/ports/1
same "ports" "$(ls $device/ports)" 1
same link_layer "$(cat $port/link_layer)" Ethernet
same state "$(cat $port/state)" "4: ACTIVE"
same phys_state "$(cat $port/phys_state)" "5: LinkUp"
grep -q '^[0-9.]* Gb/sec (.*)$' $port/rate || fail "rate: $(cat $port/rate)"
same "netdev of the first GID" "$(cat $port/gid_attrs/ndevs/0)" eth0
same "type of the first GID" "$(cat $port/gid_attrs/types/0)" "RoCE v2"
same "the first P_Key" "$(cat $port/pkeys/0)" 0xffff
for file in counters/port_xmit_data counters/port_rcv_packets hw_counters/lifespan cap_mask lid; do
    [ -r $port/$file ] || fail "no $port/$file"
done

# The device's files for programs.
uverbs=$(basename $(ls -d $function/infiniband_verbs/uverbs*))
same "the device of $uverbs" "$(cat /sys/class/infiniband_verbs/$uverbs/ibdev)" vrdma0
[ -c /dev/infiniband/$uverbs ] || fail "no /dev/infiniband/$uverbs"
umad=$(basename $(ls -d $function/infiniband_mad/umad*))
same "the device of $umad" "$(cat /sys/class/infiniband_mad/$umad/ibdev)" vrdma0

# The netdev belongs to another function, and names no RDMA device.
[ ! -e /sys/class/net/eth0/device/infiniband ] || fail "the netdev's function has the RDMA device"
# The first byte of an EUI-64 differs from that of the MAC address, because one bit is inverted.
same "the node's GUID, of the netdev's address" "$(tr -d : <$device/node_guid | cut -c 3-)" \
    "$(sed 's/^..:\(..\):\(..\):\(..\):\(..\):\(..\)$/\1\2fffe\3\4\5/' /sys/class/net/eth0/address)"
echo ok
