//! The structure of the guest's kernel module.
//!
//! A file calls and includes only what is on a floor below its own. The table of floors is in the
//! module's README. No file is longer than 600 lines, and no function longer than 60.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const MOST_LINES_OF_A_FILE: usize = 600;
const MOST_LINES_OF_A_FUNCTION: usize = 60;

/// Files of the module: their names and texts.
type Files = BTreeMap<String, String>;

/// A definition at the outermost level of a file.
struct Definition {
    name: String,
    /// Whether it is static, that is, visible only in this file.
    private: bool,
    /// Number of lines, from the first one to the closing brace.
    lines: usize,
    function: bool,
}

#[test]
fn calls_of_the_module_go_down() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/kernel");
    let mut files = Files::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if is_source(&name) || ["README.md", "Kbuild"].contains(&name.as_str()) {
            files.insert(name.clone(), fs::read_to_string(directory.join(&name)).unwrap());
        }
    }
    let faults = faults(&files);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn each_fault_is_found() {
    let good = Files::from(
        [
            ("README.md", "| 0 | `base.h` | words |\n| 1 | `low.c` | low? |\n| 2 | `high.c` | high? |\n"),
            ("Kbuild", "obj-m := module.o\nmodule-y := high.o \\\n\tlow.o\n"),
            ("base.h", "static inline int base(void)\n{\n\treturn 1;\n}\n"),
            ("low.h", "#include \"base.h\"\nint low(int a,\n\tint b);\nextern const int lows[];\n"),
            (
                "low.c",
                "#include \"low.h\"\nint low(int a,\n\tint b)\n{\n\t/* Not high(). */\n\treturn base();\n}\nconst int lows[] = {\n};\n",
            ),
            ("high.h", "int high(void);\n"),
            ("high.c", "#include \"low.h\"\nstatic int own(void)\n{\n\treturn low(1, 2);\n}\nint high(void)\n{\n\treturn own() + lows[0];\n}\n"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned())),
    );
    assert_eq!(faults(&good), Vec::<String>::new());

    let with = |file: &str, from: &str, to: &str| {
        let mut files = good.clone();
        let text = files.get_mut(file).unwrap();
        assert!(text.contains(from));
        *text = text.replace(from, to);
        faults(&files)
    };
    assert_eq!(with("low.c", "return base()", "return high()"), ["low.c uses high() of high.c, on floor 2"]);
    assert_eq!(with("low.h", "base.h", "high.h"), ["low.h includes high.h, on floor 2"]);
    assert_eq!(with("README.md", "| 2 |", "| 1 |").len(), 3, "of the same floor is not below");
    assert_eq!(with("README.md", "| 2 | `high.c`", "| high"), ["high.c is in no row of README.md"]);
    assert_eq!(with("Kbuild", "low.o", "last.o"), ["Kbuild names high, last; the sources are high, low"]);
    assert_eq!(
        with("README.md", "| 2 | `high.c`", "| 3 | `gone.c` | |\n| 2 | `high.c`"),
        ["there is no gone.c"]
    );
    let long = "\n".repeat(MOST_LINES_OF_A_FUNCTION);
    assert_eq!(
        with("low.c", "\treturn", &format!("{long}\treturn")),
        ["low() of low.c has 66 lines"],
        "signature, braces and comment count"
    );
    let long = "\n".repeat(MOST_LINES_OF_A_FILE);
    let one_more = MOST_LINES_OF_A_FILE + 1;
    assert_eq!(with("high.h", "int", &format!("{long}int")), [format!("high.h has {one_more} lines")]);
}

fn is_source(name: &str) -> bool {
    name.ends_with(".c") || name.ends_with(".h")
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Returns what is wrong with the files, one sentence for each fault.
fn faults(files: &Files) -> Vec<String> {
    let floors = floors(&files["README.md"]);
    let sources: BTreeMap<&str, String> = files
        .iter()
        .filter(|(name, _)| is_source(name))
        .map(|(name, text)| (name.as_str(), without_comments(text)))
        .collect();

    let mut faults: Vec<String> = floors
        .keys()
        .filter(|stem| !sources.keys().any(|name| self::stem(name) == **stem))
        .map(|stem| format!("there is no {stem}.c"))
        .collect();
    faults.extend(kbuild_fault(&files["Kbuild"], &sources));

    let mut owners = BTreeMap::new();
    for (name, text) in &sources {
        for definition in definitions(text) {
            if definition.function && definition.lines > MOST_LINES_OF_A_FUNCTION {
                faults.push(format!("{}() of {name} has {} lines", definition.name, definition.lines));
            }
            if !definition.private || name.ends_with(".h") {
                owners.insert(definition.name, *name);
            }
        }
    }
    for (name, text) in &sources {
        let lines = text.lines().count();
        if lines > MOST_LINES_OF_A_FILE && *name != "vrdma_abi.h" {
            faults.push(format!("{name} has {lines} lines"));
        }
        if let Some(&floor) = floors.get(stem(name)) {
            faults.extend(upward(name, floor, text, &floors, &owners));
        } else if name.ends_with(".c") || !sources.contains_key(format!("{}.c", stem(name)).as_str()) {
            // A header belongs to the row of its source file.
            faults.push(format!("{name} is in no row of README.md"));
        }
    }
    faults
}

/// Returns a file's uses and includes that do not go to a lower floor.
fn upward(
    name: &str,
    floor: u32,
    text: &str,
    floors: &BTreeMap<String, u32>,
    owners: &BTreeMap<String, &str>,
) -> Vec<String> {
    let goes_up = |other: &str| {
        let to = floors.get(stem(other)).copied()?;
        (stem(other) != stem(name) && to >= floor).then_some(to)
    };
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for line in text.lines() {
        let Some(included) = line.strip_prefix("#include ") else {
            used.extend(words(line));
            continue;
        };
        let included = included.trim_matches('"');
        if let Some(to) = goes_up(included) {
            faults.push(format!("{name} includes {included}, on floor {to}"));
        }
    }
    for (function, owner) in owners.iter().filter(|(function, _)| used.contains(function.as_str())) {
        if let Some(to) = goes_up(owner) {
            faults.push(format!("{name} uses {function}() of {owner}, on floor {to}"));
        }
    }
    faults
}

/// Parses the rows `| floor | `file` | question |` of the README.
fn floors(readme: &str) -> BTreeMap<String, u32> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let floor = cells.next()?.parse().ok()?;
        let file = cells.next()?.trim_matches('`');
        Some((stem(file).to_owned(), floor))
    };
    readme.lines().filter_map(row).collect()
}

/// Returns a fault if the objects that Kbuild links are not those of all sources.
fn kbuild_fault(kbuild: &str, sources: &BTreeMap<&str, String>) -> Option<String> {
    let (_, objects) = kbuild.split_once("-y :=")?;
    let linked: BTreeSet<&str> =
        objects.split_whitespace().filter_map(|object| object.strip_suffix(".o")).collect();
    let there: BTreeSet<&str> = sources.keys().filter_map(|name| name.strip_suffix(".c")).collect();
    let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    (linked != there).then(|| format!("Kbuild names {}; the sources are {}", list(&linked), list(&there)))
}

fn words(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
}

/// Removes comments, and keeps their line breaks. No string of the module contains `/*`.
fn without_comments(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((code, comment)) = rest.split_once("/*") {
        let (comment, after) = comment.split_once("*/").expect("comments end");
        result.push_str(code);
        result.extend(comment.matches('\n'));
        rest = after;
    }
    result.push_str(rest);
    result
}

/// Returns the functions, and the data with an initial value, that a file defines.
fn definitions(text: &str) -> Vec<Definition> {
    let mut definitions = Vec::new();
    // `head` and `lines` are the text since the last definition or declaration, and its length.
    let (mut head, mut lines, mut depth) = (String::new(), 0, 0_i32);
    let mut directive = false;
    for line in text.lines() {
        let continued = directive;
        directive = (continued || line.starts_with('#')) && line.ends_with('\\');
        if continued || line.starts_with('#') || (head.is_empty() && line.trim().is_empty()) {
            continue;
        }
        lines += 1;
        if depth == 0 {
            head.push_str(line.split('{').next().unwrap_or_default());
            head.push(' ');
        }
        depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
        if depth == 0 && line.contains(['}', ';']) {
            definitions.extend(line.contains('}').then(|| definition(&head, lines)).flatten());
            (head, lines) = (String::new(), 0);
        }
    }
    definitions
}

/// Returns the definition of a block with this text before it, or `None` for a type.
fn definition(head: &str, lines: usize) -> Option<Definition> {
    let private = head.starts_with("static");
    let function = !head.contains('=');
    let end = if function { head.find('(')? } else { head.find(['[', '='])? };
    let name = words(head[..end].trim_end()).next_back()?.to_owned();
    Some(Definition { name, private, lines, function })
}
