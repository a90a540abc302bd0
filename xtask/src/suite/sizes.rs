//! No file of the project, and no function, is longer than one can read at a time.

use anyhow::{Result, bail};
use vrdma_lab::proc::indent;

use super::rust::{Code, Function};
use super::sources::{Source, sources};

/// Most lines of a file, without its tests.
const MOST: usize = 600;
/// Most lines of code of a function.
const MOST_OF_FUNCTION: usize = 80;

/// Fails if a file or a function is longer.
pub fn check() -> Result<()> {
    let mut long = Vec::new();
    for Source { file, text, code, .. } in sources()? {
        if is_generated(text) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        let (length, functions) = match code {
            Some(code) => (length(&lines, code), functions(&lines, code)),
            None => (lines.len(), functions_of_c(&lines)),
        };
        if length > MOST {
            long.push(format!("{file}: {length} lines"));
        }
        let functions = functions.into_iter().filter(|(_, length)| *length > MOST_OF_FUNCTION);
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

/// How many lines a file of Rust has without its modules of tests.
fn length(lines: &[&str], code: &Code) -> usize {
    lines.len() - code.test_modules.iter().map(|(first, last)| 1 + last - first).sum::<usize>()
}

/// Each function of Rust: the line of its head, and how many lines of code its body has.
fn functions<'a>(lines: &[&'a str], code: &Code) -> Vec<(&'a str, usize)> {
    let measure = |Function { head, open, close }: &Function| {
        let body = &lines[*open..close - 1];
        (lines[head - 1].trim(), body.iter().filter(|line| is_code(line)).count())
    };
    code.functions.iter().map(measure).collect()
}

/// Each function in these lines of C: the last line of its head, and how many lines of code its
/// body has. The braces of a body have lines of their own.
fn functions_of_c<'a>(lines: &[&'a str]) -> Vec<(&'a str, usize)> {
    let begins = |at: &usize| lines.get(at + 1) == Some(&"{");
    let measure = |at: usize| {
        let body = lines[at + 2..].iter().take_while(|line| **line != "}");
        (lines[at].trim(), body.filter(|line| is_code(line)).count())
    };
    (0..lines.len()).filter(begins).map(measure).collect()
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line != "*" && !["//", "/*", "* ", "*/"].iter().any(|word| line.starts_with(word))
}

#[cfg(test)]
mod tests {
    use vrdma_lab::paths;

    use super::*;
    use crate::suite::rust;

    fn lines(text: &str) -> Vec<&str> {
        text.lines().collect()
    }

    #[test]
    fn tests_do_not_count() {
        let code = "fn a() {\n    b();\n}\n";
        let tests = "#[cfg(test)]\nmod tests {\n    fn c() {\n    }\n}\n";
        let length = |text: &str| length(&lines(text), &rust::read(text).unwrap());
        assert_eq!(length(code), 3);
        assert_eq!(length(&format!("{code}{tests}{code}")), 6);
        // A module in a file of its own, and anything else that only tests have, is a line like any
        // other.
        assert_eq!(length("#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn d() {}\n"), 4);
    }

    #[test]
    fn functions_are_measured_by_their_code() {
        let text = "impl A {\n    pub(in crate::a) unsafe fn a<T>(\n        x: T,\n    ) -> u8\n    where\n        T: B,\n    {\n        // Why.\n\n        if x {\n            1\n        }\n    }\n    fn b();\n    fn c() {}\n}\n";
        let of = |text| functions(&lines(text), &rust::read(text).unwrap());
        assert_eq!(of(text), [("pub(in crate::a) unsafe fn a<T>(", 3)]);
        let c =
            "static int a(int x,\n\t\t int y)\n{\n\t/* why */\n\treturn x;\n}\nstruct b {\n\tint c;\n};\n";
        assert_eq!(functions_of_c(&lines(c)), [("int y)", 1)]);
        let text = paths::read(&paths::workspace().join("xtask/src/suite/sizes.rs")).unwrap();
        let found = functions(&lines(&text), &rust::read(&text).unwrap());
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
