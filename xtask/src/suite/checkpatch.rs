//! The style of the guest's kernel module, as Linux's own checkpatch sees it.
//!
//! The newest kernel's checkpatch knows most. What it says has to be in a table here, with a
//! reason.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use vrdma_lab::kernel::Kernel;
use vrdma_lab::proc::{LONG, indent};
use vrdma_lab::{paths, proc};

/// A kind of message that is meant so.
struct Exception {
    /// The file, or `*` for all.
    file: &'static str,
    /// checkpatch's word for the kind of message.
    kind: &'static str,
    /// Why the code is right.
    #[expect(dead_code, reason = "for who reads the table")]
    reason: &'static str,
}

const fn exception(file: &'static str, kind: &'static str, reason: &'static str) -> Exception {
    Exception { file, kind, reason }
}

/// What checkpatch may say. An exception that it does not need is a fault.
const EXCEPTIONS: &[Exception] = &[
    exception("*", "ALLOC_WITH_SIZEOF", "kzalloc_obj() is not in Linux 6.1 and 6.12"),
    exception("*", "UNCOMMENTED_DEFINITION", "the kernel-doc of each structure says what its locks protect"),
    exception("cmdexec.h", "MACRO_ARG_REUSE", "sizeof does not evaluate its argument"),
    exception("compat.h", "CONSTANT_COMPARISON", "it takes KERNEL_VERSION() for a constant on the left side"),
    exception("compat.h", "LINUX_VERSION_CODE", "the file is for several versions of Linux"),
    exception("compat.h", "MACRO_ARG_REUSE", "the argument is the name of a function"),
    exception("vrdma_abi.h", "LINE_SPACING", "assertions of its layout follow each structure"),
];

/// Runs the newest kernel's `checkpatch --strict` on all sources of the module.
pub fn check() -> Result<()> {
    const SCRIPT: &str = "cd /mnt
        perl /usr/src/checkpatch/checkpatch.pl --strict --no-tree --no-signoff --terse --show-types \\
            --file *.c *.h || test $? = 1";
    // The root has it.
    let (root, _) = Kernel::Newest.headers()?;
    let sources = paths::workspace().join("guest-driver/kernel");
    let log = paths::log("checkpatch")?;
    proc::run_logged("checkpatch", proc::in_root(&root, &[(&sources, "/mnt")], SCRIPT), &log, LONG)?;
    let faults = faults(&paths::read(&log)?);
    if faults.is_empty() {
        return Ok(());
    }
    bail!("checkpatch --strict:\n{}", indent(&faults.join("\n")))
}

/// Returns the messages without an exception, and the exceptions without a message.
fn faults(said: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    let mut files = 0;
    for line in said.lines().filter(|line| !line.is_empty()) {
        if line.starts_with("total:") {
            files += 1;
            continue;
        }
        let excused = EXCEPTIONS.iter().position(|exception| is_of(exception, line));
        match excused {
            Some(index) => _ = used.insert(index),
            None => faults.push(line.to_owned()),
        }
    }
    if files == 0 {
        faults.push("it has checked no file".to_owned());
    }
    for (index, Exception { file, kind, .. }) in EXCEPTIONS.iter().enumerate() {
        if !used.contains(&index) {
            faults.push(format!("it does not say {kind} of {file}: the exception is not needed"));
        }
    }
    faults
}

/// Whether a line, `FILE:LINE: LEVEL:KIND: TEXT`, is of the exception's kind.
fn is_of(exception: &Exception, line: &str) -> bool {
    let mut words = line.splitn(5, ':').map(str::trim);
    let (file, kind) = (words.next(), words.nth(2));
    kind == Some(exception.kind) && (exception.file == "*" || file == Some(exception.file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What checkpatch says of the tree: a line for each exception.
    fn usual() -> String {
        let line = |Exception { file, kind, .. }: &Exception| {
            let file = if *file == "*" { "main.c" } else { *file };
            format!("{file}:7: CHECK:{kind}: some text: with a colon\n")
        };
        EXCEPTIONS.iter().map(line).collect::<String>()
            + "total: 0 errors, 0 warnings, 1 checks, 9 lines checked\n"
    }

    #[test]
    fn messages_with_an_exception_are_no_faults() {
        assert_eq!(faults(&usual()), Vec::<String>::new());
    }

    #[test]
    fn other_messages_are_faults() {
        for line in [
            "main.c:7: WARNING:LONG_LINE: line length of 105 exceeds 100 columns",
            "main.c:7: WARNING:LINUX_VERSION_CODE: LINUX_VERSION_CODE should be avoided",
            "main.c:7: CHECK:LINE_SPACING: UNCOMMENTED_DEFINITION",
            "Can't open perl script",
        ] {
            assert_eq!(faults(&format!("{line}\n{}", usual())), [line]);
        }
    }

    #[test]
    fn an_exception_that_is_not_needed_is_a_fault() {
        let said: String =
            usual().lines().filter(|line| !line.contains("ALLOC")).map(|line| format!("{line}\n")).collect();
        assert_eq!(faults(&said), ["it does not say ALLOC_WITH_SIZEOF of *: the exception is not needed"]);
        assert!(faults("").iter().any(|fault| fault == "it has checked no file"));
    }
}
