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
# mmap() and fork() take a lock of uverbs with that of the memory held; who takes the device away takes them the other way round, but lets no mmap() or fork() get so
# far by then (disassociate_srcu, hw_destroy_rwsem). lockdep cannot know that, reports it for each driver that maps doorbells, and sees nothing after that: it gets a class for each way round.
uverbs=drivers/infiniband/core/uverbs_main.c
grep -q 'disassociation_lock, SINGLE' $uverbs ||
    sed -i '/^static int ib_uverbs_mmap/,/^}/b nest; /^static void rdma_umap_open/,/^}/b nest; b
        :nest s/mutex_lock(\(&u\?file->disassociation_lock\))/mutex_lock_nested(\1, SINGLE_DEPTH_NESTING)/' $uverbs
test "$(grep -c 'disassociation_lock, SINGLE' $uverbs)" = 2
# A GET_CONTEXT by ioctl() that fails frees the context, but not the reference to its task that rdma_restrack_set_name() took (that by write() gives it back): the task is lost, and kmemleak names it.
context=drivers/infiniband/core/uverbs_std_types_device.c
grep -q 'rdma_restrack_put' $context ||
    sed -i '/UVERBS_HANDLER(UVERBS_METHOD_GET_CONTEXT)/,/^}/s/^\t\tkfree(attrs->context);$/\t\trdma_restrack_put(\&attrs->context->res);\n&/' $context
test "$(grep -c 'rdma_restrack_put' $context)" = 1
export KBUILD_BUILD_TIMESTAMP='Thu Jan 1 00:00:00 UTC 1970' KBUILD_BUILD_USER=vrdma KBUILD_BUILD_HOST=vrdma
make ARCH=x86 KCONFIG_ALLCONFIG=/mnt/kernel-debug.config allnoconfig
# Kconfig takes no line whose conditions are not met, and says nothing.
grep '^CONFIG_' /mnt/kernel-debug.config | grep -vxFf .config >/usr/src/refused && {
    echo 'error: the configuration has lines that this kernel does not take:'
    cat /usr/src/refused
    exit 1
}
# A make that was killed leaves its pipe, and the next one, of the same process id in here, does not start.
rm -f /tmp/GMfifo*
# QEMU starts an ELF kernel by PVH, and what runs first there calls memcmp() of lib/string.c, before KASAN has its shadow: so that file is not watched.
make ARCH=x86 -j"$(nproc)" KASAN_SANITIZE_string.o=n vmlinux modules
strip -o /mnt/vmlinux vmlinux
# With these modprobe knows what is built in.
release=$(make -s ARCH=x86 kernelrelease)
modules=/mnt/modules/lib/modules/$release
mkdir -p "$modules"
cp modules.builtin modules.builtin.modinfo modules.order "$modules"
depmod -b /mnt/modules "$release"
