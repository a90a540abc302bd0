//! The control virtqueue: from descriptor chains to [`Command`]s, and the replies back.

use crate::config::Limits;
use crate::device::ah::AhTable;
use crate::device::command::{Command, Reply};
use crate::memory::{GuestMemory, MrMemory, Run};
use crate::queue::VirtqueueSetup;
use crate::queue::channel::Channel;
use crate::queue::cq::CqRing;
use std::sync::Arc;
use virtio_queue::{DescriptorChain, Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vrdma_abi::control::*;
use vrdma_abi::width;
use vrdma_abi::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use vrdma_transport as transport;
use vrdma_transport::{AttrMask, CqId, GidEntry, OwnerId, PdId};
use vrdma_wire::num::{Gid, Mac, Mtu, Psn, Qkey, Qpn, VlanId};

type Result<T> = std::result::Result<T, Status>;

/// What a command may need of the guest beside its own bytes.
#[derive(Debug)]
pub struct Context<'a> {
    /// The guest's memory.
    pub memory: &'a Arc<GuestMemory>,
    /// What it may have.
    pub limits: &'a Limits,
}

impl Context<'_> {
    /// Has the pages of what the worker is about to use ready, here, where no other guest waits for it. No more than the guest has, since
    /// runs may name the same memory again and again.
    fn populate(&self, runs: &[Run]) {
        self.memory.populate(runs, &mut self.memory.len());
    }
}

/// Serves what is available in the control queue: `execute` carries out a command, `setup` tells how a channel's virtqueue is set up.
/// Returns whether the driver wants to be interrupted for it.
///
/// # Errors
/// The ring itself cannot be read: the queue is broken.
pub fn serve(
    queue: &mut Queue,
    context: &Context<'_>,
    mut setup: impl FnMut(u16) -> Option<VirtqueueSetup>,
    mut execute: impl FnMut(Command) -> Result<Reply>,
) -> std::result::Result<bool, virtio_queue::Error> {
    let memory = context.memory.mmap();
    let mut used = false;
    // More than a ring full of chains in one go is no driver's doing; the rest is served at the next kick or turn.
    for _ in 0..queue.size() {
        // Asks the ring whether it can be read at all, which popping keeps to itself.
        let avail = queue.avail_idx(memory, std::sync::atomic::Ordering::Acquire)?;
        if avail.0.wrapping_sub(queue.next_avail()) > queue.size() {
            return Err(virtio_queue::Error::InvalidAvailRingIndex);
        }
        let Some(chain) = queue.pop_descriptor_chain(memory) else { break };
        let head = chain.head_index();
        let written = answer(memory, chain, |request| {
            let command = parse(request, context, &mut setup)?;
            execute(command)
        });
        queue.add_used(memory, head, written)?;
        used = true;
    }
    Ok(used && queue.needs_notification(memory)?)
}

/// Answers one chain; returns how many bytes were written to it.
fn answer(
    memory: &GuestMemoryMmap<()>,
    chain: DescriptorChain<&GuestMemoryMmap<()>>,
    run: impl FnOnce(&[u8]) -> Result<Reply>,
) -> u32 {
    let Some((request, writable)) = gather(memory, chain) else { return 0 };
    let room: u64 = writable.iter().map(|w| w.len).sum();
    if room < RespHeader::SIZE as u64 {
        return 0;
    }
    let cookie = ReqHeader::read_from_prefix(&request).map(|(header, _)| header.cookie).unwrap_or_default();
    let result = reply_size(&request).and_then(|size| {
        let reply = (RespHeader::SIZE + size) as u64;
        if room < reply {
            return Err(Status::INVALID);
        }
        // What the guest could not be told of is not carried out.
        if !is_memory(memory, &writable, reply) {
            return Err(Status::FAULT);
        }
        run(&request)
    });
    let status = result.as_ref().err().copied().unwrap_or(Status::OK);
    let header = RespHeader { status: status.0.into(), reserved: 0.into(), cookie };
    let mut response = header.as_bytes().to_vec();
    response.extend_from_slice(result.as_ref().map_or(&[], Reply::as_bytes));
    scatter(memory, &writable, &response)
}

/// Most bytes of a request: the largest list of runs that any configuration allows, and what comes before it.
const MAX_REQUEST: u64 = 128 + (1 << 20) * Run16::SIZE as u64;
use vrdma_abi::control::Run as Run16;

/// The readable bytes of a chain and where to write. `None` for a chain that cannot be read or has its parts in the wrong order.
fn gather(
    memory: &GuestMemoryMmap<()>,
    chain: DescriptorChain<&GuestMemoryMmap<()>>,
) -> Option<(Vec<u8>, Vec<Run>)> {
    let (mut request, mut writable) = (Vec::new(), Vec::new());
    for descriptor in chain {
        let (gpa, len) = (descriptor.addr().0, u64::from(descriptor.len()));
        if descriptor.is_write_only() {
            writable.push(Run { gpa, len });
            continue;
        }
        let start = request.len();
        if !writable.is_empty() || start as u64 + len > MAX_REQUEST {
            return None;
        }
        request.resize(start + len as usize, 0);
        memory.read_slice(&mut request[start..], GuestAddress(gpa)).ok()?;
    }
    Some((request, writable))
}

/// Whether the first `bytes` of the writable part of a chain are guest memory.
fn is_memory(memory: &GuestMemoryMmap<()>, writable: &[Run], mut bytes: u64) -> bool {
    writable.iter().all(|run| {
        let now = run.len.min(bytes);
        bytes -= now;
        memory.check_range(GuestAddress(run.gpa), now as usize)
    })
}

/// Writes bytes to the writable part of a chain; returns how many, 0 if it is not all guest memory.
fn scatter(memory: &GuestMemoryMmap<()>, writable: &[Run], mut bytes: &[u8]) -> u32 {
    let total = bytes.len() as u32;
    for run in writable {
        let (now, rest) = bytes.split_at(bytes.len().min(run.len as usize));
        if memory.write_slice(now, GuestAddress(run.gpa)).is_err() {
            return 0;
        }
        bytes = rest;
    }
    total
}

/// Size of the reply structure of a command.
fn reply_size(request: &[u8]) -> Result<usize> {
    let (header, _) = ReqHeader::read_from_prefix(request).map_err(|_| Status::INVALID)?;
    Ok(match Opcode(header.opcode.get()) {
        Opcode::QUERY_DEVICE => QueryDeviceResp::SIZE,
        Opcode::QUERY_PORT => QueryPortResp::SIZE,
        Opcode::QUERY_GID => QueryGidResp::SIZE,
        Opcode::ALLOC_CONTEXT | Opcode::ALLOC_PD => ObjectResp::SIZE,
        Opcode::CREATE_CQ => CreateCqResp::SIZE,
        Opcode::REG_MR | Opcode::GET_DMA_MR => RegMrResp::SIZE,
        Opcode::CREATE_QP => CreateQpResp::SIZE,
        Opcode::QUERY_QP => QpAttr::SIZE,
        _ => 0,
    })
}

/// Understands a request.
fn parse(
    request: &[u8],
    context: &Context<'_>,
    setup: &mut impl FnMut(u16) -> Option<VirtqueueSetup>,
) -> Result<Command> {
    let (header, body) = ReqHeader::read_from_prefix(request).map_err(|_| Status::INVALID)?;
    if header.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    let num_runs = header.num_runs.get();
    if num_runs > context.limits.mr_runs {
        return Err(Status::TOO_LARGE);
    }
    let body = Body { bytes: body, num_runs: num_runs as usize };
    Ok(match Opcode(header.opcode.get()) {
        Opcode::QUERY_DEVICE => body.empty(Command::QueryDevice)?,
        Opcode::QUERY_PORT => body.empty(Command::QueryPort)?,
        Opcode::QUERY_GID => Command::QueryGid { index: body.object()? },
        Opcode::ADD_GID => add_gid(&body.alone()?)?,
        Opcode::DEL_GID => Command::DelGid { index: body.object()? },
        Opcode::SET_PORT_MTU => set_port_mtu(&body.alone()?)?,
        Opcode::ALLOC_CONTEXT => body.empty(Command::AllocContext)?,
        Opcode::DEALLOC_CONTEXT => Command::DeallocContext { context: body.object()? },
        Opcode::BIND_CHANNEL => bind_channel(&body, context, setup)?,
        Opcode::UNBIND_CHANNEL => Command::UnbindChannel { queue: body.object()? },
        Opcode::ALLOC_PD => Command::AllocPd { context: body.object()? },
        Opcode::DEALLOC_PD => Command::DeallocPd { pdn: body.object()? },
        Opcode::CREATE_CQ => create_cq(&body, context)?,
        Opcode::DESTROY_CQ => Command::DestroyCq { cqn: body.object()? },
        Opcode::REG_MR => reg_mr(&body, context)?,
        Opcode::DEREG_MR => Command::DeregMr { key: body.object()? },
        Opcode::GET_DMA_MR => {
            let req: DmaMrReq = body.alone()?;
            Command::DmaMr { pdn: req.pdn.get(), access: access(req.access.get())? }
        }
        Opcode::CREATE_QP => create_qp(&body.alone()?)?,
        Opcode::MODIFY_QP => modify_qp(&body.alone()?)?,
        Opcode::QUERY_QP => Command::QueryQp { qpn: qpn(body.object()?)? },
        Opcode::DESTROY_QP => Command::DestroyQp { qpn: qpn(body.object()?)? },
        Opcode::SET_AH_TABLE => ah_table(&body, context)?,
        _ => return Err(Status::UNSUPPORTED),
    })
}

/// What follows the header.
struct Body<'a> {
    bytes: &'a [u8],
    num_runs: usize,
}

impl Body<'_> {
    /// A command without a request structure.
    fn empty(&self, command: Command) -> Result<Command> {
        if self.bytes.is_empty() && self.num_runs == 0 { Ok(command) } else { Err(Status::INVALID) }
    }

    /// A request structure without runs.
    fn alone<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<T> {
        if self.num_runs != 0 {
            return Err(Status::INVALID);
        }
        T::read_from_bytes(self.bytes).map_err(|_| Status::INVALID)
    }

    /// The number in an [`ObjectReq`].
    fn object(&self) -> Result<u32> {
        let req: ObjectReq = self.alone()?;
        if req.reserved.get() == 0 { Ok(req.object.get()) } else { Err(Status::INVALID) }
    }

    /// A request structure and at least one run.
    fn with_runs<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<(T, Vec<Run>)> {
        if self.num_runs == 0 { Err(Status::INVALID) } else { self.with_any_runs() }
    }

    /// A request structure and runs, which may be none.
    fn with_any_runs<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<(T, Vec<Run>)> {
        let (req, rest) = T::read_from_prefix(self.bytes).map_err(|_| Status::INVALID)?;
        let runs = <[Run16]>::ref_from_bytes(rest).map_err(|_| Status::INVALID)?;
        if runs.len() != self.num_runs {
            return Err(Status::INVALID);
        }
        Ok((req, runs.iter().map(|run| Run { gpa: run.addr.get(), len: run.len.get() }).collect()))
    }
}

/// Checks that runs have `bytes` in all.
fn total(runs: &[Run], bytes: u64) -> Result<()> {
    let sum = runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.len));
    match sum {
        None => Err(Status::FAULT),
        Some(sum) if sum == bytes => Ok(()),
        Some(_) => Err(Status::INVALID),
    }
}

fn add_gid(req: &AddGidReq) -> Result<Command> {
    if req.gid_type != gid_type::ROCE_V2 || req.reserved0 != 0 {
        return Err(Status::INVALID);
    }
    let vlan = match req.vlan.get() {
        0xffff => VlanId::UNTAGGED,
        0 => return Err(Status::INVALID),
        number => VlanId::new(number).ok_or(Status::INVALID)?,
    };
    Ok(Command::AddGid { index: req.index.get(), entry: GidEntry { gid: Gid(req.gid), vlan } })
}

fn set_port_mtu(req: &SetPortMtuReq) -> Result<Command> {
    let mtu = (1..=5).filter_map(Mtu::from_code).find(|mtu| mtu.bytes() == req.mtu.get());
    match mtu {
        Some(mtu) if req.reserved.get() == 0 => Ok(Command::SetPortMtu { mtu }),
        _ => Err(Status::INVALID),
    }
}

fn bind_channel(
    body: &Body<'_>,
    context: &Context<'_>,
    setup: &mut impl FnMut(u16) -> Option<VirtqueueSetup>,
) -> Result<Command> {
    let (req, window) = body.with_runs::<BindChannelReq>()?;
    if req.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    let setup = setup(req.queue.get()).ok_or(Status::INVALID)?;
    if !window.iter().all(|run| context.memory.resolve(*run, &mut Vec::new()).is_some()) {
        return Err(Status::FAULT);
    }
    let channel = Channel::bind(context.memory, setup, &window).map_err(|error| {
        log::debug!("channel {}: {error}", req.queue.get());
        Status::FAULT
    })?;
    context.populate(&window);
    Ok(Command::BindChannel { context: req.context.get(), channel: Box::new(channel) })
}

fn create_cq(body: &Body<'_>, context: &Context<'_>) -> Result<Command> {
    let (req, runs) = body.with_runs::<CreateCqReq>()?;
    let entries = req.entries.get();
    let vector = u16::try_from(req.vector.get()).map_err(|_| Status::INVALID)?;
    if !entries.is_power_of_two() || req.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    if entries > context.limits.cq_entries {
        return Err(Status::NO_RESOURCES);
    }
    total(&runs, CqRing::bytes(entries))?;
    let ring = CqRing::new(context.memory, &runs, entries).ok_or(Status::FAULT)?;
    context.populate(&runs);
    Ok(Command::CreateCq { context: req.context.get(), vector, ring: Box::new(ring) })
}

fn reg_mr(body: &Body<'_>, context: &Context<'_>) -> Result<Command> {
    let (req, runs) = body.with_any_runs::<RegMrReq>()?;
    let (iova, length) = (req.iova.get(), req.length.get());
    // A region may end where addresses do.
    if length != 0 && iova.checked_add(length - 1).is_none() {
        return Err(Status::INVALID);
    }
    let access = access(req.access.get())?;
    total(&runs, length)?;
    // A message is worked on in stretches of so many bytes, whatever number of runs these are in.
    if let [_, inner @ .., _] = &runs[..]
        && inner.iter().any(|run| run.len < u64::from(limit::MIN_RUN))
    {
        return Err(Status::INVALID);
    }
    let memory = MrMemory::new(context.memory, &runs).ok_or(Status::FAULT)?;
    context.populate(&runs);
    Ok(Command::RegMr { pdn: req.pdn.get(), access, iova, length, memory, runs: runs.len() as u64 })
}

fn access(bits: u32) -> Result<transport::Access> {
    let access = transport::Access(bits);
    let writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
    if bits & !access::ALL != 0 || (bits & writes != 0 && bits & access::LOCAL_WRITE == 0) {
        return Err(Status::INVALID);
    }
    Ok(access)
}

fn create_qp(req: &CreateQpReq) -> Result<Command> {
    if req.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    if req.srqn.get() != limit::NONE {
        return Err(Status::UNSUPPORTED);
    }
    let qp_type = match QpType(req.qp_type.get()) {
        QpType::RC => transport::QpType::Rc,
        QpType::UC => transport::QpType::Uc,
        QpType::UD => transport::QpType::Ud,
        QpType::GSI => transport::QpType::Gsi,
        _ => return Err(Status::INVALID),
    };
    let context = req.context.get();
    let init = transport::QpInit {
        owner: OwnerId(context),
        pd: PdId(req.pdn.get()),
        qp_type,
        send_cq: CqId(req.send_cqn.get()),
        recv_cq: CqId(req.recv_cqn.get()),
        max_send_wr: req.max_send_wr.get(),
        max_recv_wr: req.max_recv_wr.get(),
        max_send_sge: req.max_send_sge.get(),
        max_recv_sge: req.max_recv_sge.get(),
        max_inline: req.max_inline.get(),
    };
    Ok(Command::CreateQp { context, init })
}

fn modify_qp(req: &ModifyQpReq) -> Result<Command> {
    let (mask, attr) = (req.mask.get(), &req.attr);
    let known = qp_attr::DEST_QPN * 2 - 1;
    if mask & !known != 0 {
        return Err(Status::INVALID);
    }
    if mask & (qp_attr::ALT_PATH | qp_attr::CAP) != 0 {
        return Err(Status::UNSUPPORTED);
    }
    // A field that the mask leaves out may hold anything. Of one that is wider than its meaning the low bits count: `width`.
    let state =
        |bit: u32, code: u8| if mask & bit != 0 { qp_state(code) } else { Ok(transport::QpState::Reset) };
    let path_mtu = match Mtu::from_code(attr.path_mtu) {
        None if mask & qp_attr::PATH_MTU != 0 => return Err(Status::INVALID),
        mtu => mtu.unwrap_or_default(),
    };
    let vlan = attr.vlan.get();
    let attr = transport::QpAttr {
        state: state(qp_attr::STATE, attr.state)?,
        cur_state: state(qp_attr::CUR_STATE, attr.cur_state)?,
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        sq_draining: false,
        access: transport::Access(attr.access.get()),
        pkey_index: attr.pkey_index.get(),
        port: attr.port,
        path_mtu,
        qkey: Qkey(attr.qkey.get()),
        rq_psn: Psn::truncate(attr.rq_psn.get()),
        sq_psn: Psn::truncate(attr.sq_psn.get()),
        dest_qpn: Qpn::truncate(attr.dest_qpn.get()),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer & width::RNR_TIMER,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt & width::RETRIES,
        rnr_retry: attr.rnr_retry & width::RETRIES,
        sl: attr.sl & width::SL,
        sgid_index: attr.sgid_index,
        dgid: Gid(attr.dgid),
        dmac: Mac(attr.dmac),
        hop_limit: attr.hop_limit,
        traffic_class: attr.traffic_class,
        flow_label: attr.flow_label.get() & width::FLOW_LABEL,
        udp_sport: attr.udp_sport.get(),
        vlan: (1..=4094).contains(&vlan).then_some(vlan),
    };
    let mask = AttrMask(mask & !qp_attr::PATH_MIG_STATE);
    Ok(Command::ModifyQp { qpn: qpn(req.qpn.get())?, mask, attr: Box::new(attr) })
}

fn qp_state(code: u8) -> Result<transport::QpState> {
    Ok(match QpState(code.into()) {
        QpState::RESET => transport::QpState::Reset,
        QpState::INIT => transport::QpState::Init,
        QpState::RTR => transport::QpState::Rtr,
        QpState::RTS => transport::QpState::Rts,
        QpState::SQD => transport::QpState::Sqd,
        QpState::SQE => transport::QpState::Sqe,
        QpState::ERR => transport::QpState::Err,
        _ => return Err(Status::INVALID),
    })
}

fn ah_table(body: &Body<'_>, context: &Context<'_>) -> Result<Command> {
    let (req, runs) = body.with_runs::<AhTableReq>()?;
    let entries = req.entries.get();
    if entries == 0 || req.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    if entries > context.limits.ahs {
        return Err(Status::NO_RESOURCES);
    }
    total(&runs, AhTable::bytes(entries))?;
    let [run] = runs[..] else { return Err(Status::INVALID) };
    let table = AhTable::new(context.memory, run, entries).ok_or(Status::FAULT)?;
    context.populate(&runs);
    Ok(Command::SetAhTable { table })
}

fn qpn(number: u32) -> Result<Qpn> {
    Qpn::new(number).ok_or(Status::NOT_FOUND)
}
