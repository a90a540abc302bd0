//! `bare.lock`: the hash of the inputs of the quick half at its last success.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use vrdma_lab::hash::{Inputs, is_output};
use vrdma_lab::packages::packages;
use vrdma_lab::paths;

use super::readme::{commands, unprivileged};
use super::root::PACKAGES;

/// The file, in the workspace's root.
pub const NAME: &str = "bare.lock";

/// Files that install packages, and README with the commands that people type.
///
/// Lists of packages, build scripts and Cargo.lock files are inputs, too.
const FILES: [&str; 9] = [
    "README.md",
    "rust-toolchain.toml",
    "testing/lab/image/guest.packages",
    "testing/lab/src/apt.rs",
    "testing/lab/src/needs.rs",
    "testing/lab/src/needs/failure.rs",
    "testing/lab/src/needs/libclang.rs",
    "testing/lab/src/packages.rs",
    "testing/lab/src/roots.rs",
];

/// Whether the last success was with the current inputs.
pub fn is_current() -> Result<bool> {
    let text = fs::read_to_string(paths::workspace().join(NAME)).unwrap_or_default();
    let hash = hash()?;
    Ok(text.lines().any(|line| line == hash))
}

/// Records a success.
pub fn write(hash: &str) -> Result<()> {
    let text = format!(
        "# Written by `cargo xtask bare` after README's commands succeeded on a bare machine: the hash of what that depends on.\n\
         # `.ci/run` tries them again where it differs.\n{hash}\n"
    );
    paths::write(&paths::workspace().join(NAME), text)
}

/// Returns the hash of the inputs of the quick half.
pub fn hash() -> Result<String> {
    let workspace = paths::workspace();
    let mut inputs = Inputs::new("bare 1");
    for package in packages().chain(PACKAGES) {
        inputs = inputs.text(package);
    }
    let mut files: Vec<PathBuf> = FILES.iter().map(|name| workspace.join(name)).collect();
    find(workspace, &mut files)?;
    for file in files {
        let name = file.strip_prefix(workspace).unwrap_or(&file);
        inputs = inputs.text(&name.to_string_lossy());
        inputs = if name == Path::new("README.md") {
            let readme = paths::read(&file)?;
            inputs.text(&commands(&readme, true)?.join("\n")).text(&unprivileged(&readme)?)
        } else {
            inputs.path(&file)?
        };
    }
    Ok(inputs.finish())
}

/// Adds all build scripts and Cargo.lock files, in order.
///
/// Those of fuzzing are left out, because only the long suite builds them.
fn find(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    for path in entries.into_iter().filter(|path| !is_output(path) && !path.ends_with("fuzz")) {
        if path.is_dir() && !path.is_symlink() {
            find(&path, files)?;
        } else if path.ends_with("build.rs") || path.ends_with("Cargo.lock") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_scripts_and_locks_are_found() {
        let mut files = Vec::new();
        find(paths::workspace(), &mut files).unwrap();
        for name in [
            "Cargo.lock",
            "dpdk-sys/build.rs",
            "guest-driver/provider/Cargo.lock",
            "guest-driver/provider/build.rs",
        ] {
            assert!(files.contains(&paths::workspace().join(name)), "{name}");
        }
        assert!(FILES.iter().all(|name| paths::workspace().join(name).exists()));
    }

    #[test]
    fn the_hash_is_the_same_twice() {
        assert_eq!(hash().unwrap(), hash().unwrap());
    }
}
