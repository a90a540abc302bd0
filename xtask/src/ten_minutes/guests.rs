//! Two clean Debian 13 guests: their disks, and a way to type in them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use vrdma_lab::proc::LONG;
use vrdma_lab::wait;
use vrdma_lab::{paths, proc, roots, ui};

use super::host::Host;
use super::relay;

/// The guests' names, and the host's ports that lead to their SSH servers, as the page has them.
pub const GUESTS: [(&str, u16); 2] = [("a", 2201), ("b", 2202)];

/// Size of a disk's file system in KiB, behind the first MiB.
const SIZE: u64 = 4 * 1024 * 1024 - 1024;

/// How long an emulated guest may boot or build, on a busy machine.
///
/// The driver's build alone takes 25 minutes of a processor, and other programs may have most of
/// it.
pub const SLOW: Duration = Duration::from_secs(3 * 60 * 60);

/// Puts the guests' disks, and the key for their SSH servers, into a host's files.
pub fn with_disks(upper: &Path) -> Result<()> {
    // The address of the host in QEMU's user network.
    let root = roots::clean_guest(&format!("10.0.2.2:{}", relay::PORT))?;
    let keys = upper.join("root/.ssh");
    let srv = upper.join("srv");
    paths::make_dir(&srv)?;
    ui::step("making the guests' disks", || {
        let first = srv.join("a.raw");
        disk(&root, &first)?;
        let mut copy = Command::new("cp");
        copy.args(["--sparse=always", "--"]).arg(&first).arg(srv.join("b.raw"));
        proc::output(copy)?;
        let mut copy = Command::new("cp");
        copy.args(["-a", "--"]).arg(root.join("root/.ssh")).arg(&keys);
        proc::output(copy).map(drop)
    })
}

/// Makes a disk that boots, with a root as its only file system.
fn disk(root: &Path, disk: &Path) -> Result<()> {
    let directory = disk.parent().context("the disk is in a directory")?;
    let name = disk.file_name().context("the disk has a name")?.to_string_lossy();
    let megabytes = SIZE / 1024 + 1;
    // GRUB's first sector reads the sectors behind it, which lie before the partition.
    let script = format!(
        "cd /mnt
        truncate -s {megabytes}M {name}
        echo '2048,,83,*' | sfdisk --quiet {name}
        dd if=/usr/lib/grub/i386-pc/boot.img of={name} bs=440 count=1 conv=notrunc
        dd if=/boot/core.img of={name} bs=512 seek=1 conv=notrunc"
    );
    let log = paths::log("ten-minutes-disk")?;
    proc::run_logged(
        "the disk's boot sector",
        proc::in_root(root, &[(directory, "/mnt")], &script),
        &log,
        LONG,
    )?;
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-t", "ext4", "-E", "offset=1048576", "-d"]).arg(root).arg(disk);
    command.arg(format!("{SIZE}k"));
    proc::run_logged("mke2fs", command, &log, LONG)
}

/// Returns a command for the host that runs a script in a guest.
fn ssh(guest: usize, script: &str) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let inner = format!("sh -ec {}", quote(script));
    format!("ssh -o ConnectTimeout=60 -p {} root@127.0.0.1 {} </dev/null", GUESTS[guest].1, quote(&inner))
}

/// Runs a script in a guest as [`Host::run`] does on the host.
pub fn run(host: &Host, guest: usize, script: &str, limit: Duration) -> Result<String> {
    host.run(&ssh(guest, script), limit).with_context(|| format!("in guest {}", GUESTS[guest].0))
}

/// Runs a script in a guest, with its output in a file.
pub fn run_logged(host: &Host, guest: usize, script: &str, log: &Path) -> Result<()> {
    let what = format!("the commands of guest {}", GUESTS[guest].0);
    host.run_logged(&what, &ssh(guest, script), log, SLOW)
}

/// Waits until both guests let somebody in, and have started all their services.
pub fn wait_for_boot(host: &Host) -> Result<()> {
    for (guest, (name, _)) in GUESTS.iter().enumerate() {
        let up = || {
            let unit = host.run(&format!("systemctl is-active guest-{name} || true"), LONG)?;
            if unit.trim() != "active" {
                bail!("{}", host.run(&format!("journalctl --no-pager -u guest-{name}"), LONG)?);
            }
            let state = run(host, guest, "systemctl is-system-running --wait", SLOW);
            Ok(state.map(drop).map_err(|error| format!("{error:#}")))
        };
        wait::until(&format!("guest {name}"), SLOW, up)?;
    }
    Ok(())
}

/// Waits until a program in a guest listens for connections of RDMA.
pub fn wait_for_server(host: &Host, guest: usize) -> Result<()> {
    wait::until("the server", SLOW, || {
        let listening = run(host, guest, "rdma resource show cm_id", SLOW)?;
        Ok(if listening.contains("LISTEN") { Ok(()) } else { Err(listening) })
    })
}
