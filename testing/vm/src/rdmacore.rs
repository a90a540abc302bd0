//! rdma-core's own tests, which are written with pyverbs.

use anyhow::{Context, Result, ensure};
use vrdma_conformance::rdmacore::{MODULES, command, install};
use vrdma_lab::device::Device;
use vrdma_lab::paths;
use vrdma_lab::vm::Pair;
use vrdma_vm_macros::vm_test;

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
#[vm_test("vm-rdma-core", lab = Usual)]
fn tests(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    // An allocator of a parent domain takes one for each of two players.
    let huge_pages = |count: u32| {
        pair.a.check(&format!("echo {count} >/proc/sys/vm/nr_hugepages"), pair.patience(2)).map(|_| ())
    };
    huge_pages(4)?;
    run(pair, &MODULES)?;
    huge_pages(0)
}

/// The two suites that draw by lot what they do, this many times in a row. [`tests`] has them too.
#[vm_test("vm-pyverbs", lab = Usual, long, args(1))]
#[vm_test("vm-pyverbs-long", lab = Usual, long, args(20))]
fn qp_and_rdmacm(pair: &mut Pair, rounds: u32) -> Result<()> {
    install(pair)?;
    for round in 1..=rounds {
        run(pair, &BY_LOT).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

fn modules(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|module| format!("tests.test_{module}")).collect();
    names.join(" ")
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
