//! The order of commands and requests, as their guest knows it.
//!
//! Requests posted before a command are taken before it, through any channel. A command takes
//! effect before its answer, for requests through any channel and of any guest.
//!
//! Other pairs are tested elsewhere: a receive before a send in `order.rs`, and a CQ that is armed
//! before a completion in `events.rs` and `late_stores.rs`.

use std::ops::Range;
use vrdma_tests::abi::control::{CreateSrqReq, ModifySrqReq, QpState, QpType, access, limit, srq_attr};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::context::BoundChannel;
use vrdma_tests::cq::Wc;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Remote, Request, UdTarget};
use vrdma_tests::{Context, Lab, Mr, Qp, QpOptions, Rng, connect};

/// Rounds of a short test.
///
/// A long test has [`LONG`] rounds. A hundred thousand rounds of each would exceed the half hour of
/// the long tests.
const ROUNDS: u32 = 500;
const LONG: u32 = 10_000;
/// Most requests of a round before its command. Further requests have numbers from here on.
const MOST: u32 = 32;
/// Numbers of requests reserved for each round.
const NUMBERS: u32 = MOST + 2;

/// The location of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Peer {
    /// Another context of the guest.
    Context,
    /// Another guest.
    Guest,
}

/// The channel that requests come through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The channel of the QP's process.
    Own,
    /// The channel of the guest's kernel.
    Kernel,
}

struct Litmus {
    lab: Lab,
    rng: Rng,
    /// The side whose QP is modified and destroyed, and whose channel is unbound, by its guest's
    /// kernel.
    a: Side,
    kernel: Context,
    b: Side,
    /// Processes of that guest that keep the worker busy in other channels.
    busy: Vec<Side>,
    round: u32,
    /// Whether the peer is on another worker.
    has_wire: bool,
}

/// The requests that a round has posted to `a`: sends and receives, each in order of their numbers.
struct Posted {
    sends: u32,
    receives: u32,
    /// The channels of the sends and of the receives.
    ways: [Way; 2],
    /// Sends that can be executed: those before the first one without a receive.
    can_end: u32,
}

impl Litmus {
    fn new(test: &str, service: QpType, peer: Peer) -> Litmus {
        let lab = Lab::new(2);
        let options = QpOptions::of(service);
        let guest = &lab.guests[0];
        let a = Side::new(guest, 4096, &options);
        let busy = (0..4).map(|_| Side::looped(guest, 4096)).collect();
        let b = Side::new(&lab.guests[usize::from(peer == Peer::Guest)], 4096, &options);
        let kernel = Context::kernel(guest).unwrap();
        let has_wire = peer == Peer::Guest && lab.are_apart(0, 1);
        Litmus { rng: Rng::from_env(test), a, kernel, b, busy, round: 0, has_wire, lab }
    }

    fn way(&mut self) -> Way {
        *self.rng.pick(&[Way::Own, Way::Kernel])
    }

    /// Returns the number of request `index` of this round.
    fn number(&self, index: u32) -> u32 {
        self.round * NUMBERS + index
    }

    fn numbers(&self, count: u32) -> Range<u32> {
        self.number(0)..self.number(count)
    }

    fn post(&mut self, way: Way, request: &Request<'_>) {
        match way {
            Way::Own => self.a.post(request),
            Way::Kernel => self.kernel.post(request),
        }
    }

    fn receive(&mut self, qp: &Qp, way: Way, index: u32) {
        let sge = [self.a.mr.sge(0, 64)];
        self.post(way, &Request::recv(qp.tag(self.number(index)), &sge));
    }

    /// Returns the word of the peer's memory for a request, and the value to write there.
    fn word(&self, index: u32) -> (Remote, [u8; 8]) {
        (self.b.mr.remote(8 * u64::from(index)), u64::from(self.number(index)).to_ne_bytes())
    }

    fn write(&mut self, qp: &Qp, way: Way, index: u32) {
        let (remote, bytes) = self.word(index);
        let tag = qp.tag(self.number(index));
        self.post(way, &Request::write(tag, remote, Data::Inline(&bytes)).signaled(true));
    }

    /// Asserts that the first `count` sends have been executed.
    fn expect_words(&self, count: u32) {
        for index in 0..count {
            let (_, bytes) = self.word(index);
            assert_eq!(self.b.mr.get(8 * u64::from(index), 8), bytes, "round {}, send {index}", self.round);
        }
    }

    /// Gives the worker work in other channels, half of the time.
    fn disturb(&mut self) {
        if self.rng.one_in(2) {
            return;
        }
        for side in &mut self.busy {
            let remote = side.mr.remote(0);
            for _ in 0..self.rng.below(128) {
                side.post(&Request::write(side.qp.tag(0), remote, Data::Inline(&[1; 8])));
            }
        }
    }

    /// Lets a little time pass, or none.
    fn pause(&mut self) {
        let most = *self.rng.pick(&[1, 100, 10_000]);
        (0..self.rng.below(most)).for_each(|_| std::hint::spin_loop());
    }

    /// Posts WRITEs and receives to `qp`.
    ///
    /// With `stuck` there is sometimes a SEND among them that has to wait for the peer's receive.
    fn post_some(&mut self, qp: &Qp, stuck: bool) -> Posted {
        let mut posted = Posted { sends: 0, receives: 0, ways: [self.way(), self.way()], can_end: 0 };
        self.disturb();
        for _ in 0..=self.rng.below(MOST.into()) {
            if self.rng.one_in(2) {
                self.receive(qp, posted.ways[1], posted.receives);
                posted.receives += 1;
                continue;
            }
            let is_free = posted.can_end == posted.sends;
            if stuck && is_free && self.rng.one_in(16) {
                let tag = qp.tag(self.number(posted.sends));
                self.post(posted.ways[0], &Request::send(tag, Data::EMPTY).signaled(true));
            } else {
                self.write(qp, posted.ways[0], posted.sends);
                posted.can_end += u32::from(is_free);
            }
            posted.sends += 1;
        }
        self.pause();
        posted
    }

    /// Returns the completions of sends and of receives that are in the CQ.
    fn completions(&mut self) -> (Vec<Wc>, Vec<Wc>) {
        let all = std::iter::from_fn(|| self.a.cq.poll());
        all.partition(|wc| !wc.is_recv())
    }

    /// Returns how many of `count` unobstructed requests have succeeded.
    ///
    /// All of them have, unless the peer is on another worker. Then requests may still be in
    /// flight, and those that were acknowledged have completed: the first ones.
    #[track_caller]
    fn ended(&self, found: &[Wc], count: u32) -> u32 {
        let ended = found.iter().filter(|wc| is_success(wc)).count() as u32;
        assert!(
            if self.has_wire { ended <= count } else { ended == count },
            "round {}: {found:?}",
            self.round
        );
        ended
    }

    /// Asserts that these completions are those of this round's first requests, in order.
    #[track_caller]
    fn expect_first(&self, found: &[Wc], count: u32) {
        assert!(found.iter().map(Wc::id).eq(self.numbers(count)), "round {}: {found:?}", self.round);
    }

    /// Posts a receive and a send, and asserts that these complete next, with `status`.
    fn expect_last(&mut self, qp: &Qp, [sends, receives]: [Way; 2], status: WcStatus) {
        self.receive(qp, receives, MOST);
        self.write(qp, sends, MOST + 1);
        let mut ended = [self.a.cq.wait(), self.a.cq.wait()];
        ended.sort_by_key(Wc::id);
        let found = ended.map(|wc| (wc.id(), wc.status()));
        assert_eq!(found, [MOST, MOST + 1].map(|index| (self.number(index), status)), "round {}", self.round);
    }

    fn reset_both(&self) {
        for qp in [&self.a.qp, &self.b.qp] {
            qp.to_state(QpState::RESET).unwrap();
        }
    }
}

fn is_success(wc: &Wc) -> bool {
    wc.status() == WcStatus::SUCCESS
}

/// After the answer to `MODIFY_QP` to ERR, all requests posted earlier have completed, in order.
///
/// None of them completes later.
fn posted_then_error(peer: Peer, rounds: u32) {
    let mut litmus = Litmus::new("posted_then_error", QpType::RC, peer);
    let qp = litmus.a.qp.clone();
    for round in 0..rounds {
        litmus.round = round;
        connect(&qp, &litmus.b.qp);
        let posted = litmus.post_some(&qp, true);
        qp.to_state(QpState::ERR).unwrap();
        let (sends, receives) = litmus.completions();
        litmus.expect_first(&sends, posted.sends);
        litmus.expect_first(&receives, posted.receives);
        let ended = litmus.ended(&sends, posted.can_end);
        let (done, flushed) = sends.split_at(ended as usize);
        assert!(done.iter().all(is_success), "round {round}: {done:?}");
        let is_flush = |wc: &Wc| wc.status() == WcStatus::WR_FLUSH_ERR;
        assert!(flushed.iter().chain(&receives).all(is_flush), "round {round}: {flushed:?} {receives:?}");
        litmus.expect_words(ended);
        litmus.expect_last(&qp, posted.ways, WcStatus::WR_FLUSH_ERR);
        litmus.reset_both();
    }
}

/// After the answer to `MODIFY_QP` to RESET, no request posted earlier completes any more.
///
/// None affects the QP after it is connected again.
fn posted_then_reset(peer: Peer, rounds: u32) {
    let mut litmus = Litmus::new("posted_then_reset", QpType::RC, peer);
    let qp = litmus.a.qp.clone();
    for round in 0..rounds {
        litmus.round = round;
        connect(&qp, &litmus.b.qp);
        let posted = litmus.post_some(&qp, true);
        litmus.reset_both();
        let (sends, receives) = litmus.completions();
        litmus.expect_first(&sends, litmus.ended(&sends, posted.can_end));
        assert!(sends.iter().all(is_success) && receives.is_empty(), "round {round}: {sends:?} {receives:?}");
        connect(&qp, &litmus.b.qp);
        let to_a = Request::send(litmus.b.qp.tag(round), Data::EMPTY).signaled(true);
        litmus.b.post(&to_a);
        litmus.expect_last(&qp, posted.ways, WcStatus::SUCCESS);
        litmus.b.cq.expect(litmus.b.qp.number, round, WcStatus::SUCCESS);
        litmus.reset_both();
    }
    expect_none_untimely(&litmus);
}

/// Asserts that no request found its QP destroyed, or in a state that takes no requests.
fn expect_none_untimely(litmus: &Litmus) {
    let stats = litmus.lab.stats();
    assert_eq!((stats.device(0, "stray_requests"), stats.device(0, "untimely_requests")), (0, 0));
}

/// After the answer to `DESTROY_QP`, requests posted earlier have completed as they would have
/// without it.
fn posted_then_destroyed(peer: Peer, rounds: u32) {
    let mut litmus = Litmus::new("posted_then_destroyed", QpType::RC, peer);
    for round in 0..rounds {
        litmus.round = round;
        let qp = litmus.a.process.qp(&litmus.a.cq, &litmus.a.cq, &litmus.a.qp.options);
        connect(&qp, &litmus.b.qp);
        let posted = litmus.post_some(&qp, false);
        qp.destroy().unwrap();
        let (sends, receives) = litmus.completions();
        let ended = litmus.ended(&sends, posted.sends);
        litmus.expect_first(&sends, ended);
        assert!(sends.iter().all(is_success) && receives.is_empty(), "round {round}: {sends:?} {receives:?}");
        litmus.expect_words(ended);
        litmus.b.qp.to_state(QpState::RESET).unwrap();
    }
    expect_none_untimely(&litmus);
}

/// After the answer to `UNBIND_CHANNEL`, the channel's requests have been taken.
fn posted_then_unbound(peer: Peer, rounds: u32) {
    let mut litmus = Litmus::new("posted_then_unbound", QpType::RC, peer);
    let qp = litmus.a.qp.clone();
    for round in 0..rounds {
        litmus.round = round;
        connect(&qp, &litmus.b.qp);
        let posted = litmus.post_some(&qp, false);
        // Receives that came through another channel may still be there.
        rebind(if posted.ways[0] == Way::Own { &mut litmus.a.process } else { &mut litmus.kernel });
        let (mut sends, receives) = litmus.completions();
        litmus.ended(&sends, posted.sends);
        if litmus.has_wire {
            // Requests that were taken complete when they are acknowledged, even without their
            // channel.
            sends.extend((sends.len() as u32..posted.sends).map(|_| litmus.a.cq.wait()));
        }
        litmus.expect_first(&sends, posted.sends);
        assert!(sends.iter().all(is_success) && receives.is_empty(), "round {round}: {sends:?} {receives:?}");
        litmus.expect_words(posted.sends);
        // The QP is not affected.
        litmus.write(&qp, posted.ways[0], MOST);
        litmus.a.cq.expect(qp.number, litmus.number(MOST), WcStatus::SUCCESS);
        litmus.reset_both();
    }
}

/// After the answer to `MODIFY_SRQ`, the SRQ has the receives posted earlier.
///
/// A limit of that number is therefore armed and not reached. After the answer to `DESTROY_SRQ`, no
/// receive is in flight to the SRQ.
fn posted_then_shared_queue_changed(rounds: u32) {
    let mut litmus = Litmus::new("posted_then_shared_queue_changed", QpType::RC, Peer::Context);
    let guest = litmus.a.guest().clone();
    for round in 0..rounds {
        litmus.round = round;
        let process = &litmus.a.process;
        let none = limit::NONE.into();
        let srqn = guest.create_srq(&CreateSrqReq {
            context: process.number.into(),
            pdn: process.pd.into(),
            max_wr: (2 * MOST).into(),
            max_sge: 1.into(),
            xrcdn: none,
            cqn: none,
        });
        let srqn = srqn.unwrap();
        let mut posted = 0;
        for is_last in [false, true] {
            litmus.disturb();
            let (way, count) = (litmus.way(), litmus.rng.below(MOST.into()) as u32 + 1);
            for index in 0..count {
                let sge = [litmus.a.mr.sge(0, 64)];
                litmus.post(way, &Request::srq_recv(srqn, litmus.number(index), &sge));
            }
            litmus.pause();
            posted += count;
            if !is_last {
                let (max_wr, mask, limit) = (0.into(), srq_attr::LIMIT.into(), posted.into());
                guest.modify_srq(&ModifySrqReq { srqn: srqn.into(), mask, max_wr, limit }).unwrap();
                let armed = guest.query_srq(srqn).unwrap().limit.get();
                assert_eq!(armed, posted, "round {round}: as many as the limit were there");
            }
        }
        guest.destroy_srq(srqn).unwrap();
    }
    expect_none_untimely(&litmus);
}

/// Unbinds a context's channel, and binds another one on the same virtqueue.
fn rebind(context: &mut Context) {
    let (guest, channel) = (context.guest.clone(), &mut context.channel);
    guest.unbind_channel(channel.queue).unwrap();
    guest.memory.free(channel.slots, 64 * u64::from(channel.ring.size));
    *channel = BoundChannel::bind(&guest, context.number, channel.queue).unwrap();
}

/// A key is valid for peers after the answer to `REG_MR`, and invalid after that to `DEREG_MR`.
///
/// This holds for requests through any channel.
fn remote_key(peer: Peer, rounds: u32) {
    let mut litmus = Litmus::new("remote_key", QpType::RC, peer);
    let (qp, there) = (litmus.a.qp.clone(), litmus.b.guest().clone());
    let page = there.memory.alloc(4096);
    connect(&qp, &litmus.b.qp);
    for round in 0..rounds {
        litmus.round = round;
        let way = litmus.way();
        litmus.disturb();
        let pd = litmus.b.process.pd;
        let mr = Mr::register_runs(&there, pd, access::ALL, page, &[(page, 4096)]).unwrap();
        let write = |litmus: &mut Litmus, index: u32, status| {
            let (tag, bytes) = (qp.tag(litmus.number(index)), litmus.number(index).to_ne_bytes());
            let data = Data::Inline(&bytes);
            litmus.post(way, &Request::write(tag, mr.remote(0), data).signaled(true));
            litmus.a.cq.expect(qp.number, litmus.number(index), status);
        };
        write(&mut litmus, 0, WcStatus::SUCCESS);
        litmus.disturb();
        litmus.pause();
        mr.deregister().unwrap();
        write(&mut litmus, 1, WcStatus::REM_ACCESS_ERR);
        assert_eq!(there.memory.bytes(page, 4), litmus.number(0).to_ne_bytes(), "round {round}");
        litmus.reset_both();
        connect(&qp, &litmus.b.qp);
    }
}

/// A key for local data is valid after the answer to `REG_MR`, and invalid after that to
/// `DEREG_MR`.
///
/// Here the request's own data is in that region, and nobody but the requester is involved.
fn local_key(peer: Peer, rounds: u32) {
    let mut litmus = Litmus::new("local_key", QpType::RC, peer);
    let (qp, here) = (litmus.a.qp.clone(), litmus.a.guest().clone());
    let page = here.memory.alloc(4096);
    connect(&qp, &litmus.b.qp);
    for round in 0..rounds {
        litmus.round = round;
        let way = litmus.way();
        litmus.disturb();
        let pd = litmus.a.process.pd;
        let mr = Mr::register_runs(&here, pd, access::ALL, page, &[(page, 4096)]).unwrap();
        let (data, remote) = ([mr.sge(0, 8)], litmus.b.mr.remote(0));
        for (index, status) in [(0, WcStatus::SUCCESS), (1, WcStatus::LOC_PROT_ERR)] {
            let number = litmus.number(index);
            litmus.post(way, &Request::write(qp.tag(number), remote, Data::Sges(&data)).signaled(true));
            litmus.a.cq.expect(qp.number, number, status);
            if index == 0 {
                litmus.disturb();
                litmus.pause();
                mr.deregister().unwrap();
            }
        }
        litmus.reset_both();
        connect(&qp, &litmus.b.qp);
    }
}

/// A datagram uses its address handle as it is when posted, through any channel.
///
/// It goes nowhere once the handle is destroyed.
fn address_handle_then_send(rounds: u32) {
    let mut litmus = Litmus::new("address_handle_then_send", QpType::UD, Peer::Guest);
    let handles = AhTable::new(&litmus.lab.guests[0], 4).unwrap();
    let near = Side::new(&litmus.lab.guests[0], 4096, &litmus.a.qp.options);
    let qp = litmus.a.qp.clone();
    let mut receivers = [near, Side::new(&litmus.lab.guests[1], 4096, &qp.options)];
    for qp in [&qp, &receivers[0].qp, &receivers[1].qp] {
        qp.start().unwrap();
    }
    for round in 0..rounds {
        litmus.round = round;
        let (way, index) = (litmus.way(), litmus.rng.below(4) as u32);
        let to = litmus.rng.below(2) as usize;
        receivers[to].recv_any(round);
        litmus.disturb();
        litmus.pause();
        handles.put(index, &entry(litmus.a.process.pd, receivers[to].guest().gid()));
        let target = UdTarget { ah: index, qpn: receivers[to].qp.number, qkey: qp.options.qkey };
        for (number, status) in [(0, WcStatus::SUCCESS), (1, WcStatus::LOC_QP_OP_ERR)] {
            let number = litmus.number(number);
            litmus.post(way, &Request::ud_send(qp.tag(number), target, Data::EMPTY).signaled(true));
            litmus.a.cq.expect(qp.number, number, status);
            // Datagrams sent earlier are not lost with the handle.
            handles.remove(index);
        }
        receivers[to].cq.expect(receivers[to].qp.number, round, WcStatus::SUCCESS);
        qp.to_state(QpState::RESET).unwrap();
        qp.start().unwrap();
    }
    for guest in 0..2 {
        assert_eq!(litmus.lab.transport(guest, "drop_no_receive"), 0, "guest {guest}");
    }
}

/// Defines a test for each function, and its long form.
macro_rules! litmus_tests {
    ($($name:ident, $long:ident: $run:ident($($peer:expr)?);)+) => {$(
        #[test]
        fn $name() {
            $run($($peer,)? ROUNDS);
        }

        #[test]
        #[ignore = "long"]
        fn $long() {
            $run($($peer,)? LONG);
        }
    )+};
}

litmus_tests! {
    error_context, error_context_10000_times: posted_then_error(Peer::Context);
    error_guest, error_guest_10000_times: posted_then_error(Peer::Guest);
    reset_context, reset_context_10000_times: posted_then_reset(Peer::Context);
    reset_guest, reset_guest_10000_times: posted_then_reset(Peer::Guest);
    destroy_context, destroy_context_10000_times: posted_then_destroyed(Peer::Context);
    destroy_guest, destroy_guest_10000_times: posted_then_destroyed(Peer::Guest);
    unbind_context, unbind_context_10000_times: posted_then_unbound(Peer::Context);
    unbind_guest, unbind_guest_10000_times: posted_then_unbound(Peer::Guest);
    remote_key_context, remote_key_context_10000_times: remote_key(Peer::Context);
    remote_key_guest, remote_key_guest_10000_times: remote_key(Peer::Guest);
    local_key_context, local_key_context_10000_times: local_key(Peer::Context);
    local_key_guest, local_key_guest_10000_times: local_key(Peer::Guest);
    address_handle, address_handle_10000_times: address_handle_then_send();
    shared_queue, shared_queue_10000_times: posted_then_shared_queue_changed();
}
