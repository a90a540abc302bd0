//! The device's clock (ibv_query_rt_values_ex(3)), and its conversion to wall-clock time.

use std::ffi::c_int;

use vrdma_verbs::abi::control::device_cap;

use crate::context::Context;
use crate::errno::{Errno, code};
use crate::{ffi, uverbs};

/// Nanoseconds after which the two clocks are compared again: they drift, and the wall clock may be
/// set.
const FRESH: u64 = 1_000_000_000;

pub unsafe extern "C" fn query_rt_values(
    context: *mut ffi::ibv_context,
    values: *mut ffi::ibv_values_ex,
) -> c_int {
    let query = || -> Result<(), Errno> {
        // SAFETY: the caller's open context.
        if unsafe { Context::of(context) }.device_cap & device_cap::CQ_TIMESTAMP == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        // SAFETY: the caller's context and values.
        let (cmd_fd, values) = unsafe { ((*context).cmd_fd, &mut *values) };
        // Unknown values are not returned.
        values.comp_mask &= ffi::IBV_VALUES_MASK_RAW_CLOCK;
        if values.comp_mask != 0 {
            // The time is in one number, as on other devices.
            let tv_nsec = uverbs::query_clock(cmd_fd)?.cast_signed();
            values.raw_clock = ffi::timespec { tv_sec: 0, tv_nsec };
        }
        Ok(())
    };
    code(query())
}

/// Offset of the device's clock to CLOCK_REALTIME of this guest.
#[derive(Clone, Copy)]
pub struct Wall {
    /// CLOCK_REALTIME minus the device's clock, in nanoseconds. It wraps.
    ahead: u64,
    /// CLOCK_MONOTONIC at the comparison, in nanoseconds.
    compared: u64,
}

impl Wall {
    /// Compares the clocks.
    pub fn compare(cmd_fd: c_int) -> Result<Self, Errno> {
        let before = read(libc::CLOCK_REALTIME);
        let device = uverbs::query_clock(cmd_fd)?;
        let after = read(libc::CLOCK_REALTIME);
        // The device read its clock between these two.
        let wall = before.midpoint(after);
        Ok(Self { ahead: wall.wrapping_sub(device), compared: read(libc::CLOCK_MONOTONIC) })
    }

    /// Returns the value of CLOCK_REALTIME when the device's clock was `timestamp`.
    ///
    /// Once a second the clocks are compared again, by a system call.
    pub fn at(&mut self, timestamp: u64, cmd_fd: c_int) -> u64 {
        let now = read(libc::CLOCK_MONOTONIC);
        if now.wrapping_sub(self.compared) >= FRESH {
            // A device that does not answer is asked again after a second.
            *self = Self::compare(cmd_fd).unwrap_or(Self { compared: now, ..*self });
        }
        timestamp.wrapping_add(self.ahead)
    }
}

/// Reads a clock of the guest, in nanoseconds.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and `time` may be written.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

#[cfg(test)]
impl Wall {
    /// Makes the last comparison older by `nanoseconds`.
    pub fn age(&mut self, nanoseconds: u64) {
        self.compared = self.compared.wrapping_sub(nanoseconds);
    }
}
