//! Short forms of families of `cargo xtask conformance`.

use anyhow::Result;
use vrdma_conformance::families::{Family, quick};
use vrdma_lab::vm::Pair;

/// Programs that connect by rdma_cm.
pub fn cm(pair: &mut Pair) -> Result<()> {
    quick(pair, Family::Cm)
}

/// rsockets.
pub fn sockets(pair: &mut Pair) -> Result<()> {
    quick(pair, Family::Sockets)
}

/// UCX, libfabric and MPI.
pub fn mpi(pair: &mut Pair) -> Result<()> {
    quick(pair, Family::Mpi)
}

/// What machine learning has of RDMA.
pub fn ai(pair: &mut Pair) -> Result<()> {
    quick(pair, Family::Ai)
}
