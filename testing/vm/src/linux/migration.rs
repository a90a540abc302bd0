//! QEMU's own live migration over RDMA, between QEMUs that run inside the VMs.

use std::fs;

use anyhow::{Context, Result, ensure};
use vrdma_lab::paths;
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

use super::case::{case, python};

/// A machine is migrated whole, with memory that is registered piece by piece and all at once: its
/// memory is the same there. A migration that is cancelled leaves the machine running where it was.
///
/// QEMU, docs/rdma.txt; tp-libvirt#2002.
#[vm_test("vm-linux-qemu-migration", lab = Usual, long)]
fn over_rdma(pair: &mut Pair) -> Result<()> {
    lay_out_qemu(pair)?;
    case(pair, |pair| {
        let patience = pair.patience(30);
        let run = python(pair, "migrate.py")?;
        for vm in [&pair.a, &pair.b] {
            // From the host's files each page of a program comes anew.
            vm.check("cp -r /share/qemu /tmp", patience)?;
        }
        for capabilities in ["", "rdma-pin-all=1"] {
            let mut incoming = pair.a.spawn(&format!("exec env {run} incoming {} {capabilities}", IP[0]))?;
            incoming.wait_for("listening", patience)?;
            let source = pair.b.check(&format!("{run} source {} whole {capabilities}", IP[0]), patience);
            let source =
                source.with_context(|| format!("{capabilities}: the other end: {}", said(&incoming)))?;
            let arrived = incoming.wait(patience)?;
            ensure!(
                arrived.success(),
                "{capabilities}: the incoming end: {:?} {}",
                arrived.exit,
                arrived.text()
            );
            ensure!(source.contains("status postmigrate"), "{capabilities}: the source: {source}");
            let sum = |text: &str| text.lines().find_map(|line| line.strip_prefix("sum ").map(str::to_owned));
            ensure!(
                sum(&source).is_some() && sum(&source) == sum(&arrived.text()),
                "{capabilities}: the memory is not what it was:\n{source}{}",
                arrived.text()
            );
        }
        let mut incoming = pair.a.spawn(&format!("exec env {run} incoming {}", IP[0]))?;
        incoming.wait_for("listening", patience)?;
        let source = pair.b.check(&format!("{run} source {} cancel", IP[0]), patience)?;
        ensure!(source.contains("status running"), "a machine whose migration is cancelled: {source}");
        // Its end is an error, or it waits for another migration.
        incoming.signal(9)?;
        incoming.wait(patience)?;
        [&pair.a, &pair.b].iter().try_for_each(|vm| vm.check("rm -r /tmp/qemu", patience).map(|_| ()))
    })
}

/// Puts our QEMU where the VMs find it, with what it needs of libraries that they lack. Those of
/// verbs are the VMs' own.
fn lay_out_qemu(pair: &Pair) -> Result<()> {
    let (from, to) = (paths::qemu_root().join("usr"), pair.share().join("qemu"));
    let there = paths::guest_root().join("usr/lib/x86_64-linux-gnu");
    paths::make_dir(&to.join("lib"))?;
    let mut files = vec![
        (from.join("bin/qemu-system-x86_64"), to.join("qemu-system-x86_64")),
        (from.join("share/seabios/bios-256k.bin"), to.join("bios-256k.bin")),
        (from.join("share/qemu/kvmvapic.bin"), to.join("kvmvapic.bin")),
    ];
    for entry in fs::read_dir(from.join("lib/x86_64-linux-gnu"))? {
        let name = entry?.file_name();
        if name.to_string_lossy().contains(".so.") && !there.join(&name).exists() {
            files.push((from.join("lib/x86_64-linux-gnu").join(&name), to.join("lib").join(&name)));
        }
    }
    files.iter().try_for_each(|(from, to)| {
        fs::copy(from, to).map(|_| ()).with_context(|| format!("cannot copy {}", from.display()))
    })
}
