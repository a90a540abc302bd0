//! The engine.

use crate::completion::Sink;
use crate::counters::Counters;
use crate::error::Error;
use crate::id::{CqId, DeviceId, OwnerId, PdId};
use crate::limits::{Limits, ObjectCounts};
use crate::memory::{Access, Region};
use crate::qp::attr::{AttrMask, QpAttr, QpInit};
use crate::time::Instant;
use crate::work::{PostError, Queue, RecvRequest, SendRequest};
use vrdma_wire::num::{Gid, Qpn};

/// Devices, their objects, and what goes on between them.
pub struct Engine<R: Region> {
    regions: Vec<R>,
}

impl<R: Region> Engine<R> {
    /// An engine without devices. Equal seeds and equal calls give equal results.
    pub fn new(seed: u64) -> Self {
        let _ = seed;
        Engine { regions: Vec::new() }
    }
    /// Adds a device.
    pub fn add_device(&mut self, limits: Limits) -> DeviceId {
        let _ = limits;
        DeviceId(0)
    }
    /// The limits in force.
    pub fn limits(&self, device: DeviceId) -> Result<&Limits, Error> {
        let _ = device;
        Err(Error::NotFound)
    }
    /// Forgets everything of the device, without completions (guest reset); peers see it as gone.
    pub fn reset_device(&mut self, device: DeviceId) {
        let _ = device;
    }
    /// Removes the device, without completions.
    pub fn remove_device(&mut self, device: DeviceId) {
        let _ = device;
    }
    /// How much the device has of each kind.
    pub fn counts(&self, device: DeviceId) -> ObjectCounts {
        let _ = device;
        ObjectCounts::default()
    }
    /// What the device counted.
    pub fn counters(&self, device: DeviceId) -> &Counters {
        let _ = device;
        const { &Counters::ZERO }
    }
    /// Sets or clears an entry of the GID table. `Denied` if another device has that GID.
    pub fn set_gid(&mut self, device: DeviceId, index: u32, gid: Option<Gid>) -> Result<(), Error> {
        let _ = (device, index, gid);
        Err(Error::Unsupported)
    }
    /// An entry of the GID table; zero if it is empty.
    pub fn gid(&self, device: DeviceId, index: u32) -> Result<Gid, Error> {
        let _ = (device, index);
        Err(Error::Unsupported)
    }
    /// Allocates a protection domain.
    pub fn alloc_pd(&mut self, device: DeviceId, owner: OwnerId) -> Result<PdId, Error> {
        let _ = (device, owner);
        Err(Error::Unsupported)
    }
    /// Deallocates it. `Busy` while MRs or QPs use it.
    pub fn dealloc_pd(&mut self, device: DeviceId, pd: PdId) -> Result<(), Error> {
        let _ = (device, pd);
        Err(Error::Unsupported)
    }
    /// Who owns the protection domain.
    pub fn pd_owner(&self, device: DeviceId, pd: PdId) -> Result<OwnerId, Error> {
        let _ = (device, pd);
        Err(Error::Unsupported)
    }
    /// Registers a region; the key is both lkey and rkey.
    pub fn reg_mr(
        &mut self,
        device: DeviceId,
        pd: PdId,
        access: Access,
        iova: u64,
        length: u64,
        region: R,
    ) -> Result<u32, Error> {
        let _ = (device, pd, access, iova, length);
        self.regions.push(region);
        Err(Error::Unsupported)
    }
    /// Deregisters a region and gives it back.
    pub fn dereg_mr(&mut self, device: DeviceId, key: u32) -> Result<R, Error> {
        let _ = (device, key);
        Err(Error::Unsupported)
    }
    /// Who owns the protection domain of a region.
    pub fn mr_owner(&self, device: DeviceId, key: u32) -> Result<OwnerId, Error> {
        let _ = (device, key);
        Err(Error::Unsupported)
    }
    /// All regions of the device, to translate them anew.
    pub fn regions_mut(&mut self, device: DeviceId) -> impl Iterator<Item = &mut R> {
        let _ = device;
        self.regions.iter_mut()
    }
    /// Creates a QP in state RESET.
    pub fn create_qp(&mut self, device: DeviceId, init: QpInit) -> Result<Qpn, Error> {
        let _ = (device, init);
        Err(Error::Unsupported)
    }
    /// Changes attributes or the state of a QP.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        device: DeviceId,
        qpn: Qpn,
        mask: AttrMask,
        attr: &QpAttr,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let _ = (now, device, qpn, mask, attr, sink);
        Err(Error::Unsupported)
    }
    /// The attributes of a QP.
    pub fn query_qp(&self, device: DeviceId, qpn: Qpn) -> Result<QpAttr, Error> {
        let _ = (device, qpn);
        Err(Error::Unsupported)
    }
    /// Destroys a QP; its pending requests end without a completion.
    pub fn destroy_qp(&mut self, device: DeviceId, qpn: Qpn) -> Result<QpInit, Error> {
        let _ = (device, qpn);
        Err(Error::Unsupported)
    }
    /// Who owns a QP.
    pub fn qp_owner(&self, device: DeviceId, qpn: Qpn) -> Result<OwnerId, Error> {
        let _ = (device, qpn);
        Err(Error::Unsupported)
    }
    /// The CQ overran or its memory is gone: every QP on it goes to ERR.
    pub fn cq_failed(&mut self, now: Instant, device: DeviceId, cq: CqId, sink: &mut impl Sink) {
        let _ = (now, device, cq, sink);
    }
    /// Posts to a send queue.
    pub fn post_send(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        request: SendRequest<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let _ = (now, device, owner, qpn, request, sink);
        Err(PostError::NoSuchQp)
    }
    /// Posts to a receive queue.
    pub fn post_recv(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        request: RecvRequest<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let _ = (now, device, owner, qpn, request, sink);
        Err(PostError::NoSuchQp)
    }
    /// A request that could not be understood: completes as `LocQpOp` in order, the QP goes to ERR.
    #[expect(clippy::too_many_arguments, reason = "what a request consists of")]
    pub fn post_invalid(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        id: u32,
        queue: Queue,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let _ = (now, device, owner, qpn, id, queue, sink);
        Err(PostError::NoSuchQp)
    }
    /// Works on what is ready and due, on about `budget` bytes; true if more is ready now.
    pub fn poll(&mut self, now: Instant, budget: u64, sink: &mut impl Sink) -> bool {
        let _ = (now, budget, sink);
        false
    }
    /// When to poll next, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
