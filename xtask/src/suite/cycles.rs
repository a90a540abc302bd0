//! No file of a crate uses, by whatever way round, a file that uses it: so each can be read with
//! only those below it in mind.
//!
//! A file uses another if it names what is defined there, in a `use` or by a path. A child that
//! uses its parent counts as any other file. To hand a name on (`pub use`) is no use of it: who
//! takes it from there uses the file that it is from.
//!
//! A file also uses the file that defines a method which it calls. A call on `self`, or behind the
//! name of a type, is of the method that this type has in one file. Of any other call only the
//! method's name is known: it counts if no other file of the crate defines a method of that name,
//! and no type of the standard library has one ([`OF_STD`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Result, bail};
use vrdma_lab::proc::indent;

use super::rust::{Code, Facts, Import, Named, Receiver};
use super::sources::{Source, all};

/// The crates whose files are held to it.
pub const CRATES: &[&str] = &[
    "abi",
    "wire",
    "transport",
    "transport/tcp",
    "dpdk-sys",
    "vrdma-admin",
    "vrdma-backend",
    "vrdma-ctl",
    "guest-driver/verbs",
    "guest-driver/provider",
    "vrdma-perf",
    "tests",
    "testing/conformance",
    "testing/guest",
    "testing/lab",
    "testing/lab/agent",
    "testing/vm",
    "testing/vm/macros",
    "xtask",
];

/// Methods of the standard library that a type of ours has, too: their calls say nothing.
const OF_STD: &str = "
    add after append as_fd as_ptr as_raw_fd as_ref at chain clear clone contains count drain end
    expect extend fill find first flush front get get_mut insert ip is_empty is_some iter keys
    kill kind last len lock map max min name next parse parts path peek pop port position push
    read recv remove replace retain rev send set skip spawn start sub success sum take then
    try_lock try_wait wait write
";

/// Methods of a crate's own that another crate has, too, whose calls say nothing.
const OF_OTHERS: &[(&str, &str)] = &[
    // That of `anyhow::Context`.
    ("vrdma-backend", "context"),
    // That of `vrdma_tcp::Stack`.
    ("vrdma-backend", "post"),
    // That of `vrdma_guest::front_end::FrontEnd`.
    ("tests", "stop"),
];

/// Fails if there is a cycle in a crate, and names the shortest.
pub fn check() -> Result<()> {
    let mut cycles = Vec::new();
    for name in CRATES {
        let others: Vec<&str> =
            OF_OTHERS.iter().filter(|(of, _)| of == name).map(|(_, method)| *method).collect();
        if let Some(cycle) = shortest_cycle(&uses(&of_crate(all()?, name), Some(&others))) {
            cycles.push(format!("{name}: {cycle}"));
        }
    }
    if cycles.is_empty() {
        return Ok(());
    }
    bail!(
        "files that use each other (in parentheses what is used); move what both need below them, or what needs both above:\n{}",
        indent(&cycles.join("\n"))
    )
}

/// The Rust files of a crate, by their paths below its `src`.
pub fn of_crate<'a>(all: &'a [Source], name: &str) -> Vec<(&'a str, &'a Code)> {
    let folder = format!("{name}/src/");
    let ours = all.iter().filter_map(|source| Some((source.product_below(&folder)?, source.code.as_ref()?)));
    ours.collect()
}

/// A module by its names from the root on, which has none.
type Path<'a> = Vec<&'a str>;

/// For each file those that it uses, and which names of them.
pub type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>>;

/// All files of a crate.
struct Files<'a>(BTreeMap<Path<'a>, (&'a str, &'a Facts)>);

/// What the files of a crate use. Calls of methods count if there are `others`: names that
/// other crates have, too.
pub fn uses<'a>(files: &[(&'a str, &'a Code)], others: Option<&[&str]>) -> Uses<'a> {
    // A program is a crate of its own, which uses the library by name.
    let ours = files.iter().filter(|(file, _)| *file != "main.rs");
    let files = Files(ours.map(|(file, code)| (module(file), (*file, &code.product))).collect());
    let mut uses = Uses::new();
    for (own, (file, facts)) in &files.0 {
        let used = uses.entry(*file).or_default();
        for path in files.named(own, facts) {
            let (of, rest) = files.follow(path, 0);
            if of != *own {
                used.entry(files.0[&of].0).or_default().insert(rest.first().copied().unwrap_or("*"));
            }
        }
    }
    if let Some(others) = others {
        files.add_calls(&mut uses, others);
    }
    uses
}

/// The module that a file is.
fn module(file: &str) -> Path<'_> {
    let stem = file.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if stem == "lib" { Vec::new() } else { stem.split('/').collect() }
}

fn strs(path: &[String]) -> Path<'_> {
    path.iter().map(String::as_str).collect()
}

/// The only one of a set.
fn only<'a>(files: Option<&BTreeSet<&'a str>>) -> Option<&'a str> {
    let files = files?;
    files.first().copied().filter(|_| files.len() == 1)
}

impl<'a> Files<'a> {
    /// Adds the files whose methods are called, as far as it is known whose they are.
    fn add_calls(&self, uses: &mut Uses<'a>, others: &[&str]) {
        // The files that define a method of this name, and of this name and type.
        let mut by_name: BTreeMap<&str, BTreeSet<&'a str>> = BTreeMap::new();
        let mut by_type: BTreeMap<(&str, &str), BTreeSet<&'a str>> = BTreeMap::new();
        for (file, facts) in self.0.values() {
            for method in &facts.methods {
                if method.takes_self {
                    by_name.entry(&method.name).or_default().insert(file);
                }
                if let Some(of) = &method.of {
                    by_type.entry((of, &method.name)).or_default().insert(file);
                }
            }
        }
        let foreign: BTreeSet<&str> = OF_STD.split_whitespace().chain(others.iter().copied()).collect();
        for (own, (file, facts)) in &self.0 {
            for call in &facts.calls {
                let name = call.name.as_str();
                let of_value = || only(by_name.get(name)).filter(|_| !foreign.contains(name));
                let of = match &call.on {
                    Receiver::Own(Some(of)) => match by_type.get(&(of.as_str(), name)) {
                        None => of_value(),
                        files => only(files),
                    },
                    Receiver::Type(of) if self.is_foreign(own, facts, of) => None,
                    Receiver::Type(of) => only(by_type.get(&(of.as_str(), name))),
                    Receiver::Own(None) | Receiver::Value => of_value(),
                };
                if let Some(of) = of.filter(|of| of != file) {
                    uses.entry(file).or_default().entry(of).or_default().insert(name);
                }
            }
        }
    }

    /// Whether a file has a name from another crate.
    fn is_foreign(&self, own: &Path<'a>, facts: &'a Facts, name: &str) -> bool {
        let import = facts.imports.iter().find(|import| import.name == name);
        import.is_some_and(|import| self.import(own, import).is_none())
    }

    /// Everything of this crate that a file names, from the root on.
    fn named(&self, own: &Path<'a>, facts: &'a Facts) -> Vec<Path<'a>> {
        let mut named = Vec::new();
        let mut modules = BTreeMap::new();
        for import in &facts.imports {
            let Some(path) = self.import(own, import) else { continue };
            if self.0.contains_key(&path) {
                // What is used of a module is seen where it is named.
                modules.insert(import.name.as_str(), path);
            } else if !import.is_public || self.is_named(import, &path, facts) {
                named.push(path);
            }
        }
        let absolute = |path: &'a Named| {
            self.absolute(&[own.as_slice(), &strs(&path.within)].concat(), &strs(&path.path), &modules)
        };
        named.extend(facts.paths.iter().filter_map(absolute));
        named
    }

    /// The path of an import from the root on, if it is of this crate.
    fn import(&self, own: &[&'a str], import: &'a Import) -> Option<Path<'a>> {
        let own = [own, &strs(&import.within)].concat();
        self.absolute(&own, &strs(&import.path), &BTreeMap::new())
    }

    /// Whether a file itself names what it hands on.
    fn is_named(&self, import: &Import, path: &Path<'a>, facts: &Facts) -> bool {
        match import.name.as_str() {
            "*" => self.file_of(path).1.items.iter().any(|item| facts.names.contains(item)),
            name => facts.names.contains(name),
        }
    }

    /// A path from the root on, if it is of this crate; `modules` are those that the file has
    /// imported.
    fn absolute(
        &self,
        own: &[&'a str],
        path: &[&'a str],
        modules: &BTreeMap<&'a str, Path<'a>>,
    ) -> Option<Path<'a>> {
        let supers = path.iter().take_while(|name| **name == "super").count();
        let (&first, rest) = path.split_first()?;
        let child = [own, &[first]].concat();
        Some(match first {
            "crate" => rest.to_vec(),
            "super" => [&own[..own.len().saturating_sub(supers)], &path[supers..]].concat(),
            "self" => [own, rest].concat(),
            _ if self.0.contains_key(&child) => [child.as_slice(), rest].concat(),
            _ => [modules.get(first)?.as_slice(), rest].concat(),
        })
    }

    /// The file that a path leads into: the longest beginning of it that is a module with a file.
    fn file_of(&self, path: &[&'a str]) -> &(&'a str, &'a Facts) {
        &self.0[self.module_of(path)]
    }

    fn module_of<'b>(&self, path: &'b [&'a str]) -> &'b [&'a str] {
        let lengths = (0..=path.len()).rev();
        let known = lengths.map(|length| &path[..length]).find(|path| self.0.contains_key(*path));
        known.expect("each crate has a root")
    }

    /// The module that defines what a path names, through all that hand it on, and the rest of the
    /// path.
    fn follow(&self, path: Path<'a>, handed_on: usize) -> (Path<'a>, Path<'a>) {
        /// Nobody hands on in a circle.
        const MOST: usize = 10;
        let of = self.module_of(&path).to_vec();
        let rest = path[of.len()..].to_vec();
        let Some((&name, further)) = rest.split_first().filter(|_| handed_on < MOST) else {
            return (of, rest);
        };
        let facts: &'a Facts = self.0[&of].1;
        for import in &facts.imports {
            let Some(from) = self.import(&of, import) else { continue };
            let next = match import.name.as_str() {
                "*" if self.file_of(&from).1.items.iter().any(|item| item == name) => {
                    [&from[..from.len() - 1], rest.as_slice()].concat()
                }
                own if own == name && !self.0.contains_key(&from) => [from.as_slice(), further].concat(),
                _ => continue,
            };
            if self.module_of(&next) != of {
                return self.follow(next, handed_on + 1);
            }
        }
        (of, rest)
    }
}

/// The shortest cycle there is, with the names that each file uses of the next.
fn shortest_cycle(uses: &Uses<'_>) -> Option<String> {
    let cycles = uses.keys().filter_map(|file| cycle_of(uses, file));
    let cycle = cycles.min_by_key(Vec::len)?;
    let mut text = cycle[0].to_owned();
    for pair in cycle.windows(2) {
        let names: Vec<&str> = uses[pair[0]][pair[1]].iter().copied().collect();
        text += &format!(" -> {} ({})", pair[1], names.join(", "));
    }
    Some(text)
}

/// The shortest way from a file back to it.
fn cycle_of<'a>(uses: &Uses<'a>, file: &'a str) -> Option<Vec<&'a str>> {
    let mut before = BTreeMap::new();
    let mut next = VecDeque::from([file]);
    while let Some(user) = next.pop_front() {
        for &used in uses.get(user)?.keys() {
            if before.contains_key(used) {
                continue;
            }
            before.insert(used, user);
            next.push_back(used);
        }
        if before.contains_key(file) {
            break;
        }
    }
    let mut way = vec![file, *before.get(file)?];
    while way[way.len() - 1] != file {
        way.push(before[way[way.len() - 1]]);
    }
    way.reverse();
    Some(way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::rust;
    use crate::suite::sources::below;

    fn cycle(files: &[(&str, &str)]) -> Option<String> {
        let files: Vec<_> = [("lib.rs", "mod a; mod b; mod c;")].iter().chain(files).copied().collect();
        cycle_of_all(&files, false)
    }

    /// The shortest cycle of these files alone, with calls of methods or without.
    fn cycle_of_all(files: &[(&str, &str)], methods: bool) -> Option<String> {
        let files: Vec<_> = files.iter().map(|(file, text)| (*file, rust::read(text).unwrap())).collect();
        let files: Vec<_> = files.iter().map(|(file, code)| (*file, code)).collect();
        shortest_cycle(&uses(&files, methods.then_some(&[])))
    }

    #[test]
    fn a_cycle_is_found_and_the_shortest_is_named() {
        let (a, b) =
            (("a.rs", "use crate::b::{B, D};\nstruct A;"), ("b.rs", "fn b() { crate::c::C::new() }"));
        assert_eq!(cycle(&[a, b, ("c.rs", "struct C;")]), None);
        let all = cycle(&[a, b, ("c.rs", "use super::a::A;")]);
        assert_eq!(all.as_deref(), Some("a.rs -> b.rs (B, D) -> c.rs (C) -> a.rs (A)"));
        let back = ("b.rs", "use crate::c;\nuse crate::a;\nfn b(x: c::C, y: a::A) {}");
        let two = cycle(&[a, back, ("c.rs", "use super::a::A;")]);
        assert_eq!(two.as_deref(), Some("a.rs -> b.rs (B, D) -> a.rs (A)"));
    }

    #[test]
    fn a_child_that_uses_its_parent_counts() {
        let child = ("a/d.rs", "use super::A;");
        assert_eq!(cycle(&[("a.rs", "mod d;\npub struct A;"), child]), None);
        let found = cycle(&[("a/mod.rs", "mod d;\nuse d::D;\npub struct A;"), child]);
        assert_eq!(found.as_deref(), Some("a/d.rs -> a/mod.rs (A) -> a/d.rs (D)"));
        let by_path = cycle(&[("a.rs", "mod d;\npub struct A(d::D);"), child]);
        assert_eq!(by_path.as_deref(), Some("a.rs -> a/d.rs (D) -> a.rs (A)"));
    }

    #[test]
    fn what_is_handed_on_counts_for_the_file_that_defines_it() {
        let (a, d) = ("pub mod d;\npub use d::D;\npub struct A;", ("a/d.rs", "use super::A;\npub struct D;"));
        assert_eq!(cycle(&[("a.rs", a), d]), None);
        assert!(cycle(&[("a.rs", &format!("{a}\nfn f(x: D) {{}}")), d]).is_some());
        let (a, b) = (("a.rs", "use crate::b::B;\npub struct A;"), ("b.rs", "use crate::c::A;"));
        for hand_on in ["pub use crate::a::A;", "pub use super::a::*;", "pub(crate) use crate::a::E as A;"] {
            let found = cycle(&[a, b, ("c.rs", hand_on)]).expect(hand_on);
            assert!(found.starts_with("a.rs -> b.rs (B) -> a.rs ("), "{found}");
        }
        assert!(
            cycle(&[("lib.rs", "mod a; mod b;\npub use a::A;"), a, ("b.rs", "fn b(x: crate::A) {}")])
                .is_some()
        );
    }

    #[test]
    fn calls_of_methods_count_if_their_names_tell_whose_they_are() {
        let a = "use crate::b::B;\npub struct A;\nimpl A { fn only(&self, b: &B) {} fn len(&self) {} }";
        let b = "pub struct B;\nimpl B { fn f(&self, x: u8) { x.len(); x.only(); } }";
        let lib = ("lib.rs", "");
        let found = cycle_of_all(&[lib, ("a.rs", a), ("b.rs", b)], true);
        assert_eq!(found.as_deref(), Some("a.rs -> b.rs (B) -> a.rs (only)"));
        assert_eq!(cycle_of_all(&[lib, ("a.rs", a), ("b.rs", b)], false), None);
        let other = format!("{b}\nimpl B {{ fn only(&self) {{}} }}");
        let found = cycle_of_all(&[lib, ("a.rs", a), ("b.rs", &other)], true);
        assert_eq!(found, None, "it may be either's");
        let own = [
            lib,
            ("a.rs", "use crate::b::B;\nimpl B { fn g(&self) {} }"),
            ("b.rs", "pub struct B;\nimpl B { fn f(&self) { self.g(); } }"),
            ("c.rs", "impl C { fn g(&self) {} }"),
        ];
        assert!(cycle_of_all(&own, true).is_some(), "it is of the type that calls it");
    }

    #[test]
    fn functions_behind_the_name_of_their_type_count_for_the_file_that_has_them() {
        let a = ("a.rs", "use crate::b::B;\nimpl B { fn new() -> B { B::len() } }");
        let b = |call: &str| format!("pub struct B;\nfn f() {{ {call} }}");
        let cycle = |b: &str| cycle_of_all(&[("lib.rs", ""), a, ("b.rs", b)], true);
        let found = cycle(&b("B::new()"));
        assert_eq!(found.as_deref(), Some("a.rs -> b.rs (B) -> a.rs (new)"));
        assert!(cycle(&format!("{}\nimpl B {{ fn g() {{ Self::new() }} }}", b(""))).is_some());
        assert_eq!(cycle(&b("C::new()")), None, "another type's");
        let foreign = "use other::B;\npub struct C;\nfn f() { B::new() }";
        assert_eq!(cycle(foreign), None, "another crate's");
    }

    #[test]
    fn tests_and_comments_do_not_count() {
        let a = ("a.rs", "use crate::b::B;\npub struct A;");
        let test =
            "/// [`A`](crate::a::A)\npub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
        assert_eq!(cycle(&[a, ("b.rs", test)]), None);
    }

    #[test]
    fn what_the_transport_uses_is_seen() {
        let sources = below("transport/src/").unwrap();
        let files = of_crate(&sources, "transport");
        let uses = uses(&files, Some(&[]));
        assert!(uses["message/core.rs"]["objects/device.rs"].contains("Devices"));
        assert!(uses["message/fail.rs"]["message/flush.rs"].contains("flush"));
        assert!(!uses.contains_key("tests/mod.rs"));
    }
}
