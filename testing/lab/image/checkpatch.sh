# Keeps checkpatch of the newest kernel in a root: its package of sources has it, of which nothing else is needed.
cd /usr/src
version=$(ls /usr/lib/modules | sort -V | tail -n 1 | cut -d . -f 1,2)
version=${version%%[!0-9.]*}
apt-get download linux-source-$version
mkdir -p checkpatch
dpkg-deb --fsys-tarfile linux-source-${version}_*.deb | tar xO --wildcards './usr/src/linux-source-*.tar.xz' |
    tar xJ -C checkpatch --strip-components=2 --wildcards '*/scripts/checkpatch.pl' '*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch'
rm linux-source-*.deb
test -e checkpatch/checkpatch.pl
