//! The VM image: kernel, initramfs and a read-only root.
//!
//! It is made from the guest root, and rebuilt only if its inputs changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{Flock, FlockArg};

use crate::cpio::Archive;
use crate::hash::{Inputs, Stamp};
use crate::proc::LONG;
use crate::{needs, paths, proc, roots, ui};

/// What an image is made of.
struct Recipe {
    /// The name of its directory.
    name: &'static str,
    /// The root that its files come from.
    root: PathBuf,
    /// The root that kernel and modules come from.
    kernel: PathBuf,
    /// Patterns of the root's files that do not go into the image.
    strip: &'static str,
    /// Names of kernel modules that go into the image, with their dependencies.
    modules: &'static str,
}

fn guest_recipe() -> Recipe {
    let (strip, modules) = (include_str!("../image/guest.strip"), include_str!("../image/guest.modules"));
    Recipe { name: "image", root: paths::guest_root(), kernel: paths::guest_root(), strip, modules }
}

/// Returns the guest's image with a kernel of another root.
fn other_kernel_recipe(name: &'static str, kernel: PathBuf) -> Recipe {
    Recipe { name, kernel, modules: include_str!("../image/other-kernel.modules"), ..guest_recipe() }
}

fn host_recipe() -> Recipe {
    let (strip, modules) = (include_str!("../image/host.strip"), include_str!("../image/host.modules"));
    Recipe { name: "host-image", root: paths::host_root(), kernel: paths::host_root(), strip, modules }
}

/// The first program of a VM.
pub const INITRAMFS_INIT: &str = include_str!("../image/initramfs-init");
const VM_INIT: &str = include_str!("../image/vm-init");

/// Modules that the initramfs loads, in this order. Their dependencies are loaded before them.
const EARLY: [&str; 5] = ["virtio_pci", "crc32c_generic", "virtio_blk", "ext4", "overlay"];

/// Disk space, in MiB, that the roots and the image need.
const SPACE: u64 = 6 * 1024;

/// Paths of a built image's parts.
pub struct Image {
    /// The kernel: an ELF file if it could be unpacked, else a bzImage.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
    /// The root file system, an ext4 file.
    pub root: PathBuf,
}

impl Image {
    fn at(directory: &Path) -> Self {
        let part = |name| directory.join(name);
        Self { kernel: part("vmlinux"), initramfs: part("initramfs"), root: part("root.ext4") }
    }
}

/// A lock held while roots, image or artefacts are built, so that two xtasks do not build the same.
pub struct BuildLock(#[expect(dead_code, reason = "unlocks on drop")] Flock<File>);

/// Waits for the build lock.
pub fn lock() -> Result<BuildLock> {
    paths::make_dir(&paths::vm())?;
    let file = File::create(paths::vm().join("lock"))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(BuildLock(lock)),
        Err((file, _)) => ui::step("waiting for another xtask that builds", || {
            Ok(BuildLock(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?))
        }),
    }
}

/// Makes sure that the roots and the image exist.
pub fn ensure() -> Result<Image> {
    ensure!(nix::unistd::geteuid().is_root(), "roots and images are made as root: run this with sudo");
    let _lock = lock()?;
    if !paths::guest_root().exists() {
        check_space()?;
    }
    needs::ensure()?;
    roots::qemu()?;
    roots::guest()?;
    build(&guest_recipe())
}

/// Makes sure that the image of a VM exists that acts as a host with a NIC.
pub fn ensure_host() -> Result<Image> {
    let _lock = lock()?;
    needs::ensure()?;
    roots::host()?;
    build(&host_recipe())
}

/// Makes sure that the image exists that has the guest root's files and the kernel of another root.
pub fn ensure_other_kernel(name: &'static str, kernel: PathBuf) -> Result<Image> {
    build(&other_kernel_recipe(name, kernel))
}

fn check_space() -> Result<()> {
    let free = paths::free_space(&paths::vm())?;
    ensure!(free >= SPACE, "{} has {free} MiB free, {SPACE} are wanted", paths::vm().display());
    Ok(())
}

fn build(recipe: &Recipe) -> Result<Image> {
    let Recipe { name, root, kernel, strip, modules } = recipe;
    let directory = paths::vm().join(name);
    let root_stamp = fs::read_to_string(roots::with_ending(root, ".stamp"))?;
    let mut hash = Inputs::new("image 3").text(&root_stamp).text(strip).text(modules);
    if kernel != root {
        hash = hash.text(&fs::read_to_string(roots::with_ending(kernel, ".stamp"))?);
    }
    let hash = hash.text(INITRAMFS_INIT).text(VM_INIT).finish();
    let stamp = Stamp::new(&directory, hash);
    if stamp.is_current() {
        return Ok(Image::at(&directory));
    }
    ui::step(&format!("building the VMs' {name}"), || {
        let work = roots::with_ending(&directory, ".new");
        paths::remove(&work)?;
        let tree = work.join("tree");
        paths::make_dir(&tree)?;
        let version = roots::kernel_version_in(kernel)?;
        let image = Image::at(&work);

        unpack_kernel(&kernel.join("boot").join(format!("vmlinuz-{version}")), &image.kernel)?;
        let strip: Vec<&str> = roots::lines(strip).collect();
        link_tree(root, &tree, "", &strip)?;
        install_modules(recipe, &tree, &version)?;
        furnish(&tree)?;
        build_initramfs(&tree, &version, &image.initramfs)?;
        build_file_system(&tree, &image.root)?;
        paths::remove(&tree)?;

        stamp.clear()?;
        paths::remove(&directory)?;
        fs::rename(&work, &directory)?;
        stamp.set()
    })?;
    Ok(Image::at(&directory))
}

/// Extracts the ELF kernel from a bzImage.
///
/// QEMU starts an ELF kernel directly (PVH). The guest then does not have to decompress it, which
/// is slow in an emulated CPU. A bzImage with an unknown packing is used as it is.
fn unpack_kernel(from: &Path, to: &Path) -> Result<()> {
    let image = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    let word =
        |at: usize| image.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    // Offsets in the setup header of the x86 boot protocol: number of setup sectors, payload offset
    // and payload length.
    let header = (image.get(0x1f1).copied().map(usize::from), word(0x248), word(0x24c));
    let payload = match header {
        (Some(sectors), Some(offset), Some(length)) => {
            let start = (sectors.max(4) + 1) * 512 + offset;
            // The last word of the payload is its unpacked size.
            image.get(start..(start + length).saturating_sub(4))
        }
        _ => None,
    };
    let unpacker: Option<&[&str]> = match payload {
        Some([0x28, 0xb5, 0x2f, 0xfd, ..]) => Some(&["zstd", "-dc"]),
        Some([0xfd, b'7', b'z', b'X', b'Z', ..]) => Some(&["xz", "-dc", "--single-stream"]),
        _ => None,
    };
    if let (Some([program, arguments @ ..]), Some(payload)) = (unpacker, payload) {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(File::create(to)?).stderr(Stdio::null());
        let child = command.spawn();
        let mut child =
            child.map_err(|error| proc::cannot_start(program.as_ref(), "unpacking the kernel", error))?;
        // The unpacker's error about data after the stream does not matter. The result is checked
        // below.
        let _ = child.stdin.take().context("no pipe")?.write_all(payload);
        child.wait()?;
        let mut magic = [0; 4];
        if File::open(to)?.read_exact(&mut magic).is_ok() && magic == *b"\x7fELF" {
            return Ok(());
        }
    }
    ui::say("note: the kernel is packed in a way that xtask does not know; VMs will start more slowly");
    fs::write(to, image)?;
    Ok(())
}

/// Copies a tree by hard links, without paths that match the patterns.
pub fn link_tree(from: &Path, to: &Path, place: &str, strip: &[&str]) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let place = if place.is_empty() { name.clone() } else { format!("{place}/{name}") };
        if strip.iter().any(|pattern| matches(pattern, &place)) {
            continue;
        }
        let (source, target) = (entry.path(), to.join(&name));
        let meta = fs::symlink_metadata(&source)?;
        if meta.is_dir() {
            fs::create_dir(&target)?;
            if !["proc", "sys", "dev", "run", "tmp"].contains(&place.as_str()) {
                link_tree(&source, &target, &place, strip)?;
            }
            fs::set_permissions(&target, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        } else if meta.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if meta.is_file() {
            fs::hard_link(&source, &target)?;
        }
    }
    Ok(())
}

/// Whether a path matches a pattern. A `*` matches any text without `/`.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, end)) => {
            path.len() >= start.len() + end.len()
                && path.starts_with(start)
                && path.ends_with(end)
                && !path[start.len()..].contains('/')
        }
    }
}

/// Copies the listed modules and their dependencies into the tree, uncompressed.
fn install_modules(recipe: &Recipe, tree: &Path, version: &str) -> Result<()> {
    let from = recipe.kernel.join("usr/lib/modules").join(version);
    let to = tree.join("usr/lib/modules").join(version);
    paths::make_dir(&to)?;
    let dependencies = Dependencies::read(&from)?;
    let built_in = paths::read(&from.join("modules.builtin"))?;
    let mut chosen = BTreeSet::new();
    for module in roots::lines(recipe.modules) {
        match dependencies.with_needs(module) {
            Some(files) => chosen.extend(files),
            None if built_in.lines().any(|file| is_of_module(file, module)) => {}
            None => ui::say(&format!("note: this kernel has no module {module}")),
        }
    }
    for file in &chosen {
        let target = to.join(file.trim_end_matches(".xz"));
        paths::make_dir(target.parent().context("a module lies in a directory")?)?;
        fs::write(&target, read_module(&from.join(file))?)?;
    }
    for list in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        fs::copy(from.join(list), to.join(list))?;
    }
    let script = format!("depmod -b /mnt {version}");
    let command = proc::in_root(&recipe.root, &[(tree, "/mnt")], &script);
    proc::run_logged("depmod", command, &paths::log("image-depmod")?, LONG)
}

fn read_module(path: &Path) -> Result<Vec<u8>> {
    let mut module = if path.extension().is_some_and(|ending| ending == "xz") {
        let output = Command::new("xz").arg("-dc").arg(path).output();
        let output =
            output.map_err(|error| proc::cannot_start("xz".as_ref(), "unpacking a module", error))?;
        ensure!(output.status.success(), "cannot unpack {}", path.display());
        output.stdout
    } else {
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    module.truncate(module.len() - signature_length(&module));
    Ok(module)
}

/// Returns the length of a module's signature, in bytes.
///
/// In an emulated CPU, checking the signature takes longer than the rest of loading the module.
fn signature_length(module: &[u8]) -> usize {
    const MARK: &[u8] = b"~Module signature appended~\n";
    // Before the mark there are 12 bytes. The last four of them are the signature's length,
    // big-endian.
    let Some(signed) = module.strip_suffix(MARK) else { return 0 };
    let length = signed.last_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_be_bytes(*bytes) as usize);
    let all = MARK.len() + 12 + length;
    if all <= module.len() { all } else { 0 }
}

/// Whether this is the file of a module. Its name may have `-` where the module's has `_`.
fn is_of_module(file: &str, module: &str) -> bool {
    let stem = file.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
    stem.replace('-', "_") == module.replace('-', "_")
}

/// The content of `modules.dep`: each module's file, and the files that it needs.
struct Dependencies(Vec<(String, Vec<String>)>);

impl Dependencies {
    fn read(directory: &Path) -> Result<Self> {
        let text = paths::read(&directory.join("modules.dep"))?;
        let line = |line: &str| {
            let (file, needs) = line.split_once(':')?;
            Some((file.to_owned(), needs.split_whitespace().map(str::to_owned).collect()))
        };
        Ok(Self(text.lines().filter_map(line).collect()))
    }

    /// Returns the files to load for a module, in order.
    fn with_needs(&self, module: &str) -> Option<Vec<String>> {
        let (file, needs) = self.0.iter().find(|(file, _)| is_of_module(file, module))?;
        // `modules.dep` lists the direct dependencies first.
        Some(needs.iter().rev().chain([file]).cloned().collect())
    }
}

/// Adds to the tree what a bootable system needs besides the root's files.
fn furnish(tree: &Path) -> Result<()> {
    for directory in ["proc", "sys", "dev", "run", "tmp", "root", "share", "mnt", "var/log", "var/tmp"] {
        paths::make_dir(&tree.join(directory))?;
    }
    let init = tree.join("usr/sbin/vm-init");
    paths::write(&init, VM_INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    // Files of the tree are hard links into the guest root. Never write into one: replace it.
    for (name, content) in [
        ("etc/hostname", "vm\n"),
        ("etc/hosts", "127.0.0.1 localhost\n10.77.0.1 a\n10.77.0.2 b\n::1 localhost\n"),
        ("etc/resolv.conf", ""),
    ] {
        paths::remove(&tree.join(name))?;
        paths::write(&tree.join(name), content)?;
    }
    Ok(())
}

fn build_initramfs(tree: &Path, version: &str, to: &Path) -> Result<()> {
    let modules = tree.join("usr/lib/modules").join(version);
    let dependencies = Dependencies::read(&modules)?;
    let mut order: Vec<String> = Vec::new();
    for module in EARLY {
        for file in dependencies.with_needs(module).into_iter().flatten() {
            if !order.contains(&file) {
                order.push(file);
            }
        }
    }
    let order: Vec<PathBuf> = order.iter().map(|file| modules.join(file)).collect();
    write_initramfs(&fs::read(tree.join("usr/bin/busybox"))?, &order, to)
}

/// Writes an initramfs that loads these modules.
pub fn write_initramfs(busybox: &[u8], modules: &[PathBuf], to: &Path) -> Result<()> {
    let mut archive = Archive::new(File::create(to)?);
    for directory in ["bin", "dev", "proc", "lower", "upper", "new", "modules"] {
        archive.directory(directory)?;
    }
    archive.device("dev/console", 5, 1)?;
    archive.file("init", 0o755, INITRAMFS_INIT.as_bytes())?;
    archive.file("bin/busybox", 0o755, busybox)?;
    let mut names = String::new();
    for file in modules {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        names.push_str(&name);
        names.push('\n');
        archive.file(&format!("modules/{name}"), 0o644, &fs::read(file)?)?;
    }
    archive.file("modules/order", 0o644, names.as_bytes())?;
    archive.finish()?;
    Ok(())
}

fn build_file_system(tree: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("du");
    command.args(["-sm", "--apparent-size"]).arg(tree);
    let used = proc::output(command)?;
    let used: u64 = used.split_whitespace().next().unwrap_or_default().parse()?;
    let mut file = File::create(to)?;
    let size = (used * 5 / 4 + 64) * 1024 * 1024;
    file.seek(SeekFrom::Start(size - 1))?;
    file.write_all(&[0])?;
    drop(file);
    let mut command = Command::new("/usr/sbin/mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal,^metadata_csum,^resize_inode"]);
    command.args(["-E", "root_owner=0:0", "-d"]).arg(tree).arg(to);
    proc::run_logged("mke2fs", command, &paths::log("image-mke2fs")?, LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_in_their_directory() {
        assert!(matches("usr/lib/linux-kbuild-*", "usr/lib/linux-kbuild-6.12"));
        assert!(matches("usr/lib/x/*.a", "usr/lib/x/libc.a"));
        assert!(!matches("usr/lib/x/*.a", "usr/lib/x/libc.so"));
        assert!(!matches("usr/share/cmake*", "usr/share/cmake/a"));
        assert!(!matches("boot", "boot2"));
    }

    #[test]
    fn signatures_are_found() {
        let mut module = b"ELF..signature".to_vec();
        module.extend_from_slice(&[0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        module.extend_from_slice(b"~Module signature appended~\n");
        assert_eq!(module.len() - signature_length(&module), 5);
        assert_eq!(signature_length(b"ELF"), 0);
    }

    #[test]
    fn needs_come_first() {
        let list = Dependencies(vec![(
            "kernel/a-b.ko.xz".into(),
            vec!["kernel/near.ko".into(), "kernel/far.ko".into()],
        )]);
        let files = list.with_needs("a_b").unwrap();
        assert_eq!(files, ["kernel/far.ko", "kernel/near.ko", "kernel/a-b.ko.xz"]);
        assert_eq!(list.with_needs("c"), None);
    }
}
