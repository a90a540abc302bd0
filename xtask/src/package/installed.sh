# Runs in a copy of a release's root, in the directory with the packages: installs them, tries them,
# and removes them without a trace. check.rs sets VERSION, KERNEL, PROVIDER and LIBRARY.

files() {
    find / -xdev \( -path /proc -o -path /dev -o -path /mnt -o -path /tmp \) -prune -o -print | sort
}

# Prints what another user's connection to a socket says.
connect() {
    setpriv --reuid="$1" --regid="$1" --init-groups \
        perl -MIO::Socket::UNIX -e 'print IO::Socket::UNIX->new(Peer => $ARGV[0]) ? "connected" : $!' "$2"
}

expect() {
    [ "$2" = "$3" ] || { echo "$1: expected \"$2\", not \"$3\"" >&2; exit 1; }
}

files >/tmp/before
dpkg --install ./*.deb

# DKMS does not see for itself which kernel a root is for.
dkms status | grep -q "vrdma/$VERSION.*$KERNEL.*installed" || dkms install "vrdma/$VERSION" -k "$KERNEL"
expect "the module's version" "$VERSION" "$(modinfo -k "$KERNEL" -F version vrdma)"
modinfo -k "$KERNEL" -F alias vrdma | grep -q virtio:d00000026v

expect "the daemon's version" "vrdma-backend $VERSION" "$(vrdma-backend --version)"
expect "the command's version" "vrdma-ctl $VERSION" "$(vrdma-ctl --version)"
expect "the exporter's version" "vrdma-exporter $VERSION" "$(vrdma-exporter --version)"
systemd-analyze verify --man=no vrdma-backend.service vrdma-exporter.service
expect "the sockets' directory" "vrdma:vrdma 711" "$(stat -c '%U:%G %a' /run/vrdma)"

# The example, as the service's user. The root has no documentation.
cp stage/backend.toml /etc/vrdma/
useradd --system --user-group --groups kvm a-vmm
useradd --system --user-group stranger
as_vrdma="setpriv --reuid=vrdma --regid=vrdma --init-groups"
$as_vrdma vrdma-backend --config /etc/vrdma/backend.toml --check
$as_vrdma vrdma-backend --config /etc/vrdma/backend.toml >/tmp/daemon.log 2>&1 &
daemon=$!
left=600
until [ -S /run/vrdma/b-net.sock ]; do
    left=$((left - 1))
    if [ $left -eq 0 ] || ! kill -0 $daemon; then
        echo "the daemon made no socket:" >&2
        cat /tmp/daemon.log >&2
        exit 1
    fi
    sleep 0.1
done
for socket in a a-net b b-net; do
    expect "the socket $socket" "vrdma:kvm 660" "$(stat -c '%U:%G %a' /run/vrdma/$socket.sock)"
    expect "a member of kvm, and $socket" "connected" "$(connect a-vmm /run/vrdma/$socket.sock)"
    expect "another user, and $socket" "Permission denied" "$(connect stranger /run/vrdma/$socket.sock)"
done
# Root and the group vrdma see the daemon by the packaged programs, and others do not.
vrdma-ctl list
usermod --append --groups vrdma a-vmm
expect "a member of vrdma" "2" "$(setpriv --reuid=a-vmm --regid=a-vmm --init-groups \
    vrdma-ctl list | grep -c '^[ab] ')"
if setpriv --reuid=stranger --regid=stranger --init-groups vrdma-ctl list; then
    echo "a stranger sees the daemon" >&2
    exit 1
fi
setpriv --reuid=nobody --regid=nogroup --groups=vrdma vrdma-exporter &
exporter=$!
left=600
until vrdma_metrics=$(perl -MIO::Socket::INET -e '
    my $s = IO::Socket::INET->new("127.0.0.1:9471") or exit 1;
    print $s "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"; print <$s>'); do
    left=$((left - 1))
    if [ $left -eq 0 ] || ! kill -0 $exporter; then
        echo "the exporter does not answer" >&2
        exit 1
    fi
    sleep 0.1
done
echo "$vrdma_metrics" | grep '^vrdma_up 1'
kill $exporter
wait $exporter
kill $daemon
ended=0
wait $daemon || ended=$?
cat /tmp/daemon.log
expect "the daemon's exit status" 0 $ended
userdel a-vmm
userdel stranger
rm /etc/vrdma/backend.toml

[ -z "$LIBRARY" ] || ldd "$LIBRARY"

# shellcheck disable=SC2086 # It is empty where there is no provider.
dpkg --purge vrdma-backend vrdma-ctl vrdma-exporter vrdma-dkms $PROVIDER
if modinfo -k "$KERNEL" vrdma; then
    echo "the module is still there" >&2
    exit 1
fi
files >/tmp/after
# These are of no package: locks and backups of dpkg and of lists of users, the key of DKMS, indexes,
# and what systemctl makes where systemd does not run.
kept='/etc/\.pwd\.lock|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-'
kept="$kept|/var/lib/dkms/mok\.(key|pub)|/var/lib/dpkg/[^/]*|/var/(cache|log)/.*"
kept="$kept|/usr/lib/modules/[^/]*/modules\..*|/run/systemd(/systemd-units-load)?"
comm -3 /tmp/before /tmp/after | tr -d '\t' | grep -vxE "$kept" >/tmp/traces || true
expect "what the packages leave behind" "" "$(cat /tmp/traces)"
