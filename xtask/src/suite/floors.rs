//! The folders of a crate are floors: files of each use files of the same folder and of those below
//! it alone, and the behaviour of a type stands in the folder of the type.
//!
//! The list of floors, the lowest first, is in the documentation of the crate's `lib.rs`: `1.
//! `folder/`: what it has`.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use vrdma_lab::paths;
use vrdma_lab::proc::indent;

use super::cycles::{of_crate, uses};
use super::rust::{Code, Facts, Kind, Type};
use super::sources::all;

/// The crates whose folders are floors.
const CRATES: &[&str] = &["transport"];

/// Fails if a file uses one of a floor above, or a type has behaviour in a folder other than its
/// own.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    for name in CRATES {
        let files = of_crate(all()?, name);
        let root = paths::read(&paths::workspace().join(name).join("src/lib.rs"))?;
        let floors = floors(&root);
        ensure!(!floors.is_empty(), "{name}/src/lib.rs has no list of its floors");
        let is_there = |floor: &&&str| files.iter().any(|(file, _)| folder(file) == Some(**floor));
        let all_are = floors.iter().filter(is_there).count() == floors.len();
        ensure!(all_are, "{name}/src/lib.rs lists a floor that is no folder");
        faults.extend(upwards(&files, &floors).into_iter().map(|fault| format!("{name}: {fault}")));
        faults.extend(abroad(&files).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "folders are floors: a file uses those of its folder and of folders below; behaviour stands in the folder of its type:\n{}",
        indent(&faults.join("\n"))
    )
}

/// The folders that the documentation of a crate numbers, in their order.
fn floors(root: &str) -> Vec<&str> {
    let numbered = |line: &'_ str| -> Option<usize> {
        let (number, _) = line.split_once(". `")?;
        number.parse().ok()
    };
    let mut floors = Vec::new();
    for line in root.lines().filter_map(|line| line.strip_prefix("//! ")) {
        if numbered(line) == Some(floors.len() + 1)
            && let Some((folder, _)) = line.split_once(". `").and_then(|(_, rest)| rest.split_once("/`"))
        {
            floors.push(folder);
        }
    }
    floors
}

/// The folder of a file, of which the root has none.
fn folder(file: &str) -> Option<&str> {
    file.split_once('/').map(|(folder, _)| folder)
}

/// A floor of which no folder uses another.
const OF_ROOMS: &str = "protocol";

/// Whether two files are in different folders of [`OF_ROOMS`].
fn are_apart(file: &str, other: &str) -> bool {
    let room = |file: &'_ str| -> Option<String> {
        let (room, _) = file.strip_prefix(OF_ROOMS)?.strip_prefix('/')?.split_once('/')?;
        Some(room.to_owned())
    };
    room(file).zip(room(other)).is_some_and(|(room, other)| room != other)
}

/// What files use of floors above theirs, and folders that are no floor.
fn upwards(files: &[(&str, &Code)], floors: &[&str]) -> Vec<String> {
    let level = |file: &str| floors.iter().position(|floor| Some(*floor) == folder(file));
    let mut faults = Vec::new();
    for (file, used) in uses(files, None) {
        // The root hands on what others have.
        let own = match folder(file) {
            None if file == "lib.rs" => continue,
            None => {
                faults.push(format!("{file} is in no folder"));
                continue;
            }
            Some(own) => own,
        };
        let Some(floor) = level(file) else {
            faults.push(format!("{file}: {own}/ is not in the list of floors"));
            continue;
        };
        for other in used.keys().filter(|other| are_apart(file, other)) {
            faults.push(format!("{file} uses {other}, which is beside it"));
        }
        for (other, names) in used.iter().filter(|(other, _)| level(other).is_some_and(|level| level > floor))
        {
            let names: Vec<&str> = names.iter().copied().collect();
            faults.push(format!("{file} uses {other}, which is above it ({})", names.join(", ")));
        }
    }
    faults
}

/// Types with behaviour in another folder than their own.
fn abroad(files: &[(&str, &Code)]) -> Vec<String> {
    let product = files.iter().filter(|(file, _)| folder(file) != Some("tests"));
    let codes: Vec<(&str, &Facts)> = product.map(|(file, code)| (*file, &code.product)).collect();
    let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, code) in &codes {
        for Type { name, .. } in code.types.iter().filter(|found| found.kind == Kind::Type) {
            homes.entry(name).or_default().push(file);
        }
    }
    let mut faults = Vec::new();
    for (file, code) in &codes {
        for name in &code.impls {
            // A type that a macro defines has no home to be seen.
            let Some(homes) = homes.get(name.as_str()) else { continue };
            if !homes.iter().any(|home| folder(home) == folder(file)) {
                faults.push(format!("{file} has behaviour of {name}, which is of {}", homes.join(", ")));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::rust;

    const ROOT: &str =
        "//! # Floors\n//!\n//! 1. `low/`: what all use.\n//! 2. `high/`: the rest.\nmod low; mod high;";

    fn faults(files: &[(&'static str, &str)]) -> Vec<String> {
        let all = [("lib.rs", ROOT), ("low/mod.rs", "pub mod a;"), ("high/mod.rs", "pub mod b;")];
        let read = |(file, text): &(&'static str, &str)| (*file, rust::read(text).unwrap());
        let files: Vec<_> = all.iter().chain(files).map(read).collect();
        let files: Vec<_> = files.iter().map(|(file, code)| (*file, code)).collect();
        let mut faults = upwards(&files, &floors(ROOT));
        faults.extend(abroad(&files));
        faults
    }

    #[test]
    fn floors_are_numbered_in_the_documentation() {
        assert_eq!(floors(ROOT), ["low", "high"]);
        assert!(floors("//! 2. `high/`: no first one.").is_empty());
    }

    #[test]
    fn who_uses_a_floor_above_is_named() {
        let (a, b) =
            (("low/a.rs", "pub struct A;"), ("high/b.rs", "use crate::low::a::A;\npub struct B(A);"));
        assert_eq!(faults(&[a, b]), [""; 0]);
        let up = ("low/a.rs", "use crate::high::b::B;\npub struct A(B);");
        assert_eq!(
            faults(&[up, ("high/b.rs", "pub struct B;")]),
            ["low/a.rs uses high/b.rs, which is above it (B)"]
        );
        assert_eq!(
            faults(&[a, b, ("other/c.rs", "pub struct C;")]),
            ["other/c.rs: other/ is not in the list of floors"]
        );
        assert_eq!(faults(&[a, b, ("c.rs", "pub struct C;")]), ["c.rs is in no folder"]);
        assert!(are_apart("protocol/uc/a.rs", "protocol/ud/b.rs"));
        assert!(
            !are_apart("protocol/uc/a.rs", "protocol/uc/b.rs")
                && !are_apart("protocol/uc/a.rs", "protocol/c.rs")
        );
    }

    #[test]
    fn behaviour_abroad_is_named() {
        let a = ("low/a.rs", "pub struct A<T>(T);\nimpl<T> A<T> {}");
        let abroad = ("high/b.rs", "use crate::low::a::A;\nimpl A<u8> {}");
        assert_eq!(faults(&[a, abroad]), ["high/b.rs has behaviour of A, which is of low/a.rs"]);
        // One with a name and a state of its own is of the folder that gives it the name.
        let view = ("high/b.rs", "use crate::low::a::A;\npub type View = A<u8>;\nimpl View {}");
        assert_eq!(faults(&[a, view]), [""; 0]);
    }
}
