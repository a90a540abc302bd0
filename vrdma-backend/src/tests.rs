//! Compares the lists in the crate's documentation (`lib.rs`, "Files") with the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The code of a file: without comments, and without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let heads =
        ["mod tests", "pub mod tests", "pub(crate) mod tests"].map(|head| format!("#[cfg(test)]\n{head}"));
    let end = heads.iter().filter_map(|head| text.find(head)).min().unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Each file, relative to `src`, and its code.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(ROOT).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    assert!(files.len() > 50, "the sources are not all there: {files:?}");
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    files.iter().map(|path| (name(path), code(path))).collect()
}

/// The documentation of the crate: the lines of `lib.rs` that begin with `//!`, without that mark.
fn documentation() -> String {
    let text = fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim).collect::<Vec<_>>().join("\n")
}

/// Returns the names in backticks between `begin` and the end of its paragraph in the
/// documentation.
fn listed(begin: &str) -> Vec<String> {
    let text = documentation();
    let (_, rest) =
        text.split_once(begin).unwrap_or_else(|| panic!("the documentation in lib.rs lacks: {begin}"));
    let paragraph = rest.split("\n\n").next().unwrap_or_default();
    paragraph.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn only_commands_and_translations_name_abi_and_transport() {
    let names_both = |code: &str| code.contains("vrdma_abi") && code.contains("vrdma_transport");
    let both: BTreeSet<_> =
        sources().into_iter().filter(|(_, code)| names_both(code)).map(|(file, _)| file).collect();
    let is_one =
        |file: &String| ["translate/", "command/", "fuzzing/"].iter().any(|folder| file.starts_with(folder));
    assert!(both.len() > 10 && both.iter().all(is_one), "{both:?}");
}

#[test]
fn modules_use_only_modules_listed_before_them() {
    let order = listed("Each of these modules uses only those before it:");
    let place = |module: &str| order.iter().position(|name| name == module);
    for (file, code) in sources() {
        let module = file.split(['/', '.']).next().unwrap_or_default();
        if ["lib", "main"].contains(&module) {
            continue;
        }
        let own = place(module).unwrap_or_else(|| panic!("lib.rs does not list the module {module}"));
        for used in modules_named(&file, &code) {
            assert!(place(used).is_some_and(|used| used <= own), "{file} uses {used}");
        }
    }
}

/// Returns the modules of the crate's root that a file names.
///
/// A file names them by `crate::`, or by as many `super::` as lead to the root.
fn modules_named<'a>(file: &str, code: &'a str) -> Vec<&'a str> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let supers = "super::".repeat(path.split('/').count());
    let named = |to_root: &str| -> Vec<&'a str> {
        code.match_indices(to_root)
            .map(|(at, _)| &code[at + to_root.len()..])
            .map(|rest| {
                rest.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next().unwrap_or_default()
            })
            .collect()
    };
    [named("crate::"), named(&supers)].concat()
}

#[test]
fn documentation_names_every_file() {
    let text = documentation();
    for (file, _) in sources().iter().filter(|(file, _)| file != "lib.rs") {
        let folder = |end: usize| format!("`{}/`", &file[..end]);
        let named = text.contains(&format!("`{file}`"))
            || file.match_indices('/').any(|(at, _)| text.contains(&folder(at)));
        assert!(named || file.ends_with("/mod.rs"), "the documentation in lib.rs does not name {file}");
    }
}

#[test]
fn paths_by_super_lead_to_modules_too() {
    let code = "use super::Worker;\nuse super::super::net::Net;\nuse crate::port;";
    assert_eq!(modules_named("worker/order.rs", code), ["port", "net"]);
    assert_eq!(modules_named("worker/deep/order.rs", code), ["port"]);
    assert_eq!(modules_named("port/mod.rs", "use super::worker::Worker;"), ["worker"]);
    assert_eq!(modules_named("socket.rs", "fn f(x: &super::worker::Worker) {}"), ["worker"]);
}
