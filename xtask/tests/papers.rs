//! Papers that name tests name those that are there.

use std::path::Path;

use xtask::{paths, vmtest};

/// Names between backticks, each with the character behind it.
fn quoted(text: &str) -> impl Iterator<Item = (&str, char)> {
    let mut parts = text.split('`').peekable();
    std::iter::from_fn(move || {
        parts.next()?;
        let name = parts.next()?;
        let behind = parts.peek().and_then(|rest| rest.chars().next()).unwrap_or(' ');
        Some((name, behind))
    })
}

/// What is wrong with the tests in VMs that a text names. A star marks those of `--long`.
fn faults_of_vm_tests(text: &str) -> Vec<String> {
    let tests = vmtest::all();
    let fault = |(name, behind): (&str, char)| {
        let Some(test) = tests.iter().find(|test| test.name == name) else {
            return Some(format!("{name}: there is no such test"));
        };
        (test.long != (behind == '*')).then(|| format!("{name}: --long is {}", test.long))
    };
    quoted(text)
        .filter(|(name, _)| name.starts_with("vm-") && !name.ends_with("..."))
        .filter_map(fault)
        .collect()
}

/// What stands between backticks and looks like a file of the end-to-end tests, in the rows of a table that have no
/// crate before it.
fn missing_files(text: &str) -> Vec<String> {
    let directory = paths::workspace().join("tests/tests/end_to_end");
    let is_there = |name: &str| directory.join(format!("{name}.rs")).is_file();
    let tests = text.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.rsplit_once(" | "));
    let groups = tests.flat_map(|(_, tests)| tests.split(';')).filter(|group| !group.contains(':'));
    let names = groups.flat_map(quoted).map(|(name, _)| name);
    let plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    names.filter(plain).filter(|name| *name != "demo" && !is_there(name)).map(str::to_owned).collect()
}

fn evidence() -> String {
    paths::read(&paths::workspace().join("docs/evidence.md")).unwrap()
}

#[test]
fn evidence_names_tests_that_are_there() {
    let text = evidence();
    assert_eq!(faults_of_vm_tests(&text), Vec::<String>::new());
    assert_eq!(missing_files(&text), Vec::<String>::new());
    assert!(quoted(&text).count() > 100, "too few names for that to mean something");
}

#[test]
fn names_that_are_wrong_are_found() {
    let text = "| promise | `vm-ping`, `vm-perftest`, `vm-gone`; `wire`, `nowhere`; crate: `elsewhere` |";
    let faults = faults_of_vm_tests(text);
    assert_eq!(faults, ["vm-perftest: --long is true", "vm-gone: there is no such test"]);
    assert_eq!(missing_files(text), ["nowhere"]);
}

#[test]
fn links_of_papers_lead_somewhere() {
    let workspace = paths::workspace();
    for paper in ["README.md", "docs/commands.md", "docs/evidence.md", "docs/testing.md"] {
        let text = paths::read(&workspace.join(paper)).unwrap();
        let folder = workspace.join(paper);
        let folder = folder.parent().unwrap_or(Path::new("."));
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            assert!(file.is_empty() || folder.join(file).exists(), "{paper}: {target}");
        }
    }
}

#[test]
fn readme_is_short() {
    let lines = paths::read(&paths::workspace().join("README.md")).unwrap().lines().count();
    assert!(lines <= 150, "{lines} lines");
}
