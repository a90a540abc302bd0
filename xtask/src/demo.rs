//! `cargo xtask demo`: two VMs on one backend, stock verbs programs between them.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::artefacts::Part;
use crate::programs::{self, Device, Program};
use crate::ui;
use crate::vm::{Pair, PairConfig};

/// What the demo runs, with the words that its output must contain.
pub fn steps() -> Vec<(&'static str, Program, &'static str)> {
    let largest = "8388608";
    vec![
        ("ping-pong, content checked", Program::pingpong("ibv_rc_pingpong -c -n 1000"), "1000 iters"),
        ("the same with completion events", Program::pingpong("ibv_rc_pingpong -c -e -n 300"), "300 iters"),
        ("RDMA WRITE bandwidth", Program::perftest("ib_write_bw -a -n 100"), largest),
        ("RDMA WRITE latency", Program::perftest("ib_write_lat -a -n 50"), largest),
        ("SEND bandwidth", Program::perftest("ib_send_bw -a -n 100"), largest),
        ("SEND latency", Program::perftest("ib_send_lat -a -n 50"), largest),
        ("RDMA READ bandwidth", Program::perftest("ib_read_bw -a -n 100"), largest),
        ("RDMA READ latency", Program::perftest("ib_read_lat -a -n 50"), largest),
    ]
}

/// Runs the demo; the tables go to standard output.
pub fn run(device: Device) -> Result<()> {
    let start = Instant::now();
    let without = if device == Device::Vrdma { Vec::new() } else { Part::ALL.to_vec() };
    let mut pair = Pair::boot(&PairConfig { without, ..PairConfig::default() })?;
    let result = show(&mut pair, device);
    if result.is_err() {
        eprintln!("{}", pair.post_mortem());
    }
    result?;
    ui::say(&format!("demo: all programs succeeded in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(())
}

fn show(pair: &mut Pair, device: Device) -> Result<()> {
    if device == Device::Vrdma {
        pair.backend().context("the demo needs vrdma-backend")?;
    }
    device.prepare(pair)?;
    for vm in [&pair.a, &pair.b] {
        heading(&format!("VM {}: ibv_devinfo -d {}", vm.name(), device.name()));
        let info = vm.check(&format!("ibv_devinfo -d {}", device.name()), pair.patience(5))?;
        print!("{info}");
        ensure!(
            info.contains("PORT_ACTIVE"),
            "the port of {} in VM {} is not active",
            device.name(),
            vm.name()
        );
    }
    for (index, (what, program, expected)) in steps().iter().enumerate() {
        heading(&format!("{what}: {}", program.command));
        let mut running = programs::start(pair, device, program, 18515 + index as u16)?;
        running.client().echo("");
        let printed = running.wait()?;
        ensure!(printed.client.contains(expected), "`{}` did not print {expected}", program.command);
    }
    Ok(())
}

fn heading(text: &str) {
    println!("\n=== {text}");
}
