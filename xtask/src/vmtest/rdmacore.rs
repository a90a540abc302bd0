//! rdma-core's own tests, which are written with pyverbs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::Device;
use crate::vm::Pair;
use crate::{paths, proc};

/// Its modules that are about what the device has; they skip by themselves what it has not.
const MODULES: [&str; 13] = [
    "addr",
    "atomic",
    "cq",
    "cq_events",
    "cqex",
    "device",
    "fork",
    "mr",
    "pd",
    "qp",
    "qpex",
    "rdmacm",
    "relaxed_ordering",
];

/// How many of them must pass and not be skipped. (Some make QPs with flags drawn by lot, and skip if the device has not got them.)
const LEAST: u64 = 60;

/// Why tests of [`qp_and_rdmacm`] are skipped: how a reason begins, and what the device lacks.
const SKIPPED: [(&str, &str); 3] = [
    ("Create Raw Packet QP", "QPs for raw Ethernet frames"),
    ("Multicast is not supported", "multicast that is received"),
    ("Create UD QP", "BLOCK_SELF_MCAST_LB, a flag that the test draws by lot"),
];

/// All of them pass or are skipped.
pub fn tests(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    let outcome = run(pair, &MODULES)?;
    ensure!(
        outcome.ran >= outcome.skipped + LEAST,
        "of {} tests {} were skipped: see {}",
        outcome.ran,
        outcome.skipped,
        outcome.log.display()
    );
    Ok(())
}

/// The two suites that draw by lot what they do: once.
pub fn qp_and_rdmacm(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    by_lot(pair)
}

/// None fails, and none is skipped for another reason than those that are known.
fn by_lot(pair: &Pair) -> Result<()> {
    let outcome = run(pair, &["qp", "rdmacm"])?;
    let said = paths::read(&outcome.log)?;
    let reasons = said.lines().filter_map(|line| line.split_once("... skipped '"));
    let known = |reason: &str| SKIPPED.iter().any(|(start, _)| reason.starts_with(start));
    let odd: Vec<&str> = reasons.map(|(_, reason)| reason).filter(|reason| !known(reason)).collect();
    ensure!(odd.is_empty(), "skipped for reasons that are new: {odd:?}, see {}", outcome.log.display());
    Ok(())
}

/// The same twenty times in a row.
pub fn qp_and_rdmacm_often(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    for round in 1..=20 {
        by_lot(pair).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// What a run of modules came to.
struct Outcome {
    ran: u64,
    skipped: u64,
    /// Each test with its result, and the reason of each that was skipped.
    log: PathBuf,
}

/// Puts the tests of rdma-core's source into VM a.
fn install(pair: &Pair) -> Result<()> {
    let from = paths::guest_root().join("usr/src/rdma-core/tests");
    let to = pair.share().join("rdma-core-tests");
    paths::remove(&to)?;
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(from).arg(to);
    proc::output(copy).context("rdma-core's tests")?;
    pair.a.check("rm -rf /tmp/tests && cp -r /share/rdma-core-tests /tmp/tests", pair.patience(5))?;
    Ok(())
}

/// Runs modules in VM a; an error if a test fails.
fn run(pair: &Pair, modules: &[&str]) -> Result<Outcome> {
    let gid = Device::Vrdma.gid_index(&pair.a)?;
    let modules: Vec<String> = modules.iter().map(|module| format!("tests.test_{module}")).collect();
    let command = format!(
        "cd /tmp && python3 -B tests/run_tests.py --dev vrdma0 --port 1 --gid {gid} -v {} 2>&1",
        modules.join(" ")
    );
    let said = pair.a.check(&command, pair.patience(10))?;
    let log = paths::log(if modules.len() > 2 { "rdma-core-tests" } else { "rdma-core-tests-by-lot" })?;
    paths::write(&log, &said)?;
    // `Ran 110 tests in 5.0s`, and later `OK (skipped=60)`.
    let number = |before: &str| -> Option<u64> {
        let rest = said.split_once(before)?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let ran = number("\nRan ").with_context(|| format!("no count of tests:\n{said}"))?;
    Ok(Outcome { ran, skipped: number("OK (skipped=").unwrap_or(0), log })
}
