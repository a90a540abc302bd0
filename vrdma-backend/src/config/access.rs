//! Who may open a socket.

use super::words::{Word, word};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Permissions of a file, written in octal, like 0660.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

/// A user of this host, and the text that named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Number of the user.
    pub id: u32,
    text: String,
}

/// A group of this host, and the text that named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Number of the group.
    pub id: u32,
    text: String,
}

impl User {
    /// Returns the user with this number, which is its text, too.
    pub fn numbered(id: u32) -> User {
        User { id, text: id.to_string() }
    }
}

impl Group {
    /// Returns the group with this name, if this host has one.
    pub fn named(name: &str) -> Option<Group> {
        let id = uzers::get_group_by_name(name)?.gid();
        Some(Group { id, text: name.to_owned() })
    }
}

impl Word for Mode {
    const KIND: &'static str = "a mode of a file in octal, like 0660";

    fn read(text: &str) -> Option<Mode> {
        let mode = u32::from_str_radix(text, 8).ok()?;
        (!text.starts_with('+') && mode <= 0o777).then_some(Mode(mode))
    }
}

impl Word for User {
    const KIND: &'static str = "a user of this host, by name or number";

    fn read(text: &str) -> Option<User> {
        let id = text.parse().ok().or_else(|| Some(uzers::get_user_by_name(text)?.uid()))?;
        Some(User { id, text: text.to_owned() })
    }
}

impl Word for Group {
    const KIND: &'static str = "a group of this host, by name or number";

    fn read(text: &str) -> Option<Group> {
        match text.parse() {
            Ok(id) => Some(Group { id, text: text.to_owned() }),
            Err(_) => Group::named(text),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

macro_rules! written {
    ($($kind:ident)*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                word::serialize(self, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                word::deserialize(deserializer)
            }
        }
    )*};
}

written!(Mode User Group);
