//! No file of a crate uses, by whatever way round, a file that uses it: so each can be read with
//! only those below it in mind.
//!
//! A file uses another if it names what is defined there, in a `use` or by a path. A child that
//! uses its parent counts as any other file. To hand a name on (`pub use`) is no use of it: who
//! takes it from there uses the file that it is from. A method has no path: in crates of
//! [`BY_METHODS`] a file that calls one uses the file that defines it, if no other file of the
//! crate has a method of that name; of calls on `self`, if no other file has one for the types that
//! have behaviour in the caller's file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Result, bail};
use vrdma_lab::paths;
use vrdma_lab::proc::indent;

use super::rust::{Code, Import};
use super::sources::sources;

/// The crates that are held to it.
const CRATES: &[&str] = &[
    "abi",
    "wire",
    "transport",
    "transport/tcp",
    "dpdk-sys",
    "vrdma-backend",
    "guest-driver/verbs",
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

/// The crates in which calls of methods count.
const BY_METHODS: &[&str] = &["transport", "testing/lab", "testing/conformance", "testing/vm", "xtask"];

/// Methods of the standard library that a type of ours has, too: their calls say nothing.
const OF_STD: &[&str] = &[
    "add", "after", "append", "at", "clear", "clone", "contains", "count", "drain", "end", "expect",
    "extend", "fill", "find", "first", "front", "get", "get_mut", "insert", "is_empty", "is_some", "iter",
    "last", "len", "map", "max", "min", "next", "parts", "peek", "pop", "position", "push", "remove",
    "retain", "rev", "send", "set", "skip", "spawn", "start", "sub", "success", "take",
];

/// Fails if there is a cycle in a crate, and names the shortest.
pub fn check() -> Result<()> {
    let all = sources(paths::workspace())?;
    let mut cycles = Vec::new();
    for name in CRATES {
        let files = of_crate(&all, name);
        if let Some(cycle) = shortest_cycle(&uses(&files, BY_METHODS.contains(name))) {
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

/// The files of a crate, by their paths below its `src`.
pub fn of_crate(all: &[(String, String)], name: &str) -> Vec<(String, String)> {
    let folder = format!("{name}/src/");
    let ours = |(file, text): &(String, String)| Some((file.strip_prefix(&folder)?.to_owned(), text.clone()));
    all.iter().filter_map(ours).collect()
}

/// A module by its names from the root on, which has none.
type Path<'a> = Vec<&'a str>;

/// For each file those that it uses, and which names of them.
pub type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>>;

/// All files of a crate.
struct Files<'a>(BTreeMap<Path<'a>, (&'a str, Code<'a>)>);

/// What the files of a crate use, from their paths below `src` and texts; `methods`: calls of
/// methods count.
pub fn uses(files: &[(String, String)], methods: bool) -> Uses<'_> {
    // A program is a crate of its own, which uses the library by name.
    let ours = files.iter().filter(|(file, _)| file.ends_with(".rs") && file != "main.rs");
    let files = Files(ours.map(|(file, text)| (module(file), (file.as_str(), Code::new(text)))).collect());
    let mut uses = Uses::new();
    for (own, (file, code)) in &files.0 {
        let used = uses.entry(*file).or_default();
        for path in files.named(own, code) {
            let (of, rest) = files.follow(path, 0);
            if of != *own {
                used.entry(files.0[&of].0).or_default().insert(rest.first().copied().unwrap_or("*"));
            }
        }
    }
    if methods {
        files.add_calls(&mut uses);
    }
    uses
}

/// The module that a file is.
fn module(file: &str) -> Path<'_> {
    let stem = file.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if stem == "lib" { Vec::new() } else { stem.split('/').collect() }
}

impl<'a> Files<'a> {
    /// Adds the files whose methods are called, as far as their names tell which these are.
    fn add_calls(&self, uses: &mut Uses<'a>) {
        // By their names: the files that define them, with the types that have behaviour there.
        let mut defined: BTreeMap<&str, Vec<(&'a str, &[&'a str])>> = BTreeMap::new();
        for (file, code) in self.0.values() {
            for method in code.methods.iter().collect::<BTreeSet<_>>() {
                defined.entry(method).or_default().push((file, &code.impls));
            }
        }
        for (file, code) in self.0.values() {
            let mut add = |call: &'a str, of: &'a str| {
                if of != *file {
                    uses.entry(file).or_default().entry(of).or_default().insert(call);
                }
            };
            for call in code.calls.iter().filter(|call| !OF_STD.contains(call)) {
                if let Some([of]) = defined.get(call).map(Vec::as_slice) {
                    add(call, of.0);
                }
            }
            for call in &code.own_calls {
                let is_of_self =
                    |(_, types): &&(&str, &[&str])| types.iter().any(|name| code.impls.contains(name));
                let files: Vec<_> = defined.get(call).into_iter().flatten().filter(is_of_self).collect();
                if let [of] = files.as_slice() {
                    add(call, of.0);
                }
            }
        }
    }

    /// Everything of this crate that a file names, from the root on.
    fn named(&self, own: &Path<'a>, code: &Code<'a>) -> Vec<Path<'a>> {
        let mut named = Vec::new();
        let mut modules = BTreeMap::new();
        for import in &code.imports {
            let Some(path) = self.import(own, import) else { continue };
            if self.0.contains_key(&path) {
                // What is used of a module is seen where it is named.
                modules.insert(import.name, path);
            } else if !import.is_public || self.is_named(import, &path, code) {
                named.push(path);
            }
        }
        let absolute = |(path, within): &(Path<'a>, Path<'a>)| {
            self.absolute(&[own.as_slice(), within].concat(), path, &modules)
        };
        named.extend(code.paths.iter().filter_map(absolute));
        named
    }

    /// The path of an import from the root on, if it is of this crate.
    fn import(&self, own: &[&'a str], import: &Import<'a>) -> Option<Path<'a>> {
        self.absolute(&[own, &import.within].concat(), &import.path, &BTreeMap::new())
    }

    /// Whether a file itself names what it hands on.
    fn is_named(&self, import: &Import<'a>, path: &Path<'a>, code: &Code<'a>) -> bool {
        match import.name {
            "*" => self.file_of(path).1.items.iter().any(|item| code.names.contains(item)),
            name => code.names.contains(&name),
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
    fn file_of(&self, path: &[&'a str]) -> &(&'a str, Code<'a>) {
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
        let code = &self.0[&of].1;
        for import in &code.imports {
            let Some(from) = self.import(&of, import) else { continue };
            let next = match import.name {
                "*" if self.file_of(&from).1.items.contains(&name) => {
                    [&from[..from.len() - 1], rest.as_slice()].concat()
                }
                _ if import.name == name && !self.0.contains_key(&from) => {
                    [from.as_slice(), further].concat()
                }
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

    fn cycle(files: &[(&str, &str)]) -> Option<String> {
        let owned = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
        let files: Vec<_> = [("lib.rs", "mod a; mod b; mod c;")].iter().chain(files).map(owned).collect();
        shortest_cycle(&uses(&files, false))
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
        let files =
            |b: &str| [("a.rs", a), ("b.rs", b)].map(|(file, text)| (file.to_owned(), text.to_owned()));
        let found = shortest_cycle(&uses(&files(b), true));
        assert_eq!(found.as_deref(), Some("a.rs -> b.rs (B) -> a.rs (only)"));
        assert_eq!(shortest_cycle(&uses(&files(b), false)), None);
        let other = format!("{b}\nimpl B {{ fn only(&self) {{}} }}");
        assert_eq!(shortest_cycle(&uses(&files(&other), true)), None, "it may be either's");
        let own = |b: &str| {
            [
                ("a.rs", "use crate::b::B;\nimpl B { fn g(&self) {} }"),
                ("b.rs", b),
                ("c.rs", "impl C { fn g(&self) {} }"),
            ]
            .map(|(file, text)| (file.to_owned(), text.to_owned()))
        };
        let found = shortest_cycle(&uses(&own("pub struct B;\nimpl B { fn f(&self) { self.g(); } }"), true))
            .is_some();
        assert!(found, "it is of the type that calls it");
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
        let files = of_crate(&sources(paths::workspace()).unwrap(), "transport");
        let uses = uses(&files, true);
        assert!(uses["message/core.rs"]["objects/device.rs"].contains("Devices"));
        assert!(uses["message/fail.rs"]["message/flush.rs"].contains("flush"));
        assert!(!uses.contains_key("tests/mod.rs"));
    }
}
