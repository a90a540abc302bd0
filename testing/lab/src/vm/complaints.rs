//! Fault reports in a VM's kernel log.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Exit, Vm};

/// Regular expressions for the first line of a report, or for another line of it.
const REPORTS: &[&str] = &[
    r"\bBUG\b",
    "WARNING:",
    "Oops",
    "Call Trace",
    // A process's fault is logged as "general protection fault ip:".
    "general protection fault[,:]",
    // Other faults of programs are their own.
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

/// Crashes of `vr-random`, which are no faults of vrdma.
///
/// The program destroys the library's objects behind its back, and counts its crashes itself.
const ITS_OWN: &str = r"vr-random\[[0-9]+\]:? (segfault|general protection)";

/// Returns the first report in a kernel log, with the lines that follow; `None` if there is none.
pub fn first(vm: &Vm, patience: Duration) -> Result<Option<String>> {
    // grep's status is that of the whole pipe. So dmesg runs first, to see whether it fails.
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

/// Fails if a kernel has reported a fault.
pub fn expect_none(vm: &Vm, patience: Duration) -> Result<()> {
    match first(vm, patience)? {
        Some(report) => bail!("VM {}'s kernel: {report}", vm.name()),
        None => Ok(()),
    }
}
