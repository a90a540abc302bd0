#!/bin/sh
# Storage over RDMA between two VMs.
#
#   storage.sh PROTOCOL serve ADDRESS DISK    starts a target at this address
#   storage.sh PROTOCOL stop
#   storage.sh PROTOCOL connect ADDRESS       prints the file that programs read and write
#   storage.sh PROTOCOL disconnect
#
# DISK is `ram`, which is empty, or a file, which outlives the VM. PROTOCOL is nvme (NVMe over
# Fabrics), iser (iSCSI Extensions for RDMA), srp (SCSI RDMA Protocol) or nfs (NFS 4.2). The script
# sets up the VM's kernel as its documentation says: by configfs, /dev/nvme-fabrics, iscsiadm and
# mount.
set -eu
protocol=$1 action=$2
shift 2

config=/sys/kernel/config
nqn=nqn.2026-01.vrdma:disk
iqn=iqn.2026-01.vrdma:disk
host=0b4a7c7e-5e1f-4d39-9c1c-6f1f4c1b7a10
# The id by which an initiator of SRP names its target. It is also a parameter of ib_srpt.
service=0000000000000001
# The disk's serial number. It is fixed, so that an initiator recognizes the disk when its target
# comes back.
serial=5c1f2b7d-97b1-4f0e-8f0e-3a1f6a1f7c11
export_directory=/run/storage/export
mount_point=/run/storage/mount
mkdir -p $export_directory $mount_point

# Waits until a command succeeds. The caller of this script limits the time.
await() {
    until "$@" >/dev/null 2>&1; do sleep 0.1; done
}

# Makes the block device of a disk, and prints its path.
disk() {
    if [ "$1" = ram ]; then
        modprobe brd rd_nr=1 rd_size=65536
        echo /dev/ram0
    else
        modprobe loop
        losetup --find --show "$1"
    fi
}

no_disk() {
    losetup --detach-all
    ! grep -q '^brd ' /proc/modules || modprobe -r brd
}

configfs() {
    modprobe configfs
    mountpoint -q $config || mount -t configfs configfs $config
}

nvme_serve() {
    device=$(disk "$2")
    modprobe -a nvmet nvmet-rdma
    configfs
    cd $config/nvmet
    mkdir -p subsystems/$nqn/namespaces/1 ports/1
    echo 1 >subsystems/$nqn/attr_allow_any_host
    echo $serial | cut -c 1-20 >subsystems/$nqn/attr_serial
    echo "$device" >subsystems/$nqn/namespaces/1/device_path
    echo $serial >subsystems/$nqn/namespaces/1/device_uuid
    echo $serial >subsystems/$nqn/namespaces/1/device_nguid
    echo 1 >subsystems/$nqn/namespaces/1/enable
    echo rdma >ports/1/addr_trtype
    echo ipv4 >ports/1/addr_adrfam
    echo "$1" >ports/1/addr_traddr
    echo 4420 >ports/1/addr_trsvcid
    ln -s $config/nvmet/subsystems/$nqn ports/1/subsystems/$nqn
}

nvme_stop() {
    cd $config/nvmet
    rm ports/1/subsystems/$nqn
    rmdir ports/1
    echo 0 >subsystems/$nqn/namespaces/1/enable
    rmdir subsystems/$nqn/namespaces/1 subsystems/$nqn
    cd /
    no_disk
}

# There is a queue for each processor, at most two, and a polled queue.
nvme_connect() {
    modprobe nvme-rdma
    nvme connect -t rdma -a "$1" -s 4420 -n $nqn -q nqn.2014-08.org.nvmexpress:uuid:$host -I $host \
        -i 2 -P 1 --reconnect-delay=1 --ctrl-loss-tmo=600 --keep-alive-tmo=30 >&2
    await nvme_disk
    nvme_disk
}

nvme_disk() {
    for name in /dev/nvme[0-9]*n[0-9]*; do
        [ ! -b "$name" ] || { echo "$name"; return 0; }
    done
    return 1
}

nvme_disconnect() {
    nvme disconnect -n $nqn >&2
}

iser_serve() {
    device=$(disk "$2")
    modprobe -a iscsi_target_mod ib_isert target_core_iblock
    configfs
    cd $config/target
    mkdir -p core/iblock_0/disk
    echo "udev_path=$device" >core/iblock_0/disk/control
    echo "$device" >core/iblock_0/disk/udev_path
    echo 1 >core/iblock_0/disk/enable
    echo $serial >core/iblock_0/disk/wwn/vpd_unit_serial
    mkdir -p iscsi/$iqn/tpgt_1
    cd iscsi/$iqn/tpgt_1
    mkdir lun/lun_0
    ln -s $config/target/core/iblock_0/disk lun/lun_0/disk
    echo 1 >attrib/generate_node_acls
    echo 1 >attrib/cache_dynamic_acls
    echo 0 >attrib/demo_mode_write_protect
    echo 0 >attrib/authentication
    mkdir "np/$1:3260"
    echo 1 >"np/$1:3260/iser"
    echo 1 >enable
}

iser_stop() {
    cd $config/target/iscsi/$iqn
    echo 0 >tpgt_1/enable
    rmdir tpgt_1/np/*
    rm tpgt_1/lun/lun_0/disk
    rmdir tpgt_1/lun/lun_0
    cd $config/target
    rmdir iscsi/$iqn/tpgt_1 iscsi/$iqn core/iblock_0/disk core/iblock_0
    cd /
    no_disk
}

iser_connect() {
    modprobe -a ib_iser sd_mod
    mkdir -p /etc/iscsi /run/lock/iscsi
    echo "InitiatorName=iqn.2026-01.vrdma:initiator" >/etc/iscsi/initiatorname.iscsi
    if ! pidof iscsid >/dev/null; then
        iscsid >&2 </dev/null
        await pidof iscsid
    fi
    node="iscsiadm -m node -T $iqn -p $1:3260"
    $node -I iser -o new >&2
    # An emulated VM may answer slowly.
    $node -o update -n 'node.conn[0].timeo.noop_out_interval' -v 30 >&2
    $node -o update -n 'node.conn[0].timeo.noop_out_timeout' -v 60 >&2
    $node -l >&2
    await iser_disk
    iser_disk
}

iser_disk() {
    for name in /dev/sd?; do
        [ ! -b "$name" ] || { echo "$name"; return 0; }
    done
    return 1
}

iser_disconnect() {
    iscsiadm -m node -T $iqn -u >&2
    iscsiadm -m node -T $iqn -o delete >&2
}

# Prints the GUID of the target's port, in the format of ib_srpt.
srp_port() {
    cat /sys/class/infiniband/*/node_guid | head -n 1
}

srp_serve() {
    device=$(disk "$2")
    modprobe -a target_core_mod target_core_iblock
    modprobe ib_srpt srpt_service_guid=0x$service
    configfs
    cd $config/target
    mkdir -p core/iblock_0/disk
    echo "udev_path=$device" >core/iblock_0/disk/control
    echo "$device" >core/iblock_0/disk/udev_path
    echo 1 >core/iblock_0/disk/enable
    echo $serial >core/iblock_0/disk/wwn/vpd_unit_serial
    port=$(srp_port)
    mkdir -p srpt/$port/$port
    cd srpt/$port/$port
    mkdir lun/lun_0
    ln -s $config/target/core/iblock_0/disk lun/lun_0/disk
    # The target identifies initiators by their addresses.
    for initiator in 10.77.0.1 10.77.0.2; do
        mkdir acls/$initiator acls/$initiator/lun_0
        ln -s $config/target/srpt/$port/$port/lun/lun_0 acls/$initiator/lun_0/disk
    done
    echo 1 >enable
    echo 5555 >$config/target/srpt/discovery_auth/rdma_cm_port
}

srp_stop() {
    port=$(srp_port)
    echo 0 >$config/target/srpt/discovery_auth/rdma_cm_port
    cd $config/target/srpt/$port/$port
    echo 0 >enable
    for acl in acls/*; do
        rm $acl/lun_0/disk
        rmdir $acl/lun_0 $acl
    done
    rm lun/lun_0/disk
    rmdir lun/lun_0
    cd $config/target
    rmdir srpt/$port/$port srpt/$port srpt core/iblock_0/disk core/iblock_0
    cd /
    # ib_srpt can be removed once it has ended its sessions, after their initiators have left.
    await modprobe -r ib_srpt
    no_disk
}

srp_connect() {
    modprobe -a ib_srp sd_mod
    set -- "$1" /sys/class/infiniband_srp/srp-*-1
    echo "id_ext=$service,ioc_guid=$service,dest=$1:5555,queue_size=64" >"$2/add_target"
    # If the target is lost, the initiator tries to reconnect each second. It never gives up, or after
    # 600 s if the kernel refuses `off`.
    for remote in /sys/class/srp_remote_ports/port-*; do
        echo 1 >"$remote/reconnect_delay"
        echo off >"$remote/dev_loss_tmo" || echo 600 >"$remote/dev_loss_tmo"
    done
    await iser_disk
    iser_disk
}

srp_disconnect() {
    for remote in /sys/class/srp_remote_ports/port-*; do
        echo 1 >"$remote/delete"
    done
    modprobe -r ib_srp
}

nfs_serve() {
    modprobe -a nfsd rpcrdma
    if [ "$2" = ram ]; then
        mount -t tmpfs -o size=96m tmpfs $export_directory
    else
        mount "$(disk "$2")" $export_directory
    fi
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    # Allows reads and writes of up to 1 MiB, even with little memory in the VM.
    echo 1048576 >/proc/fs/nfsd/max_block_size
    # After a restart of the server, clients have this many seconds to reclaim what they had open.
    # The disk has the list of clients.
    echo 10 >/proc/fs/nfsd/nfsv4leasetime
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    mkdir -p $export_directory/clients
    echo $export_directory/clients >/proc/fs/nfsd/nfsv4recoverydir
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    rpc.mountd --no-nfs-version 3 >&2
    exportfs -o "rw,fsid=0,insecure,no_root_squash,no_subtree_check,sync" "*:$export_directory" >&2
    rpc.nfsd --no-nfs-version 3 --rdma=20049 2 >&2
    # On an empty disk nobody had anything open, so there is nothing to reclaim.
    [ "$2" != ram ] || echo Y >/proc/fs/nfsd/v4_end_grace
}

nfs_stop() {
    rpc.nfsd 0 >&2
    exportfs -ua >&2
    kill $(pidof rpc.mountd)
    umount $export_directory
    no_disk
}

nfs_connect() {
    modprobe -a nfsv4 rpcrdma
    mount -t nfs4 -o vers=4.2,proto=rdma,port=20049 "$1:/" $mount_point >&2
    echo $mount_point/file
}

nfs_disconnect() {
    umount $mount_point
}

"${protocol}_$action" "$@"
