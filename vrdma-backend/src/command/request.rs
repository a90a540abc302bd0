//! Finds the command of a request from its bytes.

use super::base::StatusResult;
use super::body::Body;
use super::caller::Caller;
use super::rows::Row;
use crate::worker::Job;
use vrdma_abi::control::{Opcode, ReqHeader, RespHeader, Status};
use vrdma_abi::zerocopy::{FromBytes, little_endian::U64};

/// Sizes of a reply, in bytes, including the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplySize {
    /// Room that the driver has to provide.
    pub least: u64,
    /// Size of the whole reply of this device.
    pub all: u64,
}

/// A request whose header was read.
pub(super) struct CommandRequest<'a> {
    header: ReqHeader,
    body: &'a [u8],
    /// `None` if there is no such command.
    row: Option<&'static Row>,
}

impl<'a> CommandRequest<'a> {
    /// Reads the header of a request.
    ///
    /// # Errors
    /// `INVALID`: the request has no header.
    pub(super) fn new(bytes: &'a [u8]) -> StatusResult<Self> {
        let (header, body) = ReqHeader::read_from_prefix(bytes).map_err(|_| Status::INVALID)?;
        Ok(CommandRequest { header, body, row: Row::find(Opcode(header.opcode.get())) })
    }

    /// Returns the cookie, by which the driver recognises the reply.
    pub(super) fn cookie(&self) -> U64 {
        self.header.cookie
    }

    /// Returns the sizes of the reply.
    pub(super) fn reply_size(&self) -> ReplySize {
        let with_header = |size: usize| (RespHeader::SIZE + size) as u64;
        let (least, all) = self.row.map_or((0, 0), |row| (row.first_reply, row.reply));
        ReplySize { least: with_header(least), all: with_header(all) }
    }

    /// Returns the job for the worker.
    ///
    /// # Errors
    /// The status for the driver.
    pub(super) fn job(&self, caller: &Caller<'_>) -> StatusResult<Job<Vec<u8>>> {
        if self.header.reserved.get() != 0 {
            return Err(Status::INVALID);
        }
        let num_runs = self.header.num_runs.get();
        if num_runs > caller.limits.mr_runs {
            return Err(Status::TOO_LARGE);
        }
        let has_it = |row: &&Row| row.transport.is_none_or(|only| only == caller.guest.transport);
        let row = self.row.filter(has_it).ok_or(Status::UNSUPPORTED)?;
        (row.job)(&Body { bytes: self.body, num_runs: num_runs as usize }, caller)
    }
}
