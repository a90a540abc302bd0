//! What a test in VMs is.

use anyhow::Result;
use vrdma_lab::vm::Pair;

use crate::lab::Lab;

/// One test.
pub struct VmTest {
    /// What `--only` selects it by.
    pub name: &'static str,
    /// Whether it needs the backend and our driver.
    pub needs: Needs,
    /// The kind of pair that it runs in.
    pub lab: Lab,
    /// Takes too long for every day: runs with `--long`.
    pub long: bool,
    /// The test itself.
    pub run: Run,
}

/// A test in VMs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a pair of its kind.
    InPair(fn(&mut Pair) -> Result<()>),
    /// In VMs that it boots itself.
    Alone(fn() -> Result<()>),
}

impl VmTest {
    /// A test that runs with `--long` only.
    pub fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

/// What a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// VMs.
    Vms,
    /// VMs with our device, driver and provider.
    Rdma,
    /// The same, and an older version of it ([`vrdma_lab::older`]).
    Older,
}

/// A test in a pair of VMs, of every day.
pub fn on(lab: Lab, name: &'static str, needs: Needs, run: fn(&mut Pair) -> Result<()>) -> VmTest {
    VmTest { name, needs, lab, long: false, run: Run::InPair(run) }
}
