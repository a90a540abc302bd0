//! What follows the header of a request: a structure, and runs of memory.

use super::base::{Result, Runs};
use crate::memory::Run;
use vrdma_abi::control::{Run as AbiRun, Status};
use vrdma_abi::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// What follows the header of a request.
pub(super) struct Body<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// How many runs there are at the end.
    pub num_runs: usize,
}

impl Body<'_> {
    /// The structure of the request, and the runs behind it. A later version of the ABI may add
    /// fields to the structure: they have to be zero.
    ///
    /// # Errors
    /// `INVALID`: bytes are missing, or there are runs where the command has none, or none where it
    /// has some. `UNSUPPORTED`: a field that was added is not zero.
    pub(super) fn read<T>(&self, wanted: Runs) -> Result<(T, Vec<Run>)>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        if wanted == Runs::Always && self.num_runs == 0 {
            return Err(Status::INVALID);
        }
        let at = self.bytes.len().checked_sub(self.num_runs * AbiRun::SIZE).ok_or(Status::INVALID)?;
        let (request, runs) = self.bytes.split_at(at);
        let (request, added) = T::read_from_prefix(request).map_err(|_| Status::INVALID)?;
        if added.iter().any(|&byte| byte != 0) {
            return Err(Status::UNSUPPORTED);
        }
        if wanted == Runs::Never && self.num_runs != 0 {
            return Err(Status::INVALID);
        }
        let runs = <[AbiRun]>::ref_from_bytes(runs).map_err(|_| Status::INVALID)?;
        Ok((request, runs.iter().map(|run| Run { gpa: run.addr.get(), len: run.len.get() }).collect()))
    }
}

/// Checks how many bytes runs have in all.
///
/// # Errors
/// `INVALID`: more or fewer than `bytes`. `FAULT`: more than any memory has.
pub(super) fn check_total(runs: &[Run], bytes: u64) -> Result<()> {
    let sum = runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.len));
    match sum {
        None => Err(Status::FAULT),
        Some(sum) if sum == bytes => Ok(()),
        Some(_) => Err(Status::INVALID),
    }
}
