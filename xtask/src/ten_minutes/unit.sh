# Runs on a clean host in the directory with the packages: what systemd, its journal and the packaged
# units make of the daemon. It removes the packages at the end.

expect() {
    [ "$2" = "$3" ] || { echo "$1: expected \"$2\", not \"$3\"" >&2; exit 1; }
    echo "ok: $1"
}

# Waits until a command prints something. A minute is enough on a busy machine.
wait_until() {
    what=$1 wanted=$2
    shift 2
    left=600
    until found=$("$@") && [ "$found" = "$wanted" ]; do
        left=$((left - 1))
        [ $left -gt 0 ] || { echo "$what: waited for \"$wanted\", not \"$found\"" >&2; exit 1; }
        sleep 0.1
    done
    echo "ok: $what"
}

show() {
    systemctl show --property="$1" --value vrdma-backend
}

# Prints `heard` if systemd got this message from the daemon that runs.
heard() {
    journalctl --unit=vrdma-backend --output=cat --no-pager |
        grep -q "Got notification message from PID $(show MainPID) .*$1" && echo heard
}

# Plays the front-end of a guest, as a member of kvm: it connects, asks for the features, and stays.
front_end() {
    setpriv --reuid=a-vmm --regid=kvm --clear-groups perl -MIO::Socket::UNIX -e '
        my $socket = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$ARGV[0]: $!";
        $socket->syswrite(pack("L3", 1, 1, 0));
        my $read = $socket->sysread(my $reply, 20);
        $read == 20 or die "GET_FEATURES has $read bytes";
        sleep' "$1" &
    front_end=$!
}

leave() {
    kill $front_end
    wait $front_end || true
}

apt-get update
apt-get --no-install-recommends install ./vrdma-backend_*.deb ./vrdma-ctl_*.deb

expect "sysusers makes the user" "/run/vrdma /usr/sbin/nologin" \
    "$(getent passwd vrdma | cut -d : -f 6,7 | tr : ' ')"
expect "its groups" "vrdma kvm" "$(id -nG vrdma)"
expect "tmpfiles makes the directory" "vrdma:vrdma 711" "$(stat -c '%U:%G %a' /run/vrdma)"
expect "the package starts nothing" "inactive disabled" \
    "$(systemctl is-active vrdma-backend || true) $(systemctl is-enabled vrdma-backend || true)"

systemctl log-level debug
adduser --system --ingroup kvm a-vmm
cp /usr/share/doc/vrdma-backend/examples/backend.toml /etc/vrdma/
systemctl enable --now vrdma-backend
expect "the service" "notify active running" "$(show Type) $(show ActiveState) $(show SubState)"
wait_until "READY=1" heard heard READY=1
expect "its watchdog" "1min" "$(show WatchdogUSec)"
expect "its status" "0 of 4 front-ends connected, no uplink" "$(show StatusText)"
expect "its user" "vrdma" "$(stat -c %U "/proc/$(show MainPID)")"
expect "its sockets" "vrdma:kvm 660" "$(stat -c '%U:%G %a' /run/vrdma/a.sock)"
expect "vrdma-ctl" 2 "$(vrdma-ctl list | grep -c '^[ab] ')"

front_end /run/vrdma/a.sock
wait_until "a front-end in the status" "1 of 4 front-ends connected, no uplink" show StatusText
systemctl status --no-pager vrdma-backend | grep 'Status: "1 of 4'
entries() {
    journalctl --unit=vrdma-backend --no-pager --output=json GUEST="$1"
}
lines() {
    entries "$1" | grep -c .
}
wait_until "a message about the guest" 1 lines a
entries a
entries a | perl -e '
    my $line = <STDIN>;
    for my $field (qq("GUEST":"a"), qq("PRIORITY":"6"), qq("_PID":"$ARGV[0]"), qq("CODE_MODULE":"vrdma_backend),
                   qq("CODE_FILE":"), qq("CODE_LINE":"), qq("_SYSTEMD_UNIT":"vrdma-backend.service")) {
        index($line, $field) >= 0 or die "the journal has no $field\n";
    }' "$(show MainPID)"
expect "none about the other guest" 0 "$(lines b || true)"
leave
wait_until "the front-end's end in the status" "0 of 4 front-ends connected, no uplink" show StatusText

pid=$(show MainPID)
systemctl reload vrdma-backend
wait_until "RELOADING=1" heard heard RELOADING=1
expect "a reload" "active success $pid" "$(show ActiveState) $(show ReloadResult) $(show MainPID)"

# A daemon that stands still is ended and started again, and one that works is not.
mkdir -p /etc/systemd/system/vrdma-backend.service.d
printf '[Service]\nWatchdogSec=3\n' >/etc/systemd/system/vrdma-backend.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart vrdma-backend
signs() {
    count=$(journalctl --unit=vrdma-backend --output=cat --no-pager |
        grep -c "Got notification message from PID $(show MainPID) .*WATCHDOG=1")
    [ "$count" -lt 8 ] || echo many
}
wait_until "WATCHDOG=1, again and again" many signs
expect "no restart while there are signs of life" 0 "$(show NRestarts)"
pid=$(show MainPID)
kill -STOP "$pid"
wait_until "a restart without signs of life" 1 show NRestarts
wait_until "the service after it" active show ActiveState
[ "$(show MainPID)" != "$pid" ]
journalctl --unit=vrdma-backend --output=cat --no-pager | grep 'Watchdog timeout'
rm -r /etc/systemd/system/vrdma-backend.service.d
systemctl daemon-reload

# Sockets that systemd makes: a front-end that comes first starts the daemon.
systemctl stop vrdma-backend
cp '/usr/share/doc/vrdma-backend/examples/vrdma-socket@.socket' /etc/systemd/system/
cat >/etc/vrdma/backend.toml <<END
[[guest]]
name = "a"
fd = "a-rdma"
net_fd = "a-net"
mac = "52:54:00:77:00:01"
END
systemctl daemon-reload
systemctl enable --now vrdma-socket@a-rdma.socket vrdma-socket@a-net.socket
expect "systemd's sockets" "root:kvm 660" "$(stat -c '%U:%G %a' /run/vrdma-sockets/a-rdma.sock)"
expect "no daemon before a front-end" inactive "$(show ActiveState)"
front_end /run/vrdma-sockets/a-rdma.sock
wait_until "a daemon for the front-end" "1 of 2 front-ends connected, no uplink" show StatusText
tr '\0' '\n' <"/proc/$(show MainPID)/environ" | grep -x LISTEN_FDS=2
leave
systemctl disable --now vrdma-socket@a-rdma.socket vrdma-socket@a-net.socket

# The exporter is started by its package, and needs no right but the group.
apt-get --no-install-recommends install ./vrdma-exporter_*.deb
metrics() {
    perl -MIO::Socket::INET -e '
        my $socket = IO::Socket::INET->new("127.0.0.1:9471") or exit;
        print $socket "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"; print <$socket>' |
        grep -x 'vrdma_up 1' || true
}
wait_until "the exporter" "vrdma_up 1" metrics

pid=$(show MainPID)
systemctl stop vrdma-backend
expect "a stop" "inactive success" "$(show ActiveState) $(show Result)"
journalctl --unit=vrdma-backend --output=cat --no-pager | grep "Got notification message from PID $pid .*STOPPING=1"
systemctl log-level info

apt-get --autoremove purge vrdma-backend vrdma-ctl vrdma-exporter
rm -r /etc/vrdma '/etc/systemd/system/vrdma-socket@.socket'
# systemd leaves the directory of sockets, but no socket in it (docs/packages.md, "Removal").
rmdir /run/vrdma-sockets
deluser --system a-vmm
deluser --system vrdma
