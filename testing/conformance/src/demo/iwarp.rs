//! `cargo xtask demo iwarp`: iWARP between two hosts, of which any may have Linux's soft-iWARP.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::artefacts::Build;
use vrdma_lab::device::Device;
use vrdma_lab::proc::indent;
use vrdma_lab::siw::{self, Variant};
use vrdma_lab::storage::{Load, Protocol, Storage};
use vrdma_lab::ui;
use vrdma_lab::vm::{CAPTURE, Pair, PairConfig, Tcp, Topology, Uplink};

use super::both;
use super::summary::{Load as Busy, Summary};
use crate::capture;
use crate::lineup::iwarp::{prepare, rows};
use crate::lineup::{IpFamily, Ready, Round, Row, Sizes};

/// What the demo runs.
#[derive(Clone, Debug)]
pub struct IwarpPlan {
    /// Whose TCP carries the connections of vrdma's devices.
    pub tcp: Tcp,
    /// The driver of the hosts' uplinks.
    pub uplink: Uplink,
    /// Which of VMs a and b have Linux's soft-iWARP.
    pub siw: [bool; 2],
    /// Only programs whose names contain one of these texts. If the list is empty, all programs
    /// run.
    pub only: Vec<String>,
}

impl IwarpPlan {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

/// A function that prints a line about each program.
pub type Say<'a> = &'a mut dyn FnMut(String);

/// A round of the test matrix: the servers' VM (0 is a), address family, perftest's sizes.
pub type Turn = (usize, IpFamily, Sizes);

/// Each VM as server, both address families.
const EACH: [Turn; 4] = [
    (0, IpFamily::V4, Sizes::All),
    (1, IpFamily::V4, Sizes::All),
    (0, IpFamily::V6, Sizes::One),
    (1, IpFamily::V6, Sizes::One),
];

/// Each VM as server, both address families, perftest with one size.
const EACH_SHORT: [Turn; 4] = [
    (0, IpFamily::V4, Sizes::One),
    (1, IpFamily::V4, Sizes::One),
    (0, IpFamily::V6, Sizes::One),
    (1, IpFamily::V6, Sizes::One),
];

/// Runs the programs, and checks the capture of the wire.
pub fn run(plan: &IwarpPlan) -> Result<()> {
    let start = Instant::now();
    let devices = plan.siw.map(|siw| if siw { Device::Siw } else { Device::Vrdma });
    let config = PairConfig {
        topology: Topology::Wire(devices),
        iwarp: Some(plan.tcp),
        uplink: plan.uplink,
        build: Build::Quick,
        ..PairConfig::default()
    };
    let before = Busy::now()?;
    let mut pair = Pair::boot(&config)?;
    let capture = pair.wire()?.capture_tcp("a", &pair.directory().join(CAPTURE))?;
    let say = &mut |line| println!("{line}");
    let result = match plan.siw {
        [false, false] => ours(&mut pair, plan, before, say),
        [true, true] => siw_alone(&pair, plan, before, say),
        _ => with_siw(&mut pair, plan, say),
    };
    if result.is_err() {
        eprintln!("{}", pair.post_mortem());
    }
    let directory = pair.directory().to_owned();
    let file = capture.finish()?;
    drop(pair);
    ui::say(&format!("what the programs printed: {}", directory.join("programs").display()));
    let count = if plan.siw == [true, true] {
        // The packets between two siws are not vrdma's, and have no CRCs.
        result?
    } else {
        // The capture is checked even if some programs failed.
        let what = format!("checking what passed the wire: {}", file.display());
        let checked = ui::step(&what, || capture::iwarp::check(&file));
        let (count, checked) = both(result, checked)?;
        println!("\n{}\n{} FPDUs on the wire, each sound", checked.opcodes, checked.packets);
        count
    };
    let seconds = start.elapsed().as_secs_f64();
    ui::say(&format!("demo: {count} programs succeeded in {seconds:.1} s"));
    Ok(())
}

/// Runs the test matrix and NVMe over Fabrics between two vrdma devices.
fn ours(pair: &mut Pair, plan: &IwarpPlan, before: Busy, say: Say<'_>) -> Result<usize> {
    const STORAGE: &str = "NVMe over Fabrics, with fio that compares";
    const LOAD: Load = Load { size: "16m", options: Load::ASYNCHRONOUS };
    prepare(pair)?;
    let Ran { mut count, figures } = go_through(pair, &EACH, &|name| plan.wants(name), say)?;
    if plan.wants(STORAGE) {
        let start = Instant::now();
        Storage::new(Protocol::Nvme, 0).whole(pair, &LOAD).context("NVMe over Fabrics")?;
        say(format!("\n  ok {:6.1} s  {STORAGE}", start.elapsed().as_secs_f64()));
        count += 1;
    }
    ensure!(count > 0, "no program has any of {:?} in its name", plan.only);
    let siw = Summary::kept(Device::Siw.name(), pair.accel());
    say(figures_of(Device::Vrdma.name(), &figures, siw.as_ref().map(|(figures, _)| figures)));
    // The figures are from two runs, which is said: building siw takes too long to measure both
    // each time.
    match siw {
        Some((_, said)) => say(format!("{} was measured now, {before}; {said}", Device::Vrdma.name())),
        None => ui::say("`cargo xtask demo iwarp --both-siw` measures Linux's siw, to be shown beside"),
    }
    Ok(count)
}

/// Runs the rows of the test matrix that have comparable figures, between two siws.
///
/// The other rows may fail: `rping -S 60000` between two siws waits forever.
fn siw_alone(pair: &Pair, plan: &IwarpPlan, before: Busy, say: Say<'_>) -> Result<usize> {
    const MEASURES: [&str; 2] = ["latency", "sizes to 8 MiB"];
    prepare(pair)?;
    let wants = |name: &str| plan.wants(name) && MEASURES.iter().any(|part| name.contains(part));
    let Ran { count, figures } = go_through(pair, &EACH[..1], &wants, say)?;
    ensure!(count > 0, "no program has any of {:?} in its name", plan.only);
    if plan.only.is_empty() {
        figures.keep(Device::Siw.name(), pair.accel(), before)?;
    }
    say(figures_of(Device::Siw.name(), &figures, None));
    Ok(count)
}

fn figures_of(whose: &str, figures: &Summary, beside: Option<&Summary>) -> String {
    let mut figures = figures.clone();
    figures.sort();
    let table = figures.table(whose, beside.map(|beside| (Device::Siw.name(), beside)));
    format!(
        "\ntypical latency, its 99.9th percentile, and average bandwidth, as the VMs measure them\n{table}"
    )
}

/// Runs all variants of siw against vrdma, and tests what siw refuses.
fn with_siw(pair: &mut Pair, plan: &IwarpPlan, say: Say<'_>) -> Result<usize> {
    const REFUSED_OPERATIONS: &str = "siw: operations that it refuses";
    const REFUSED_CRC: &str = "siw: CRCs that it refuses";
    prepare(pair)?;
    let mut count = 0;
    let mut failures = Vec::new();
    for variant in [Variant::Stock, Variant::Crc, Variant::PeerToPeer, Variant::Gso] {
        let named = format!("siw: {}", variant.name());
        let wants = |name: &str| plan.wants(&format!("{named}: {name}"));
        let turns = if variant == Variant::Stock { &EACH } else { &EACH_SHORT };
        if !turns.iter().any(|turn| is_wanted(pair, *turn, &wants)) {
            continue;
        }
        say(format!("\n=== {named} (which waits 60 s for a reply, not 10: VMs may be slow)"));
        siw::load(&pair.b, variant, pair.patience(6))?;
        match go_through(pair, turns, &wants, say) {
            Ok(ran) => {
                count += ran.count;
                if !ran.figures.is_empty() {
                    let both = format!("{} -> {}", Device::Siw.name(), Device::Vrdma.name());
                    say(figures_of(&both, &ran.figures, None));
                }
            }
            Err(error) => failures.push(format!("{named}: {error:#}")),
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    if plan.wants(REFUSED_OPERATIONS) {
        count += refused_operations(pair, say)?;
    }
    if plan.wants(REFUSED_CRC) {
        refused_crc(pair)?;
        say("  ok  siw that refuses CRCs is told so, and nothing hangs".to_owned());
        count += 1;
    }
    ensure!(count > 0, "no program has any of {:?} in its name", plan.only);
    Ok(count)
}

/// The programs that ran.
pub struct Ran {
    /// Number of programs.
    pub count: usize,
    /// What perftest measured in the first round.
    pub figures: Summary,
}

/// Runs the wanted rows of the test matrix, and continues after failures to show all of them.
///
/// `wants` is asked with the names of round and program.
pub fn go_through(pair: &Pair, turns: &[Turn], wants: &dyn Fn(&str) -> bool, say: Say<'_>) -> Result<Ran> {
    let mut failures = Vec::new();
    let (mut count, mut figures) = (0, Summary::default());
    for (turn, &(server, family, sizes)) in
        turns.iter().enumerate().filter(|(_, turn)| is_wanted(pair, **turn, wants))
    {
        let round = round(pair, server, family)?;
        say(format!("\n=== {}", round.name()));
        let name = |row: &Row| format!("{}: {}", round.name(), row.what);
        for row in rows(pair.devices()[server], family, sizes).iter().filter(|row| wants(&name(row))) {
            count += 1;
            match round.run_and_read(row, 20_000 + count as u16) {
                Ok((time, printed)) => {
                    say(format!("  ok {:6.1} s  {}", time.as_secs_f64(), row.what));
                    if turn == 0 {
                        figures.add(&row.client, &printed);
                    }
                }
                Err(error) => {
                    let error = indent(&format!("{error:#}"));
                    say(format!("FAIL           {}\n{error}", row.what));
                    failures.push(format!("{}\n{error}", name(row)));
                }
            }
        }
    }
    if !failures.is_empty() {
        bail!("{} of {count} programs failed:\n{}", failures.len(), indent(&failures.join("\n")));
    }
    Ok(Ran { count, figures })
}

/// Returns the round whose servers run in this VM (0 is a).
fn round(pair: &Pair, server: usize, family: IpFamily) -> Result<Round<'_>> {
    Round::new(pair, if server == 0 { &pair.a } else { &pair.b }, family)
}

/// Whether any program of a round is wanted.
fn is_wanted(pair: &Pair, (server, family, sizes): Turn, wants: &dyn Fn(&str) -> bool) -> bool {
    let name = round(pair, server, family).map(|round| round.name());
    // An error here is reported when the round runs.
    name.map_or(true, |name| {
        rows(pair.devices()[server], family, sizes).iter().any(|row| wants(&format!("{name}: {}", row.what)))
    })
}

/// Requests operations of RFC 7306, which siw does not know.
///
/// siw ends the connection with a TERMINATE, the operation fails, and nothing hangs.
pub fn refused_operations(pair: &mut Pair, say: Say<'_>) -> Result<usize> {
    const OPERATIONS: [&str; 3] = ["fetch-add", "compare-swap", "write-imm"];
    for (index, operation) in OPERATIONS.into_iter().enumerate() {
        let before = terminates_in(pair)?;
        let client = format!("vr-cm-op @a @p {operation}");
        // The server does not end successfully.
        let server = "rping -s -C 1 -a @a -p @p || true";
        let row = Row::new(operation, Ready::Cm, server, &client, "the peer ended the connection");
        Round::new(pair, &pair.b, IpFamily::V4)?.run(&row, 21_000 + index as u16)?;
        ensure!(terminates_in(pair)? == before + 1, "{operation}: siw sent no TERMINATE");
        say(format!("  ok  siw ends {operation} with a TERMINATE"));
    }
    Ok(OPERATIONS.len())
}

/// Returns how many TERMINATEs VM a's device has received.
fn terminates_in(pair: &mut Pair) -> Result<u64> {
    fn sum(value: &serde_json::Value) -> u64 {
        match value {
            serde_json::Value::Object(members) => {
                let own = members.get("terminates_in").and_then(serde_json::Value::as_u64).unwrap_or(0);
                own + members.values().map(sum).sum::<u64>()
            }
            serde_json::Value::Array(values) => values.iter().map(sum).sum(),
            _ => 0,
        }
    }
    Ok(sum(&pair.backend()?.stats()?))
}

/// Connects to a siw that refuses CRCs, which vrdma always uses.
///
/// Both sides must learn that the connection is refused.
pub fn refused_crc(pair: &Pair) -> Result<()> {
    siw::load(&pair.b, Variant::NoCrc, pair.patience(6))?;
    for (index, server) in [&pair.a, &pair.b].into_iter().enumerate() {
        // The client must fail, so its status is inverted.
        let client = "! rping -c -C 1 -a @a -I @o -p @p && echo refused as it should be";
        let row = Row::new(
            "no CRC",
            Ready::Cm,
            "exec rping -s -C 1 -a @a -p @p",
            client,
            "refused as it should be",
        );
        let row = row.server_stays();
        Round::new(pair, server, IpFamily::V4)?.run(&row, 21_010 + index as u16)?;
    }
    Ok(())
}
