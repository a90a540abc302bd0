# Boots a root with systemd as the first process of namespaces of its own. host.rs runs it as
# `unshare --mount -- sh -ec boot.sh sh ROOT CHANGES NAME [OUTSIDE INSIDE]...`. ROOT stays as it is:
# what changes is in CHANGES. OUTSIDE is a directory that can be read at INSIDE.
root=$1 changes=$2 name=$3
shift 3

mount --make-rprivate /
mkdir -p "$changes/upper" "$changes/work" "$changes/root" "$changes/cgroup"
mount -t overlay overlay "$changes/root" \
    -o "lowerdir=$root,upperdir=$changes/upper,workdir=$changes/work"

# All of this is in a group of its own, so that its systemd sees no other.
mount -t cgroup2 cgroup2 "$changes/cgroup"
mkdir "$changes/cgroup/$name"
echo $$ >"$changes/cgroup/$name/cgroup.procs"
umount "$changes/cgroup"

cd "$changes/root"
while [ $# -gt 0 ]; do
    mkdir -p ".$2"
    mount --bind "$1" ".$2"
    mount -o remount,bind,ro ".$2"
    shift 2
done

# The rest runs as the first process of the namespaces, which then becomes systemd.
exec unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup -- sh -ec '
    hostname host
    ip link set lo up
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=755 tmpfs dev
    mkdir dev/pts dev/shm
    # Not those of this machine, whose mode and owner could be changed.
    for device in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"
    done
    mknod -m 666 dev/tty c 5 0
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    ln -s /proc/self/fd/0 dev/stdin
    ln -s /proc/self/fd/1 dev/stdout
    ln -s /proc/self/fd/2 dev/stderr
    mknod -m 600 dev/console c 1 3
    pivot_root . .
    umount -l .
    cd /
    exec env -i container=vrdma PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
        --log-target=journal'
