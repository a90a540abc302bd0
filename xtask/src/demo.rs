//! `cargo xtask demo`: two VMs on one backend, stock verbs programs between them.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::artefacts::Part;
use crate::programs::{self, Device, Program};
use crate::ui;
use crate::vm::{Pair, PairConfig};

/// What the demo runs, with the words that its output must contain.
///
/// perftest measures the CPU's clock twice for each row of a latency table (a quarter of a second each), and fills its
/// buffers byte by byte, which takes an emulated CPU two seconds for 8 MiB. So the latency tables have two rows, each
/// from a run of its own, and the bandwidth tables all.
pub fn steps() -> Vec<(String, Program, String)> {
    let mut steps = Vec::new();
    let mut add = |what: String, program: Program, expected: String| steps.push((what, program, expected));
    for (what, options, iterations) in
        [("ping-pong, content checked", "-c", 1000), ("the same with completion events", "-c -e", 300)]
    {
        let command = format!("ibv_rc_pingpong {options} -n {iterations}");
        add(what.into(), Program::pingpong(&command), format!("{iterations} iters"));
    }
    for (what, verb) in [("RDMA WRITE", "write"), ("SEND", "send"), ("RDMA READ", "read")] {
        let program = Program::perftest(&format!("ib_{verb}_bw -a -n 100"));
        add(format!("{what} bandwidth"), program, "8388608".into());
        for size in [2, 8_388_608] {
            let program = Program::perftest(&format!("ib_{verb}_lat -s {size} -n 100"));
            add(format!("{what} latency, {size} bytes"), program, format!("{size} "));
        }
    }
    steps
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
        let start = Instant::now();
        let mut running = programs::start(pair, device, program, 18515 + index as u16)?;
        running.client().echo("");
        let printed = running.wait()?;
        ensure!(printed.client.contains(expected.as_str()), "`{}` did not print {expected}", program.command);
        ui::say(&format!("  ok {:7.1} s  {what}", start.elapsed().as_secs_f64()));
    }
    Ok(())
}

fn heading(text: &str) {
    println!("\n=== {text}");
}
