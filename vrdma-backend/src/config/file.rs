//! The configuration file, and where in it a mistake is.

use super::plain::plain;
use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// A file that was read.
#[derive(Debug)]
pub struct File {
    /// Its path, for messages.
    name: String,
    text: String,
}

impl File {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<File> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
        Ok(File { name, text })
    }

    /// One with this text.
    #[cfg(test)]
    pub fn of(text: &str) -> File {
        File { name: "file".into(), text: text.into() }
    }

    /// What it says.
    ///
    /// # Errors
    /// It is no TOML, or has keys or values that do not exist: in one line, with the line of the
    /// file.
    pub fn keys<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(&self.text).map_err(|error| {
            let message = plain(error.message());
            match error.span() {
                Some(span) => self.at(&span, &message),
                None => anyhow!("{}: {message}", self.name),
            }
        })
    }

    /// An error of a check of what the file says, which begins with its key, with the line of that
    /// key; as it is, if the file does not say it: then it is a default's, or one of the `flags`.
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

/// Where the file has the key with which a message begins.
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
        // What is not of one key is of the guest as a whole.
        Some(words(about).find_map(|word| key(guest, word)).unwrap_or(at.span()))
    })
}

/// What stands before the first colon, word by word: keys are among the first.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let head = message.split(':').next().unwrap_or_default();
    head.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
}

/// Where a table has a key, which may be of a table in it (`limits.qps`), and may have been written
/// in the singular (`gid`).
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
