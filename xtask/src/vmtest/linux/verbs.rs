//! Verbs as programs use them that other devices had bugs with.

use anyhow::{Context, Result};

use super::{case, python};
use crate::programs::Device;
use crate::vm::Pair;

/// The end of QPs that share a receive queue: exactly one LAST_WQE_REACHED each, and no receive is lost.
///
/// IBTA 10.3.1, 11.6.3.8; spdk#1697, ceph#25447.
pub fn last_wqe(pair: &mut Pair) -> Result<()> {
    in_one_vm(pair, "last_wqe.py")
}

/// Regions of any length and place within memory of huge pages.
///
/// ibv_reg_mr(3); Mooncake#3845, perftest#395.
pub fn odd_regions(pair: &mut Pair) -> Result<()> {
    in_one_vm(pair, "odd_regions.py")
}

/// A program that is written with pyverbs, in VM a. It is told the index of the VM's GID.
fn in_one_vm(pair: &mut Pair, script: &str) -> Result<()> {
    case(pair, |pair| {
        let index = Device::Vrdma.gid_index(&pair.a)?;
        let run = python(pair, script)?;
        pair.a.check("echo 16 >/proc/sys/vm/nr_hugepages", pair.patience(3))?;
        let said = pair.a.check(&format!("{run} {index}"), pair.patience(15));
        pair.a.check("echo 0 >/proc/sys/vm/nr_hugepages", pair.patience(3))?;
        said.with_context(|| script.to_owned()).map(|_| ())
    })
}
