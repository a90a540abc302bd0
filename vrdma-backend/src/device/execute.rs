//! Carries out control commands.

use super::ah::AhTable;
use super::command::{Command, Reply};
use super::{Context, Cq, Device, DeviceCounters, ObjectCounts, Table};
use crate::allowed::FrameVlan;
use crate::config::{Config, GuestConfig};
use crate::memory::{GuestMemory, MrMemory};
use crate::queue::channel::Channel;
use crate::queue::cq::{CqLayout, CqMapping, CqRing};
use crate::queue::event::EventQueue;
use crate::worker::Worker;
use std::ops::Range;
use std::sync::Arc;
use vrdma_abi::control::{
    self, QueryDeviceResp, QueryGidResp, QueryPortResp, RegMrResp, Status, gid_type, port_state,
};
use vrdma_abi::event::EventKind;
use vrdma_abi::wqe::unit;
use vrdma_transport::{self as transport, CqId, DeviceId, Error, GidEntry, OwnerId, PdId, QpState};
use vrdma_wire::num::{Mac, Mtu, Qpn, VlanId};

type Result<T> = std::result::Result<T, Status>;

const GID_TABLE_LEN: u32 = 128;
const MAX_RD_ATOMIC: u32 = 128;

/// Limits of a device: the guest's quota, and what the implementation fixes.
#[derive(Clone, Debug)]
pub struct Limits {
    config: crate::config::Limits,
    comp_vectors: u16,
    first_channel: u16,
    num_queues: u32,
}

impl Limits {
    /// From the configuration.
    pub fn new(config: &Config) -> Self {
        Limits {
            config: config.limits.clone(),
            comp_vectors: config.comp_vectors,
            first_channel: control_queues(config.comp_vectors),
            num_queues: config.num_queues(),
        }
    }

    /// Frames to several ports that the Ethernet function may send in a second.
    pub fn flood_rate(&self) -> u32 {
        self.config.flood_rate
    }

    /// As the engine wants them, with a port of that path MTU.
    pub fn transport(&self, max_mtu: Mtu) -> transport::Limits {
        transport::Limits {
            max_pd: self.config.pds,
            max_mr: self.config.mrs,
            max_qp: self.config.qps,
            max_qp_wr: self.config.qp_requests,
            max_send_sge: unit::MAX_SGE,
            max_recv_sge: unit::MAX_SGE,
            max_inline: unit::MAX_INLINE,
            max_rd_atomic: MAX_RD_ATOMIC,
            max_dest_rd_atomic: MAX_RD_ATOMIC,
            gid_table_len: GID_TABLE_LEN,
            max_mtu,
            max_request_memory: self.config.request_memory,
        }
    }
}

impl Limits {
    /// Bytes that pending requests of all guests may take.
    pub fn all_request_memory(&self) -> u64 {
        self.config.all_request_memory
    }
}

/// Number of the first channel: after the control, async event and completion event queues.
pub fn control_queues(comp_vectors: u16) -> u16 {
    vrdma_abi::config::queue::FIRST_COMP_EVENTS + comp_vectors
}

impl Device {
    /// A device as it is before its guest's driver said anything.
    pub fn new(id: DeviceId, guest: GuestConfig, limits: Limits) -> Device {
        let mut device = Device {
            guest,
            id,
            memory: Default::default(),
            contexts: Table::new(limits.config.contexts.saturating_add(1)),
            cqs: Table::new(limits.config.cqs),
            ah_table: None,
            comp_events: (0..limits.comp_vectors).map(|_| EventQueue::default()).collect(),
            async_events: EventQueue::default(),
            runs: 0,
            requests: 0,
            counters: DeviceCounters::default(),
            limits,
        };
        device.reset();
        device
    }

    /// Forgets all objects. The event queues stay attached: they are the front-end's to stop.
    pub fn reset(&mut self) {
        self.contexts = Table::new(self.limits.config.contexts.saturating_add(1));
        let kernel = self.contexts.insert(Context::default());
        debug_assert_eq!(kernel, Some(control::limit::KERNEL_CONTEXT));
        self.cqs = Table::new(self.limits.config.cqs);
        self.ah_table = None;
        (self.runs, self.requests) = (0, 0);
        for queue in self.comp_events.iter_mut().chain([&mut self.async_events]) {
            queue.clear();
        }
    }

    /// The front-end is gone, and with it the guest's memory and virtqueues.
    pub fn detach(&mut self) {
        self.memory = Arc::default();
        for queue in self.comp_events.iter_mut().chain([&mut self.async_events]) {
            queue.detach();
        }
    }

    /// Follows a new memory table, but for its CQs.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) {
        self.memory = memory.clone();
        for queue in self.comp_events.iter_mut().chain([&mut self.async_events]) {
            queue.remap(memory);
        }
        if let Some(table) = &mut self.ah_table {
            table.remap(memory);
        }
    }

    /// One more than the highest number of a CQ so far.
    pub fn cq_end(&self) -> u32 {
        self.cqs.end()
    }

    /// Where CQs are that work, by number.
    pub fn cq_layouts(&mut self, numbers: Range<u32>) -> Vec<(CqId, CqLayout)> {
        let layout = |cqn| Some((CqId(cqn), self.cqs.get_mut(cqn)?.ring.layout()?));
        numbers.filter_map(layout).collect()
    }

    /// A CQ follows a new memory table; the old mapping. `None` for `new`: its memory is gone.
    pub fn install_cq(&mut self, cq: CqId, new: Option<CqMapping>) -> Option<CqMapping> {
        self.cqs.get_mut(cq.0)?.ring.install(new)
    }

    /// The event queue with this virtqueue number.
    pub fn event_queue(&mut self, index: u16) -> Option<&mut EventQueue> {
        use vrdma_abi::config::queue::{ASYNC_EVENTS, FIRST_COMP_EVENTS};
        match index {
            ASYNC_EVENTS => Some(&mut self.async_events),
            _ => self.comp_events.get_mut(usize::from(index.checked_sub(FIRST_COMP_EVENTS)?)),
        }
    }

    /// Where its driver keeps address handles.
    #[inline]
    pub fn ah_table(&self) -> Option<&AhTable> {
        self.ah_table.as_ref()
    }

    /// The QPs of a CQ.
    pub fn qps_of(&mut self, cq: CqId) -> Vec<Qpn> {
        self.cqs.get_mut(cq.0).map(|cq| cq.qps.clone()).unwrap_or_default()
    }

    fn context(&mut self, number: u32) -> Result<&mut Context> {
        self.contexts.get_mut(number).ok_or(Status::NOT_FOUND)
    }

    fn cq(&mut self, cqn: CqId, owner: OwnerId) -> Result<&mut Cq> {
        let cq = self.cqs.get_mut(cqn.0).ok_or(Status::NOT_FOUND)?;
        if cq.owner == owner { Ok(cq) } else { Err(Status::DENIED) }
    }

    /// An object of the context ends.
    fn release(&mut self, owner: OwnerId) {
        if let Some(context) = self.contexts.get_mut(owner.0) {
            context.objects -= 1;
        }
    }

    fn charge_runs(&mut self, runs: u64) -> Result<()> {
        if self.runs + runs > self.limits.config.total_runs {
            return Err(Status::NO_RESOURCES);
        }
        self.runs += runs;
        Ok(())
    }

    /// Objects that exist, apart from those that the engine and the worker count.
    pub fn counts(&self) -> ObjectCounts {
        ObjectCounts {
            contexts: self.contexts.len() - 1,
            cqs: self.cqs.len(),
            runs: self.runs,
            ahs: self.ah_table.as_ref().map_or(0, |table| table.in_use()),
            ..ObjectCounts::default()
        }
    }
}

impl Worker {
    /// Carries out a command.
    ///
    /// # Errors
    /// The status for the guest; nothing has changed then.
    pub fn execute(&mut self, id: DeviceId, command: Command) -> Result<Reply> {
        let result = self.execute_inner(id, command);
        let counters = &mut self.outputs.device(id).counters;
        match result {
            Ok(_) => counters.commands += 1,
            Err(_) => counters.refused_commands += 1,
        }
        result
    }

    fn execute_inner(&mut self, id: DeviceId, command: Command) -> Result<Reply> {
        match command {
            Command::QueryDevice => Ok(Reply::Device(self.query_device(id))),
            Command::QueryPort => Ok(Reply::Port(self.query_port(id))),
            Command::QueryGid { index } => {
                Ok(Reply::Gid(gid_resp(self.engine.gid(id, index).map_err(status)?)))
            }
            Command::AddGid { index, entry } => self.add_gid(id, index, entry),
            Command::DelGid { index } => done(self.engine.set_gid(id, index, None)),
            Command::SetPortMtu { mtu } => done(self.engine.set_active_mtu(id, mtu)),
            Command::AllocContext => {
                let number = self.outputs.device(id).contexts.insert(Context::default());
                number.map(Reply::object).ok_or(Status::NO_RESOURCES)
            }
            Command::DeallocContext { context } => self.dealloc_context(id, context),
            Command::BindChannel { context, channel } => self.bind_channel(id, context, *channel),
            Command::UnbindChannel { queue } => self.unbind_channel(id, queue),
            Command::AllocPd { context } => self.alloc_pd(id, context),
            Command::DeallocPd { pdn } => {
                let owner = self.engine.pd_owner(id, PdId(pdn)).map_err(status)?;
                self.engine.dealloc_pd(id, PdId(pdn)).map_err(status)?;
                self.outputs.device(id).release(owner);
                Ok(Reply::Done)
            }
            Command::CreateCq { context, vector, ring } => self.create_cq(id, context, vector, *ring),
            Command::DestroyCq { cqn } => self.destroy_cq(id, cqn),
            Command::RegMr { pdn, access, iova, length, memory, runs } => {
                self.reg_mr(id, pdn, access, (iova, length), memory, runs)
            }
            Command::DeregMr { key } => {
                let memory = self.engine.dereg_mr(id, key).map_err(status)?;
                self.outputs.device(id).runs -= memory.runs();
                Ok(Reply::Done)
            }
            Command::DmaMr { pdn, access } => {
                if self.engine.pd_owner(id, PdId(pdn)).map_err(status)? != OwnerId::KERNEL {
                    return Err(Status::DENIED);
                }
                let memory = MrMemory::all(&self.outputs.device(id).memory);
                self.reg_mr(id, pdn, access, (0, u64::MAX), memory, 0)
            }
            Command::CreateQp { context, init } => self.create_qp(id, context, init),
            Command::ModifyQp { qpn, mask, attr } => {
                let now = self.now();
                done(self.engine.modify_qp(now, id, qpn, mask, &attr, &mut self.outputs))
            }
            Command::QueryQp { qpn } => {
                Ok(Reply::Qp(qp_attr(&self.engine.query_qp(id, qpn).map_err(status)?)))
            }
            Command::DestroyQp { qpn } => self.destroy_qp(id, qpn),
            Command::SetAhTable { table } => {
                let device = self.outputs.device(id);
                if device.ah_table.is_some() {
                    return Err(Status::BUSY);
                }
                device.ah_table = Some(table);
                Ok(Reply::Done)
            }
        }
    }

    fn query_device(&mut self, id: DeviceId) -> QueryDeviceResp {
        let device = self.outputs.device(id);
        let limits = &device.limits.config;
        let version = |part: &str| part.parse::<u64>().unwrap_or(0);
        QueryDeviceResp {
            fw_version: (version(env!("CARGO_PKG_VERSION_MAJOR")) << 32
                | version(env!("CARGO_PKG_VERSION_MINOR")) << 16
                | version(env!("CARGO_PKG_VERSION_PATCH")))
            .into(),
            sys_image_guid: eui64(device.guest.mac),
            max_mr_size: (1u64 << 48).into(),
            max_mr_runs: limits.mr_runs.into(),
            max_contexts: limits.contexts.into(),
            max_pd: limits.pds.into(),
            max_cq: limits.cqs.into(),
            max_cqe: limits.cq_entries.into(),
            max_mr: limits.mrs.into(),
            max_qp: limits.qps.into(),
            max_qp_wr: limits.qp_requests.into(),
            max_send_sge: unit::MAX_SGE.into(),
            max_recv_sge: unit::MAX_SGE.into(),
            max_inline: unit::MAX_INLINE.into(),
            max_rd_atomic: MAX_RD_ATOMIC.into(),
            max_dest_rd_atomic: MAX_RD_ATOMIC.into(),
            max_ah: limits.ahs.into(),
            // By processor instructions on the guest's memory.
            atomic_cap: 2.into(),
            reserved: 0.into(),
        }
    }

    fn add_gid(&mut self, id: DeviceId, index: u32, entry: GidEntry) -> Result<Reply> {
        let GidEntry { gid, vlan } = entry;
        let guest = &self.outputs.device(id).guest;
        let is_anothers = self.net.listed().is_anothers(guest.mac, FrameVlan::One(vlan), gid);
        if is_anothers || !guest.allows(vlan, gid) {
            let vlan = FrameVlan::One(vlan);
            self.misdeeds.warn(|| {
                format!("guest {}: GID {gid} ({vlan}) is not among those it may use: gids, vlans", guest.name)
            });
            return Err(Status::DENIED);
        }
        done(self.engine.set_gid(id, index, Some(entry)))
    }

    fn dealloc_context(&mut self, id: DeviceId, number: u32) -> Result<Reply> {
        let device = self.outputs.device(id);
        if number == control::limit::KERNEL_CONTEXT {
            return Err(Status::DENIED);
        }
        if device.context(number)?.objects != 0 {
            return Err(Status::BUSY);
        }
        device.contexts.remove(number);
        Ok(Reply::Done)
    }

    fn bind_channel(&mut self, id: DeviceId, number: u32, channel: Channel) -> Result<Reply> {
        let device = self.outputs.device(id);
        let first = device.limits.first_channel;
        let is_kernel = number == control::limit::KERNEL_CONTEXT;
        if channel.index() < first || u32::from(channel.index()) >= device.limits.num_queues {
            return Err(Status::INVALID);
        }
        if channel.index() == first && !is_kernel {
            return Err(Status::DENIED);
        }
        device.context(number)?;
        if self.has_channel(id, channel.index()) {
            return Err(Status::BUSY);
        }
        self.outputs.device(id).context(number)?.objects += 1;
        self.add_channel(id, OwnerId(number), channel);
        Ok(Reply::Done)
    }

    fn unbind_channel(&mut self, id: DeviceId, queue: u32) -> Result<Reply> {
        let index = u16::try_from(queue).map_err(|_| Status::NOT_FOUND)?;
        let owner = self.remove_channel(id, index).ok_or(Status::NOT_FOUND)?;
        let device = self.outputs.device(id);
        device.async_events.forget(queue, &[EventKind::CHANNEL_ERR]);
        device.release(owner);
        Ok(Reply::Done)
    }

    fn alloc_pd(&mut self, id: DeviceId, number: u32) -> Result<Reply> {
        self.outputs.device(id).context(number)?;
        let pd = self.engine.alloc_pd(id, OwnerId(number)).map_err(status)?;
        self.outputs.device(id).context(number)?.objects += 1;
        Ok(Reply::object(pd.0))
    }

    fn create_cq(&mut self, id: DeviceId, number: u32, vector: u16, ring: CqRing) -> Result<Reply> {
        let runs = ring.runs();
        let device = self.outputs.device(id);
        if usize::from(vector) >= device.comp_events.len() {
            return Err(Status::INVALID);
        }
        device.context(number)?;
        if !device.cqs.has_room() {
            return Err(Status::NO_RESOURCES);
        }
        device.charge_runs(runs)?;
        let owner = OwnerId(number);
        let cq = Cq {
            owner,
            vector,
            ring,
            runs,
            qps: Vec::new(),
            dirty: false,
            solicited: false,
            quiet: false,
            quiet_solicited: false,
            failed: false,
        };
        let cqn = device.cqs.insert(cq).ok_or(Status::NO_RESOURCES)?;
        device.context(number)?.objects += 1;
        Ok(Reply::object(cqn))
    }

    fn destroy_cq(&mut self, id: DeviceId, cqn: u32) -> Result<Reply> {
        let device = self.outputs.device(id);
        let cq = device.cqs.get_mut(cqn).ok_or(Status::NOT_FOUND)?;
        if !cq.qps.is_empty() {
            return Err(Status::BUSY);
        }
        let vector = usize::from(cq.vector);
        let cq = device.cqs.remove(cqn).ok_or(Status::NOT_FOUND)?;
        device.comp_events[vector].forget(cqn, &[EventKind::COMPLETION]);
        device.async_events.forget(cqn, &[EventKind::CQ_ERR]);
        device.runs -= cq.runs;
        device.release(cq.owner);
        Ok(Reply::Done)
    }

    fn reg_mr(
        &mut self,
        id: DeviceId,
        pdn: u32,
        access: transport::Access,
        (iova, length): (u64, u64),
        memory: MrMemory,
        runs: u64,
    ) -> Result<Reply> {
        self.outputs.device(id).charge_runs(runs)?;
        match self.engine.reg_mr(id, PdId(pdn), access, iova, length, memory) {
            Ok(key) => Ok(Reply::Keys(RegMrResp { lkey: key.into(), rkey: key.into() })),
            Err(error) => {
                self.outputs.device(id).runs -= runs;
                Err(status(error))
            }
        }
    }

    fn create_qp(&mut self, id: DeviceId, number: u32, init: transport::QpInit) -> Result<Reply> {
        let device = self.outputs.device(id);
        let owner = OwnerId(number);
        device.context(number)?;
        device.cq(init.send_cq, owner)?;
        device.cq(init.recv_cq, owner)?;
        let requests = u64::from(init.max_send_wr) + u64::from(init.max_recv_wr);
        if device.requests + requests > device.limits.config.total_requests {
            return Err(Status::NO_RESOURCES);
        }
        if self.engine.pd_owner(id, init.pd).map_err(status)? != owner {
            return Err(Status::DENIED);
        }
        let (send_cq, recv_cq) = (init.send_cq, init.recv_cq);
        let qpn = self.engine.create_qp(id, init).map_err(status)?;
        let device = self.outputs.device(id);
        device.requests += requests;
        device.cq(send_cq, owner)?.qps.push(qpn);
        device.cq(recv_cq, owner)?.qps.push(qpn);
        device.context(number)?.objects += 1;
        Ok(Reply::object(qpn.number()))
    }

    fn destroy_qp(&mut self, id: DeviceId, qpn: Qpn) -> Result<Reply> {
        let init = self.engine.destroy_qp(id, qpn).map_err(status)?;
        let device = self.outputs.device(id);
        device.requests -= u64::from(init.max_send_wr) + u64::from(init.max_recv_wr);
        for cq in [init.send_cq, init.recv_cq] {
            let qps = &mut device.cq(cq, init.owner)?.qps;
            if let Some(at) = qps.iter().position(|&user| user == qpn) {
                qps.swap_remove(at);
            }
        }
        use EventKind as E;
        let kinds = [E::QP_FATAL, E::QP_REQ_ERR, E::QP_ACCESS_ERR, E::COMM_EST, E::SQ_DRAINED];
        device.async_events.forget(qpn.number(), &kinds);
        device.release(init.owner);
        Ok(Reply::Done)
    }

    fn query_port(&self, id: DeviceId) -> QueryPortResp {
        let bad_qkeys = self.engine.counters(id).drop_qkey;
        let mtu = self.port.mtu.bytes();
        QueryPortResp {
            state: if self.port.up { port_state::ACTIVE } else { port_state::DOWN },
            reserved0: 0,
            gid_table_len: (GID_TABLE_LEN as u16).into(),
            max_mtu: mtu.into(),
            active_mtu: self.engine.active_mtu(id).map_or(mtu, |mtu| mtu.bytes()).into(),
            speed: self.port.speed.into(),
            max_msg_size: (1u32 << 31).into(),
            bad_qkeys: u32::try_from(bad_qkeys).unwrap_or(u32::MAX).into(),
            reserved: 0.into(),
        }
    }
}

fn done(result: std::result::Result<(), Error>) -> Result<Reply> {
    result.map(|()| Reply::Done).map_err(status)
}

fn status(error: Error) -> Status {
    match error {
        Error::NotFound => Status::NOT_FOUND,
        Error::Busy => Status::BUSY,
        Error::Denied => Status::DENIED,
        Error::Invalid => Status::INVALID,
        Error::Unsupported => Status::UNSUPPORTED,
        Error::NoResources => Status::NO_RESOURCES,
    }
}

fn gid_resp(entry: GidEntry) -> QueryGidResp {
    let vlan = match entry.vlan {
        VlanId::UNTAGGED => 0xffff,
        vlan => vlan.number(),
    };
    QueryGidResp {
        gid: entry.gid.0,
        gid_type: gid_type::ROCE_V2,
        reserved0: 0,
        vlan: vlan.into(),
        reserved: 0.into(),
    }
}

/// Modified EUI-64 of a MAC address (RFC 4291, appendix A).
fn eui64(mac: Mac) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac.0;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

fn qp_attr(attr: &transport::QpAttr) -> control::QpAttr {
    control::QpAttr {
        state: qp_state(attr.state),
        cur_state: qp_state(attr.cur_state),
        en_sqd_async_notify: attr.en_sqd_async_notify.into(),
        sq_draining: attr.sq_draining.into(),
        access: attr.access.0.into(),
        pkey_index: attr.pkey_index.into(),
        port: attr.port,
        path_mtu: attr.path_mtu.code(),
        qkey: attr.qkey.0.into(),
        rq_psn: attr.rq_psn.number().into(),
        sq_psn: attr.sq_psn.number().into(),
        dest_qpn: attr.dest_qpn.number().into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        sl: attr.sl,
        sgid_index: attr.sgid_index,
        dgid: attr.dgid.0,
        dmac: attr.dmac.0,
        hop_limit: attr.hop_limit,
        traffic_class: attr.traffic_class,
        flow_label: attr.flow_label.into(),
        udp_sport: attr.udp_sport.into(),
        vlan: attr.vlan.unwrap_or(0xffff).into(),
    }
}

fn qp_state(state: QpState) -> u8 {
    let state = match state {
        QpState::Reset => control::QpState::RESET,
        QpState::Init => control::QpState::INIT,
        QpState::Rtr => control::QpState::RTR,
        QpState::Rts => control::QpState::RTS,
        QpState::Sqd => control::QpState::SQD,
        QpState::Sqe => control::QpState::SQE,
        QpState::Err => control::QpState::ERR,
    };
    state.0 as u8
}
