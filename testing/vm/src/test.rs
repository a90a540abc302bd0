//! What a test in VMs is, and the list of all that [`vm_test`](vrdma_vm_macros::vm_test) declares.

use anyhow::Result;
use linkme::distributed_slice;
use vrdma_lab::vm::Pair;

use crate::lab::Lab;

/// One test.
#[derive(Clone)]
pub struct VmTest {
    /// What `--only` selects it by.
    pub name: &'static str,
    /// Whether it needs the backend and our driver.
    pub needs: Needs,
    /// The kind of pair that it runs in.
    pub lab: Lab,
    /// Takes too long for every day: runs with `--long`.
    pub long: bool,
    /// The VMs are not afterwards what they were: a driver or a VM began anew.
    pub disturbs: bool,
    /// The test itself.
    pub run: Run,
    /// The module that declares it.
    pub module: &'static str,
    /// The line in the file of this module.
    pub line: u32,
}

/// A test in VMs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a pair of its kind.
    InPair(fn(&mut Pair) -> Result<()>),
    /// In VMs that it boots itself.
    Alone(fn() -> Result<()>),
}

/// What a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// VMs.
    Vms,
    /// VMs with our device, driver and provider.
    Rdma,
    /// VMs with our device, and an older version of it ([`vrdma_lab::older`]).
    Older,
}

/// All tests, as the linker finds them.
#[distributed_slice]
pub static TESTS: [VmTest];

/// All tests, in the order in which they run:
///
/// 1. Tests of one kind of pair stand together, because each change boots a pair. Tests that run
///    alone come last, when no lane has a pair of VMs any more.
/// 2. Of one kind of pair, files of `src` come before files of folders. So the guest's Linux is set
///    up in odd ways only after the usual uses were tried.
/// 3. Of these, tests that disturb a pair come behind those that leave it as it is.
/// 4. The rest is by file and line.
///
/// # Panics
/// Two tests have one name.
pub fn all() -> Vec<VmTest> {
    let mut tests = TESTS.to_vec();
    tests.sort_by_key(|test| {
        let is_alone = matches!(test.run, Run::Alone(_));
        let depth = test.module.matches("::").count();
        (is_alone, test.lab, depth, test.disturbs, test.module, test.line)
    });
    let mut names: Vec<&str> = tests.iter().map(|test| test.name).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert!(pair[0] != pair[1], "two tests have the name {}", pair[0]);
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_one_kind_of_pair_stand_together() {
        let mut labs: Vec<Lab> =
            all().iter().filter(|test| matches!(test.run, Run::InPair(_))).map(|test| test.lab).collect();
        labs.dedup();
        let changes = labs.len();
        labs.sort_unstable();
        labs.dedup();
        assert_eq!(labs.len(), changes);
        assert!(changes > 15, "{changes} kinds of pairs");
    }

    #[test]
    fn tests_that_disturb_a_pair_come_late() {
        let tests = all();
        let place = |name: &str| tests.iter().position(|test| test.name == name).expect(name);
        for (early, late) in [
            ("vm-exec", "vm-clean-up-qemu"),
            ("vm-nvme", "vm-kill"),
            ("vm-kill", "vm-linux-mac"),
            ("vm-linux-sysfs", "vm-linux-plug"),
            ("vm-nvme-two-hosts", "vm-link-flap"),
        ] {
            assert!(place(early) < place(late), "{late} runs before {early}");
        }
    }
}
