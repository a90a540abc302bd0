//! Who knows the words of both abi and transport: the files that ARCHITECTURE.md names, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file: without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Files that name both crates, relative to `src`.
fn both() -> BTreeSet<String> {
    let root = Path::new(ROOT).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 50, "the sources are not all there: {files:?}");
    let name = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let names_both = |path: &PathBuf| {
        let code = code(&fs::read_to_string(path).unwrap());
        !path.ends_with("tests.rs") && code.contains("vrdma_abi") && code.contains("vrdma_transport")
    };
    files.iter().filter(|path| names_both(path)).map(name).collect()
}

/// The files that ARCHITECTURE.md lists, in the paragraph that begins so.
fn listed() -> BTreeSet<String> {
    const BEGIN: &str = "These files alone name both crates:";
    let text = fs::read_to_string(Path::new(ROOT).join("../ARCHITECTURE.md")).unwrap();
    let (_, rest) = text.split_once(BEGIN).expect("ARCHITECTURE.md says which files name both crates");
    let paragraph = rest.split("\n\n").next().unwrap_or_default();
    paragraph.split('`').filter(|word| word.ends_with(".rs")).map(str::to_owned).collect()
}

#[test]
fn only_the_files_that_architecture_lists_know_abi_and_transport() {
    assert_eq!(both(), listed());
    assert!(both().iter().all(|file| file.starts_with("translate/")));
}
