# Builds the kernel that finds faults, in its root; /mnt has its configuration, and gets what was built. What an interrupted build has
# done is not done again.
cd /usr/src
if [ ! -e unpacked ]; then
    rm -rf linux
    mkdir linux
    # A quarter of all sources are headers of one family of GPUs.
    tar xf linux-source-6.12.tar.xz -C linux --strip-components=1 --exclude='*/drivers/gpu/drm/amd/include'
    touch unpacked
fi
cd linux
export KBUILD_BUILD_TIMESTAMP='Thu Jan 1 00:00:00 UTC 1970' KBUILD_BUILD_USER=vrdma KBUILD_BUILD_HOST=vrdma
make ARCH=x86 KCONFIG_ALLCONFIG=/mnt/kernel-debug.config allnoconfig
# Kconfig takes no line whose conditions are not met, and says nothing.
grep '^CONFIG_' /mnt/kernel-debug.config | grep -vxFf .config >/usr/src/refused && {
    echo 'error: the configuration has lines that this kernel does not take:'
    cat /usr/src/refused
    exit 1
}
make ARCH=x86 -j"$(nproc)" vmlinux modules
strip -o /mnt/vmlinux vmlinux
