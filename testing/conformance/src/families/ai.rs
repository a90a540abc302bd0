//! RDMA software of machine learning, from PyPI.
//!
//! That is Mooncake's Transfer Engine, and `ibverbs` and `nvmeof`, which need no driver of their
//! own.

use anyhow::{Context, Result};
use vrdma_lab::vm::Pair;
use vrdma_lab::{paths, wheels};

use super::cases::{Case, Way};
use crate::lineup::{Ready, Row};

/// The scripts that use them, by their paths in `testing/`.
const SCRIPTS: [&str; 4] = [
    "conformance/checks/mooncake_transfer.py",
    "conformance/checks/ibverbs_wheel.py",
    "conformance/checks/nvmeof_wheel.py",
    "lab/checks/storage.sh",
];

/// The subsystem that `storage.sh` makes.
const SUBSYSTEM: &str = "nqn.2026-01.vrdma:disk";

/// Copies the programs, and the scripts that use them, into the directory that the VMs share.
pub fn lay_out(pair: &Pair) -> Result<()> {
    wheels::lay_out(&pair.share())?;
    for script in SCRIPTS {
        let file = paths::workspace().join("testing").join(script);
        let name = file.file_name().context("a script has a name")?;
        paths::write(&pair.share().join(name), paths::read(&file)?)?;
    }
    Ok(())
}

/// Returns all cases.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        [mooncake(), ibverbs()].iter().flat_map(|row| Case::on(&Way::V4, row)).collect();
    cases.extend(Case::on(&Way::V4, &nvmeof()));
    cases
}

/// Returns the most significant cases, a row each.
pub fn some() -> Vec<Case> {
    [mooncake(), ibverbs(), nvmeof()].map(Case::new).into()
}

/// One process writes and reads another's memory, by single transfers and by a batch.
fn mooncake() -> Row {
    let script = "python3 -B /share/mooncake_transfer.py";
    let client = format!("{script} connect @a @p @d @o");
    Row::new("Mooncake", Ready::Tcp, &format!("{script} serve @a @p @d"), &client, "transfers are right")
        .takes(30)
}

/// Tests each RC operation, and datagrams.
fn ibverbs() -> Row {
    let script = "python3 -B /share/ibverbs_wheel.py";
    let client = format!("{script} connect @a @p @d @g");
    Row::new("ibverbs", Ready::Tcp, &format!("{script} serve @a @p @d @g"), &client, "operations are right")
        .takes(20)
}

/// Runs `nvmeof` with the kernel's target.
fn nvmeof() -> Row {
    let server = "sh /share/storage.sh nvme serve @a ram && exec sleep infinity";
    let client = format!("python3 -B /share/nvmeof_wheel.py @a {SUBSYSTEM} @o");
    Row::new("nvmeof", Ready::Cm, server, &client, "blocks are right")
        .server_stays()
        .then("sh /share/storage.sh nvme stop")
        .takes(20)
}
