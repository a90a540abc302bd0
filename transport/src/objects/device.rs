//! Devices: all objects of one guest, and the set of all devices.

mod groups;
pub(crate) mod keys;
mod qps;
mod save;
mod srqs;
mod xrcds;

use crate::base::error::Error;
use crate::base::gid::{GidEntry, Gids};
use crate::base::id::{DeviceId, OwnerId, PdId};
use crate::base::marks::Marks;
use crate::base::qp_ref::QpRef;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::collections::table::{Numbered, Numbering, Table};
use crate::objects::group::Groups;
use crate::objects::mr::{Key, Mrs};
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::objects::qp::entry::{QpEntry, Qps, SPECIAL_QPS, numbering};
use crate::objects::receiver::Receiver;
use crate::objects::roce::round_trip::Peers;
use crate::objects::service::Service;
use crate::objects::srq::{SRQS, Srq, Srqs};
use crate::objects::xrcd::{XRCDS, Xrcd, Xrcds};
use crate::verbs::counters::Counters;
use crate::verbs::limits::{Limits, ObjectCounts};
use crate::verbs::reason::Reason;
use core::mem;
use core::ops::{Deref, DerefMut};
use std::collections::BTreeSet;
use vrdma_wire::num::{Gid, Mac, Mtu, Qpn};

/// All devices, and which of them has which address.
pub(crate) struct Devices<R> {
    devices: Vec<Option<Device<R>>>,
    /// Number of the current step.
    step: u64,
    pub(crate) gids: Gids,
    /// Groups with members, each with the devices that have members.
    listeners: BTreeSet<(Gid, u32)>,
}

impl<R> Devices<R> {
    pub(crate) fn new() -> Devices<R> {
        Devices { devices: Vec::new(), step: 0, gids: Gids::default(), listeners: BTreeSet::new() }
    }

    pub(crate) fn add(&mut self, device: Device<R>) -> DeviceId {
        let free = self.devices.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.devices.push(None);
            self.devices.len() - 1
        });
        self.devices[index] = Some(device);
        DeviceId(index as u32)
    }

    pub(crate) fn remove(&mut self, device: DeviceId) {
        if let Some(slot) = self.devices.get_mut(device.0 as usize) {
            *slot = None;
        }
    }

    /// Returns the end of the indices of devices.
    pub(crate) fn indices(&self) -> u32 {
        self.devices.len() as u32
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Device<R>> {
        self.devices.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Device<R>> {
        let device = self.devices.get_mut(index as usize)?.as_mut()?;
        device.step = self.step;
        Some(device)
    }

    /// Begins a step. All earlier changes are complete.
    #[inline]
    pub(crate) fn begin_step(&mut self) {
        self.step += 1;
    }

    /// Iterates over the devices that the current step had for changing.
    pub(crate) fn reached(&self) -> impl Iterator<Item = u32> {
        let devices = (0..).zip(&self.devices);
        devices.filter_map(|(index, device)| (device.as_ref()?.step == self.step).then_some(index))
    }

    /// Returns the device that a command names, or `NotFound`.
    pub(crate) fn find(&self, device: DeviceId) -> Result<&Device<R>, Error> {
        self.get(device.0).ok_or(Error::NotFound)
    }

    /// Returns the device that a command names for changing, or `NotFound`.
    pub(crate) fn find_mut(&mut self, device: DeviceId) -> Result<&mut Device<R>, Error> {
        self.get_mut(device.0).ok_or(Error::NotFound)
    }

    /// Returns a QP and its device.
    #[inline]
    pub(crate) fn with_qp(&self, place: QpRef) -> Option<(&Device<R>, &Qp)> {
        let device = self.get(place.device)?;
        Some((device, device.qp(place.qpn)?))
    }

    /// Returns a QP that was found before in the same call of the engine, and its device.
    #[inline]
    pub(crate) fn known(&self, place: QpRef) -> (&Device<R>, &Qp) {
        self.with_qp(place).expect("no QP goes within a call of the engine")
    }

    /// Returns a QP that was found before in the same call, and its service, for changing.
    #[inline]
    pub(crate) fn known_mut(&mut self, place: QpRef) -> (&mut Qp, &mut Service) {
        self.known_device(place.device).qps.known(place.qpn).parts()
    }

    /// Returns a device that must exist.
    ///
    /// It was found in the same call of the engine, or is named by something that is removed with
    /// it: its addresses, turns, frames, tasks.
    #[inline]
    pub(crate) fn known_device(&mut self, index: u32) -> &mut Device<R> {
        self.get_mut(index)
            .expect("no device goes within a call of the engine, and what names it goes with it")
    }

    /// Returns two devices at once, or `None` if one does not exist or both are the same.
    #[inline]
    pub(crate) fn two_mut(&mut self, one: u32, other: u32) -> Option<(&mut Device<R>, &mut Device<R>)> {
        let [first, second] = self.devices.get_disjoint_mut([one as usize, other as usize]).ok()?;
        let (first, second) = (first.as_mut()?, second.as_mut()?);
        (first.step, second.step) = (self.step, self.step);
        Some((first, second))
    }

    #[inline]
    pub(crate) fn qp_mut(&mut self, place: QpRef) -> Option<&mut Qp> {
        self.get_mut(place.device)?.qp_mut(place.qpn)
    }

    /// Counts a message that was dropped at a device.
    #[cold]
    pub(crate) fn count_drop(&mut self, device: u32, reason: Reason) {
        self.known_device(device).counters.dropped(reason);
    }

    /// Returns the bytes that the full queues of all QPs would take.
    pub(crate) fn promised(&self) -> u64 {
        self.devices.iter().flatten().map(|device| device.promised).sum()
    }

    /// Sets or clears an entry of a device's GID table.
    ///
    /// The old entry still belongs to the device until its [retired](Devices::release_retired)
    /// entries are released.
    pub(crate) fn set_gid(
        &mut self,
        device: DeviceId,
        index: u32,
        entry: Option<GidEntry>,
    ) -> Result<(), Error> {
        let entry = entry.filter(|entry| !entry.gid.is_zero()).unwrap_or(GidEntry::EMPTY);
        let old = *self.find(device)?.gids.get(index as usize).ok_or(Error::Invalid)?;
        if entry.gid.is_multicast() {
            return Err(Error::Invalid);
        }
        if entry != GidEntry::EMPTY {
            self.gids.acquire(device.0, entry)?;
        }
        let known = self.find_mut(device)?;
        known.gids[index as usize] = entry;
        known.retired.push(old);
        Ok(())
    }

    /// Releases the addresses that are no longer in a device's GID table.
    ///
    /// No QP of the device has them any more. Other devices may now get them.
    pub(crate) fn release_retired(&mut self, device: u32) {
        let retired = mem::take(&mut self.known_device(device).retired);
        retired.into_iter().for_each(|entry| self.gids.release(entry));
    }

    /// Updates a QP's own address from the GID table of its device.
    pub(crate) fn refresh_source(&mut self, place: QpRef) {
        let Device { gids, qps, .. } = self.known_device(place.device);
        let qp = &mut qps.known(place.qpn).qp;
        let source = gids.get(usize::from(qp.attr().sgid_index)).copied().unwrap_or(GidEntry::EMPTY);
        if (qp.sgid, qp.vlan) != (source.gid, source.vlan) {
            qp.set_source(source);
        }
    }

    /// Clears a device's whole GID table.
    pub(crate) fn clear_gids(&mut self, device: DeviceId) {
        self.release_retired(device.0);
        let known = self.known_device(device.0);
        let entries =
            mem::replace(&mut known.gids, vec![GidEntry::EMPTY; known.limits.gid_table_len as usize]);
        entries.into_iter().for_each(|entry| self.gids.release(entry));
    }
}

/// A protection domain.
pub(crate) struct Pd {
    id: PdId,
    pub(crate) owner: OwnerId,
    /// Number of MRs, memory windows, shared receive queues and QPs in it.
    users: u32,
}

impl Numbered for Pd {
    fn number(&self) -> u32 {
        self.id.0
    }
}

const PDS: Numbering = Numbering { index_shift: 0, index_bits: 20, tag_shift: 20, tag_bits: 10 };

/// The QP that a request is posted to, and the parts of its device that the post needs.
pub(crate) struct PostTarget<'a> {
    pub(crate) qp: &'a mut Qp,
    pub(crate) requests: &'a mut Requests,
    pub(crate) counters: &'a mut Counters,
    /// Whether its device is suspended.
    pub(crate) suspended: bool,
}

/// The parts of a device that belong to any of its QPs.
pub(crate) struct DeviceParts<R> {
    pub(crate) mrs: Mrs<R>,
    pub(crate) srqs: Srqs,
    pub(crate) requests: Requests,
    pub(crate) counters: Counters,
    /// What it knows of its peers on other hosts.
    pub(crate) peers: Peers,
    /// Source of its packets.
    pub(crate) mac: Mac,
    /// Marks of its packets. The caller of a restored engine sets them again.
    pub(crate) marks: Marks,
    /// Whether its guest is stopped. Nothing of the device may then be touched.
    pub(crate) suspended: bool,
    /// Whether the device has rates, or a QP of it. The caller of a restored engine sets them
    /// again.
    pub(crate) limited: bool,
}

impl<R> DeviceParts<R> {
    /// Returns a QP of the device as the receiving end of a message.
    #[inline]
    pub(crate) fn receiver<'a>(&'a self, qp: &'a Qp) -> Receiver<'a, R> {
        Receiver { mrs: &self.mrs, requests: &self.requests, srqs: &self.srqs, qp }
    }
}

/// What a device had when it was reset.
///
/// [`Engine::reset_device`](crate::Engine::reset_device) returns it, because there may be millions
/// of objects to drop.
pub struct Remains<R> {
    _qps: Vec<Option<QpEntry>>,
    _mrs: Vec<Option<Key<R>>>,
    _srqs: Vec<Option<Srq>>,
    _xrcds: Vec<Option<Xrcd>>,
    _pds: Vec<Option<Pd>>,
    _groups: Groups,
    _requests: Requests,
    _deadlines: BTreeSet<(Instant, Qpn)>,
}

/// A device: all objects of one guest.
pub(crate) struct Device<R> {
    pub(crate) qps: Qps,
    /// Number of the last step that had it for changing.
    step: u64,
    pub(crate) parts: DeviceParts<R>,
    /// Number of shared receive queues that it has made.
    srqs_made: u64,
    xrcds: Xrcds,
    pub(crate) limits: Limits,
    /// Most payload of a packet of its guest, at most [`Limits::max_mtu`].
    pub(crate) active_mtu: Mtu,
    pub(crate) gids: Vec<GidEntry>,
    /// Multicast groups that its QPs have joined.
    pub(crate) groups: Groups,
    /// Former entries of the GID table, which QPs may still have as their own address.
    retired: Vec<GidEntry>,
    pds: Table<Pd>,
    /// Number of frames that wait until posts are drained.
    pub(crate) held: u32,
    /// Bytes that the full queues of all QPs would take.
    promised: u64,
    /// Generation of the first QP of each index, or the one after it.
    pub(crate) first_generation: u16,
    rng: Rng,
}

impl<R> Deref for Device<R> {
    type Target = DeviceParts<R>;

    #[inline]
    fn deref(&self) -> &DeviceParts<R> {
        &self.parts
    }
}

impl<R> DerefMut for Device<R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut DeviceParts<R> {
        &mut self.parts
    }
}

impl<R> Device<R> {
    pub(crate) fn new(limits: &Limits, seed: u64) -> Device<R> {
        let limits = limits.lowered();
        let mut rng = Rng::new(seed);
        Device {
            qps: Qps::new(numbering(limits.max_qp), SPECIAL_QPS, limits.max_qp),
            step: 0,
            parts: DeviceParts {
                mrs: Mrs::new(limits.max_mr),
                srqs: Srqs::new(SRQS, 0, limits.max_srq),
                requests: Requests::new(),
                counters: Counters::ZERO,
                peers: Peers::default(),
                mac: Mac::default(),
                marks: Marks::default(),
                suspended: false,
                limited: false,
            },
            srqs_made: 0,
            xrcds: Xrcds::new(XRCDS, 0, limits.max_xrcd),
            gids: vec![GidEntry::EMPTY; limits.gid_table_len as usize],
            groups: Groups::default(),
            retired: Vec::new(),
            pds: Table::new(PDS, 0, limits.max_pd),
            active_mtu: limits.max_mtu,
            limits,
            held: 0,
            promised: 0,
            first_generation: (rng.next() as u16).max(1),
            rng,
        }
    }

    /// Removes all objects, and forgets what its driver set.
    ///
    /// Counters and used numbers stay. Returns the removed objects, with the deadlines.
    pub(crate) fn clear(&mut self, deadlines: BTreeSet<(Instant, Qpn)>) -> Remains<R> {
        self.active_mtu = self.limits.max_mtu;
        (self.promised, self.held) = (0, 0);
        let requests = mem::replace(&mut self.requests, Requests::new());
        Remains {
            _qps: self.qps.clear(),
            _mrs: self.mrs.clear(),
            _srqs: self.srqs.clear(),
            _xrcds: self.xrcds.clear(),
            _pds: self.pds.clear(),
            _groups: mem::take(&mut self.groups),
            _requests: requests,
            _deadlines: deadlines,
        }
    }

    pub(crate) fn counts(&self) -> ObjectCounts {
        let (pending_sends, pending_receives) = self.requests.counts();
        ObjectCounts {
            pds: self.pds.len(),
            mrs: self.mrs.num_regions(),
            mws: self.mrs.num_windows(),
            qps: self.qps.len(),
            srqs: self.srqs.len(),
            xrcds: self.xrcds.len(),
            gids: self.gids.iter().filter(|&&entry| entry != GidEntry::EMPTY).count() as u32,
            mcast_attached: self.groups.len(),
            pending_sends,
            pending_receives,
        }
    }

    #[inline]
    pub(crate) fn qp(&self, qpn: Qpn) -> Option<&Qp> {
        self.qps.get(qpn.number()).map(|entry| &entry.qp)
    }

    #[inline]
    pub(crate) fn qp_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        self.qps.get_mut(qpn.number()).map(|entry| &mut entry.qp)
    }

    pub(crate) fn pd(&self, pd: PdId) -> Result<&Pd, Error> {
        self.pds.get(pd.0).ok_or(Error::NotFound)
    }

    pub(crate) fn alloc_pd(&mut self, owner: OwnerId) -> Result<PdId, Error> {
        let make = |number| Pd { id: PdId(number), owner, users: 0 };
        self.pds.insert(|tag| tag.wrapping_add(1), make).map(PdId).ok_or(Error::NoResources)
    }

    pub(crate) fn dealloc_pd(&mut self, pd: PdId) -> Result<(), Error> {
        if self.pd(pd)?.users > 0 {
            return Err(Error::Busy);
        }
        self.pds.remove(pd.0);
        Ok(())
    }

    fn pd_used(&mut self, pd: PdId, more: bool) {
        let pd = self.pds.get_mut(pd.0).expect("a PD is not deallocated while it is used");
        pd.users = if more { pd.users + 1 } else { pd.users - 1 };
    }
}
