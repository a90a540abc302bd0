//! rdma-core's own tests, which are written with pyverbs.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use vrdma_lab::device::Device;
use vrdma_lab::vm::Pair;
use vrdma_lab::{paths, proc};

/// Test modules for features that the device has. They skip what it lacks by themselves.
pub const MODULES: [&str; 16] = [
    "addr",
    "atomic",
    "cq",
    "cq_events",
    "cqex",
    "device",
    "fork",
    "mr",
    "parent_domain",
    "pd",
    "qp",
    "qpex",
    "rdmacm",
    "relaxed_ordering",
    "shared_pd",
    "srq",
];

/// The other vendor-neutral test modules. The device lacks their features, so all is skipped.
const LACKING: [&str; 5] = ["cuda_dmabuf", "flow", "odp", "rss_traffic", "tag_matching"];

/// Copies the tests of rdma-core's source into VM a.
pub fn install(pair: &Pair) -> Result<()> {
    let from = paths::guest_root().join("usr/src/rdma-core/tests");
    let to = pair.share().join("rdma-core-tests");
    paths::remove(&to)?;
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(from).arg(to);
    proc::output(copy).context("rdma-core's tests")?;
    pair.a.check("rm -rf /tmp/tests && cp -r /share/rdma-core-tests /tmp/tests", pair.patience(5))?;
    Ok(())
}

/// Copies the tests into VM a. Returns the names of the vendor-neutral ones, in the order of their
/// run.
pub fn names(pair: &Pair) -> Result<Vec<String>> {
    install(pair)?;
    // The program lists its tests, runs none, and then reports a failure.
    let said =
        pair.a.check("cd /tmp && python3 -B tests/run_tests.py --list-tests; true", pair.patience(10))?;
    let is_ours = |name: &str| {
        let module = name.strip_prefix("tests.test_").and_then(|rest| rest.split('.').next());
        module.is_some_and(|module| MODULES.contains(&module) || LACKING.contains(&module))
    };
    let names: Vec<String> = said.lines().filter(|name| is_ours(name)).map(str::to_owned).collect();
    ensure!(!names.is_empty(), "rdma-core has no tests: {said}");
    Ok(names)
}

/// Runs these tests over a device in VM a, and returns their output, whether they pass or not.
///
/// Tests that take too long are killed.
pub fn report(pair: &Pair, device: Device, names: &[String]) -> Result<String> {
    const NAMES: &str = "rdma-core-tests.names";
    paths::write(&pair.share().join(NAMES), names.join("\n"))?;
    let seconds = pair.patience(50).as_secs();
    let command = command(pair, device, &format!("$(cat /share/{NAMES})"))?;
    let command = command.replacen("python3", &format!("timeout -s KILL {seconds} python3"), 1);
    pair.a.check(&format!("{command}; true"), pair.patience(60))
}

/// Returns the command line that runs tests over a device in VM a.
pub fn command(pair: &Pair, device: Device, tests: &str) -> Result<String> {
    let gid = device.gid_index(&pair.a)?;
    Ok(format!(
        "cd /tmp && python3 -B tests/run_tests.py --dev {} --port 1 --gid {gid} -v {tests} 2>&1",
        device.name()
    ))
}
