//! Carries out control commands: for what one device alone is concerned with, in `device/`.

use super::Worker;
use crate::allowed::FrameVlan;
use crate::device::command::{Command, Reply};
use crate::device::{NewRegion, Result};
use crate::panics;
use crate::queue::channel::Channel;
use crate::translate::port::PortAttr;
use vrdma_transport::{AttrMask, CqId, DeviceId, Error, GidEntry, OwnerId, PdId, QpState, SrqId, XrcdId};

/// Whether a guest may use memory again after a command that it had lent: also that of a READ.
fn ends_loans(command: &Command) -> bool {
    match command {
        Command::ModifyQp { mask, attr, .. } => {
            let may_begin = matches!(attr.state, QpState::Init | QpState::Rtr | QpState::Rts);
            let begins = mask.contains(AttrMask::STATE) && may_begin;
            // On its way to RTS a connection has lent nothing yet, unless its rights change.
            !begins || attr.state == QpState::Rts && mask.contains(AttrMask::ACCESS_FLAGS)
        }
        Command::DestroyQp { .. } | Command::DeregMr { .. } | Command::ReregMr { .. } => true,
        _ => false,
    }
}

/// Whether a command changes what is of several guests: a panic within is not that guest's alone.
fn is_about_others(command: &Command) -> bool {
    matches!(
        command,
        Command::AddGid { .. }
            | Command::DelGid { .. }
            | Command::AttachMcast { .. }
            | Command::DetachMcast { .. }
            | Command::CmListen { .. }
            | Command::CmCloseListener { .. }
            | Command::CmConnect { .. }
            | Command::CmAccept { .. }
            | Command::CmReject { .. }
            | Command::CmDisconnect { .. }
            | Command::CmRelease { .. }
            | Command::CmGetEvent
    )
}

impl Worker {
    /// Carries out a command.
    ///
    /// # Errors
    /// Why it is refused; nothing has changed then.
    pub fn execute(&mut self, id: DeviceId, command: Command) -> Result<Reply> {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.outputs.device(id).guest.name);
        if is_about_others(&command) {
            panics::shared(|| self.carry_out(id, command))
        } else {
            self.carry_out(id, command)
        }
    }

    fn carry_out(&mut self, id: DeviceId, command: Command) -> Result<Reply> {
        let changed = match command {
            Command::ModifyQp { qpn, .. } | Command::DestroyQp { qpn } => Some(qpn),
            _ => None,
        };
        let ends_loans = ends_loans(&command);
        let result = self.dispatch(id, command);
        if ends_loans {
            self.outputs.take_loans_back(id);
        }
        if let Some(qpn) = changed {
            self.look_at_stream(id, qpn);
        }
        let counters = &mut self.outputs.device(id).counters;
        match result {
            Ok(_) => counters.commands += 1,
            Err(_) => counters.refused_commands += 1,
        }
        result
    }

    fn dispatch(&mut self, id: DeviceId, command: Command) -> Result<Reply> {
        let now = self.now();
        let Worker { engine, outputs, .. } = self;
        let done = |()| Reply::Done;
        match command {
            Command::QueryDevice => Ok(self.query_device(id)),
            Command::QueryPort => Ok(Reply::Port(self.query_port(id))),
            Command::QueryCounters => {
                let border = outputs.device(id).counters.at_border();
                Ok(Reply::Counters(Box::new((engine.counters(id).clone(), border))))
            }
            Command::QueryClock => Ok(Reply::Clock(outputs.clock.tell())),
            Command::QueryGid { index } => engine.gid(id, index).map(Reply::Gid),
            Command::AddGid { index, entry } => self.add_gid(id, index, entry),
            Command::DelGid { index } => engine.set_gid(id, index, None).map(done),
            Command::SetPortMtu { mtu } => engine.set_active_mtu(id, mtu).map(done),
            Command::AllocContext => outputs.device(id).alloc_context(),
            Command::DeallocContext { context } => outputs.device(id).dealloc_context(context),
            Command::BindChannel { context, channel } => self.bind_channel(id, OwnerId(context), *channel),
            Command::UnbindChannel { queue } => self.unbind_channel(id, queue),
            Command::AllocPd { context } => outputs.device(id).alloc_pd(engine, OwnerId(context)),
            Command::DeallocPd { pdn } => outputs.device(id).dealloc_pd(engine, PdId(pdn)),
            Command::AllocXrcd => engine.alloc_xrcd(id).map(|xrcd| Reply::Object(xrcd.0)),
            Command::DeallocXrcd { xrcdn } => engine.dealloc_xrcd(id, XrcdId(xrcdn)).map(done),
            Command::CreateCq { context, vector, ring } => {
                outputs.device(id).create_cq(OwnerId(context), vector, *ring)
            }
            Command::ResizeCq { cqn, held, ring } => outputs.device(id).resize_cq(CqId(cqn), held, *ring),
            Command::ModifyCq { cqn, moderation } => outputs.device(id).modify_cq(CqId(cqn), moderation),
            Command::DestroyCq { cqn } => outputs.device(id).destroy_cq(CqId(cqn)),
            Command::RegMr { pdn, access, iova, length, memory, runs } => {
                let new = NewRegion { pd: PdId(pdn), access, iova, length, memory, runs };
                outputs.device(id).reg_mr(engine, new)
            }
            Command::DeregMr { key } => outputs.device(id).dereg_mr(engine, key),
            Command::ReregMr { key, pdn, access, memory } => {
                outputs.device(id).rereg_mr(engine, key, (pdn.map(PdId), access), memory)
            }
            Command::AllocFastMr { pdn, max_pages } => {
                outputs.device(id).alloc_fast_mr(engine, PdId(pdn), max_pages)
            }
            Command::AllocMw { pdn, mw_type } => outputs.device(id).alloc_mw(engine, PdId(pdn), mw_type),
            Command::DeallocMw { key } => outputs.device(id).dealloc_mw(engine, key),
            Command::DmaMr { pdn, access } => outputs.device(id).dma_mr(engine, PdId(pdn), access),
            Command::CreateQp { init } => outputs.device(id).create_qp(engine, init),
            Command::ModifyQp { qpn, mask, attr } => {
                engine.modify_qp(now, id, qpn, mask, &attr, outputs).map(done)
            }
            Command::QueryQp { qpn } => engine.query_qp(id, qpn).map(|attr| Reply::Qp(Box::new(attr))),
            Command::DestroyQp { qpn } => outputs.device(id).destroy_qp(engine, qpn),
            Command::SetAhTable { table } => outputs.device(id).set_ah_table(table),
            Command::CreateSrq { init } => outputs.device(id).create_srq(engine, init),
            Command::ModifySrq { srqn, max_wr, limit } => self.modify_srq(id, SrqId(srqn), (max_wr, limit)),
            Command::QuerySrq { srqn } => engine.query_srq(id, SrqId(srqn)).map(Reply::Srq),
            Command::DestroySrq { srqn } => outputs.device(id).destroy_srq(engine, SrqId(srqn)),
            Command::AttachMcast { qpn, mgid } => engine.attach_mcast(id, qpn, mgid).map(done),
            Command::DetachMcast { qpn, mgid } => engine.detach_mcast(id, qpn, mgid).map(done),
            connections => self.manage_connections(id, connections),
        }
    }

    fn query_device(&mut self, id: DeviceId) -> Reply {
        let device = self.outputs.device(id);
        let limits = Box::new(device.limits().guest.clone());
        let guest = &device.guest;
        let wants_next_hop = guest.has_own_tcp();
        Reply::Device { limits, mac: guest.mac, transport: guest.transport, wants_next_hop }
    }

    fn modify_srq(&mut self, id: DeviceId, srq: SrqId, changes: (Option<u32>, Option<u32>)) -> Result<Reply> {
        let Worker { engine, outputs, .. } = self;
        let old = engine.query_srq(id, srq)?.max_wr;
        outputs.device(id).check_resize(old, changes.0.unwrap_or(old))?;
        engine.modify_srq(id, srq, changes, outputs)?;
        outputs.device(id).resized(old, engine.query_srq(id, srq)?.max_wr);
        Ok(Reply::Done)
    }

    fn query_port(&self, id: DeviceId) -> PortAttr {
        PortAttr {
            is_up: self.port.up,
            max_mtu: self.port.mtu,
            active_mtu: self.engine.active_mtu(id).unwrap_or(self.port.mtu),
            speed: self.port.speed,
            bad_qkeys: self.engine.counters(id).drop_qkey,
        }
    }

    fn add_gid(&mut self, id: DeviceId, index: u32, entry: GidEntry) -> Result<Reply> {
        if !self.may_use(id, entry) {
            self.gid_refused(id, entry, "it is not among those it may use: gids, vlans");
            return Err(Error::Denied);
        }
        if let Err(other) = self.claim_gid(id, entry) {
            self.gid_refused(id, entry, &format!("guest {other} has it"));
            return Err(Error::Denied);
        }
        let result = self.engine.set_gid(id, index, Some(entry));
        if result.is_err() {
            self.settle_gids(id);
        }
        if result == Err(Error::Denied) {
            let owner = self.engine.gid_owner(entry).expect("it is denied because another device has it");
            let owner = self.outputs.device(owner).guest.name.clone();
            self.gid_refused(id, entry, &format!("guest {owner} has it"));
        }
        result.map(|()| Reply::Done)
    }

    /// Whether a guest may use an address.
    pub(super) fn may_use(&mut self, id: DeviceId, GidEntry { gid, vlan }: GidEntry) -> bool {
        let guest = &self.outputs.device(id).guest;
        let is_anothers = self.net.listed().is_anothers(guest.mac, FrameVlan::One(vlan), gid);
        !is_anothers && guest.allows(vlan, gid)
    }

    #[cold]
    pub(super) fn gid_refused(&mut self, id: DeviceId, GidEntry { gid, vlan }: GidEntry, why: &str) {
        let device = self.outputs.device(id);
        device.counters.refused_gids += 1;
        let (name, vlan) = (&device.guest.name, FrameVlan::One(vlan));
        self.violations.warn(|| format!("guest {name}: GID {gid} ({vlan}) is refused: {why}"));
    }

    fn bind_channel(&mut self, id: DeviceId, owner: OwnerId, channel: Channel) -> Result<Reply> {
        self.outputs.device(id).check_channel(owner, channel.index())?;
        if self.has_channel(id, channel.index()) {
            return Err(Error::Busy);
        }
        self.outputs.device(id).channel_bound(owner)?;
        self.add_channel(id, owner, channel);
        Ok(Reply::Done)
    }

    fn unbind_channel(&mut self, id: DeviceId, queue: u32) -> Result<Reply> {
        let queue = u16::try_from(queue).map_err(|_| Error::NotFound)?;
        let owner = self.remove_channel(id, queue).ok_or(Error::NotFound)?;
        self.outputs.device(id).channel_unbound(owner, queue);
        Ok(Reply::Done)
    }
}
