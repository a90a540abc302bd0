//! Creation, changes and destruction of shared receive queues, and posts to them.

use crate::base::error::Error;
use crate::base::id::{DeviceId, OwnerId, SrqId};
use crate::base::memory::Region;
use crate::engine::Engine;
use crate::objects::device::{Device, DeviceParts};
use crate::objects::srq::{Srq, SrqAttr, SrqInit};
use crate::verbs::completion::{Event, Sink};
use crate::verbs::request::{PostError, RecvList, RecvRequest};

impl<R: Region> Engine<R> {
    /// Creates a shared receive queue.
    ///
    /// Returns `Denied` if the PD is not its owner's. Returns `Invalid` if it would hold no
    /// receives, or more than the limits allow. Returns `NoResources` if there are too many queues,
    /// or if their receives could take too much memory.
    pub fn create_srq(&mut self, device: DeviceId, init: SrqInit) -> Result<SrqId, Error> {
        let room = self.request_memory.saturating_sub(self.core.devices.promised());
        self.core.devices.find_mut(device)?.create_srq(init, room)
    }

    /// Changes how many receives a shared receive queue can hold, and arms its limit (0: not
    /// armed): IBTA 11.2.8.3.
    ///
    /// Returns `Invalid` if more receives are outstanding. Receives that QPs have taken count until
    /// they end. Also returns `Invalid` if the queue may not hold so many, or if the limit is more
    /// than it can hold. A queue that has failed is `Invalid` too. Returns `NoResources` if the
    /// receives could take too much memory.
    pub fn modify_srq(
        &mut self,
        device: DeviceId,
        srq: SrqId,
        (max_wr, limit): (Option<u32>, Option<u32>),
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let room = self.request_memory.saturating_sub(self.core.devices.promised());
        let known = self.core.devices.find_mut(device)?;
        known.modify_srq(srq, (max_wr, limit), room)?;
        let queue = known.srqs.get_mut(srq.0).ok_or(Error::NotFound)?;
        if queue.limit_reached() {
            sink.event(device, Event::SrqLimitReached(srq));
        }
        Ok(())
    }

    /// Returns what a shared receive queue can hold, and its limit.
    pub fn query_srq(&self, device: DeviceId, srq: SrqId) -> Result<SrqAttr, Error> {
        let Srq { init, limit, .. } =
            self.core.devices.find(device)?.srqs.get(srq.0).ok_or(Error::NotFound)?;
        Ok(SrqAttr { max_wr: init.max_wr, max_sge: init.max_sge, limit: *limit })
    }

    /// Returns the owner of a shared receive queue.
    pub fn srq_owner(&self, device: DeviceId, srq: SrqId) -> Result<OwnerId, Error> {
        let srq = self.core.devices.find(device)?.srqs.get(srq.0).ok_or(Error::NotFound)?;
        Ok(srq.init.owner)
    }

    /// Returns the parameters with which a shared receive queue was created.
    pub fn srq_init(&self, device: DeviceId, srq: SrqId) -> Result<SrqInit, Error> {
        let srq = self.core.devices.find(device)?.srqs.get(srq.0).ok_or(Error::NotFound)?;
        Ok(srq.init)
    }

    /// Reports that the CQ of an XRC shared queue overran or lost its memory.
    ///
    /// The queue fails, with [`Event::SrqError`].
    pub fn srq_cq_failed(&mut self, device: DeviceId, srq: SrqId, sink: &mut impl Sink) {
        let Some(Device { parts: DeviceParts { srqs, requests, .. }, .. }) =
            self.core.devices.get_mut(device.0)
        else {
            return;
        };
        let Some(queue) = srqs.get_mut(srq.0).filter(|queue| !queue.failed) else { return };
        queue.fail(requests);
        self.free_dropped(device.0);
        sink.event(device, Event::SrqError(srq));
    }

    /// Destroys a shared receive queue. Its receives end without completions.
    ///
    /// Returns `Busy` while QPs have it. (No QP has an XRC queue. A receive that an XRC target has
    /// taken from it ends too.)
    pub fn destroy_srq(&mut self, device: DeviceId, srq: SrqId) -> Result<(), Error> {
        self.core.devices.find_mut(device)?.destroy_srq(srq)?;
        self.free_dropped(device.0);
        Ok(())
    }

    /// Posts a receive to a shared queue.
    ///
    /// An invalid receive, or one too many, takes the queue to its error state, with
    /// [`Event::SrqError`]. The queue then loses its receives, and takes no more.
    #[inline]
    pub fn post_srq_recv(
        &mut self,
        device: DeviceId,
        owner: OwnerId,
        srq: SrqId,
        request: RecvRequest<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let Device { parts: DeviceParts { srqs, requests, counters, .. }, .. } =
            self.core.devices.get_mut(device.0).ok_or(PostError::NoSuchSrq)?;
        let Some(queue) = srqs.get_mut(srq.0) else {
            counters.post_no_srq += 1;
            return Err(PostError::NoSuchSrq);
        };
        if owner != OwnerId::KERNEL && owner != queue.init.owner {
            counters.post_not_owner += 1;
            return Err(PostError::NotOwner);
        }
        if queue.failed {
            counters.post_bad_state += 1;
            return Err(PostError::BadState);
        }
        let fits = request.sges.len() <= queue.init.max_sge as usize;
        if !fits || queue.outstanding() >= queue.init.max_wr {
            counters.post_overflow += u64::from(fits);
            queue.fail(requests);
            self.free_dropped(device.0);
            sink.event(device, Event::SrqError(srq));
            return Err(if fits { PostError::Overflow } else { PostError::BadState });
        }
        requests.push_receive(&mut queue.receives, request.id, request.sges);
        queue.list(device.0, &mut self.core.schedule.wakes);
        Ok(())
    }

    /// Posts receives of one element each, as if [`Engine::post_srq_recv`] posted each. Returns the
    /// first error.
    #[inline]
    pub fn post_srq_recvs(
        &mut self,
        device: DeviceId,
        owner: OwnerId,
        srq: SrqId,
        list: RecvList<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let known = self.core.devices.get_mut(device.0).ok_or(PostError::NoSuchSrq)?;
        if let Some(queue) = known.parts.srqs.get_mut(srq.0)
            && (owner == OwnerId::KERNEL || owner == queue.init.owner)
            && !queue.failed
            && queue.init.max_sge > 0
            && queue.init.max_wr.saturating_sub(queue.outstanding()) >= list.len()
        {
            known.parts.requests.push_receives(&mut queue.receives, list);
            queue.list(device.0, &mut self.core.schedule.wakes);
            return Ok(());
        }
        let mut result = Ok(());
        for request in list.requests() {
            result = result.and(self.post_srq_recv(device, owner, srq, request, sink));
        }
        result
    }

    /// Posts a receive to a shared queue that could not be parsed. It has the effect of an invalid
    /// receive ([`Engine::post_srq_recv`]).
    pub fn post_invalid_srq(
        &mut self,
        device: DeviceId,
        owner: OwnerId,
        srq: SrqId,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        // This is more elements than any queue takes.
        let sges = &[Default::default(); crate::verbs::request::MAX_SGE + 1];
        self.post_srq_recv(device, owner, srq, RecvRequest { id: 0, sges }, sink)
    }
}
