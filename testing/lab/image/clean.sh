# Makes a root of the lab one that is as Debian's installer leaves it, so far as that matters to
# who installs packages. $1 is where apt finds its proxy.
rm -f /etc/resolv.conf /etc/dpkg/dpkg.cfg.d/99mmdebstrap
sed -i '/^deb-src/d' /etc/apt/sources.list
sed -i '/Install-Recommends/d; /Sandbox/d; /Proxy/d' /etc/apt/apt.conf.d/99mmdebstrap
# It answers its questions.
cat >>/etc/apt/apt.conf.d/99mmdebstrap <<END
APT::Get::Assume-Yes "true";
Acquire::http::Proxy "http://$1";
END
echo DEBIAN_FRONTEND=noninteractive >>/etc/environment
printf '127.0.0.1 localhost\n' >/etc/hosts
: >/etc/machine-id
rm -rf /var/lib/apt/lists /var/cache/apt/*.bin
