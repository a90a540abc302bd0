//! What a VM's kernel says when it has found a fault.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Exit, Vm};

/// How each of its reports begins, or a line of it.
const REPORTS: &[&str] = &[
    r"\bBUG\b",
    "WARNING:",
    "Oops",
    "Call Trace",
    // That of a process is "general protection fault ip:".
    "general protection fault[,:]",
    // Whatever else a program does wrong is its own.
    r"(segfault|general protection).* in libvrdma",
    "Kernel panic",
    "KASAN:",
    "UBSAN:",
    "ODEBUG disabled",
    "refcount_t:",
    "(list_add|list_del) corruption",
    "possible (circular|recursive|irq)",
    "inconsistent lock state",
    "suspicious RCU",
    "INFO: trying to register non-static key",
    "blocked for more than",
    "self-detected stall",
    "detected stalls on",
    "kmemleak: .* suspected memory leaks",
    "Kernel memory leak detector disabled",
];

/// What a kernel says of the crash of a program that destroys the library's objects behind its
/// back: it counts its crashes itself.
const ITS_OWN: &str = r"vr-random\[[0-9]+\]:? (segfault|general protection)";

/// The first report in a kernel's messages, with what follows it; `None` if there is none.
pub fn first(vm: &Vm, patience: Duration) -> Result<Option<String>> {
    // grep's status is that of the whole, so what cannot be read is looked at first.
    let command = format!(
        "dmesg >/dev/null || exit 2; dmesg | grep -vE '{ITS_OWN}' | grep -E -m 1 -B 1 -A 70 '{}'",
        REPORTS.join("|")
    );
    let output = vm.exec(&command, patience)?;
    match output.exit {
        Exit::Code(0) => Ok(Some(output.text())),
        Exit::Code(1) => Ok(None),
        _ => bail!("VM {}'s kernel messages: {:?}", vm.name(), output.exit),
    }
}

/// An error if a kernel has reported a fault.
pub fn expect_none(vm: &Vm, patience: Duration) -> Result<()> {
    match first(vm, patience)? {
        Some(report) => bail!("VM {}'s kernel: {report}", vm.name()),
        None => Ok(()),
    }
}
