//! Messages between processes of two guests, and all such flows together.

use crate::args::{Atomic, Connection};
use crate::copying::Buffer;
use crate::host::{Host, Transport, refused};
use crate::keys::{self, Keys};
use crate::load::Load;
use crate::plan::{Operation, Plan};
use crate::process::{Process, Receives, next, receives_of_each, shared_receives};
use anyhow::{Result, bail};
use std::time::Duration;
use vrdma_guest::Qp;
use vrdma_guest::abi::ah::AhEntry;
use vrdma_guest::abi::control::{QpType, limit};
use vrdma_guest::abi::cqe::WcStatus;
use vrdma_guest::ah::{self, AhTable};
use vrdma_guest::cm::connect_streams;
use vrdma_guest::memory::PAGE;
use vrdma_guest::verbs::{Arm, Data, Remote, Request, Sge, Tag, UdTarget};

/// Number of entries of a table of address handles.
const HANDLES: u32 = 64;
/// Time limit for an event.
const EVENT: Duration = Duration::from_secs(10);
static INLINE: [u8; 256] = [1; 256];

/// A QP, as far as requests need it.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Its index among the receives.
    index: u32,
    /// Number of the sender's QP.
    qpn: u32,
    /// Number of the peer's QP, for datagrams.
    peer: u32,
}

/// The messages in one direction.
#[derive(Debug)]
struct Flow {
    plan: Plan,
    from: Process,
    to: Process,
    /// The QPs, in the order in which they are used.
    ways: Vec<Way>,
    /// Keys of the receiver's buffer.
    rkeys: Keys,
    /// Memory windows of the sender that are bound and invalidated in turn.
    windows: Vec<u32>,
    receives: Option<Receives>,
    /// The destination of datagrams, except the QP.
    handle: Option<UdTarget>,
    /// Index of the QP for the next request. With several QPs, all requests of the last round of
    /// `cq_mod` have completions.
    cursor: usize,
    rounds_left: u32,
    at: u64,
    posted: u32,
    /// Number of posted requests whose completion is outstanding.
    signaled: u32,
    sent: u32,
    received: u32,
    ended: u32,
    /// Indices of receives that have just completed.
    taken: Vec<u32>,
}

impl Flow {
    /// Creates the flow from one guest to another. `handles` is the table of the sender's guest,
    /// for datagrams.
    fn new(host: &Host, plan: &Plan, (from, to): (usize, usize), handles: Option<&AhTable>) -> Result<Flow> {
        let takes = plan.takes_receives();
        let receives = if plan.srq { shared_receives(plan) } else { receives_of_each(plan) * plan.qps };
        let from = Process::new(&host.guests[from], plan.depth.max(64), plan)?;
        let mut to = Process::new(&host.guests[to], receives.max(64), plan)?;
        let (near_type, far_type) = match plan.connection {
            Connection::Rc => (QpType::RC, QpType::RC),
            Connection::Uc => (QpType::UC, QpType::UC),
            Connection::Ud => (QpType::UD, QpType::UD),
            Connection::Xrc => (QpType::XRC_SEND, QpType::XRC_RECV),
        };
        let xrcdn = match plan.connection {
            Connection::Xrc => Some(refused(to.context.guest.alloc_xrcd(), "an XRC domain")?),
            _ => None,
        };
        let srqn = plan.srq.then(|| to.srq(plan, xrcdn)).transpose()?;
        let near = from.qps(plan, near_type, limit::NONE, 0)?;
        let own_srqn = if xrcdn.is_some() { None } else { srqn };
        let far = to.qps(plan, far_type, own_srqn.unwrap_or(limit::NONE), xrcdn.unwrap_or(0))?;
        connect(plan, &near, &far);
        let mut ways: Vec<Way> = (0..)
            .zip(near.iter().zip(&far))
            .map(|(index, (near, far))| Way { index, qpn: near.number, peer: far.number })
            .collect();
        shuffle(&mut ways);
        let handle = handles.map(|table| put_handle(table, &from, &to, far[0].options.qkey));
        let receives = (takes || xrcdn.is_some()).then(|| {
            let mut receives = Receives::new(plan, srqn, &far);
            if takes {
                receives.post_all(&mut to, plan);
            }
            receives
        });
        let mut rkeys = match plan.window {
            Some(of) => vec![keys::bound(&mut to, &far[0], of)?],
            None => keys::regions(&to, plan.regions)?,
        };
        shuffle(&mut rkeys);
        let windows = if plan.operation == Operation::Bind { keys::unbound(&from)? } else { Vec::new() };
        let plan = plan.clone();
        let rounds_left = plan.cq_mod - 1;
        Ok(Flow {
            plan,
            from,
            to,
            ways,
            rkeys: Keys::new(rkeys),
            windows,
            receives,
            handle,
            cursor: 0,
            rounds_left,
            at: 0,
            posted: 0,
            signaled: 0,
            sent: 0,
            received: 0,
            ended: 0,
            taken: Vec::new(),
        })
    }

    #[inline]
    fn takes_receives(&self) -> bool {
        self.plan.takes_receives()
    }

    #[inline]
    fn post(&mut self) -> bool {
        if self.posted.wrapping_sub(self.ended) >= self.plan.depth {
            return false;
        }
        let way = self.ways[self.cursor];
        let place = if self.plan.srq { 0 } else { way.index as usize };
        if self.takes_receives() && self.receives.as_ref().is_some_and(|receives| receives.ready[place] == 0)
        {
            return false;
        }
        let own = [self.from.mr.sge(self.at, self.plan.size)];
        let signaled = self.rounds_left == 0;
        let request = self.request(way, &own).signaled(signaled);
        if self.from.context.channel.driver.push(&request).is_err() {
            return false;
        }
        if self.plan.operation == Operation::Bind {
            keys::pushed(&mut self.windows, self.posted);
        }
        if self.takes_receives()
            && let Some(receives) = &mut self.receives
        {
            receives.ready[place] -= 1;
        }
        self.rkeys.pushed();
        self.signaled += u32::from(signaled);
        self.posted = self.posted.wrapping_add(1);
        self.at = next(self.at, self.plan.stride, self.plan.size, self.plan.span);
        self.cursor += 1;
        if self.cursor == self.ways.len() {
            self.cursor = 0;
            self.rounds_left = if signaled { self.plan.cq_mod } else { self.rounds_left } - 1;
        }
        true
    }

    #[inline]
    fn request<'a>(&self, way: Way, own: &'a [Sge; 1]) -> Request<'a> {
        let tag = Tag { qpn: way.qpn, wqe_id: self.posted };
        let remote = Remote { rkey: self.rkeys.next(), ..self.to.mr.remote(self.at) };
        let data = match self.plan.inlined {
            true => Data::Inline(&INLINE[..self.plan.size as usize]),
            false => Data::Sges(own),
        };
        let request = match self.plan.operation {
            Operation::Write if self.plan.imm => Request::write_imm(tag, remote, [0; 4], data),
            Operation::Write => Request::write(tag, remote, data),
            Operation::Read => Request::read(tag, remote, own),
            Operation::Send => match self.handle {
                Some(to) => Request::ud_send(tag, UdTarget { qpn: way.peer, ..to }, data),
                None => Request::send(tag, data),
            },
            Operation::Atomic(Atomic::FetchAndAdd) => Request::fetch_add(tag, remote, 1, &own[0]),
            Operation::Atomic(Atomic::CmpAndSwap) => Request::compare_swap(tag, remote, 0, 0, &own[0]),
            Operation::Atomic(Atomic::Write) => Request::atomic_write(tag, remote, data),
            Operation::Bind => keys::request(&self.from, &self.windows, tag),
        };
        match (&self.receives, self.plan.connection) {
            (Some(Receives { srqn: Some(srqn), .. }), Connection::Xrc) => request.xrc(*srqn),
            _ => request,
        }
    }

    #[inline]
    fn poll(&mut self) -> Result<u32> {
        let mut bad = 0;
        let sent = self.from.cq.driver.poll_batch(usize::MAX, |cqe| bad |= cqe.status) as u32;
        self.signaled -= sent;
        self.sent = self.sent.wrapping_add(sent * self.plan.cq_mod);
        let mut ended = self.sent.wrapping_sub(self.ended);
        if self.takes_receives() {
            let Flow { to, taken, receives, .. } = self;
            to.cq.driver.poll_batch(usize::MAX, |cqe| {
                bad |= cqe.status;
                taken.push(cqe.wqe_id.get());
            });
            if !taken.is_empty() {
                self.received = self.received.wrapping_add(taken.len() as u32);
                let receives = receives.as_mut().expect("what takes receives has some");
                taken.drain(..).for_each(|index| receives.post(to, index as usize));
                to.context.channel.driver.ring();
            }
            ended = ended.min(self.received.wrapping_sub(self.ended));
        }
        if bad != 0 {
            bail!("{} failed: {:?}", self.plan.operation.name(), WcStatus(bad));
        }
        self.ended = self.ended.wrapping_add(ended);
        Ok(ended)
    }

    /// Sleeps until requests have completed.
    fn sleep(&mut self) -> Result<()> {
        let cq = &mut self.from.cq.driver;
        cq.arm(Arm::Next);
        if !cq.is_ready() && self.from.context.guest.comp_events(0).recv_within(EVENT).is_none() {
            bail!("no event for {} s: has the daemon ended?", EVENT.as_secs());
        }
        Ok(())
    }
}

/// Puts a handle for the receiver into the table of the sender's guest.
fn put_handle(table: &AhTable, from: &Process, to: &Process, qkey: u32) -> UdTarget {
    let peer = &to.context.guest;
    let index = u32::from(peer.options.host) % HANDLES;
    table.put(index, &AhEntry { dmac: peer.config.mac, ..ah::entry(from.context.pd, peer.gid()) });
    UdTarget { ah: index, qpn: 0, qkey }
}

/// Connects each QP of one process with one QP of another.
fn connect(plan: &Plan, near: &[Qp], far: &[Qp]) {
    for (near, far) in near.iter().zip(far) {
        match plan.transport {
            Transport::Iwarp(_) => _ = connect_streams(near, far),
            Transport::Roce => vrdma_guest::connect(near, far),
        }
    }
}

/// Shuffles a slice into an order that is the same in each run.
fn shuffle<T>(all: &mut [T]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..all.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

/// The flows of all directions of a plan.
#[derive(Debug)]
pub struct Flows {
    all: Vec<Flow>,
    cursor: usize,
    events: bool,
    _handles: Vec<AhTable>,
    _idle: Vec<Process>,
}

/// Returns a plan in which each of `count` QPs has room for one request.
pub fn one_of_each(plan: &Plan, count: u32) -> Plan {
    Plan { qps: count, depth: 1, cq_mod: 1, span: PAGE, ..plan.clone() }
}

/// Connects `count` QPs of one guest with QPs of another. Each guest has one process for them, and
/// they stay idle.
///
/// # Errors
/// The device refuses.
pub fn idle(host: &Host, plan: &Plan, (from, to): (usize, usize), count: u32) -> Result<Vec<Process>> {
    let one = one_of_each(plan, count);
    let ends = vec![Process::new(&host.guests[from], 64, &one)?, Process::new(&host.guests[to], 64, &one)?];
    let [near, far] =
        [ends[0].qps(&one, QpType::RC, limit::NONE, 0)?, ends[1].qps(&one, QpType::RC, limit::NONE, 0)?];
    connect(plan, &near, &far);
    Ok(ends)
}

impl Flows {
    /// Creates the flows between the guests of `host`.
    ///
    /// # Errors
    /// The device refuses a command.
    pub fn new(host: &Host, plan: &Plan) -> Result<Flows> {
        let table = |guest| refused(AhTable::new(guest, HANDLES), "a table of address handles");
        let handles: Vec<AhTable> = match plan.connection {
            Connection::Ud => host.guests.iter().map(table).collect::<Result<_>>()?,
            _ => Vec::new(),
        };
        let flow = |direction: (usize, usize)| Flow::new(host, plan, direction, handles.get(direction.0));
        let directions = plan.directions();
        let idle = if plan.idle > 0 { idle(host, plan, directions[0], plan.idle)? } else { Vec::new() };
        let all = directions.into_iter().map(flow).collect::<Result<_>>()?;
        Ok(Flows { all, cursor: 0, events: plan.events, _handles: handles, _idle: idle })
    }
}

impl Flows {
    /// Returns the number of operations that have ended since the start.
    pub fn ended(&self) -> u64 {
        self.all.iter().map(|flow| u64::from(flow.ended)).sum()
    }

    /// Returns the buffers of the first direction, the sender's first.
    pub fn buffers(&self) -> [Buffer<'_>; 2] {
        [&self.all[0].from.mr, &self.all[0].to.mr].map(|mr| (mr.memory(), mr.gpa(0)))
    }
}

impl Load for Flows {
    #[inline]
    fn post(&mut self) -> bool {
        for _ in 0..self.all.len() {
            let posted = self.all[self.cursor].post();
            self.cursor += 1;
            if self.cursor == self.all.len() {
                self.cursor = 0;
            }
            if posted {
                return true;
            }
        }
        false
    }

    #[inline]
    fn ring(&mut self) {
        for flow in &mut self.all {
            flow.from.context.channel.driver.ring();
        }
    }

    #[inline]
    fn poll(&mut self) -> Result<u32> {
        let mut ended = 0;
        for flow in &mut self.all {
            ended += flow.poll()?;
        }
        Ok(ended)
    }

    #[inline]
    fn idle(&mut self) -> Result<()> {
        match self.all.iter_mut().find(|flow| self.events && flow.signaled > 0) {
            Some(flow) => flow.sleep()?,
            None => std::hint::spin_loop(),
        }
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        self.all.iter().map(|flow| flow.signaled).sum()
    }
}
