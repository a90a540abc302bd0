//! `cargo xtask demo`: two VMs on one backend, or on two hosts, and stock programs between them.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::artefacts::Part;
use crate::capture;
use crate::lineup::{self, Family, PathMtu, Sizes};
use crate::proc::indent;
use crate::programs::{self, Device, Program};
use crate::ui;
use crate::vm::pair::CAPTURE;
use crate::vm::{Pair, PairConfig, Topology};

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

/// Once through the table of programs: path MTU, VM with the servers (0 is a), addresses, and how many sizes perftest
/// goes through.
pub type Round = (PathMtu, usize, Family, Sizes);

/// A demo between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Devices of the two hosts.
    pub devices: [Device; 2],
    /// In this order.
    pub rounds: &'static [Round],
}

/// Each VM as server, both kinds of addresses.
pub const TWO_HOSTS: &[Round] =
    &[(PathMtu::Jumbo, 0, Family::V4, Sizes::All), (PathMtu::Jumbo, 1, Family::V6, Sizes::One)];

/// Each VM as server, path MTUs 4096 and 1024, both kinds of addresses.
pub const INTEROP: &[Round] = &[
    (PathMtu::Jumbo, 0, Family::V4, Sizes::All),
    (PathMtu::Jumbo, 1, Family::V4, Sizes::One),
    (PathMtu::Jumbo, 0, Family::V6, Sizes::One),
    (PathMtu::Jumbo, 1, Family::V6, Sizes::All),
    (PathMtu::Usual, 0, Family::V4, Sizes::One),
    (PathMtu::Usual, 1, Family::V4, Sizes::One),
    (PathMtu::Usual, 0, Family::V6, Sizes::One),
    (PathMtu::Usual, 1, Family::V6, Sizes::One),
];

/// The same with all sizes each time.
pub const INTEROP_ALL: &[Round] = &[
    (PathMtu::Jumbo, 0, Family::V4, Sizes::All),
    (PathMtu::Jumbo, 1, Family::V4, Sizes::All),
    (PathMtu::Jumbo, 0, Family::V6, Sizes::All),
    (PathMtu::Jumbo, 1, Family::V6, Sizes::All),
    (PathMtu::Usual, 0, Family::V4, Sizes::All),
    (PathMtu::Usual, 1, Family::V4, Sizes::All),
    (PathMtu::Usual, 0, Family::V6, Sizes::All),
    (PathMtu::Usual, 1, Family::V6, Sizes::All),
];

/// Runs the programs between two hosts; what they print goes to files, and what passes the wire to a capture.
pub fn between_hosts(plan: Plan) -> Result<()> {
    let start = Instant::now();
    let vrdma = plan.devices.contains(&Device::Vrdma);
    let without = if vrdma { Vec::new() } else { Part::ALL.to_vec() };
    let topology = Topology::Wire(plan.devices);
    let pair = Pair::boot(&PairConfig { without, topology, ..PairConfig::default() })?;
    let capture = pair.wire()?.capture("a", &pair.directory().join(CAPTURE))?;
    let result = go_through(&pair, plan.rounds, &mut |line| println!("{line}"));
    if result.is_err() {
        eprintln!("{}", pair.post_mortem());
    }
    let directory = pair.directory().to_owned();
    // What passed is looked at whether or not all programs succeeded.
    let file = capture.finish()?;
    drop(pair);
    ui::say(&format!("what the programs printed: {}", directory.join("programs").display()));
    let what = format!("checking what passed the wire: {}", file.display());
    let checked = ui::step(&what, || capture::check(&file));
    let (rows, checked) = match (result, checked) {
        (Ok(rows), Ok(checked)) => (rows, checked),
        (Err(error), Err(also)) => return Err(also.context(format!("{error:#}"))),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    println!("\n{}\n{} packets on the wire, each sound", checked.opcodes, checked.packets);
    let seconds = start.elapsed().as_secs_f64();
    ui::say(&format!("demo: {rows} programs succeeded in {seconds:.1} s"));
    Ok(())
}

/// Goes through rounds of the table of programs, and on after a failure, so that one sees all. Says each row, and in the
/// end how many there were.
pub fn go_through(pair: &Pair, rounds: &[Round], say: &mut dyn FnMut(String)) -> Result<usize> {
    let mut failures = Vec::new();
    let mut rows = 0;
    let mut mtu = None;
    for (path_mtu, server, family, sizes) in rounds {
        if mtu != Some(path_mtu) {
            lineup::prepare(pair, *path_mtu)?;
            mtu = Some(path_mtu);
        }
        let server = if *server == 0 { &pair.a } else { &pair.b };
        let round = lineup::Round::new(pair, server, *family)?;
        let name = format!("{}, path MTU {}", round.name(), path_mtu.bytes());
        say(format!("\n=== {name}"));
        for row in lineup::rows(*family, *path_mtu, *sizes) {
            let port = 20000 + rows as u16;
            rows += 1;
            match round.run(&row, port) {
                Ok(time) => say(format!("  ok {:6.1} s  {}", time.as_secs_f64(), row.what)),
                Err(error) => {
                    let error = indent(&format!("{error:#}"));
                    say(format!("FAIL           {}\n{error}", row.what));
                    failures.push(format!("{name}: {}\n{error}", row.what));
                }
            }
        }
    }
    if !failures.is_empty() {
        bail!("{} of {rows} programs failed:\n{}", failures.len(), indent(&failures.join("\n")));
    }
    Ok(rows)
}

fn heading(text: &str) {
    println!("\n=== {text}");
}
