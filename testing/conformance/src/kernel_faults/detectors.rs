//! The fault detectors of a VM's kernel.
//!
//! Checks that they are on, that they found nothing, and that they find deliberate faults.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::ui;
use vrdma_lab::vm::{Vm, complaints};

/// Prints kmemleak's findings.
///
/// It reports memory that is older than 5 s and unchanged in two scans.
const SCAN: &str =
    "cd /sys/kernel/debug && sleep 6 && echo scan >kmemleak && echo scan >kmemleak && cat kmemleak";
/// How often kmemleak is asked before a finding counts as a leak.
///
/// kmemleak also reports, for a while, memory in a per-CPU list, or whose last reference an RCU
/// callback drops.
const LOOKS: u32 = 3;
/// Time between two queries.
const PAUSE: Duration = Duration::from_secs(20);
/// How kmemleak names a leak.
const LEAK: &str = "unreferenced object";

/// Deliberate faults, and the report that is expected for each.
///
/// Lockdep's fault comes first: lockdep is off after a report of KASAN.
const FAULTS: [(&str, &str); 6] = [
    ("lock-order", "possible circular locking dependency"),
    ("use-after-free", "KASAN: slab-use-after-free"),
    ("out-of-bounds", "KASAN: slab-out-of-bounds"),
    ("sleep-in-atomic", "sleeping function called from invalid context"),
    ("list", "list_del corruption"),
    ("shift", "UBSAN: shift-out-of-bounds"),
];

/// Checks that the kernel has all detectors. Leaks of the boot are not vrdma's, and are cleared.
pub fn check_detectors(vm: &Vm, patience: Duration) -> Result<()> {
    let wanted = "dmesg | grep -q 'KernelAddressSanitizer initialized' && test -e /sys/kernel/debug/kmemleak";
    vm.check(wanted, patience).context("this kernel finds no faults: it lacks KASAN or kmemleak")?;
    lockdep_is_on(vm, patience)?;
    let command = format!("{SCAN} >/dev/null && echo clear >kmemleak");
    vm.check(&command, patience * 4).context("kmemleak does not work")?;
    Ok(())
}

/// Checks that the kernel has reported nothing, and lost no memory.
pub fn check_kernel(vm: &Vm, patience: Duration) -> Result<()> {
    complaints::expect_none(vm, patience)?;
    lockdep_is_on(vm, patience)?;
    for look in 1.. {
        let leaks = vm.check(SCAN, patience * 4)?;
        if !leaks.contains(LEAK) {
            break;
        }
        ui::say(&format!("VM {}: kmemleak names objects, look {look} of {LOOKS}", vm.name()));
        if look == LOOKS {
            let tasks = vm.check("ps -eLo pid,tid,stat,wchan:32,args", patience).unwrap_or_default();
            bail!("VM {}'s kernel lost memory:\n{leaks}\nits threads:\n{tasks}", vm.name());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Checks that lockdep is on. It turns itself off after a fault, or if it is out of memory.
fn lockdep_is_on(vm: &Vm, patience: Duration) -> Result<()> {
    vm.check("grep -E '^ *debug_locks: +1$' /proc/lockdep_stats", patience)
        .map(|_| ())
        .with_context(|| format!("lockdep of VM {} has given up", vm.name()))
}

/// Commits a fault of each kind. Fails if one is not reported as a fault of the module would be.
pub fn commit_faults(vm: &Vm, patience: Duration) -> Result<()> {
    let insert = |fault: &str| -> Result<()> {
        let command = format!("dmesg -C; insmod /lib/vrdma/vrdma_test_faults.ko fault={fault}");
        let output = vm.exec(&command, patience)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The module ends with `ECANCELED`, whatever was reported.
        ensure!(said.contains("canceled"), "vrdma_test_faults.ko does not load: {said}");
        Ok(())
    };
    insert("leak")?;
    let leaks = vm.check(SCAN, patience * 4)?;
    ensure!(leaks.contains(LEAK), "kmemleak does not find a leak");
    for (fault, expected) in FAULTS {
        insert(fault)?;
        match complaints::first(vm, patience)? {
            Some(report) if report.contains(expected) => {}
            Some(report) => bail!("of {fault} it says something else than {expected:?}: {report}"),
            None => bail!("it does not report {fault}"),
        }
    }
    ensure!(lockdep_is_on(vm, patience).is_err(), "lockdep's fault did not end its work");
    Ok(())
}
