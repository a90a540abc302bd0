//! Who may open a socket.

use super::words::{Word, word};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether this process looks up no names of users and groups any more.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
/// Users, and then groups, that were looked up: their names and numbers.
static FOUND: [Mutex<Option<HashMap<String, u32>>>; 2] = [Mutex::new(None), Mutex::new(None)];

/// Has this process look up no names of users and groups from here on, except those that it has
/// looked up.
///
/// The jail has no list of users. A C library without it might load modules and ask other
/// processes, which no thread may do there.
pub fn look_up_no_more_names() {
    IS_CLOSED.store(true, Ordering::Relaxed);
}

/// Returns the number of a user (`kind` 0) or group (1) with this name.
fn look_up(kind: usize, name: &str, find: impl FnOnce() -> Option<u32>) -> Option<u32> {
    // Each change is one insertion, so the table is consistent even after a panic.
    let mut found = FOUND[kind].lock().unwrap_or_else(PoisonError::into_inner);
    let found = found.get_or_insert_default();
    if IS_CLOSED.load(Ordering::Relaxed) {
        return found.get(name).copied();
    }
    let id = find()?;
    found.insert(name.to_owned(), id);
    Some(id)
}

/// What to write instead of a name that is not looked up.
fn instead() -> &'static str {
    if IS_CLOSED.load(Ordering::Relaxed) {
        "; give its number, as a running daemon looks up no names that are new to it"
    } else {
        ""
    }
}

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
        let id = look_up(1, name, || Some(uzers::get_group_by_name(name)?.gid()))?;
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
        let find = || Some(uzers::get_user_by_name(text)?.uid());
        let id = text.parse().ok().or_else(|| look_up(0, text, find))?;
        Some(User { id, text: text.to_owned() })
    }

    fn hint() -> &'static str {
        instead()
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

    fn hint() -> &'static str {
        instead()
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
