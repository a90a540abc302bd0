//! The source files that checks read.

use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, thread};

use anyhow::{Context, Error, Result};
use vrdma_lab::hash::is_output;
use vrdma_lab::paths;

use super::rust::{self, Code};

/// A file of ours.
pub struct Source {
    /// Its path in the workspace.
    pub file: String,
    /// What is in it.
    pub text: String,
    /// What it says, if it is of Rust.
    pub code: Option<Code>,
    /// It is of a module that only tests have.
    is_of_tests: bool,
}

impl Source {
    /// Whether it is a test as a whole.
    pub fn is_test(&self) -> bool {
        self.is_of_tests || is_in_tests(&self.file)
    }

    /// Its path below this folder, if it is there and is no test of it.
    pub fn product_below(&self, folder: &str) -> Option<&str> {
        self.file.strip_prefix(folder).filter(|file| !self.is_of_tests && !is_in_tests(file))
    }
}

/// What is made once, or the error.
type Once<T> = OnceLock<std::result::Result<Vec<T>, String>>;

/// Makes it the first time.
fn once<T>(once: &'static Once<T>, make: impl FnOnce() -> Result<Vec<T>>) -> Result<&'static [T]> {
    let made = once.get_or_init(|| make().map_err(|error| format!("{error:#}")));
    made.as_deref().map_err(|error| Error::msg(error.clone()))
}

/// The paths of all files of ours in the workspace, with their texts.
pub fn texts() -> Result<&'static [(String, String)]> {
    static TEXTS: Once<(String, String)> = OnceLock::new();
    once(&TEXTS, || read_all(paths::workspace()))
}

/// All files of ours.
pub fn all() -> Result<&'static [Source]> {
    static ALL: Once<Source> = OnceLock::new();
    once(&ALL, || parse(texts()?))
}

/// Files of ours, but for those that are tests as a whole.
pub fn sources() -> Result<impl Iterator<Item = &'static Source>> {
    Ok(all()?.iter().filter(|source| !source.is_test()))
}

/// The files of a folder, for tests that need no others.
#[cfg(test)]
pub fn below(folder: &str) -> Result<Vec<Source>> {
    let files = read_all(paths::workspace())?.into_iter().filter(|(file, _)| file.starts_with(folder));
    parse(&files.collect::<Vec<_>>())
}

/// Parses files, on all processors: it takes seconds.
pub fn parse(files: &[(String, String)]) -> Result<Vec<Source>> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let parts = files.chunks(files.len().div_ceil(processors).max(1));
    let parts: Result<Vec<Vec<Source>>> = thread::scope(|scope| {
        let part = |part: &'_ [(String, String)]| part.iter().map(parse_one).collect();
        let threads: Vec<_> = parts.map(|files| scope.spawn(move || part(files))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let mut all: Vec<Source> = parts?.into_iter().flatten().collect();
    let tests: Vec<String> = all.iter().flat_map(test_modules).collect();
    for source in &mut all {
        source.is_of_tests = is_of_modules(&source.file, &tests);
    }
    Ok(all)
}

fn parse_one((file, text): &(String, String)) -> Result<Source> {
    let code = match file.ends_with(".rs") {
        true => Some(rust::read(text).with_context(|| format!("{file} does not parse"))?),
        false => None,
    };
    Ok(Source { file: file.clone(), text: text.clone(), code, is_of_tests: false })
}

/// All files of ours with their texts.
fn read_all(root: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    read_sources(root, root, &mut found)?;
    Ok(found)
}

/// The Rust and C files below a directory, relative to `root`. Without git: a bare machine has the
/// files alone.
fn read_sources(root: &Path, directory: &Path, found: &mut Vec<(String, String)>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        let is_source =
            path.extension().is_some_and(|extension| ["rs", "c", "h"].iter().any(|ours| extension == *ours));
        if is_hidden || is_output(&path) {
            continue;
        } else if kind.is_dir() {
            read_sources(root, &path, found)?;
        } else if kind.is_file() && is_source {
            let file = path.strip_prefix(root)?.display().to_string();
            found.push((file, paths::read(&path)?));
        }
    }
    Ok(())
}

/// Modules of tests that a file declares and others hold: their paths without `.rs`.
fn test_modules(source: &Source) -> Vec<String> {
    let stem = source.file.strip_suffix(".rs").unwrap_or(&source.file);
    let folder = ["/mod", "/lib", "/main"].iter().find_map(|name| stem.strip_suffix(name)).unwrap_or(stem);
    let declared = source.code.iter().flat_map(|code| &code.test_files);
    declared.map(|name| format!("{folder}/{name}")).collect()
}

/// Whether a file is in a folder of tests, benchmarks or fuzz targets.
fn is_in_tests(file: &str) -> bool {
    file.split('/').any(|part| ["tests", "benches", "fuzz", "fuzzing"].contains(&part))
}

/// Whether a file is one of these modules, or within one.
fn is_of_modules(file: &str, modules: &[String]) -> bool {
    let of = |module: &String| {
        file.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    modules.iter().any(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_sources() {
        let modules = |file: &str, text: &str| {
            let sources = parse(&[(file.to_owned(), text.to_owned())]).unwrap();
            test_modules(&sources[0])
        };
        let of_lib = modules("a/src/lib.rs", "#[cfg(test)]\npub(crate) mod tests;\n");
        assert_eq!(of_lib, ["a/src/tests"]);
        let modules = modules("a/src/b.rs", "#[cfg(test)]\nmod model;\nmod other;\n");
        assert_eq!(modules, ["a/src/b/model"]);
        let is_test = |file: &str, modules: &[String]| {
            let source = parse_one(&(file.to_owned(), String::new())).unwrap();
            Source { is_of_tests: is_of_modules(file, modules), ..source }.is_test()
        };
        assert!(is_test("a/src/b/model.rs", &modules) && is_test("a/src/b/model/more.rs", &modules));
        assert!(is_test("a/tests/c.rs", &[]) && is_test("testing/fuzz/src/c.rs", &[]));
        assert!(!is_test("a/src/b/models.rs", &modules) && !is_test("a/src/b.rs", &modules));
        let end_to_end = parse_one(&("tests/src/remote_host.rs".into(), String::new())).unwrap();
        assert_eq!(end_to_end.product_below("tests/src/"), Some("remote_host.rs"));
    }

    #[test]
    fn the_sources_are_found() {
        let own = below("xtask/src/suite/").unwrap();
        let own = own.iter().find(|source| source.file == "xtask/src/suite/sources.rs").unwrap();
        assert!(own.code.as_ref().is_some_and(|code| code.product.items.contains(&"sources".to_owned())));
        assert!(texts().unwrap().iter().any(|(file, _)| file.ends_with(".c")));
        assert!(parse_one(&("a.c".into(), "int a;".into())).unwrap().code.is_none());
    }
}
