//! `save-config`: the daemon's configuration as a file.

use crate::connection::Connection;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use vrdma_admin::daemon::SaveConfig;

/// Writes the configuration to a file, or to standard output.
///
/// # Errors
/// The daemon does not answer, or the file cannot be written. It then has what it had before.
pub fn save(connection: &Connection, file: Option<&Path>) -> Result<()> {
    let text = connection.to_observe()?.call(&SaveConfig {})?.toml;
    match file {
        Some(file) => replace(file, &text).with_context(|| file.display().to_string()),
        None => Ok(std::io::stdout().write_all(text.as_bytes())?),
    }
}

/// Replaces a file as a whole, whatever happens meanwhile.
fn replace(file: &Path, text: &str) -> Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = Path::new(&new);
    // A file, or a link of somebody else, is left as it is.
    let mut written = File::create_new(new).with_context(|| new.display().to_string())?;
    let mut write = || -> Result<()> {
        // Who may read the old file may read the new one.
        if let Ok(old) = fs::metadata(file) {
            written.set_permissions(old.permissions())?;
        }
        written.write_all(text.as_bytes())?;
        written.sync_all()?;
        Ok(fs::rename(new, file)?)
    };
    write().inspect_err(|_| _ = fs::remove_file(new))
}
