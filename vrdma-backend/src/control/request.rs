//! From the bytes of a command to a [`Command`].

use super::connections;
use super::context::CommandContext;
use crate::config::Transport;
use crate::device::ah::AhTable;
use crate::device::command::{Command, NewMemory};
use crate::device::moderation::Moderation;
use crate::memory::{MrMemory, Run};
use crate::queue::VirtqueueSetup;
use crate::queue::channel::Channel;
use crate::queue::cq::{CqRing, CqeKind};
use crate::translate::access::access;
use crate::translate::{cm, gid, mr, port, qp, srq};
use vrdma_abi::control::{Run as Run16, *};
use vrdma_abi::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};
use vrdma_wire::num::{Gid, Qpn};

type Result<T> = std::result::Result<T, Status>;

/// Understands a request; `setup` tells how a channel's virtqueue is set up.
///
/// # Errors
/// The status for the guest, as `vrdma_abi::control` has them.
pub fn parse(
    request: &[u8],
    context: &CommandContext<'_>,
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
    let opcode = Opcode(header.opcode.get());
    if !connections::may_be(opcode, context.transport()) {
        return Err(Status::UNSUPPORTED);
    }
    command(opcode, &body, context, setup)
}

fn command(
    opcode: Opcode,
    body: &Body<'_>,
    context: &CommandContext<'_>,
    setup: &mut impl FnMut(u16) -> Option<VirtqueueSetup>,
) -> Result<Command> {
    Ok(match opcode {
        Opcode::QUERY_DEVICE => body.empty(Command::QueryDevice)?,
        Opcode::QUERY_PORT => body.empty(Command::QueryPort)?,
        Opcode::QUERY_COUNTERS => body.empty(Command::QueryCounters)?,
        Opcode::QUERY_CLOCK => body.empty(Command::QueryClock)?,
        Opcode::QUERY_GID => Command::QueryGid { index: body.object()? },
        Opcode::ADD_GID => {
            let req: AddGidReq = body.alone()?;
            Command::AddGid { index: req.index.get(), entry: gid::entry(&req)? }
        }
        Opcode::DEL_GID => Command::DelGid { index: body.object()? },
        Opcode::SET_PORT_MTU => Command::SetPortMtu { mtu: port::mtu(&body.alone()?)? },
        Opcode::ALLOC_CONTEXT => body.empty(Command::AllocContext)?,
        Opcode::DEALLOC_CONTEXT => Command::DeallocContext { context: body.object()? },
        Opcode::BIND_CHANNEL => bind_channel(body, context, setup)?,
        Opcode::UNBIND_CHANNEL => Command::UnbindChannel { queue: body.object()? },
        Opcode::ALLOC_PD => Command::AllocPd { context: body.object()? },
        Opcode::DEALLOC_PD => Command::DeallocPd { pdn: body.object()? },
        Opcode::ALLOC_XRCD => body.empty(Command::AllocXrcd)?,
        Opcode::DEALLOC_XRCD => Command::DeallocXrcd { xrcdn: body.object()? },
        Opcode::CREATE_CQ => create_cq(body, context)?,
        Opcode::RESIZE_CQ => resize_cq(body, context)?,
        Opcode::MODIFY_CQ => modify_cq(&body.alone()?),
        Opcode::DESTROY_CQ => Command::DestroyCq { cqn: body.object()? },
        Opcode::REG_MR => reg_mr(body, context)?,
        Opcode::DEREG_MR => Command::DeregMr { key: body.object()? },
        Opcode::REREG_MR => rereg_mr(body, context)?,
        Opcode::ALLOC_FAST_MR => alloc_fast_mr(&body.alone()?)?,
        Opcode::ALLOC_MW => alloc_mw(&body.alone()?)?,
        Opcode::DEALLOC_MW => Command::DeallocMw { key: body.object()? },
        Opcode::GET_DMA_MR => {
            let req: DmaMrReq = body.alone()?;
            Command::DmaMr { pdn: req.pdn.get(), access: access(req.access.get())? }
        }
        Opcode::CREATE_QP => create_qp(&body.alone()?, context.transport())?,
        Opcode::MODIFY_QP => modify_qp(&body.alone()?, context.transport())?,
        Opcode::QUERY_QP => Command::QueryQp { qpn: qpn(body.object()?)? },
        Opcode::DESTROY_QP => Command::DestroyQp { qpn: qpn(body.object()?)? },
        Opcode::SET_AH_TABLE => ah_table(body, context)?,
        Opcode::CREATE_SRQ => Command::CreateSrq { init: srq::init(&body.alone()?)? },
        Opcode::MODIFY_SRQ => {
            let req: ModifySrqReq = body.alone()?;
            let (max_wr, limit) = srq::changes(&req)?;
            Command::ModifySrq { srqn: req.srqn.get(), max_wr, limit }
        }
        Opcode::QUERY_SRQ => Command::QuerySrq { srqn: body.object()? },
        Opcode::DESTROY_SRQ => Command::DestroySrq { srqn: body.object()? },
        Opcode::ATTACH_MCAST => member(&body.alone()?, |qpn, mgid| Command::AttachMcast { qpn, mgid })?,
        Opcode::DETACH_MCAST => member(&body.alone()?, |qpn, mgid| Command::DetachMcast { qpn, mgid })?,
        _ => connection_command(opcode, body, context)?,
    })
}

/// A command about connections.
fn connection_command(opcode: Opcode, body: &Body<'_>, context: &CommandContext<'_>) -> Result<Command> {
    Ok(match opcode {
        Opcode::CM_LISTEN => connections::listen(&body.alone()?, context)?,
        Opcode::CM_CLOSE_LISTENER => Command::CmCloseListener { listener: body.object()? },
        Opcode::CM_CONNECT => connections::connect(&body.alone()?, context)?,
        Opcode::CM_ACCEPT => Command::CmAccept { accept: Box::new(cm::accept(&body.alone()?)?) },
        Opcode::CM_REJECT => {
            let (connection, private_data) = cm::reject(&body.alone()?)?;
            Command::CmReject { connection, private_data }
        }
        Opcode::CM_DISCONNECT => Command::CmDisconnect { qpn: qpn(body.object()?)? },
        Opcode::CM_RELEASE => Command::CmRelease { connection: body.object()? },
        Opcode::CM_GET_EVENT => body.empty(Command::CmGetEvent)?,
        _ => return Err(Status::UNSUPPORTED),
    })
}

fn create_qp(req: &CreateQpReq, transport: Transport) -> Result<Command> {
    let init = qp::init(req)?;
    if transport == Transport::Iwarp {
        cm::check_qp(&init)?;
    }
    Ok(Command::CreateQp { init })
}

fn modify_qp(req: &ModifyQpReq, transport: Transport) -> Result<Command> {
    let (mask, attr) = qp::attributes(req)?;
    if transport == Transport::Iwarp {
        cm::check_change(mask, &attr)?;
    }
    Ok(Command::ModifyQp { qpn: qpn(req.qpn.get())?, mask, attr: Box::new(attr) })
}

fn modify_cq(req: &ModifyCqReq) -> Command {
    let moderation = Moderation::new(req.count.get(), req.period.get());
    Command::ModifyCq { cqn: req.cqn.get(), moderation }
}

fn alloc_fast_mr(req: &AllocFastMrReq) -> Result<Command> {
    Ok(Command::AllocFastMr { pdn: req.pdn.get(), max_pages: mr::max_pages(req.max_pages.get())? })
}

fn alloc_mw(req: &AllocMwReq) -> Result<Command> {
    Ok(Command::AllocMw { pdn: req.pdn.get(), mw_type: mr::mw_type(req.mw_type.get())? })
}

/// What follows the header.
struct Body<'a> {
    bytes: &'a [u8],
    num_runs: usize,
}

impl Body<'_> {
    /// A command without a request structure.
    fn empty(&self, command: Command) -> Result<Command> {
        let []: [u8; 0] = self.alone()?;
        Ok(command)
    }

    /// A request structure without runs.
    fn alone<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<T> {
        match self.with_any_runs()? {
            (req, runs) if runs.is_empty() => Ok(req),
            _ => Err(Status::INVALID),
        }
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

    /// A request structure and runs, which may be none. What a later version adds between them has to be zero.
    fn with_any_runs<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<(T, Vec<Run>)> {
        let at = self.bytes.len().checked_sub(self.num_runs * Run16::SIZE).ok_or(Status::INVALID)?;
        let (req, runs) = self.bytes.split_at(at);
        let (req, added) = T::read_from_prefix(req).map_err(|_| Status::INVALID)?;
        if added.iter().any(|&byte| byte != 0) {
            return Err(Status::UNSUPPORTED);
        }
        let runs = <[Run16]>::ref_from_bytes(runs).map_err(|_| Status::INVALID)?;
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

fn bind_channel(
    body: &Body<'_>,
    context: &CommandContext<'_>,
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
    context.populate(&window)?;
    Ok(Command::BindChannel { context: req.context.get(), channel: Box::new(channel) })
}

fn create_cq(body: &Body<'_>, context: &CommandContext<'_>) -> Result<Command> {
    let (req, runs) = body.with_runs::<CreateCqReq>()?;
    let vector = u16::try_from(req.vector.get()).map_err(|_| Status::INVALID)?;
    let flags = req.flags.get();
    let kind = cqe_kind(flags & !cq_flags::IGNORE_OVERRUN)?;
    let mut ring = cq_ring(&runs, (kind, req.entries.get()), context)?;
    if flags & cq_flags::IGNORE_OVERRUN != 0 {
        ring.ignore_overrun();
    }
    Ok(Command::CreateCq { context: req.context.get(), vector, ring })
}

fn resize_cq(body: &Body<'_>, context: &CommandContext<'_>) -> Result<Command> {
    let (req, runs) = body.with_runs::<ResizeCqReq>()?;
    let kind = cqe_kind(req.flags.get())?;
    let ring = cq_ring(&runs, (kind, req.entries.get()), context)?;
    Ok(Command::ResizeCq { cqn: req.cqn.get(), held: req.held.get(), ring })
}

/// What flags of a CQ say of its CQEs; others are refused.
fn cqe_kind(flags: u32) -> Result<CqeKind> {
    match flags {
        0 => Ok(CqeKind::Plain),
        cq_flags::TIMESTAMP => Ok(CqeKind::Timed),
        _ => Err(Status::INVALID),
    }
}

/// The ring of a CQ of so many CQEs, in these runs.
fn cq_ring(
    runs: &[Run],
    (kind, entries): (CqeKind, u32),
    context: &CommandContext<'_>,
) -> Result<Box<CqRing>> {
    if !entries.is_power_of_two() {
        return Err(Status::INVALID);
    }
    if entries > context.limits.cq_entries {
        return Err(Status::NO_RESOURCES);
    }
    total(runs, CqRing::bytes(kind, entries))?;
    let ring = CqRing::new(context.memory, runs, kind, entries).ok_or(Status::FAULT)?;
    context.populate(runs)?;
    Ok(Box::new(ring))
}

fn reg_mr(body: &Body<'_>, context: &CommandContext<'_>) -> Result<Command> {
    let (req, runs) = body.with_any_runs::<RegMrReq>()?;
    let access = access(req.access.get())?;
    let NewMemory { iova, length, memory, runs } =
        region_memory((req.iova.get(), req.length.get()), &runs, context)?;
    Ok(Command::RegMr { pdn: req.pdn.get(), access, iova, length, memory, runs })
}

fn rereg_mr(body: &Body<'_>, context: &CommandContext<'_>) -> Result<Command> {
    let (req, runs) = body.with_any_runs::<ReregMrReq>()?;
    let mr::Changes { pdn, access, memory } = mr::changes(&req)?;
    if !memory && !runs.is_empty() {
        return Err(Status::INVALID);
    }
    let range = (req.iova.get(), req.length.get());
    let memory = memory.then(|| region_memory(range, &runs, context)).transpose()?;
    Ok(Command::ReregMr { key: req.lkey.get(), pdn, access, memory })
}

/// The memory of a region.
fn region_memory(
    (iova, length): (u64, u64),
    runs: &[Run],
    context: &CommandContext<'_>,
) -> Result<NewMemory> {
    // A region may end where addresses do.
    if length != 0 && iova.checked_add(length - 1).is_none() {
        return Err(Status::INVALID);
    }
    total(runs, length)?;
    if length > context.limits.memory_bytes() {
        return Err(Status::INVALID);
    }
    // A message is worked on in stretches of so many bytes, whatever number of runs these are in.
    if let [_, inner @ .., _] = runs
        && inner.iter().any(|run| run.len < u64::from(limit::MIN_RUN))
    {
        return Err(Status::INVALID);
    }
    let memory = MrMemory::new(context.memory, runs).ok_or(Status::FAULT)?;
    context.populate(runs)?;
    Ok(NewMemory { iova, length, memory, runs: runs.len() as u64 })
}

fn ah_table(body: &Body<'_>, context: &CommandContext<'_>) -> Result<Command> {
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
    context.populate(&runs)?;
    Ok(Command::SetAhTable { table })
}

/// A command about a QP and a group.
fn member(req: &McastReq, command: fn(Qpn, Gid) -> Command) -> Result<Command> {
    if req.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    Ok(command(qpn(req.qpn.get())?, Gid(req.mgid)))
}

fn qpn(number: u32) -> Result<Qpn> {
    Qpn::new(number).ok_or(Status::NOT_FOUND)
}
