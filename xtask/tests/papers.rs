//! Checks of documents: their links exist, they are short, and docs/evidence.md names tests that
//! exist.
//!
//! In docs/evidence.md the names of tests in VMs and of files of end-to-end tests are checked, but
//! not the names of single tests.

use vrdma_lab::paths;

/// Returns names between backticks, each with the character that follows it.
fn quoted(text: &str) -> impl Iterator<Item = (&str, char)> {
    let mut parts = text.split('`').peekable();
    std::iter::from_fn(move || {
        parts.next()?;
        let name = parts.next()?;
        let behind = parts.peek().and_then(|rest| rest.chars().next()).unwrap_or(' ');
        Some((name, behind))
    })
}

/// Returns what is wrong with the tests in VMs that a text names. A star marks `--long` tests.
fn faults_of_vm_tests(text: &str) -> Vec<String> {
    let tests = vrdma_vm_tests::all();
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

/// Returns names of end-to-end test files that do not exist.
///
/// These are names between backticks in rows of tables, unless a crate's name precedes them.
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

/// Returns the names and texts of README, the manual pages, and the documents for users, builders
/// and readers.
fn papers() -> Vec<(String, String)> {
    let workspace = paths::workspace();
    let names = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/audit.md",
        "docs/cases.md",
        "docs/commands.md",
        "docs/evidence.md",
        "docs/performance.md",
        "docs/testing.md",
    ];
    let manual = [
        "admin",
        "ethernet",
        "iwarp",
        "libvirt",
        "monitoring",
        "qos",
        "security",
        "troubleshooting",
        "uplink",
        "vrdma-backend",
        "vrdma-ctl",
        "workers",
    ];
    let manual = manual.map(|page| format!("docs/{page}.md"));
    let mut names: Vec<String> = names.map(str::to_owned).into_iter().chain(manual).collect();
    for entry in std::fs::read_dir(workspace.join("docs/design")).unwrap() {
        names.push(format!("docs/design/{}", entry.unwrap().file_name().to_string_lossy()));
    }
    assert!(names.len() > 15, "papers are missing: {names:?}");
    let read = |name: String| {
        let text = paths::read(&workspace.join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// Returns paragraphs and list items, each on one line, without code, tables, headings or diagrams.
fn prose(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.is_empty() || line.starts_with(['|', '#']) || line.starts_with("```") {
            paragraphs.push(String::new());
            continue;
        }
        let numbered = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
        if item.is_some() || numbered {
            paragraphs.push(String::new());
        }
        let paragraph = paragraphs.last_mut().expect("it has one from the beginning on");
        paragraph.push_str(item.unwrap_or(line));
        paragraph.push(' ');
    }
    paragraphs
}

/// The highest number of words in a sentence.
const WORDS: usize = 30;

/// Returns the sentences with too many words.
fn long_sentences(text: &str) -> Vec<String> {
    let ends = |paragraph: &str| paragraph.replace(". ", ".\n").replace("? ", "?\n").replace("! ", "!\n");
    let sentences = prose(text)
        .into_iter()
        .flat_map(|paragraph| ends(&paragraph).lines().map(str::to_owned).collect::<Vec<_>>());
    sentences.filter(|sentence| sentence.split_whitespace().count() > WORDS).collect()
}

#[test]
fn sentences_of_papers_are_short() {
    for (name, text) in papers() {
        assert_eq!(long_sentences(&text), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn long_sentences_are_found() {
    let long = vec!["word"; WORDS + 1].join(" ");
    let just = vec!["word"; WORDS].join(" ");
    let text =
        format!("# {long}\n\nShort. {just}.\n{just}.\n\n```\n{long}\n```\n- {just}\n- {long}.\n| {long} |\n");
    assert_eq!(long_sentences(&text), [format!("{long}.")]);
}

#[test]
fn lines_of_papers_fit_a_screen() {
    for (name, text) in papers() {
        let long = |line: &&str| line.chars().count() > 100 && !line.starts_with('|');
        assert_eq!(text.lines().find(long), None, "{name}");
    }
}

#[test]
fn papers_that_are_read_first_are_short() {
    let read = |name: &str| paths::read(&paths::workspace().join(name)).unwrap();
    let (lines, bytes) = (read("README.md").lines().count(), read("ARCHITECTURE.md").len());
    assert!(lines <= 150 && bytes <= 12_000, "README.md: {lines} lines, ARCHITECTURE.md: {bytes} bytes");
    let lines = read("docs/performance.md").lines().count();
    assert!(lines <= 80, "docs/performance.md: {lines} lines");
}

#[test]
fn links_of_papers_lead_somewhere() {
    let others = ["SECURITY.md", "docs/performance/report.md"];
    let others = others.map(|name| (name.to_owned(), paths::read(&paths::workspace().join(name)).unwrap()));
    for (paper, text) in papers().into_iter().chain(others) {
        let path = paths::workspace().join(&paper);
        let folder = path.parent().expect("it lies in the workspace");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            assert!(file.is_empty() || folder.join(file).exists(), "{paper}: {target}");
        }
    }
}

/// Returns the paths between backticks in a text: of source files, with a folder.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    let ends = [".rs", ".c", ".h", ".py"];
    let is_path = move |name: &&str| name.contains('/') && ends.iter().any(|end| name.ends_with(end));
    let plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>*{}".contains(&byte));
    // CONTRIBUTING.md writes NAME where the reader chooses one.
    quoted(text).map(|(name, _)| name).filter(is_path).filter(plain).filter(|name| !name.contains("NAME"))
}

#[test]
fn files_that_papers_name_exist() {
    // A paper may name a file from where its text is about.
    let roots = [
        "",
        "docs",
        "vrdma-backend/src",
        "transport/src",
        "transport/tcp/src",
        "wire/src",
        "testing/lab",
        "xtask/src",
    ];
    let mut count = 0;
    for (paper, text) in papers().into_iter().filter(|(paper, _)| !paper.ends_with("moved.md")) {
        for name in named_paths(&text) {
            let is_there = |root: &&str| paths::workspace().join(root).join(name).is_file();
            assert!(roots.iter().any(is_there), "{paper}: there is no {name}");
            count += 1;
        }
    }
    assert!(count > 100, "too few paths for that to mean something: {count}");
    let text = "`a/b.rs` and `b.rs`, `a/NAME.rs`, `a/{b,c}.rs`; `x/y.py`";
    assert_eq!(named_paths(text).collect::<Vec<_>>(), ["a/b.rs", "x/y.py"]);
}
