//! Devices in the record.

use super::{Device, Devices, Pd};
use crate::counters::Counters;
use crate::error::Error;
use crate::gid::GidEntry;
use crate::group::Groups;
use crate::id::{DeviceId, OwnerId, PdId};
use crate::limits::Limits;
use crate::mr::Key;
use crate::qp::attr::QpType;
use crate::qp::entry::QpEntry;
use crate::qp::save::to_init;
use crate::rng::Rng;
use crate::save::{RestoreError, Violation, record, to_qpn};
use crate::srq::Srq;
use vrdma_wire::num::{Gid, Mac, Qpn, VlanId};

impl<R> Devices<R> {
    /// The records of all.
    pub(crate) fn save(&self) -> Vec<Option<record::Device>> {
        // GIDs are taken as the devices come, and who has joined a group is asked of them.
        let Devices { devices, gids: _, listeners: _ } = self;
        devices.iter().map(|device| device.as_ref().map(Device::save)).collect()
    }

    /// From the records; `region` gives the memory of a region.
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
            mrs,
            srqs,
            requests,
            counters,
            limits,
            active_mtu,
            gids,
            mac,
            suspended,
            pds,
            groups,
            // Those that QPs have still: restored QPs have the new ones.
            retired: _,
            // Of the questions,
            held: _,
            // and of the QPs.
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
            qp_numbers: qps.save_numbers(),
            qps: qps.iter().map(|entry| entry.save(requests)).collect(),
            groups: groups.save(),
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
        if device.active_mtu > limits.max_mtu {
            return Err(Violation::Mtu.into());
        }
        if device.first_generation == 0 {
            return Err(Violation::Numbers.into());
        }
        device.restore_gids(&record.gids)?;
        device.restore_pds(record)?;
        device.restore_keys(record, &mut region)?;
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

    fn restore_srqs(&mut self, record: &record::Device) -> Result<(), Violation> {
        self.srqs.restore_numbers(&record.srq_numbers)?;
        for record in &record.srqs {
            let init = record.init();
            self.promised = self.admit_srq(&init).map_err(violation)?;
            self.srqs.put(Srq::restore(record, &mut self.requests)?, false)?;
            self.pd_used(init.pd, true);
        }
        self.srqs.check_restored()
    }

    fn restore_qps(&mut self, record: &record::Device) -> Result<(), RestoreError> {
        self.qps.restore_numbers(&record.qp_numbers)?;
        for qp in &record.qps {
            self.restore_qp(qp).map_err(|violation| RestoreError::from(violation).of_qp(qp.qpn))?;
        }
        Ok(self.qps.check_restored()?)
    }

    fn restore_qp(&mut self, record: &record::Qp) -> Result<(), Violation> {
        let init = to_init(&record.init);
        if init.srq.is_some_and(|id| self.srqs.get(id.0).is_none()) {
            return Err(Violation::SharedQueue);
        }
        self.promised = self.admit(&init).map_err(violation)?;
        if init != self.with_shared_queue(init) {
            return Err(Violation::Capabilities);
        }
        let gsi = init.qp_type == QpType::Gsi;
        if gsi != (record.qpn == Qpn::GSI.number()) {
            return Err(Violation::Number);
        }
        let shared_pd = self.pd_of_receives(&init);
        let shared = (&self.limits, &self.gids[..]);
        let entry = QpEntry::restore(record, (init, shared_pd), shared, &mut self.requests)?;
        let taken = entry.qp.num_taken();
        self.qps.put(entry, gsi)?;
        if let Some(id) = init.srq {
            self.srqs.used(id).taken += taken;
        }
        self.qp_uses(&init, true);
        Ok(())
    }
}

/// What is wrong with a record of something that could not be made.
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
