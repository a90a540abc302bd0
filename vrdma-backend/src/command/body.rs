//! The body of a request: a structure, and memory extents.

use super::base::{ExtentList, StatusResult};
use crate::memory::Extent;
use vrdma_abi::control::{Run as AbiRun, Status};
use vrdma_abi::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The body of a request: all bytes after its header.
pub(super) struct Body<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Number of memory extents at the end.
    pub num_runs: usize,
}

impl Body<'_> {
    /// Splits the body into the structure of the request and the extents behind it.
    ///
    /// A later version of the ABI may add fields to the structure. They have to be zero.
    ///
    /// # Errors
    /// `INVALID`: bytes are missing, or the command needs extents and has none, or has extents that
    /// it must not have. `UNSUPPORTED`: an added field is not zero.
    pub(super) fn read<T>(&self, wanted: ExtentList) -> StatusResult<(T, Vec<Extent>)>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        if wanted == ExtentList::Always && self.num_runs == 0 {
            return Err(Status::INVALID);
        }
        let at = self.bytes.len().checked_sub(self.num_runs * AbiRun::SIZE).ok_or(Status::INVALID)?;
        let (request, extents) = self.bytes.split_at(at);
        let (request, added) = T::read_from_prefix(request).map_err(|_| Status::INVALID)?;
        if added.iter().any(|&byte| byte != 0) {
            return Err(Status::UNSUPPORTED);
        }
        if wanted == ExtentList::Never && self.num_runs != 0 {
            return Err(Status::INVALID);
        }
        let extents = <[AbiRun]>::ref_from_bytes(extents).map_err(|_| Status::INVALID)?;
        Ok((
            request,
            extents.iter().map(|extent| Extent { gpa: extent.addr.get(), len: extent.len.get() }).collect(),
        ))
    }
}

/// Checks the total length of extents.
///
/// # Errors
/// `INVALID`: the total is not `bytes`. `FAULT`: the total exceeds 64 bits.
pub(super) fn check_total(extents: &[Extent], bytes: u64) -> StatusResult<()> {
    let sum = extents.iter().try_fold(0u64, |sum, extent| sum.checked_add(extent.len));
    match sum {
        None => Err(Status::FAULT),
        Some(sum) if sum == bytes => Ok(()),
        Some(_) => Err(Status::INVALID),
    }
}
