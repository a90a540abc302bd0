//! `cargo xtask demo pci-nic`: a host whose uplink is a NIC on PCI, driven by DPDK through vfio and an IOMMU.

use std::time::Instant;

use anyhow::Result;

use crate::ui;
use crate::vm::nic::{Nic, NicLab};

/// Runs it.
pub fn run(nics: &[Nic]) -> Result<()> {
    let start = Instant::now();
    for nic in nics {
        let mut lab = NicLab::boot(*nic)?;
        let result = go_through(&mut lab);
        lab.explained(result)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    ui::say(&format!("demo: {} NICs in {seconds:.1} s", nics.len()));
    Ok(())
}

fn go_through(lab: &mut NicLab) -> Result<()> {
    let mut daemon = lab.daemon("")?;
    daemon.echo("daemon: ");
    lab.wait_link(true)?;
    println!("{}", lab.turns(3)?);
    lab.echo("rc", 10_000, 50)?;
    lab.echo("uc", 10_000, 50)?;
    lab.echo("ud", 2048, 50)?;
    println!("{}", lab.stats()?["uplink"]);
    Ok(())
}
