# Fetches Linux's soft-iWARP from the source package of the kernel that the root has modules of; /mnt gets its sources, as they are.
# The package comes from Debian: what is unpacked of it is that directory alone.
headers=$(echo /usr/src/linux-headers-*-common)
version=$(dpkg-query --show --showformat '${Version}' "${headers#/usr/src/}")
mkdir /mnt/download
cd /mnt/download
apt-get update
apt-get download "linux-source-6.12=$version"
dpkg-deb --fsys-tarfile ./*.deb | tar x
tar xf usr/src/linux-source-6.12.tar.xz --strip-components=5 -C /mnt --wildcards '*/drivers/infiniband/sw/siw'
rm -rf /mnt/download /var/lib/apt/lists
