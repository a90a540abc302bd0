//! `cargo xtask demo pci-nic`: a host whose uplink is a NIC on PCI.
//!
//! DPDK drives the NIC through vfio and an IOMMU. The host is a VM, because the NIC and the IOMMU
//! are QEMU's. Its guest runs without a VM, and the peer's device is `rdma_rxe`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vrdma_lab::proc::indent;
use vrdma_lab::ui;
use vrdma_lab::vm::nic::{Nic, NicLab};
use vrdma_lab::vm::{Job, workers};

use super::both;
use crate::capture;

/// The transport services, each with its message size and path MTU.
const SERVICES: [(&str, u32, u32); 6] = [
    ("rc", 10_000, 1024),
    ("uc", 10_000, 1024),
    ("ud", 1024, 1024),
    ("rc", 32_000, 4096),
    ("uc", 32_000, 4096),
    ("ud", 4096, 4096),
];
/// Messages per service, in each direction.
const MESSAGES: u32 = 40;

/// Number of sent frames after which a guest is busy sending.
const BUSY: u64 = 500;

/// Runs the demo with each of these NICs.
pub fn run(nics: &[Nic]) -> Result<()> {
    let start = Instant::now();
    let mut summary = Vec::new();
    let mut failures = Vec::new();
    for nic in nics {
        println!("\n=== {}", nic.name());
        match with(*nic) {
            Ok(line) => summary.push(format!("{:<16}{line}", nic.name())),
            Err(error) => {
                println!("FAIL  {}\n{}", nic.name(), indent(&format!("{error:#}")));
                failures.push(nic.name());
            }
        }
    }
    println!("\n=== summary\n{}", summary.join("\n"));
    ensure!(failures.is_empty(), "failed with {}", failures.join(", "));
    ui::say(&format!("demo: {} NICs in {:.1} s", nics.len(), start.elapsed().as_secs_f64()));
    Ok(())
}

fn with(nic: Nic) -> Result<String> {
    let mut lab = NicLab::boot(nic)?;
    let result = go_through(&mut lab);
    let result = lab.explained(result);
    // The capture is checked even if something failed.
    let file = lab.capture();
    drop(lab);
    let checked =
        ui::step(&format!("checking what passed the wire: {}", file.display()), || capture::check(&file));
    let (said, checked) = both(result, checked)?;
    Ok(format!("{said}; {} packets on the wire, each sound", checked.packets))
}

/// Runs the programs with and without zero copy. Returns the line for the summary.
fn go_through(lab: &mut NicLab) -> Result<String> {
    let mut lines = Vec::new();
    if workers() > 1 {
        lines.push(rules(lab).context("flow rules")?);
    }
    for (arguments, name) in [("", "as it is"), ("--no-zero-copy", "with copies")] {
        let daemon = Daemon::start(lab, arguments)?;
        let result = programs(lab, name).and_then(|()| daemon.finish(lab));
        if result.is_err() {
            println!(
                "{}\n{}\n{}",
                indent(&lab.daemon_log()),
                lab.stats().unwrap_or_default(),
                lab.peer_counters()
            );
        }
        lines.push(format!("{name}: {}", result.context(name)?));
    }
    lines.push(unplug(lab).inspect_err(|_| println!("{}", indent(&lab.daemon_log()))).context("unplugged")?);
    lab.expect_no_faults()?;
    Ok(lines.join(", "))
}

/// Tests flow rules with DPDK's tap driver, because none of these NICs has rules for MAC addresses.
fn rules(lab: &NicLab) -> Result<String> {
    let said = lab.host.check(
        "modprobe -a tun sch_multiq sch_ingress cls_flower act_skbedit && vrdma-test-guest rules",
        lab.patience(60),
    )?;
    println!("  ok {}", said.trim());
    Ok("flow rules of a tap".to_owned())
}

/// Removes the NIC while a guest sends by it, and plugs it in again.
///
/// After the removal the port is down, and daemon and guests run on. Then a new daemon uses the
/// NIC.
fn unplug(lab: &mut NicLab) -> Result<String> {
    let start = Instant::now();
    let daemon = Daemon::start(lab, "")?;
    let mut alone = lab.alone()?;
    let mut turns = lab.start_turns(600, 8)?;
    while lab.stats()?["uplink"]["frames_sent"].as_u64() < Some(BUSY) {
        turns.run_for(Duration::from_millis(500))?;
        ensure!(start.elapsed() < lab.patience(10), "hardly anything passes");
    }
    lab.unplug()?;
    lab.wait_link(false)?;
    lab.host.check("grep -F 'the device is unplugged' /run/daemon.log", lab.patience(2))?;
    alone.write(b"\n")?;
    alone.wait_for("message 0 came", lab.patience(4)).context("the other guest")?;
    let (guest, _) = turns.finish(lab.patience(15))?;
    let said = String::from_utf8_lossy(&guest.stderr);
    // Nothing of the guest's is outstanding if it was the peer's turn in all connections.
    ensure!(
        ["RETRY_EXC", "no progress"].iter().any(|words| said.contains(words)),
        "the guest that sent is not told of it: {:?}\n{said}",
        guest.exit
    );
    alone.write(b"\n")?;
    alone.wait_for("message 1 came", lab.patience(4)).context("the other guest, in the end")?;
    alone.close_stdin()?;
    ensure!(alone.wait(lab.patience(4))?.success(), "the other guest does not end well");
    daemon.end(lab)?;
    println!("  ok {:6.1} s  unplugged while a guest sends", start.elapsed().as_secs_f64());
    let start = Instant::now();
    lab.plug()?;
    lab.bind()?;
    let daemon = Daemon::start(lab, "")?;
    lab.echo("rc", 10_000, 1024, MESSAGES).context("with the NIC put in again")?;
    daemon.end(lab)?;
    println!("  ok {:6.1} s  plugged in again, with a new daemon", start.elapsed().as_secs_f64());
    Ok("unplugged and plugged in".to_owned())
}

/// A running daemon.
struct Daemon {
    job: Job,
    /// Whether it was told to copy payload.
    copies: bool,
}

impl Daemon {
    fn start(lab: &NicLab, arguments: &str) -> Result<Self> {
        let job = lab.daemon(arguments)?;
        lab.wait_link(true)?;
        Ok(Self { job, copies: arguments.contains("--no-zero-copy") })
    }

    /// Ends the daemon. Returns how it sent payload, from its log.
    fn finish(self, lab: &NicLab) -> Result<String> {
        let stats = lab.stats()?;
        println!("{}", stats["uplink"]);
        let copies = self.copies;
        self.end(lab)?;
        if copies {
            // It logs nothing about what it was told not to try.
            lab.host.check("! grep -F 'it reads payload where it lies' /run/daemon.log", lab.patience(2))?;
            return Ok("payload is copied, as asked".to_owned());
        }
        const HOW: &str =
            "grep -oE 'it reads payload where it lies|payload is copied once: .*' /run/daemon.log";
        let how = lab.host.check(HOW, lab.patience(2))?;
        Ok(how.trim().to_owned())
    }

    fn end(self, lab: &NicLab) -> Result<()> {
        self.job.signal(15)?;
        let output = self.job.wait(lab.patience(5)).context("the daemon does not end")?;
        ensure!(output.success(), "the daemon: {:?}", output.exit);
        Ok(())
    }
}

/// Test steps, which continue after failures to show all of them.
struct Steps<'a> {
    lab: &'a mut NicLab,
    how: &'a str,
    failures: Vec<String>,
}

impl Steps<'_> {
    fn step(&mut self, what: &str, work: impl FnOnce(&mut NicLab) -> Result<()>) {
        let start = Instant::now();
        match work(self.lab) {
            Ok(()) => println!("  ok {:6.1} s  {what}, {}", start.elapsed().as_secs_f64(), self.how),
            Err(error) => {
                let text = format!("{what}, {}\n{}", self.how, indent(&format!("{error:#}")));
                println!("FAIL           {text}");
                self.failures.push(text);
            }
        }
    }
}

/// Tests all services, checksums that the NIC fills in, and a cable that is pulled and plugged in.
fn programs(lab: &mut NicLab, how: &str) -> Result<()> {
    let mut steps = Steps { lab, how, failures: Vec::new() };
    steps.step("RC: SEND, WRITE, READ, FETCH_ADD", |lab| lab.turns(3));
    for (service, size, mtu) in SERVICES {
        let name = service.to_uppercase();
        let what = format!("{name}, {MESSAGES} messages of {size} bytes there and back, path MTU {mtu}");
        steps.step(&what, |lab| lab.echo(service, size, mtu, MESSAGES));
    }
    for protocol in ["UDP", "TCP"] {
        steps.step(&format!("checksums of {protocol}"), |lab| lab.packets(&protocol.to_lowercase()));
    }
    steps.step("the link down and up", link);
    let Steps { failures, .. } = steps;
    ensure!(failures.is_empty(), "{} steps failed:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

/// Pulls the cable and plugs it in again. The daemon has to report both, and to work afterwards.
fn link(lab: &mut NicLab) -> Result<()> {
    for up in [false, true] {
        lab.set_link(up)?;
        lab.wait_link(up)?;
    }
    lab.echo("rc", 10_000, 1024, MESSAGES).context("after the link was down")
}
