//! The source files that checks read.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use vrdma_lab::hash::is_output;
use vrdma_lab::paths;

/// Files of ours with their text, but for those that are tests as a whole.
pub fn sources(root: &Path) -> Result<Vec<(String, String)>> {
    let mut found = read_all(root)?;
    let tests: Vec<String> = found.iter().flat_map(|(file, text)| test_modules(file, text)).collect();
    found.retain(|(file, _)| !is_test(file, &tests));
    Ok(found)
}

/// All files of ours, tests too.
pub fn read_all(root: &Path) -> Result<Vec<(String, String)>> {
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
pub fn test_modules(file: &str, text: &str) -> Vec<String> {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let folder = ["/mod", "/lib", "/main"].iter().find_map(|name| stem.strip_suffix(name)).unwrap_or(stem);
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.windows(2).filter(|pair| pair[0].trim() == "#[cfg(test)]");
    let name = |pair: &[&str]| {
        let (_, name) = pair[1].trim().strip_suffix(';')?.split_once("mod ")?;
        Some(format!("{folder}/{name}"))
    };
    declared.filter_map(name).collect()
}

/// Whether a file is a test as a whole: of such a module, or in a folder of tests, benchmarks or
/// fuzz targets.
pub fn is_test(file: &str, modules: &[String]) -> bool {
    let of = |module: &String| {
        file.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    file.split('/').any(|part| ["tests", "benches", "fuzz", "fuzzing"].contains(&part))
        || modules.iter().any(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_sources() {
        let modules = test_modules("a/src/b.rs", "#[cfg(test)]\nmod model;\nmod other;\n");
        assert_eq!(modules, ["a/src/b/model"]);
        assert_eq!(test_modules("a/src/lib.rs", "#[cfg(test)]\npub(crate) mod tests;\n"), ["a/src/tests"]);
        assert!(is_test("a/src/b/model.rs", &modules) && is_test("a/src/b/model/more.rs", &modules));
        assert!(is_test("a/tests/c.rs", &[]) && is_test("testing/fuzz/src/c.rs", &[]));
        assert!(!is_test("a/src/b/models.rs", &modules) && !is_test("a/src/b.rs", &modules));
    }

    #[test]
    fn the_sources_are_found() {
        let found = sources(paths::workspace()).unwrap();
        assert!(found.iter().any(|(file, _)| file == "xtask/src/suite/sources.rs"));
        assert!(found.iter().any(|(file, _)| file.ends_with(".c")));
    }
}
