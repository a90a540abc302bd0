//! rdma-core's own tests, which are written with pyverbs.

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

/// All of them pass or are skipped.
pub fn tests(pair: &mut Pair) -> Result<()> {
    let from = paths::guest_root().join("usr/src/rdma-core/tests");
    let to = pair.share().join("rdma-core-tests");
    paths::remove(&to)?;
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(from).arg(to);
    proc::output(copy).context("rdma-core's tests")?;

    let gid = Device::Vrdma.gid_index(&pair.a)?;
    let modules: Vec<String> = MODULES.iter().map(|module| format!("tests.test_{module}")).collect();
    let command = format!(
        "cp -r /share/rdma-core-tests /tmp/tests && cd /tmp &&
         python3 -B tests/run_tests.py --dev vrdma0 --port 1 --gid {gid} -v {} 2>&1",
        modules.join(" ")
    );
    let said = pair.a.check(&command, pair.patience(10))?;
    // `Ran 110 tests in 5.0s`, and later `OK (skipped=60)`.
    let number = |before: &str| -> Option<u64> {
        let rest = said.split_once(before)?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let ran = number("\nRan ").with_context(|| format!("no count of tests:\n{said}"))?;
    let skipped = number("OK (skipped=").unwrap_or(0);
    ensure!(ran >= skipped + LEAST, "of {ran} tests {skipped} were skipped:\n{said}");
    Ok(())
}
