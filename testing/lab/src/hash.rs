//! Content hashes, and stamps by which steps are skipped.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::paths;

/// The inputs of a step, collected in a hash.
#[derive(Default)]
pub struct Inputs(Sha256);

impl Inputs {
    /// Starts the hash with a word that changes when the step itself changes.
    pub fn new(recipe: &str) -> Self {
        Self::default().text(recipe)
    }

    /// Adds a piece of text.
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// Adds a file, or all files of a directory tree except build output.
    ///
    /// A file that does not exist is hashed as absent.
    pub fn path(mut self, path: &Path) -> Result<Self> {
        self.add(path)?;
        Ok(self)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let name = path.file_name().unwrap_or_default();
        self.0.update((name.len() as u64).to_le_bytes());
        self.0.update(name.as_bytes());
        let Ok(meta) = fs::symlink_metadata(path) else {
            self.0.update(b"absent");
            return Ok(());
        };
        if meta.is_dir() {
            let mut entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries.iter().filter(|entry| !is_output(&entry.path())) {
                self.add(&entry.path())?;
            }
        } else {
            let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            self.0.update((bytes.len() as u64).to_le_bytes());
            self.0.update(&bytes);
        }
        Ok(())
    }

    /// Returns the hash as hexadecimal text.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether the path is what builds leave behind in source directories.
pub fn is_output(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ends = [".ko", ".o", ".mod", ".mod.c", ".cmd", ".d"];
    name == "target"
        || name == ".git"
        || name == "Module.symvers"
        || name == "modules.order"
        || ends.iter().any(|end| name.ends_with(end))
}

/// A file next to a step's result that holds the hash of the step's inputs.
pub struct Stamp<'a> {
    result: &'a Path,
    hash: String,
}

impl<'a> Stamp<'a> {
    /// Returns the stamp of a `result` that is made from inputs with this hash.
    pub fn new(result: &'a Path, hash: String) -> Self {
        Self { result, hash }
    }

    fn file(&self) -> std::path::PathBuf {
        let mut name = self.result.as_os_str().to_owned();
        name.push(".stamp");
        name.into()
    }

    /// Whether the result exists and was made from these inputs.
    pub fn is_current(&self) -> bool {
        self.result.exists() && fs::read_to_string(self.file()).is_ok_and(|hash| hash == self.hash)
    }

    /// Marks the result as outdated, before work on it begins.
    pub fn clear(&self) -> Result<()> {
        paths::remove(&self.file())
    }

    /// Marks the result as made from these inputs.
    pub fn set(&self) -> Result<()> {
        paths::write(&self.file(), &self.hash)
    }
}
