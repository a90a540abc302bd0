//! One direction of a reliable connection, and a simple model of its result.
//!
//! The model executes each request at once when it is posted, on bytes of its own. RC guarantees an
//! equal result, with one exception: a READ may still be in progress when later requests begin. So
//! a request that would overwrite the source of a READ in progress is fenced.

mod check;
mod post;
mod windows;

use crate::area::Area;
use crate::flow::Flow;
use crate::journal::{Journal, Place};
use crate::rng::Rng;
use crate::world::World;
use std::collections::VecDeque;
use std::ops::Range;
use vrdma_transport::*;
use vrdma_wire::num::{Imm, Qpn, Rkey, Srqn};
use windows::{Role, Shared};

/// The content of memory into which nothing was received.
pub const BLANK: u8 = 0xc5;

/// The parameters of a stream.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The minimum number of requests.
    pub requests: u32,
    /// The minimum of bytes. The stream ends when both numbers are reached.
    pub bytes: u64,
    /// The longest message, and the bytes of memory that the peer may write.
    pub longest: u64,
    pub window: u64,
    pub depth: u32,
    pub receives: u32,
    /// The longest pause between posts of sends, and of receives, in nanoseconds.
    pub send_pause: u64,
    pub recv_pause: u64,
    /// One in this number of requests is signaled.
    pub signal_every: u64,
    /// The last request is one that must fail.
    pub poison: bool,
    /// All requests are SENDs and WRITEs, so that data go one way alone.
    pub one_way: bool,
}

/// How a stream may end early.
#[derive(Clone, Copy, Debug, Default)]
pub struct MayFail {
    /// Frames may be lost, or the peer may fail and not answer.
    pub retry: bool,
    pub rnr: bool,
    /// The own QP may fail for another reason: the peer's requests.
    pub flush: bool,
}

/// A request that was posted.
struct Posted {
    opcode: WcOpcode,
    signaled: bool,
    /// The offset in the landing area and the bytes that arrive there.
    lands: Option<(u64, Vec<u8>)>,
    /// The bytes of the peer that it may change.
    changes: Option<Range<u64>>,
    /// Where its bytes are stored at the receiver.
    stores: Option<(Place, Range<u64>)>,
    /// The number of receives that are consumed after it.
    receives: u64,
    /// How it must fail.
    fails: Option<WcStatus>,
    /// What it does with a window.
    role: Option<Role>,
}

/// A message that the peer's receive must report.
struct Expected {
    opcode: WcOpcode,
    bytes: Vec<u8>,
    length: u64,
    imm: Option<Imm>,
    solicited: bool,
    /// The receiver's window that it invalidates.
    invalidates: Option<Rkey>,
    /// It fails in this way instead.
    fails: Option<WcStatus>,
}

/// A used part of the landing area: its range, its request, and the last request that uses it.
struct Landing {
    end: u64,
    start: u64,
    request: usize,
    last_user: usize,
}

pub struct Stream {
    name: String,
    from: usize,
    to: usize,
    qpn: Qpn,
    peer_qpn: Qpn,
    /// The shared queue that XRC requests name.
    srqn: Option<Srqn>,
    send_cq: CqId,
    recv_cq: CqId,
    srq: Option<SrqId>,
    /// One end is a reference peer. It has only the operations that all implementations have.
    is_plain: bool,
    shape: Shape,
    pub may_fail: MayFail,
    rng: Rng,

    source: Area,
    landing: Area,
    target: Area,
    /// A region of the peer without remote rights, for requests that must fail.
    barred: Area,
    slots: Area,
    slot: u64,
    /// The stores to `target` and `slots`.
    journal: Journal,
    /// Windows onto `target`, and windows of the own side, which this QP binds.
    peers: Option<Shared>,
    own: Option<Shared>,
    /// The expected content of `target`, and ranges of which nothing is known.
    shadow: Vec<u8>,
    unknown: Vec<Range<u64>>,

    posted: Vec<Posted>,
    /// The number of requests that have ended.
    ended: usize,
    bytes: u64,
    unfenced: Vec<Range<u64>>,
    places: VecDeque<Landing>,
    land_at: u64,
    /// The request that failed.
    failed: Option<(usize, WcStatus)>,
    consuming: u64,

    receives_posted: u64,
    receives_ended: u64,
    messages: u64,
    expected: VecDeque<Expected>,
    recv_failed: bool,

    next_send: Instant,
    next_recv: Instant,
}

impl Stream {
    /// Creates a stream of requests from QP `qpn` of guest `from` to QP `peer_qpn` of guest `to`.
    ///
    /// XRC requests name the number of a shared queue. The receives are those of the peer's QP, or
    /// of its shared queue, which no other QP uses.
    #[allow(clippy::too_many_arguments, reason = "each end has as many")]
    pub fn new(
        world: &mut World,
        name: String,
        (from, qpn, send_cq, srqn): (usize, Qpn, CqId, Option<Srqn>),
        (to, peer_qpn, recv_cq, srq): (usize, Qpn, CqId, Option<SrqId>),
        shape: Shape,
        may_fail: MayFail,
        mut rng: Rng,
    ) -> Stream {
        let mut random = |length: u64| {
            let mut bytes = vec![0; length as usize];
            rng.fill(&mut bytes);
            bytes
        };
        let (source, shadow) = (random(shape.longest * 2), random(shape.window));
        let blank = |length: u64| vec![BLANK; length as usize];
        let local = Access::LOCAL_WRITE;
        let source = Area::new(world, from, &mut rng, Access::NONE, source);
        let landing = Area::new(world, from, &mut rng, local, blank((shape.longest * 4).max(1024)));
        let of_target = Access::REGION;
        let target = Area::new(world, to, &mut rng, of_target, shadow.clone());
        let barred = Area::new(world, to, &mut rng, local, blank(64));
        let slot = shape.longest + 64;
        let slots = Area::new(world, to, &mut rng, local, blank(slot * u64::from(shape.receives)));
        let journal = Journal::default();
        target.memory.log_to(&journal, Place::Target);
        slots.memory.log_to(&journal, Place::Slots);
        let now = world.now;
        let (next_send, next_recv) =
            (soon(&mut rng, now, shape.send_pause), soon(&mut rng, now, shape.recv_pause));
        Stream {
            name,
            from,
            to,
            qpn,
            srqn,
            peer_qpn,
            send_cq,
            recv_cq,
            srq,
            is_plain: from.max(to) >= world.guests.len(),
            shape,
            may_fail,
            rng,
            source,
            landing,
            target,
            barred,
            slots,
            slot,
            journal,
            peers: None,
            own: None,
            shadow,
            unknown: Vec::new(),
            posted: Vec::new(),
            ended: 0,
            bytes: 0,
            unfenced: Vec::new(),
            places: VecDeque::new(),
            land_at: 0,
            failed: None,
            consuming: 0,
            receives_posted: 0,
            receives_ended: 0,
            messages: 0,
            expected: VecDeque::new(),
            recv_failed: false,
            next_send,
            next_recv,
        }
    }

    fn all_posted(&self) -> bool {
        self.posted.len() as u64 >= u64::from(self.shape.requests) && self.bytes >= self.shape.bytes
    }

    fn wants_to_post(&self) -> bool {
        !self.all_posted() && self.failed.is_none()
    }

    fn has_room(&self) -> bool {
        self.posted.len() - self.ended < self.shape.depth as usize
    }

    fn wants_receives(&self) -> bool {
        let open = self.receives_posted - self.receives_ended < u64::from(self.shape.receives);
        open && !self.recv_failed && !(self.all_posted() && self.receives_posted >= self.consuming)
    }

    fn post_receive(&mut self, world: &mut World) {
        let at = self.receives_posted % u64::from(self.shape.receives) * self.slot;
        self.slots.memory.fill(at as usize..(at + self.slot) as usize, BLANK);
        let sges = self.slots.elements(&mut self.rng, at, self.shape.longest);
        let request = RecvRequest { id: self.receives_posted as u32, sges: &sges };
        let result = world.post_recv(self.to, self.peer_qpn, self.srq, request);
        assert_eq!(result, Ok(()), "{}: receive {}", self.name, self.receives_posted);
        self.receives_posted += 1;
    }
}

impl Flow for Stream {
    fn act(&mut self, world: &mut World) {
        let now = world.now;
        if self.wants_receives() && self.next_recv <= now {
            for _ in 0..self.rng.range(1..=8) {
                if self.wants_receives() {
                    self.post_receive(world);
                }
            }
            self.next_recv = soon(&mut self.rng, now, self.shape.recv_pause);
        }
        if self.wants_to_post() && self.has_room() && self.next_send <= now {
            for _ in 0..self.rng.range(1..=8) {
                if self.wants_to_post() && self.has_room() && !self.post(world) {
                    break;
                }
            }
            self.next_send = soon(&mut self.rng, now, self.shape.send_pause);
        }
    }

    fn next(&self) -> Option<Instant> {
        let send = Some(self.next_send).filter(|_| self.wants_to_post() && self.has_room());
        let recv = Some(self.next_recv).filter(|_| self.wants_receives());
        send.into_iter().chain(recv).min()
    }

    fn is_over(&self) -> bool {
        self.ended == self.posted.len() && (self.failed.is_some() || !self.wants_to_post())
    }

    fn take(&mut self, _: &World, guest: usize, cq: CqId, completion: &Completion) -> bool {
        if (guest, cq) == (self.to, self.recv_cq) && completion.qpn == self.peer_qpn {
            self.received(completion);
        } else if (guest, cq) == (self.from, self.send_cq) && completion.qpn == self.qpn {
            self.sent(completion);
        } else {
            return false;
        }
        true
    }

    fn check_end(&mut self, world: &World) {
        self.check_memory(world);
    }

    fn receives_left(&self, guest: usize) -> u64 {
        let left = self.receives_posted - self.receives_ended;
        assert!(left == 0 || self.srq.is_some(), "{}", self.name);
        if guest == self.to { left } else { 0 }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn status(&self, world: &World) -> String {
        let ends = [(self.from, self.qpn), (self.to, self.peer_qpn)];
        let [from, to] = ends.map(|(guest, qpn)| world.describe(guest, qpn));
        format!(
            "{}: {} of {} requests posted, {} ended ({:?}), {} receives posted, {} ended; requester {from}, responder {to}; {:?}",
            self.name,
            self.posted.len(),
            self.shape.requests,
            self.ended,
            self.failed,
            self.receives_posted,
            self.receives_ended,
            self.shape
        )
    }
}

/// Returns a time after `now`, by at most `pause`.
pub fn soon(rng: &mut Rng, now: Instant, pause: u64) -> Instant {
    Instant(now.0 + rng.range(0..=pause))
}
