//! A name says what it stands for: no two types of a crate have the same one, and files are called
//! by nouns.
//!
//! A type counts if other files can name it. Types with opposite conditions (`#[cfg(a)]` and
//! `#[cfg(not(a))]`) may have one name, because only one of them is there at a time.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use vrdma_lab::proc::indent;

use super::cycles::{CRATES, of_crate};
use super::rust::{Code, Import};
use super::sources::all;

/// Words that are no nouns, and once were names of files or folders.
const NO_NOUNS: &[&str] = &[
    "beyond",
    "elsewhere",
    "here",
    "near",
    "behind",
    "named",
    "own",
    "beside",
    "apart",
    "far",
    "judged",
    "fetched",
    "lent",
    "placed",
    "joined",
    "inside",
];

/// The folder of records. They are called as what they record, and no other file imports one whose
/// name another type has: it writes `record::X` or `names::X`.
const RECORDS: &str = "transport/src/save/";

/// The modules of records.
const RECORD_MODULES: [&str; 2] = ["record", "names"];

/// Files of which one is there at a time.
const ALTERNATIVES: &[[&str; 2]] = &[["vrdma-backend/src/cycles/on.rs", "vrdma-backend/src/cycles/off.rs"]];

/// Types of one name that are still to be renamed, by crate.
const KNOWN_TYPES: &[(&str, &[&str])] = &[];

/// Files and folders that are still to be renamed.
const KNOWN_FILES: &[&str] = &[];

/// Fails if two types have one name, or a file is not called by a noun.
pub fn check() -> Result<()> {
    let all = all()?;
    let mut faults = Vec::new();
    for name in CRATES {
        let crate_files = of_crate(all, name).into_iter();
        let files: Vec<_> = crate_files.map(|(file, code)| (format!("{name}/src/{file}"), code)).collect();
        let known = KNOWN_TYPES.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, names)| names);
        faults.extend(
            faults_of_types(&twice(&files), known).into_iter().map(|fault| format!("{name}: {fault}")),
        );
        faults.extend(bare_records(&files));
    }
    faults.extend(faults_of_files(all.iter().map(|source| source.file.as_str()), KNOWN_FILES));
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "names that do not say what they stand for; see xtask/src/suite/names.rs:\n{}",
        indent(&faults.join("\n"))
    )
}

/// The types that several files of a crate have by one name, with these files.
type Twice<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// The names that several types of a crate have which other files can name. Records are left out.
fn twice<'a>(files: &'a [(String, &'a Code)]) -> Twice<'a> {
    let mut types: BTreeMap<&str, Vec<(&str, Option<&str>)>> = BTreeMap::new();
    for (file, code) in files.iter().filter(|(file, _)| !file.starts_with(RECORDS)) {
        for found in code.product.types.iter().filter(|found| found.is_visible) {
            let others = types.entry(&found.name).or_default();
            let condition = found.condition.as_deref();
            if !others.iter().any(|other| are_alternatives(*other, (file, condition))) {
                others.push((file, condition));
            }
        }
    }
    types.retain(|_, found| found.len() > 1);
    types.into_iter().map(|(name, found)| (name, found.into_iter().map(|(file, _)| file).collect())).collect()
}

/// What is wrong with the types of a crate: names that are not known to be given twice, and known
/// ones that are not any more.
fn faults_of_types(twice: &Twice<'_>, known: &[&str]) -> Vec<String> {
    let new = twice.iter().filter(|(name, _)| !known.contains(name));
    let new = new.map(|(name, files)| format!("{name} is in {}", files.join(" and in ")));
    let gone = known.iter().filter(|name| !twice.contains_key(*name));
    new.chain(gone.map(|name| format!("{name} leaves KNOWN_TYPES: no two types have this name"))).collect()
}

/// Whether of two types, each with its file and condition, one is there at a time.
fn are_alternatives(
    (file, condition): (&str, Option<&str>),
    (other_file, other): (&str, Option<&str>),
) -> bool {
    let are_opposite = match (condition, other) {
        (Some(condition), Some(other)) => {
            let is_not =
                |one: &str, other: &str| one.replace(' ', "") == format!("not({other})").replace(' ', "");
            is_not(condition, other) || is_not(other, condition)
        }
        _ => false,
    };
    are_opposite
        || ALTERNATIVES
            .iter()
            .any(|pair| pair.contains(&file) && pair.contains(&other_file) && file != other_file)
}

/// Imports of single records, outside of their folder, that have the names of other types.
fn bare_records(files: &[(String, &Code)]) -> Vec<String> {
    let others = files.iter().filter(|(file, _)| !file.starts_with(RECORDS));
    let types = others.clone().flat_map(|(_, code)| &code.product.types);
    let names: BTreeSet<&str> =
        types.filter(|found| found.is_visible).map(|found| found.name.as_str()).collect();
    let is_bare = |import: &&Import| {
        let is_record = import.path.iter().any(|name| name == "save")
            && import
                .path
                .iter()
                .rev()
                .nth(1)
                .is_some_and(|module| RECORD_MODULES.contains(&module.as_str()));
        is_record && (import.name == "*" || names.contains(import.name.as_str()))
    };
    let mut faults = Vec::new();
    for (file, code) in others.filter(|(file, _)| file.starts_with("transport/")) {
        for import in code.product.imports.iter().filter(is_bare) {
            faults.push(format!("{file}:{}: {} is a type's name, too", import.line, import.path.join("::")));
        }
    }
    faults
}

/// What is wrong with the names of files and folders: those that are no nouns and not known, and
/// known ones that are gone.
fn faults_of_files<'a>(files: impl Iterator<Item = &'a str>, known: &[&str]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let parts: Vec<&str> = file.split('/').collect();
        for at in 0..parts.len() {
            if NO_NOUNS.contains(&parts[at].split('.').next().unwrap_or_default()) {
                found.insert(parts[..=at].join("/"));
            }
        }
    }
    let new = found.iter().filter(|path| !known.contains(&path.as_str()));
    let new = new.map(|path| format!("{path} is not called by a noun"));
    let gone = known.iter().filter(|path| !found.contains(**path));
    new.chain(gone.map(|path| format!("{path} leaves KNOWN_FILES: it is not there"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::rust;

    fn codes(files: &[(&str, &str)]) -> Vec<(String, Code)> {
        files.iter().map(|(file, text)| ((*file).to_owned(), rust::read(text).unwrap())).collect()
    }

    fn names_given_twice(files: &[(&str, &str)]) -> Vec<String> {
        let codes = codes(files);
        let files: Vec<_> = codes.iter().map(|(file, code)| (file.clone(), code)).collect();
        twice(&files).into_keys().map(str::to_owned).collect()
    }

    #[test]
    fn two_types_of_one_name_are_found() {
        let a = ("a.rs", "pub struct A; pub(crate) enum B {} trait C {} pub type D = u8;");
        let b =
            ("b.rs", "pub(super) union A { a: u8 } pub(in crate::b) trait B {} pub struct C; type D = u8;");
        assert_eq!(names_given_twice(&[a, b]), ["A", "B"]);
        let tests = (
            "c.rs",
            "#[cfg(test)] pub struct A; #[cfg(test)] mod tests { pub struct B; } fn f() { pub struct D; }",
        );
        assert_eq!(names_given_twice(&[a, tests]), [""; 0]);
        assert_eq!(
            names_given_twice(&[("a.rs", "pub mod a { pub struct A; } pub mod b { pub struct A; }")]),
            ["A"]
        );
    }

    #[test]
    fn one_of_two_alternatives_is_there_at_a_time() {
        let yes = ("a.rs", "#[cfg(feature = \"a\")] pub struct A;");
        let no = ("b.rs", "#[cfg(not(feature = \"a\"))] pub struct A;");
        assert_eq!(names_given_twice(&[yes, no]), [""; 0]);
        assert_eq!(names_given_twice(&[yes, ("b.rs", "#[cfg(feature = \"b\")] pub struct A;")]), ["A"]);
        let [on, off] = ALTERNATIVES[0].map(|file| (file, "pub struct A;"));
        assert_eq!(names_given_twice(&[on, off]), [""; 0]);
        assert_eq!(names_given_twice(&[on, ("b.rs", "pub struct A;")]), ["A"]);
    }

    #[test]
    fn a_record_has_the_name_of_what_it_records_and_is_not_imported_alone() {
        let (engine, record) = (
            ("transport/src/engine.rs", "use crate::save::record;\npub struct Qp;"),
            ("transport/src/save/record.rs", "pub struct Qp; pub struct Numbers;"),
        );
        assert_eq!(names_given_twice(&[engine, record]), [""; 0]);
        let faults = |text: &str| {
            let codes = codes(&[engine, record, ("transport/src/a.rs", text)]);
            bare_records(&codes.iter().map(|(file, code)| (file.clone(), code)).collect::<Vec<_>>())
        };
        assert_eq!(faults("use crate::save::record::{self, Numbers};"), [""; 0]);
        let fault = "transport/src/a.rs:1: crate::save::record::Qp is a type's name, too";
        assert_eq!(faults("use crate::save::{record::{Numbers, Qp}};"), [fault]);
        assert_eq!(faults("use super::save::names::*;").len(), 1);
    }

    #[test]
    fn files_are_called_by_nouns() {
        let files =
            ["a/src/near/b.rs", "a/src/near/c.rs", "a/src/nearest.rs", "a/src/own.c", "a/src/own_gids.rs"];
        let faults = faults_of_files(files.into_iter(), &["a/src/near", "a/src/far.rs"]);
        let expected =
            ["a/src/own.c is not called by a noun", "a/src/far.rs leaves KNOWN_FILES: it is not there"];
        assert_eq!(faults, expected);
    }

    #[test]
    fn what_is_known_leaves_the_list_when_it_is_gone() {
        let twice = Twice::from([("A", vec!["a.rs", "b.rs"]), ("B", vec!["c.rs", "d.rs"])]);
        let faults = faults_of_types(&twice, &["A", "C"]);
        assert_eq!(faults, ["B is in c.rs and in d.rs", "C leaves KNOWN_TYPES: no two types have this name"]);
    }
}
