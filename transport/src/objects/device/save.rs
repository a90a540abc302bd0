//! Devices in the record.

use super::{Device, Devices, Pd};
use crate::base::error::Error;
use crate::base::gid::GidEntry;
use crate::base::id::{CqId, DeviceId, OwnerId, PdId, XrcdId};
use crate::base::rng::Rng;
use crate::objects::group::Groups;
use crate::objects::mr::Key;
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::save::to_init;
use crate::objects::roce::round_trip::Peers;
use crate::objects::srq::Srq;
use crate::objects::srq::life::SrqRef;
use crate::objects::xrcd::Xrcd;
use crate::save::{RestoreError, Violation, record, to_qpn};
use crate::verbs::attr::{QpInit, QpType, Receives};
use crate::verbs::counters::Counters;
use crate::verbs::limits::Limits;
use vrdma_wire::num::{Gid, Mac, Qpn, Srqn, VlanId};

impl<R> Devices<R> {
    /// Returns the records of all devices.
    pub(crate) fn save(&self) -> Vec<Option<record::Device>> {
        // The GID owners follow from the devices, the listeners from their groups.
        let Devices { devices, step: _, gids: _, listeners: _ } = self;
        devices.iter().map(|device| device.as_ref().map(Device::save)).collect()
    }

    /// Restores all devices. `region` returns the memory of a region.
    pub(crate) fn restore(
        records: &[Option<record::Device>],
        mut region: impl FnMut(DeviceId, u32, &record::MemoryRegion) -> Option<R>,
    ) -> Result<Devices<R>, RestoreError> {
        let mut devices = Devices::new();
        for (index, record) in (0..).zip(records) {
            let Some(record) = record else {
                devices.devices.push(None);
                continue;
            };
            let lend = |mr: &record::MemoryRegion| region(DeviceId(index), mr.key, mr);
            let device = Device::restore(record, lend).map_err(|error| error.of_device(index))?;
            for &entry in device.gids.iter().filter(|&&entry| entry != GidEntry::EMPTY) {
                let taken = |_| RestoreError::from(Violation::GidTaken).of_device(index);
                devices.gids.acquire(index, entry).map_err(taken)?;
            }
            devices.listeners.extend(device.groups.groups().map(|mgid| (mgid, index)));
            devices.devices.push(Some(device));
        }
        Ok(devices)
    }
}

impl<R> Device<R> {
    fn save(&self) -> record::Device {
        let Device {
            qps,
            step: _,
            parts:
                super::DeviceParts { mrs, srqs, requests, counters, peers, mac, marks: _, suspended, limited: _ },
            // A restored device counts only queues that still exist.
            srqs_made: _,
            xrcds,
            limits,
            active_mtu,
            gids,
            pds,
            groups,
            // Addresses that QPs still have from before. Restored QPs get the new ones.
            retired: _,
            // Follows from the questions.
            held: _,
            // Follows from the QPs.
            promised: _,
            first_generation,
            rng,
        } = self;
        let gid = |entry: &GidEntry| {
            let GidEntry { gid, vlan } = *entry;
            (*entry != GidEntry::EMPTY).then(|| record::Gid { gid: gid.0, vlan: vlan.number() })
        };
        record::Device {
            limits: save_limits(limits),
            active_mtu: (*active_mtu).into(),
            mac: mac.0,
            suspended: *suspended,
            gids: gids.iter().map(gid).collect(),
            counters: counters.save(),
            rng: rng.state(),
            first_generation: *first_generation,
            pd_numbers: pds.save_numbers(),
            pds: pds.iter().map(Pd::save).collect(),
            mr_numbers: mrs.keys.save_numbers(),
            mrs: mrs.keys.iter().filter_map(Key::save_region).collect(),
            windows: self.save_windows(),
            srq_numbers: srqs.save_numbers(),
            srqs: srqs.iter().map(|srq| srq.save(requests)).collect(),
            xrcd_numbers: xrcds.save_numbers(),
            xrcds: xrcds.iter().map(|xrcd| xrcd.id.0).collect(),
            qp_numbers: qps.save_numbers(),
            qps: (qps.iter())
                .map(|entry| entry.save(srqs.peek(&entry.qp).map(|srq| srq.this.id()), requests))
                .collect(),
            groups: groups.save(),
            peers: peers.save(),
        }
    }

    fn restore(
        record: &record::Device,
        mut region: impl FnMut(&record::MemoryRegion) -> Option<R>,
    ) -> Result<Device<R>, RestoreError> {
        let limits = to_limits(&record.limits);
        if limits != limits.lowered() {
            return Err(Violation::Limits.into());
        }
        let mut device = Device::new(&limits, 0);
        device.rng = Rng::new(record.rng);
        device.first_generation = record.first_generation;
        device.active_mtu = record.active_mtu.into();
        device.mac = Mac(record.mac);
        device.suspended = record.suspended;
        device.counters = Counters::restore(&record.counters)?;
        device.peers = Peers::restore(&record.peers)?;
        if device.active_mtu > limits.max_mtu {
            return Err(Violation::Mtu.into());
        }
        if device.first_generation == 0 {
            return Err(Violation::Numbers.into());
        }
        device.restore_gids(&record.gids)?;
        device.restore_pds(record)?;
        device.restore_keys(record, &mut region)?;
        device.restore_xrcds(record)?;
        device.restore_srqs(record)?;
        device.restore_qps(record)?;
        device.restore_bindings(record)?;
        device.srqs.check_users(&device.qps)?;
        device.restore_groups(&record.groups)?;
        Ok(device)
    }

    fn restore_gids(&mut self, gids: &[Option<record::Gid>]) -> Result<(), Violation> {
        if gids.len() != self.gids.len() {
            return Err(Violation::Gid);
        }
        for (entry, record) in self.gids.iter_mut().zip(gids) {
            let Some(record) = record else { continue };
            let gid = Gid(record.gid);
            let vlan = VlanId::new(record.vlan).ok_or(Violation::Gid)?;
            if gid.is_zero() || gid.is_multicast() {
                return Err(Violation::Gid);
            }
            *entry = GidEntry { gid, vlan };
        }
        Ok(())
    }

    fn restore_groups(&mut self, groups: &[record::Group]) -> Result<(), Violation> {
        self.groups = Groups::restore(groups, &self.limits)?;
        let numbers = groups.iter().flat_map(|group| &group.members);
        for qpn in numbers.map(|&number| to_qpn(number)) {
            self.check_member(qpn?).map_err(|_| Violation::Group)?;
        }
        Ok(())
    }

    fn restore_pds(&mut self, record: &record::Device) -> Result<(), Violation> {
        self.pds.restore_numbers(&record.pd_numbers)?;
        for &record::Pd { pd, owner } in &record.pds {
            self.pds.put(Pd { id: PdId(pd), owner: OwnerId(owner), users: 0 }, false)?;
        }
        self.pds.check_restored()
    }

    fn restore_xrcds(&mut self, record: &record::Device) -> Result<(), Violation> {
        self.xrcds.restore_numbers(&record.xrcd_numbers)?;
        for &number in &record.xrcds {
            self.xrcds.put(Xrcd { id: XrcdId(number), users: 0 }, false)?;
        }
        self.xrcds.check_restored()
    }

    fn restore_srqs(&mut self, record: &record::Device) -> Result<(), Violation> {
        self.parts.srqs.restore_numbers(&record.srq_numbers)?;
        for record in &record.srqs {
            let init = record.init();
            if init.xrc.is_some_and(|xrc| self.xrcds.get(xrc.xrcd.0).is_none()) {
                return Err(Violation::Xrc);
            }
            self.promised = self.admit_srq(&init).map_err(violation)?;
            self.srqs_made += 1;
            self.parts.srqs.put(Srq::restore(record, self.srqs_made, &mut self.parts.requests)?, false)?;
            self.srq_uses(&init, true);
        }
        self.parts.srqs.check_restored()
    }

    fn restore_qps(&mut self, record: &record::Device) -> Result<(), RestoreError> {
        self.qps.restore_numbers(&record.qp_numbers)?;
        for qp in &record.qps {
            self.restore_qp(qp).map_err(|violation| RestoreError::from(violation).of_qp(qp.qpn))?;
        }
        Ok(self.qps.check_restored()?)
    }

    fn restore_qp(&mut self, record: &record::Qp) -> Result<(), Violation> {
        let init = to_init(&record.init)?;
        match init.receives {
            Receives::Shared(id) if self.parts.srqs.get(id.0).is_none() => {
                return Err(Violation::SharedQueue);
            }
            Receives::Xrc(id) if self.xrcds.get(id.0).is_none() => return Err(Violation::Xrc),
            _ => {}
        }
        self.promised = self.admit(&init).map_err(violation)?;
        if init != self.with_own_queues(init) {
            return Err(Violation::Capabilities);
        }
        let gsi = init.qp_type == QpType::Gsi;
        if gsi != (record.qpn == Qpn::GSI.number()) {
            return Err(Violation::Number);
        }
        let queue = self.queue_of(&init, record.responder.srq)?;
        let shared = (&self.limits, &self.gids[..]);
        let entry = QpEntry::restore(record, (init, queue), shared, &mut self.parts.requests)?;
        if let Some(srq) = self.parts.srqs.of(&entry.qp) {
            srq.taken += entry.qp.num_taken();
        }
        self.qps.put(entry, gsi)?;
        self.qp_uses(&init, true);
        Ok(())
    }

    /// Returns the shared queue of a QP, with PD and CQ.
    ///
    /// This is the queue that the QP always has, or `last`, the queue that the last message to an
    /// XRC target named.
    fn queue_of(&self, init: &QpInit, last: Option<u32>) -> Result<Option<(SrqRef, PdId, CqId)>, Violation> {
        match (init.receives, last) {
            (Receives::Xrc(xrcd), Some(number)) => {
                let found = Srqn::new(number).and_then(|srqn| self.parts.srqs.find_xrc(srqn, xrcd));
                let (srq, xrc) = found.ok_or(Violation::Xrc)?;
                Ok(Some((srq.this, srq.init.pd, xrc.cq)))
            }
            (_, Some(_)) => Err(Violation::Xrc),
            (_, None) => Ok(self.shared_queue(init).map(|(srq, pd)| (srq, pd, init.recv_cq))),
        }
    }
}

/// Returns the violation for a record of an object that could not be made.
fn violation(error: Error) -> Violation {
    match error {
        Error::NotFound => Violation::NoPd,
        Error::Denied => Violation::Owner,
        Error::NoResources => Violation::RequestMemory,
        Error::Busy | Error::Invalid | Error::Unsupported => Violation::Capabilities,
    }
}

impl Pd {
    fn save(&self) -> record::Pd {
        let Pd { id, owner, users: _ } = *self;
        record::Pd { pd: id.0, owner: owner.0 }
    }
}

fn save_limits(limits: &Limits) -> record::Limits {
    let Limits {
        max_pd,
        max_mr,
        max_qp,
        max_qp_wr,
        max_srq,
        max_xrcd,
        max_send_sge,
        max_recv_sge,
        max_inline,
        max_rd_atomic,
        max_dest_rd_atomic,
        gid_table_len,
        max_mcast_grp,
        max_mcast_qp_attach,
        max_total_mcast_qp_attach,
        max_mtu,
        max_request_memory,
    } = *limits;
    record::Limits {
        max_pd,
        max_mr,
        max_qp,
        max_qp_wr,
        max_srq,
        max_xrcd,
        max_send_sge,
        max_recv_sge,
        max_inline,
        max_rd_atomic,
        max_dest_rd_atomic,
        gid_table_len,
        max_mcast_grp,
        max_mcast_qp_attach,
        max_total_mcast_qp_attach,
        max_mtu: max_mtu.into(),
        max_request_memory,
    }
}

fn to_limits(limits: &record::Limits) -> Limits {
    let record::Limits {
        max_pd,
        max_mr,
        max_qp,
        max_qp_wr,
        max_srq,
        max_xrcd,
        max_send_sge,
        max_recv_sge,
        max_inline,
        max_rd_atomic,
        max_dest_rd_atomic,
        gid_table_len,
        max_mcast_grp,
        max_mcast_qp_attach,
        max_total_mcast_qp_attach,
        max_mtu,
        max_request_memory,
    } = *limits;
    Limits {
        max_pd,
        max_mr,
        max_qp,
        max_qp_wr,
        max_srq,
        max_xrcd,
        max_send_sge,
        max_recv_sge,
        max_inline,
        max_rd_atomic,
        max_dest_rd_atomic,
        gid_table_len,
        max_mcast_grp,
        max_mcast_qp_attach,
        max_total_mcast_qp_attach,
        max_mtu: max_mtu.into(),
        max_request_memory,
    }
}
