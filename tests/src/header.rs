//! The C header of an ABI version, and requests and replies as a driver built with it lays them
//! out.

use std::collections::BTreeMap;
use std::path::Path;

/// The contents of a C header.
#[derive(Debug)]
pub struct AbiHeader {
    constants: BTreeMap<String, u64>,
    sizes: BTreeMap<String, usize>,
    /// Offset and element width in bytes, by structure and field.
    fields: BTreeMap<(String, String), (usize, usize)>,
}

impl AbiHeader {
    /// Reads `abi/golden/NAME.h`.
    pub fn of_version(name: &str) -> AbiHeader {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../abi/golden/{name}.h"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        AbiHeader::parse(&text)
    }

    fn parse(text: &str) -> AbiHeader {
        let mut header =
            AbiHeader { constants: BTreeMap::new(), sizes: BTreeMap::new(), fields: BTreeMap::new() };
        let (mut tag, mut widths) = (String::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("#define ") {
                let mut words = rest.split_whitespace();
                if let (Some(name), Some(value)) = (words.next(), words.next().and_then(number)) {
                    header.constants.insert(name.to_owned(), value);
                }
            } else if let Some(name) = line.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
                (tag, widths) = (name.to_owned(), BTreeMap::new());
            } else if let Some(field) = line.strip_prefix('\t').and_then(|line| line.strip_suffix(';')) {
                let (c_type, name) = field.rsplit_once(' ').expect("a type and a name");
                let width = match c_type {
                    "__u8" => 1,
                    "__le16" => 2,
                    "__le32" | "__be32" => 4,
                    "__le64" => 8,
                    _ => 0,
                };
                widths.insert(name.split('[').next().unwrap_or(name).to_owned(), width);
            } else if let Some(size) = line.strip_prefix(&format!("static_assert(sizeof(struct {tag}) == ")) {
                header.sizes.insert(tag.clone(), asserted(size));
            } else if let Some(rest) = line.strip_prefix(&format!("static_assert(offsetof(struct {tag}, ")) {
                let (field, offset) = rest.split_once(") == ").expect("an offset");
                let width = widths.get(field).copied().expect("the field was declared");
                header.fields.insert((tag.clone(), field.to_owned()), (asserted(offset), width));
            }
        }
        header
    }

    /// Returns the value of a constant.
    pub fn constant(&self, name: &str) -> u64 {
        *self.constants.get(name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Returns the size of a structure. The empty name means no structure, of size 0.
    pub fn size(&self, tag: &str) -> usize {
        if tag.is_empty() { 0 } else { *self.sizes.get(tag).unwrap_or_else(|| panic!("no struct {tag}")) }
    }

    /// Returns a structure with these integers, and zero elsewhere.
    pub fn make(&self, tag: &str, integers: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; self.size(tag)];
        for (field, value) in integers {
            let (at, width) = self.field(tag, field);
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        bytes
    }

    /// Returns the offset of an array.
    pub fn offset(&self, tag: &str, field: &str) -> usize {
        self.field(tag, field).0
    }

    /// Returns an integer from the bytes of a structure.
    pub fn get(&self, tag: &str, field: &str, bytes: &[u8]) -> u64 {
        let (at, width) = self.field(tag, field);
        let mut value = [0; 8];
        value[..width].copy_from_slice(&bytes[at..at + width]);
        u64::from_le_bytes(value)
    }

    fn field(&self, tag: &str, field: &str) -> (usize, usize) {
        let found = self.fields.get(&(tag.to_owned(), field.to_owned()));
        *found.unwrap_or_else(|| panic!("no {field} in struct {tag}"))
    }
}

/// Parses a number in the header's notation.
fn number(word: &str) -> Option<u64> {
    let word = word.trim_end_matches('u');
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn asserted(rest: &str) -> usize {
    rest.trim_end_matches(");").parse().expect("a number")
}
