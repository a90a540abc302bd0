# Fetches the sources of Linux's soft-iWARP, unchanged, into /mnt. They come from Debian's source
# package of the root's kernel. Only siw's directory is unpacked.
headers=$(echo /usr/src/linux-headers-*-common)
version=$(dpkg-query --show --showformat '${Version}' "${headers#/usr/src/}")
mkdir /mnt/download
cd /mnt/download
apt-get update
apt-get download "linux-source-6.12=$version"
dpkg-deb --fsys-tarfile ./*.deb | tar x
tar xf usr/src/linux-source-6.12.tar.xz --strip-components=5 -C /mnt --wildcards '*/drivers/infiniband/sw/siw'
rm -rf /mnt/download /var/lib/apt/lists
