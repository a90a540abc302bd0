//! The configuration file, and the location of a mistake in it.

use super::plain::plain;
use anyhow::{Context, Result, anyhow, ensure};
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// A configuration file that was read.
#[derive(Debug)]
pub struct File {
    /// Path of the file, for messages.
    name: String,
    text: String,
}

impl File {
    /// Reads the file at a path.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<File> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
        Ok(File { name, text })
    }

    /// Checks that there is any text in it.
    ///
    /// # Errors
    /// There is none.
    pub fn ensure_text(&self) -> Result<()> {
        ensure!(
            !self.text.trim().is_empty(),
            "{}: the file is empty: if it is to have no guest, write a line that begins with #",
            self.name
        );
        Ok(())
    }

    /// Returns a file with this text.
    #[cfg(test)]
    pub fn of(text: &str) -> File {
        File { name: "file".into(), text: text.into() }
    }

    /// Parses the file.
    ///
    /// # Errors
    /// It is not TOML, or has keys or values that do not exist. The error is one line that names
    /// the line of the file.
    pub fn keys<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(&self.text).map_err(|error| {
            let message = plain(error.message());
            match error.span() {
                Some(span) => self.at(&span, &message),
                None => anyhow!("{}: {message}", self.name),
            }
        })
    }

    /// Adds the file's line to an error of a check. The error's message begins with the key.
    ///
    /// The error stays as it is if the file does not have the key. Then the value is a default, or
    /// comes from `flags`.
    pub fn locate(&self, error: anyhow::Error, flags: &toml::Table) -> anyhow::Error {
        let message = format!("{error:#}");
        let place = DeTable::parse(&self.text).ok().and_then(|file| place(file.get_ref(), &message, flags));
        place.map_or(error, |span| self.at(&span, &message))
    }

    fn at(&self, span: &Range<usize>, message: &str) -> anyhow::Error {
        let number = self.text[..span.start].matches('\n').count();
        let line = self.text.lines().nth(number).unwrap_or_default().trim();
        anyhow!("{}: line {}, '{line}': {message}", self.name, number + 1)
    }
}

/// Returns where the file has the key with which a message begins.
fn place(file: &DeTable<'_>, message: &str, flags: &toml::Table) -> Option<Range<usize>> {
    let Some(of_guest) = message.strip_prefix("guest ") else {
        return words(message).find_map(|word| {
            let top = word.split('.').next().unwrap_or_default();
            if flags.contains_key(top) { None } else { key(file, word) }
        });
    };
    let guests = file.iter().find(|(key, _)| key.get_ref() == "guest")?.1.get_ref().as_array()?;
    guests.iter().filter_map(|guest| guest.get_ref().as_table()).find_map(|guest| {
        let (at, name) = guest.iter().find(|(key, _)| key.get_ref() == "name")?;
        let name = name.get_ref().as_str()?;
        let about = of_guest.strip_prefix(name)?.strip_prefix(": ")?;
        // An error about no particular key is about the guest as a whole.
        Some(words(about).find_map(|word| key(guest, word)).unwrap_or(at.span()))
    })
}

/// Returns the words of a message before its first colon. Keys are among the first of them.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let head = message.split(':').next().unwrap_or_default();
    head.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
}

/// Returns where a table has a key.
///
/// The key may be one of an inner table (`limits.qps`). The file may have it in the singular
/// (`gid`).
fn key(table: &DeTable<'_>, path: &str) -> Option<Range<usize>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let singular = first.strip_suffix("es").filter(|_| first.ends_with("sses")).or(first.strip_suffix('s'));
    let is_it = |key: &str| key == first || singular.is_some_and(|singular| key == singular);
    let (found, value) = table.iter().find(|(key, _)| is_it(key.get_ref()))?;
    match (rest, value.get_ref()) {
        (Some(rest), DeValue::Table(inner)) => key(inner, rest),
        (Some(_), _) => None,
        (None, _) => Some(found.span()),
    }
}
