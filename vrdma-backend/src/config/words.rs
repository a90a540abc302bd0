//! One grammar for flags and file: `KEY=VALUE,KEY=VALUE` in a flag is read like a table of the
//! file.
//!
//! In the keys of a flag, `-` and `_` are equal. A flag repeats a key where the file has a list. A
//! list of one value may be written as the value alone. A key of a table is `TABLE.KEY`.

use super::plain::plain;
use crate::allowed::AllowedGid;
use anyhow::{Context, Result, anyhow, ensure};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::net::IpAddr;
use vrdma_wire::num::Mac;

/// Reads `KEY=VALUE,KEY=VALUE` as a table of the file with these keys.
///
/// # Errors
/// A key or value is wrong. The error names the key and what is wrong with it.
pub fn from_keys<T: DeserializeOwned>(text: &str) -> Result<T> {
    let mut keys = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (key, value) = part.split_once('=').with_context(|| format!("'{part}' is not KEY=VALUE"))?;
        ensure!(!value.is_empty(), "{key}: a value is missing after '='");
        let key = key.trim().replace('-', "_");
        let mixed = || anyhow!("{key}: it is given as a value and as a table");
        match key.split_once('.') {
            None => match entry(&mut keys, &key, || Entry::Values(Vec::new())) {
                Entry::Values(values) => values.push(value),
                Entry::Table(_) => return Err(mixed()),
            },
            Some((table, inner)) => match entry(&mut keys, table, || Entry::Table(Vec::new())) {
                Entry::Table(keys) => keys.push((inner.to_owned(), Entry::Values(vec![value]))),
                Entry::Values(_) => return Err(mixed()),
            },
        }
    }
    let table = FlagKeys { keys: keys.into_iter(), value: None };
    T::deserialize(de::value::MapAccessDeserializer::new(table))
        .map_err(|error| anyhow!(plain(&error.to_string())))
}

type Error = de::value::Error;

/// What a flag has for a key.
enum Entry<'a> {
    /// The values of each time that it has the key.
    Values(Vec<&'a str>),
    /// The keys of a table: `limits.qps=64`.
    Table(Vec<(String, Entry<'a>)>),
}

/// Returns the entry of a key, which is made if the key is new.
fn entry<'k, 'a>(
    keys: &'k mut Vec<(String, Entry<'a>)>,
    key: &str,
    make: impl FnOnce() -> Entry<'a>,
) -> &'k mut Entry<'a> {
    let at = keys.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
        keys.push((key.to_owned(), make()));
        keys.len() - 1
    });
    &mut keys[at].1
}

/// The keys of a flag, as a table of the file.
struct FlagKeys<'a> {
    keys: std::vec::IntoIter<(String, Entry<'a>)>,
    /// The current key and its value.
    value: Option<(String, Entry<'a>)>,
}

impl<'de> de::MapAccess<'de> for FlagKeys<'de> {
    type Error = Error;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.value = self.keys.next();
        let key = self.value.as_ref().map(|(key, _)| key.as_str().into_deserializer());
        key.map(|key: de::value::StrDeserializer<'_, Error>| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (key, value) = self.value.take().expect("a value is asked for after its key");
        let result = match value {
            Entry::Values(values) => seed.deserialize(Values(values)),
            Entry::Table(keys) => {
                let table = FlagKeys { keys: keys.into_iter(), value: None };
                seed.deserialize(de::value::MapAccessDeserializer::new(table))
            }
        };
        result.map_err(|error| de::Error::custom(format_args!("{key}: {error}")))
    }
}

/// The values of one key of a flag.
struct Values<'a>(Vec<&'a str>);

impl<'de> Values<'de> {
    /// Returns the only value.
    fn one(&self) -> Result<&'de str, Error> {
        match self.0[..] {
            [text] => Ok(text),
            _ => Err(de::Error::custom("it is given twice, and takes one value")),
        }
    }

    fn number<T: std::str::FromStr>(&self) -> Result<T, Error> {
        let text = self.one()?;
        text.parse().map_err(|_| not(text, "a number that fits here"))
    }
}

/// Returns the error for a value that is no such word.
fn not_a<T: Word, E: de::Error>(text: &str) -> E {
    not(text, &format!("{}{}", T::KIND, T::hint()))
}

/// Returns the error for a value of another kind.
fn not<E: de::Error>(text: &str, kind: &str) -> E {
    E::custom(format_args!("'{text}' is not {kind}"))
}

impl<'de> IntoDeserializer<'de> for Values<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.number()?)
        })*
    };
}

impl<'de> Deserializer<'de> for Values<'de> {
    type Error = Error;

    numbers! {
        deserialize_u8 visit_u8,
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
        deserialize_i64 visit_i64,
        deserialize_f64 visit_f64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.one()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.one()?;
        visitor.visit_bool(text.parse().map_err(|_| not::<Error>(text, "true or false"))?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let each = self.0.into_iter().map(|text| Values(vec![text]));
        visitor.visit_seq(de::value::SeqDeserializer::new(each))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.one()?.into_deserializer())
    }

    /// Fails: a flag has the keys of a table each by itself.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _keys: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        let (text, table) = (self.one()?, name.to_lowercase());
        Err(de::Error::custom(format_args!("'{text}' is not a table; give {table}.KEY=VALUE")))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct map identifier ignored_any
    }
}

/// A value that is written as one word.
pub trait Word: Sized + Display {
    /// What the value is, for the message about a text of another kind.
    const KIND: &'static str;

    /// Parses the value; `None` if the text is of another kind.
    fn read(text: &str) -> Option<Self>;

    /// Returns what the message about a text of another kind says at its end.
    fn hint() -> &'static str {
        ""
    }
}

impl Word for Mac {
    const KIND: &'static str = "a MAC address, like 52:54:00:12:34:56";

    fn read(text: &str) -> Option<Mac> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+'))?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Mac(bytes))
    }
}

impl Word for AllowedGid {
    const KIND: &'static str = "an IP address, alone or with @VLAN (1 to 4094) or @untagged";

    fn read(text: &str) -> Option<AllowedGid> {
        text.parse().ok()
    }
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostAddress(pub IpAddr);

impl Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Word for HostAddress {
    const KIND: &'static str = "an IP address of this host";

    fn read(text: &str) -> Option<HostAddress> {
        text.parse().ok().map(|address: IpAddr| HostAddress(address.to_canonical()))
    }
}

/// Serializes a [`Word`], for `#[serde(with = "word")]`.
pub mod word {
    use super::*;

    /// Writes the word as a string.
    pub fn serialize<T: Word, S: serde::Serializer>(word: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(word)
    }

    /// Reads the word from a string.
    pub fn deserialize<'de, T: Word, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text: String = de::Deserialize::deserialize(deserializer)?;
        T::read(&text).ok_or_else(|| not_a::<T, _>(&text))
    }
}

/// Serializes a list of [`Word`]s, for `#[serde(with = "list")]`.
///
/// A list of one word may be written as the word alone.
pub mod list {
    use super::*;

    struct Words<T>(PhantomData<T>);

    impl<'de, T: Word> Visitor<'de> for Words<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}, or a list of such", T::KIND)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::read(text).ok_or_else(|| not_a::<T, E>(text))?])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut words: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(OneWord(word)) = words.next_element()? {
                all.push(word);
            }
            Ok(all)
        }
    }

    struct OneWord<T>(T);

    impl<'de, T: Word> de::Deserialize<'de> for OneWord<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            word::deserialize(deserializer).map(OneWord)
        }
    }

    /// Writes a list of strings.
    pub fn serialize<T: Word, S: serde::Serializer>(words: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(words.iter().map(T::to_string))
    }

    /// Reads a string, or a list of strings.
    pub fn deserialize<'de, T: Word, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(Words(PhantomData))
    }
}

/// Reads a list of numbers, for `#[serde(deserialize_with = "numbers")]`.
///
/// A list of one number may be written as the number alone.
pub fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
    struct Numbers;

    impl<'de> Visitor<'de> for Numbers {
        type Value = Vec<u16>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number, or a list of such")
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<u16>, E> {
            let fits = u16::try_from(number).map_err(|_| not(&number.to_string(), "a number that fits here"));
            fits.map(|number| vec![number])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut numbers: A) -> Result<Vec<u16>, A::Error> {
            std::iter::from_fn(|| numbers.next_element().transpose()).collect()
        }
    }

    deserializer.deserialize_seq(Numbers)
}
