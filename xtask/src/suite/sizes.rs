//! No file of the project, and no function, is longer than one can read at a time.

use anyhow::{Result, bail};
use vrdma_lab::paths;
use vrdma_lab::proc::indent;

use super::sources::sources;

/// Most lines of a file, without its tests.
const MOST: usize = 600;
/// Most lines of code of a function.
const MOST_OF_FUNCTION: usize = 80;

/// Fails if a file or a function is longer.
pub fn check() -> Result<()> {
    let mut long = Vec::new();
    for (file, text) in sources(paths::workspace())? {
        if is_generated(&text) {
            continue;
        }
        let lines = lines(&text);
        if lines.len() > MOST {
            long.push(format!("{file}: {} lines", lines.len()));
        }
        let functions = functions(&lines, file.ends_with(".rs"))
            .into_iter()
            .filter(|(_, length)| *length > MOST_OF_FUNCTION);
        long.extend(functions.map(|(head, length)| format!("{file}: {length} lines of code in `{head}`")));
    }
    if long.is_empty() {
        return Ok(());
    }
    bail!(
        "files of more than {MOST} lines, or functions of more than {MOST_OF_FUNCTION} (tests not counted); split them by what they are about:\n{}",
        indent(&long.join("\n"))
    )
}

/// Whether the comment at its beginning says that a program wrote it.
fn is_generated(text: &str) -> bool {
    let mut comment = text.lines().take_while(|line| line.starts_with(['/', ' ', '*']));
    comment.any(|line| line.trim_start_matches([' ', '*', '/']).starts_with("Generated from "))
}

/// The lines of a file without its modules of tests.
fn lines(text: &str) -> Vec<&str> {
    let (mut lines, mut end) = (Vec::new(), None);
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        match &end {
            Some(last) if line == last => end = None,
            Some(_) => {}
            None if line.trim() == "#[cfg(test)]" && rest.peek().is_some_and(|next| is_module(next)) => {
                end = Some(format!("{}}}", indentation(line)));
            }
            None => lines.push(line),
        }
    }
    lines
}

/// Each function in these lines of Rust or C: the line of its head, and how many lines of code its
/// body has.
fn functions<'a>(lines: &[&'a str], are_rust: bool) -> Vec<(&'a str, usize)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let rest = &lines[at..];
        // rustfmt closes a function below the beginning of its head; C's body has lines of its own
        // for its braces.
        let (begin, end) = if are_rust {
            (is_rust_head(line).then(|| body(rest)).flatten(), format!("{}}}", indentation(line)))
        } else {
            ((rest.get(1) == Some(&"{")).then_some(2), "}".to_owned())
        };
        let Some(begin) = begin else { continue };
        let body = rest[begin..].iter().take_while(|line| **line != end);
        found.push((line.trim(), body.filter(|line| is_code(line)).count()));
    }
    found
}

/// Whether a function of Rust begins in this line.
fn is_rust_head(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let before = words.by_ref().take_while(|word| *word != "fn").collect::<Vec<_>>();
    // `pub(in a::b)` is two words.
    let may = |word: &&str| {
        word.starts_with("pub")
            || word.ends_with(')')
            || ["const", "async", "unsafe", "extern", "\"C\""].contains(word)
    };
    before.iter().all(may) && words.next().is_some()
}

/// Where the body of the function that begins in the first line begins; none if it has none, or in
/// one line.
fn body(lines: &[&str]) -> Option<usize> {
    let last = lines.iter().position(|line| line.ends_with(['{', ';', '}']))?;
    lines[last].ends_with('{').then_some(last + 1)
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line != "*" && !["//", "/*", "* ", "*/"].iter().any(|word| line.starts_with(word))
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// Whether a line begins a module that follows in the same file.
fn is_module(line: &str) -> bool {
    let line = line.trim_start();
    ["mod ", "pub mod ", "pub(crate) mod "].iter().any(|word| line.starts_with(word)) && line.ends_with('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_count() {
        let code = "fn a() {\n    b();\n}\n";
        let tests = "#[cfg(test)]\nmod tests {\n    fn c() {\n    }\n}\n";
        let length = |text: &str| lines(text).len();
        assert_eq!(length(code), 3);
        assert_eq!(length(&format!("{code}{tests}{code}")), 6);
        // A module in a file of its own, and anything else that only tests have, is a line like any
        // other.
        assert_eq!(length("#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn d() {}\n"), 4);
    }

    #[test]
    fn functions_are_measured_by_their_code() {
        let rust = "impl A {\n    pub(in crate::a) unsafe fn a<T>(\n        x: T,\n    ) -> u8\n    where\n        T: B,\n    {\n        // Why.\n\n        if x {\n            1\n        }\n    }\n    fn b();\n    fn c() {}\n}\n";
        assert_eq!(functions(&lines(rust), true), [("pub(in crate::a) unsafe fn a<T>(", 3)]);
        let c =
            "static int a(int x,\n\t\t int y)\n{\n\t/* why */\n\treturn x;\n}\nstruct b {\n\tint c;\n};\n";
        assert_eq!(functions(&lines(c), false), [("int y)", 1)]);
        let text = paths::read(&paths::workspace().join("xtask/src/suite/sizes.rs")).unwrap();
        let found = functions(&lines(&text), true);
        assert!(
            found.iter().any(|(head, length)| head.starts_with("pub fn check()") && *length > 10),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_generated_says_so() {
        assert!(is_generated("/* SPDX */\n/*\n * Generated from the crate vrdma-abi\n */\n#define A 1\n"));
        assert!(!is_generated("/* SPDX */\nint a;\n/* Generated from nothing */\n"));
    }
}
