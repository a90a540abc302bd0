#!/bin/sh
# Starts a VM under cloud-hypervisor, with its generic vhost-user device: cloud-hypervisor.sh a | b
# It needs KVM, a tap device on a bridge for Ethernet, and a disk image of your own: see README.md.
. "$(dirname "$0")/common.sh"
case ${1:-} in
a) mac=52:54:00:77:00:01 ;;
b) mac=52:54:00:77:00:02 ;;
*) echo "usage: $0 a|b" >&2; exit 2 ;;
esac
DISK=${DISK:?set DISK to a disk image with vrdma.ko and the provider installed}
KERNEL=${KERNEL:-$VM/image/vmlinux}
TAP=${TAP:-vrdma-$1}
# v53.0 has `device_type`, and warns about `virtio_id`, the name in v52.0: DEVICE_TYPE=virtio_id.
DEVICE_TYPE=${DEVICE_TYPE:-device_type}
# 64 queues of 256 entries: 2 + completion vectors (2) + channels (60).
sizes=$(printf '256,%.0s' $(seq 64))
exec "${CLOUD_HYPERVISOR:-cloud-hypervisor}" \
    --cpus boot=1 --memory size=1G,shared=on \
    --kernel "$KERNEL" --cmdline "console=ttyS0 root=/dev/vda rw net.ifnames=0" \
    --disk "path=$DISK" \
    --net "tap=$TAP,mac=$mac" \
    --generic-vhost-user "socket=$RUN/$1.sock,$DEVICE_TYPE=42,queue_sizes=[${sizes%,}]" \
    --serial tty --console off
