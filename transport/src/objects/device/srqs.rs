//! Shared receive queues of a device: made, changed and destroyed.

use super::Device;
use crate::base::error::Error;
use crate::base::id::SrqId;
use crate::collections::pool::List;
use crate::objects::outstanding::Requests;
use crate::objects::srq::life::SrqRef;
use crate::objects::srq::{Srq, SrqInit};

impl<R> Device<R> {
    /// Creates a shared queue. `room` is how many bytes requests may still take of what all devices
    /// share.
    pub(crate) fn create_srq(&mut self, init: SrqInit, room: u64) -> Result<SrqId, Error> {
        let promised = self.admit_srq(&init)?;
        if promised - self.promised > room {
            return Err(Error::NoResources);
        }
        let made = self.srqs_made + 1;
        let make = |number| Srq::new(SrqRef::new(SrqId(number), made), init);
        let number = self.parts.srqs.insert(|tag| tag.wrapping_add(1), make).ok_or(Error::NoResources)?;
        (self.promised, self.srqs_made) = (promised, made);
        self.srq_uses(&init, true);
        Ok(SrqId(number))
    }

    /// Counts a shared queue that begins or ceases to use its objects.
    pub(super) fn srq_uses(&mut self, init: &SrqInit, more: bool) {
        self.pd_used(init.pd, more);
        if let Some(xrc) = init.xrc {
            self.xrcds.used(xrc.xrcd, more);
        }
    }

    /// Checks whether a shared queue may have these parameters, and returns the bytes that all full
    /// queues then take.
    pub(super) fn admit_srq(&self, init: &SrqInit) -> Result<u64, Error> {
        if self.pd(init.pd)?.owner != init.owner {
            return Err(Error::Denied);
        }
        if let Some(xrc) = init.xrc {
            self.xrcds.get(xrc.xrcd.0).ok_or(Error::NotFound)?;
        }
        let limits = &self.limits;
        if !(1..=limits.max_qp_wr).contains(&init.max_wr) || init.max_sge > limits.max_recv_sge {
            return Err(Error::Invalid);
        }
        let promised = self.promised.saturating_add(cost_of_srq(init));
        if promised > limits.max_request_memory { Err(Error::NoResources) } else { Ok(promised) }
    }

    /// Changes the size of a shared queue, and its limit. `room` is as in [`Device::create_srq`].
    pub(crate) fn modify_srq(
        &mut self,
        id: SrqId,
        (max_wr, limit): (Option<u32>, Option<u32>),
        room: u64,
    ) -> Result<(), Error> {
        let srq = self.parts.srqs.get(id.0).ok_or(Error::NotFound)?;
        let Srq { init: old, limit: old_limit, failed, .. } = srq;
        let init = SrqInit { max_wr: max_wr.unwrap_or(old.max_wr), ..*old };
        let limit = limit.unwrap_or(*old_limit);
        if *failed
            || init.max_wr < srq.outstanding()
            || limit > init.max_wr
            || !(1..=self.limits.max_qp_wr).contains(&init.max_wr)
        {
            return Err(Error::Invalid);
        }
        let (old, new) = (cost_of_srq(old), cost_of_srq(&init));
        let promised = self.promised - old + new;
        if promised > self.limits.max_request_memory || new > old && new - old > room {
            return Err(Error::NoResources);
        }
        self.promised = promised;
        let srq = self.parts.srqs.used(id);
        (srq.init, srq.limit) = (init, limit);
        Ok(())
    }

    pub(crate) fn destroy_srq(&mut self, id: SrqId) -> Result<(), Error> {
        if self.parts.srqs.get(id.0).ok_or(Error::NotFound)?.users > 0 {
            return Err(Error::Busy);
        }
        let mut srq = self.parts.srqs.remove(id.0).ok_or(Error::NotFound)?;
        self.parts.requests.drop_queues(&mut { List::EMPTY }, &mut srq.receives);
        self.promised -= cost_of_srq(&srq.init);
        self.srq_uses(&srq.init, false);
        Ok(())
    }
}

/// Returns the bytes that a full shared queue takes.
fn cost_of_srq(init: &SrqInit) -> u64 {
    Requests::cost_of_receives(init.max_wr, init.max_sge)
}
