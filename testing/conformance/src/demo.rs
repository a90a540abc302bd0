//! `cargo xtask demo`: stock programs between two VMs on one backend, or on two hosts.

pub mod iwarp;
pub mod pci_nic;
mod summary;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::artefacts::{Build, Part};
use vrdma_lab::device::Device;
use vrdma_lab::proc::indent;
use vrdma_lab::programs::{self, Program};
use vrdma_lab::ui;
use vrdma_lab::vm::{CAPTURE, Pair, PairConfig, Topology};

use self::summary::Summary;
use crate::capture;
use crate::lineup::{self, IpFamily, PathMtu, Sizes};

/// A program that the demo runs.
pub struct Step {
    what: String,
    /// The program.
    pub program: Program,
    /// Text that its output must contain.
    pub expected: String,
}

const VERBS: [(&str, &str); 3] = [("RDMA WRITE", "write"), ("SEND", "send"), ("RDMA READ", "read")];

/// Returns the programs of the demo.
///
/// For each row of a latency table perftest measures the CPU's clock twice, a quarter of a second
/// each. It also fills its buffers byte by byte. For 8 MiB that takes an emulated CPU two seconds.
/// So the latency tables have two rows, each from a run of its own, and the bandwidth tables have
/// all rows.
///
/// A row of a bandwidth table must last long compared with a time slice of the host's scheduler.
/// `rdma_rxe` needs fewer iterations for that, and more of them would take very long.
fn steps(device: Device) -> Vec<Step> {
    steps_of(if device == Device::Vrdma { 2000 } else { 100 }, &[(2, 1000), (8_388_608, 100)])
}

/// Returns the demo's programs with fewer iterations and less memory to fill.
///
/// That shows that they work, not how fast.
pub fn quick_steps() -> Vec<Step> {
    steps_of(100, &[(2, 200)])
}

/// Returns the demo's programs with these numbers of iterations.
///
/// `iterations` is for each row of a bandwidth table. `latencies` has sizes and iterations of the
/// latency tables.
fn steps_of(iterations: u32, latencies: &[(u32, u32)]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add =
        |what: String, program: Program, expected: String| steps.push(Step { what, program, expected });
    for (what, options, iterations) in
        [("ping-pong, content checked", "-c", 1000), ("the same with completion events", "-c -e", 300)]
    {
        let command = format!("ibv_rc_pingpong {options} -n {iterations}");
        add(what.into(), Program::pingpong(&command), format!("{iterations} iters"));
    }
    for (what, verb) in VERBS {
        let program = Program::perftest(&format!("ib_{verb}_bw -a -n {iterations}"));
        add(format!("{what} bandwidth"), program, "8388608".into());
        for &(size, iterations) in latencies {
            let program = Program::perftest(&format!("ib_{verb}_lat -s {size} -n {iterations}"));
            add(format!("{what} latency, {size} bytes"), program, format!("{size} "));
        }
    }
    steps
}

/// Returns only the programs that the summary needs, for a slower device.
fn short_steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for (what, verb) in VERBS {
        for (options, size) in [
            ("lat -s 2 -n 200", "2 "),
            ("bw -s 8 -n 1000", "8 "),
            ("bw -s 65536 -n 200", "65536"),
            ("bw -s 8388608 -n 5", "8388608"),
        ] {
            let program = Program::perftest(&format!("ib_{verb}_{options}"));
            steps.push(Step { what: what.to_owned(), program, expected: size.to_owned() });
        }
    }
    steps
}

/// Runs the demo. Its tables go to standard output.
pub fn run(device: Device) -> Result<()> {
    let start = Instant::now();
    let mut summary = with_pair(device, |pair| show(pair, device))?;
    summary.sort();
    let beside = if device == Device::Vrdma { Some(rxe()?) } else { None };
    heading("typical latency and average bandwidth, as the VMs measure them");
    println!("{}", summary.table(device.name(), beside.as_ref().map(|rxe| (Device::Rxe.name(), rxe))));
    ui::say(&format!("demo: all programs succeeded in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(())
}

/// Measures `rdma_rxe` over the VMs' own link.
///
/// It is measured in each run. Figures from another time, with another load on the machine, would
/// not be comparable.
fn rxe() -> Result<Summary> {
    ui::say("measuring rdma_rxe for comparison, in short (`cargo xtask demo --rxe`: in full)");
    with_pair(Device::Rxe, |pair| {
        let mut summary = Summary::default();
        for (index, Step { program, .. }) in short_steps().iter().enumerate() {
            let printed = programs::run(pair, Device::Rxe, program, 18615 + index as u16)?;
            summary.add(&program.command, &printed.client);
        }
        Ok(summary)
    })
}

/// Boots two VMs with the device, and runs `work` with them.
fn with_pair<T>(device: Device, work: impl FnOnce(&mut Pair) -> Result<T>) -> Result<T> {
    let without = if device == Device::Vrdma { Vec::new() } else { Part::ALL.to_vec() };
    let mut pair = Pair::boot(&PairConfig { without, build: Build::Quick, ..PairConfig::default() })?;
    let prepared = [&pair.a, &pair.b].into_iter().try_for_each(|vm| device.prepare_in(vm, pair.patience(5)));
    let result = prepared.and_then(|()| work(&mut pair));
    if result.is_err() {
        eprintln!("{}", pair.post_mortem());
    }
    result
}

fn show(pair: &mut Pair, device: Device) -> Result<Summary> {
    if device == Device::Vrdma {
        pair.backend().context("the demo needs vrdma-backend")?;
    }
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
    let mut summary = Summary::default();
    let steps = steps(device);
    for (index, Step { what, program, expected }) in steps.iter().enumerate() {
        heading(&format!("{what}: {}", program.command));
        let start = Instant::now();
        let mut running = programs::start(pair, device, program, 18515 + index as u16)?;
        running.client().echo("");
        let printed = running.wait()?;
        ensure!(printed.client.contains(expected.as_str()), "`{}` did not print {expected}", program.command);
        summary.add(&program.command, &printed.client);
        let (number, all) = (index + 1, steps.len());
        ui::say(&format!("  ok {:7.1} s  {what} ({number} of {all})", start.elapsed().as_secs_f64()));
    }
    Ok(summary)
}

/// A round of the test matrix: path MTU, the servers' VM (0 is a), address family, perftest's
/// sizes.
pub type DemoRound = (PathMtu, usize, IpFamily, Sizes);

/// A demo between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct DemoPlan {
    /// Devices of the two hosts.
    pub devices: [Device; 2],
    /// The rounds, in this order.
    pub rounds: &'static [DemoRound],
}

/// The rounds for two hosts: each VM as server, both address families.
pub const TWO_HOSTS: &[DemoRound] =
    &[(PathMtu::Jumbo, 0, IpFamily::V4, Sizes::All), (PathMtu::Jumbo, 1, IpFamily::V6, Sizes::One)];

/// The rounds of the interoperability demo: each VM as server, path MTUs 4096 and 1024, both
/// address families.
pub const INTEROP: &[DemoRound] = &[
    (PathMtu::Jumbo, 0, IpFamily::V4, Sizes::All),
    (PathMtu::Jumbo, 1, IpFamily::V4, Sizes::One),
    (PathMtu::Jumbo, 0, IpFamily::V6, Sizes::One),
    (PathMtu::Jumbo, 1, IpFamily::V6, Sizes::All),
    (PathMtu::Usual, 0, IpFamily::V4, Sizes::One),
    (PathMtu::Usual, 1, IpFamily::V4, Sizes::One),
    (PathMtu::Usual, 0, IpFamily::V6, Sizes::One),
    (PathMtu::Usual, 1, IpFamily::V6, Sizes::One),
];

/// The rounds of [`INTEROP`], each with all sizes.
pub const INTEROP_ALL: &[DemoRound] = &[
    (PathMtu::Jumbo, 0, IpFamily::V4, Sizes::All),
    (PathMtu::Jumbo, 1, IpFamily::V4, Sizes::All),
    (PathMtu::Jumbo, 0, IpFamily::V6, Sizes::All),
    (PathMtu::Jumbo, 1, IpFamily::V6, Sizes::All),
    (PathMtu::Usual, 0, IpFamily::V4, Sizes::All),
    (PathMtu::Usual, 1, IpFamily::V4, Sizes::All),
    (PathMtu::Usual, 0, IpFamily::V6, Sizes::All),
    (PathMtu::Usual, 1, IpFamily::V6, Sizes::All),
];

/// Runs the programs between two hosts.
///
/// Their output goes to files. The wire is captured, and the capture checked.
pub fn between_hosts(plan: DemoPlan) -> Result<()> {
    let start = Instant::now();
    let vrdma = plan.devices.contains(&Device::Vrdma);
    let without = if vrdma { Vec::new() } else { Part::ALL.to_vec() };
    let topology = Topology::Wire(plan.devices);
    let pair = Pair::boot(&PairConfig { without, topology, build: Build::Quick, ..PairConfig::default() })?;
    let capture = pair.wire()?.capture("a", &pair.directory().join(CAPTURE))?;
    let result = go_through(&pair, plan.rounds, &mut |line| println!("{line}"));
    if result.is_err() {
        eprintln!("{}", pair.post_mortem());
    }
    let directory = pair.directory().to_owned();
    // The capture is checked even if some programs failed.
    let file = capture.finish()?;
    drop(pair);
    ui::say(&format!("what the programs printed: {}", directory.join("programs").display()));
    let what = format!("checking what passed the wire: {}", file.display());
    let checked = ui::step(&what, || capture::check(&file));
    let (rows, checked) = both(result, checked)?;
    println!("\n{}\n{} packets on the wire, each sound", checked.opcodes, checked.packets);
    let seconds = start.elapsed().as_secs_f64();
    ui::say(&format!("demo: {rows} programs succeeded in {seconds:.1} s"));
    Ok(())
}

/// Combines the result of the programs with that of the capture's check.
///
/// If both failed, the error contains both.
fn both<T, U>(programs: Result<T>, checked: Result<U>) -> Result<(T, U)> {
    match (programs, checked) {
        (Ok(programs), Ok(checked)) => Ok((programs, checked)),
        (Err(error), Err(also)) => Err(also.context(format!("{error:#}"))),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Runs rounds of the test matrix, and continues after failures to show all of them.
///
/// Reports each row by `say`. Returns the number of rows.
pub fn go_through(pair: &Pair, rounds: &[DemoRound], say: &mut dyn FnMut(String)) -> Result<usize> {
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
