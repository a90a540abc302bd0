//! `cargo xtask demo pci-nic`: a host whose uplink is a NIC on PCI, which DPDK drives through vfio and an IOMMU.
//!
//! The host is a VM, since the NIC and the IOMMU are QEMU's; its guest is one without a VM, and the peer's device is `rdma_rxe`.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::capture;
use crate::proc::indent;
use crate::ui;
use crate::vm::Job;
use crate::vm::nic::{Nic, NicLab};

/// The services, with the size of their messages: as long as eight packets, or one.
const SERVICES: [(&str, u32); 3] = [("rc", 32_000), ("uc", 32_000), ("ud", 2048)];
/// Messages of each there and back.
const MESSAGES: u32 = 40;

/// Goes through it with each of these NICs.
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
    // What passed is looked at whether or not all went well.
    let file = lab.capture();
    drop(lab);
    let checked = ui::step(&format!("checking what passed the wire: {}", file.display()), || capture::check(&file));
    let (said, checked) = match (result, checked) {
        (Ok(said), Ok(checked)) => (said, checked),
        (Err(error), Err(also)) => return Err(also.context(format!("{error:#}"))),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    Ok(format!("{said}; {} packets on the wire, each sound", checked.packets))
}

/// With and without zero copy; what the summary says.
fn go_through(lab: &mut NicLab) -> Result<String> {
    let mut lines = Vec::new();
    for (arguments, name) in [("", "as it is"), ("--no-zero-copy", "with copies")] {
        let daemon = Daemon::start(lab, arguments)?;
        let result = programs(lab, name).and_then(|()| daemon.finish(lab));
        println!("{}", indent(&lab.daemon_log()));
        lines.push(result.context(name)?);
    }
    Ok(lines.join(", "))
}

/// A daemon that runs.
struct Daemon {
    job: Job,
}

impl Daemon {
    fn start(lab: &NicLab, arguments: &str) -> Result<Self> {
        let job = lab.daemon(arguments)?;
        lab.wait_link(true)?;
        Ok(Self { job })
    }

    /// Ends it; how it sent payload.
    fn finish(self, lab: &NicLab) -> Result<String> {
        let stats = lab.stats()?;
        println!("{}", stats["uplink"]);
        self.job.signal(15)?;
        let output = self.job.wait(lab.patience(5)).context("the daemon does not end")?;
        ensure!(output.success(), "the daemon: {:?}", output.exit);
        Ok("ok".to_owned())
    }
}

/// All services, and checksums that the NIC fills in.
fn programs(lab: &mut NicLab, how: &str) -> Result<()> {
    let step = |what: String, lab: &mut NicLab, work: &mut dyn FnMut(&mut NicLab) -> Result<()>| {
        let start = Instant::now();
        work(lab).with_context(|| what.clone())?;
        println!("  ok {:6.1} s  {what}, {how}", start.elapsed().as_secs_f64());
        anyhow::Ok(())
    };
    step("RC: SEND, WRITE, READ, FETCH_ADD".to_owned(), lab, &mut |lab| lab.turns(3))?;
    for (service, size) in SERVICES {
        let what = format!("{MESSAGES} messages of {size} bytes there and back, {}", service.to_uppercase());
        step(what, lab, &mut |lab| lab.echo(service, size, MESSAGES))?;
    }
    for protocol in ["udp", "tcp"] {
        step(format!("checksums of {}", protocol.to_uppercase()), lab, &mut |lab| lab.packets(protocol))?;
    }
    Ok(())
}
