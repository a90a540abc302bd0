//! rdma-core's own tests, which are written with pyverbs.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::Device;
use crate::vm::Pair;
use crate::{paths, proc};

/// Its modules that are about what the device has; they skip by themselves what it has not.
const MODULES: [&str; 16] = [
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

/// The others that are of no vendor: of these the device has nothing, and all is skipped.
const LACKING: [&str; 5] = ["cuda_dmabuf", "flow", "odp", "rss_traffic", "tag_matching"];

/// Those that draw by lot what they do.
const BY_LOT: [&str; 2] = ["qp", "rdmacm"];

/// What `ibv_create_qp_ex` may be asked for by test_create_ud_qp_ex_no_attr and
/// test_create_ud_qp_ex_with_attr. Without "extended" the reason is that of `ibv_create_qp`, which
/// has no flags.
const MCAST_LB: &str = "BLOCK_SELF_MCAST_LB, a flag that the test draws by lot";

/// Why tests are skipped: how a reason begins, and what the device or the VM lacks.
const SKIPPED: [(&str, &str); 4] = [
    ("Create Raw Packet QP", "QPs for raw Ethernet frames"),
    ("Create UD QP without extended attrs is not supported", MCAST_LB),
    ("Create UD QP with extended attrs is not supported", MCAST_LB),
    ("Device /dev/dri/renderD128 is not present", "a GPU in the VM"),
];

/// All of them pass, or are skipped for what is known to lack.
pub fn tests(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    // An allocator of a parent domain takes one for each of two players.
    let huge_pages = |count: u32| {
        pair.a.check(&format!("echo {count} >/proc/sys/vm/nr_hugepages"), pair.patience(2)).map(|_| ())
    };
    huge_pages(4)?;
    run(pair, &MODULES)?;
    huge_pages(0)
}

/// The two suites that draw by lot what they do: once. [`tests`] has them too.
pub fn qp_and_rdmacm(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    run(pair, &BY_LOT)
}

/// The same twenty times in a row.
pub fn qp_and_rdmacm_often(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    for round in 1..=20 {
        run(pair, &BY_LOT).with_context(|| format!("round {round}"))?;
    }
    Ok(())
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

/// Puts the tests into VM a, and lists those that are of no vendor, in the order in which they run.
pub fn names(pair: &Pair) -> Result<Vec<String>> {
    install(pair)?;
    // It lists them, then runs none, and calls that a failure.
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

/// What these tests say of themselves over a device in VM a, whether they pass or not. Who takes
/// too long is killed.
pub fn report(pair: &Pair, device: Device, names: &[String]) -> Result<String> {
    const NAMES: &str = "rdma-core-tests.names";
    paths::write(&pair.share().join(NAMES), names.join("\n"))?;
    let seconds = pair.patience(50).as_secs();
    let command = command(pair, device, &format!("$(cat /share/{NAMES})"))?;
    let command = command.replacen("python3", &format!("timeout -s KILL {seconds} python3"), 1);
    pair.a.check(&format!("{command}; true"), pair.patience(60))
}

fn modules(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|module| format!("tests.test_{module}")).collect();
    names.join(" ")
}

fn command(pair: &Pair, device: Device, tests: &str) -> Result<String> {
    let gid = device.gid_index(&pair.a)?;
    Ok(format!(
        "cd /tmp && python3 -B tests/run_tests.py --dev {} --port 1 --gid {gid} -v {tests} 2>&1",
        device.name()
    ))
}

/// Runs modules in VM a. An error if a test fails, or is skipped for a reason that is new.
fn run(pair: &Pair, modules: &[&str]) -> Result<()> {
    let command = command(pair, Device::Vrdma, &self::modules(modules))?;
    let said = pair.a.check(&command, pair.patience(10))?;
    let log =
        paths::log(if modules.len() > BY_LOT.len() { "rdma-core-tests" } else { "rdma-core-tests-by-lot" })?;
    paths::write(&log, &said)?;
    ensure!(said.contains("\nOK"), "no result, see {}", log.display());
    let odd = new_reasons(&said);
    ensure!(odd.is_empty(), "skipped for reasons that are new: {odd:?}, see {}", log.display());
    Ok(())
}

/// Reasons for which tests were skipped and that [`SKIPPED`] has not. They stand behind a test's
/// name, or in a line of their own if the test said something else before.
fn new_reasons(report: &str) -> Vec<&str> {
    let reasons = report.lines().filter_map(|line| {
        let end = line.rsplit_once(" ... ").map_or(line, |(_, end)| end);
        let reason = end.strip_prefix("skipped ")?.trim_matches(['\'', '"']);
        let is_known = SKIPPED.iter().any(|(start, _)| reason.starts_with(start));
        (!is_known).then_some(reason)
    });
    reasons.collect()
}

#[cfg(test)]
mod tests {
    use super::new_reasons;

    #[test]
    fn reasons_that_are_new_are_found_wherever_they_stand() {
        let report = "\
test_a (tests.test_qp.QPTest.test_a)
Does a. ... ok
test_b (tests.test_qp.QPTest.test_b) ... skipped 'Create Raw Packet QP with attrs is not supported'
test_c (tests.test_qp.QPTest.test_c)
Does c. ... skipped \"The moon's not full\"
test_ud (tests.test_qp.QPTest.test_ud) ... skipped 'Create UD QP without extended attrs is not supported'
test_ud (tests.test_qp.QPTest.test_ud) ... skipped 'Create UD QP with extended attrs is not supported'
test_ud (tests.test_qp.QPTest.test_ud) ... skipped 'Create UD QP without attrs is not supported'
test_d (tests.test_qp.QPTest.test_d) ... Traceback
skipped 'Extended QP is not supported on this device'

OK (skipped=3)
";
        assert_eq!(
            new_reasons(report),
            [
                "The moon's not full",
                "Create UD QP without attrs is not supported",
                "Extended QP is not supported on this device"
            ]
        );
    }
}
