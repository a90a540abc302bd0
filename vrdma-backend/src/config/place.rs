//! Where a function of a guest and its front-end meet.

use super::words::Word;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::path::{Path, PathBuf};

/// A descriptor that the daemon inherits: a socket that listens already.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Descriptor {
    /// Its number.
    Number(u16),
    /// Its name in LISTEN_FDNAMES (`FileDescriptorName=` of systemd.socket(5)).
    Name(String),
}

/// Where a function and its front-end meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeetingPlace<'a> {
    /// The daemon listens at this path.
    Socket(&'a Path),
    /// The daemon accepts connections from this descriptor.
    Descriptor(&'a Descriptor),
    /// The front-end listens at this path, and the daemon connects.
    Connect(&'a Path),
}

/// A key for the place of a function, and what it gives.
pub(super) type PlaceKey<'a> = (&'static str, Option<MeetingPlace<'a>>);

/// Returns the place that one of the keys gives.
pub(super) fn place_of<'a, const N: usize>(keys: [PlaceKey<'a>; N]) -> Option<MeetingPlace<'a>> {
    keys.into_iter().find_map(|(_, place)| place)
}

impl<'a> MeetingPlace<'a> {
    pub(super) fn socket(path: &'a Option<PathBuf>) -> Option<MeetingPlace<'a>> {
        path.as_deref().map(MeetingPlace::Socket)
    }

    pub(super) fn descriptor(descriptor: &'a Option<Descriptor>) -> Option<MeetingPlace<'a>> {
        descriptor.as_ref().map(MeetingPlace::Descriptor)
    }

    pub(super) fn connect(path: &'a Option<PathBuf>) -> Option<MeetingPlace<'a>> {
        path.as_deref().map(MeetingPlace::Connect)
    }
}

impl fmt::Display for MeetingPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeetingPlace::Socket(path) => path.display().fmt(f),
            MeetingPlace::Descriptor(descriptor) => write!(f, "descriptor {descriptor}"),
            MeetingPlace::Connect(path) => write!(f, "connects to {}", path.display()),
        }
    }
}

impl Word for Descriptor {
    const KIND: &'static str = "a number of a descriptor, or its name in LISTEN_FDNAMES";

    fn read(text: &str) -> Option<Descriptor> {
        if let Ok(number) = text.parse() {
            return Some(Descriptor::Number(number));
        }
        // What looks like a number is none that fits. The rest is what systemd allows in a name.
        let is_number = text.chars().all(|c| c.is_ascii_digit() || c == '-' || c == '+');
        let is_name = !is_number && !text.contains(|c: char| c.is_control() || c == ':');
        is_name.then(|| Descriptor::Name(text.to_owned()))
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Descriptor::Number(number) => number.fmt(f),
            Descriptor::Name(name) => f.write_str(name),
        }
    }
}

impl Serialize for Descriptor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Descriptor::Number(number) => serializer.serialize_u16(*number),
            Descriptor::Name(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Descriptor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Descriptor, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Descriptor;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Descriptor::KIND)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Descriptor, E> {
                Descriptor::read(text)
                    .ok_or_else(|| E::custom(format_args!("'{text}' is not {}", Descriptor::KIND)))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Descriptor, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Descriptor, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Text)
    }
}
