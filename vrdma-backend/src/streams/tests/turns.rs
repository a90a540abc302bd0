//! Tests of fairness with the host's TCP, and of the work done in one round.
//!
//! A guest with many connections has to leave enough to a guest with one.

use super::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vrdma_transport::{Fpdu, Pieces, write_fpdu};
use vrdma_wire::iwarp::num::Stag;
use vrdma_wire::iwarp::rdmap::Tagged;
use vrdma_wire::iwarp::{Framing, Segment, StreamOffset};

/// Entries, deadlines and ends that are handled in one round.
pub(super) const TOGETHER: usize = 32;

/// Returns RDMA WRITEs without data, of at most this many bytes. A QP takes all of them.
pub(super) fn writes(bytes: usize) -> Vec<u8> {
    let to = Tagged { stag: Stag(0), offset: 0, last: true };
    let framing = Framing { markers: false, crc: true };
    let fpdu = Fpdu { framing, place: StreamOffset::START, segment: Some(Segment::Write(to)) };
    let mut one = vec![0; fpdu.len(0)];
    write_fpdu(&fpdu, &Pieces::<MrMemory>::bytes(b""), &mut one).unwrap();
    one.repeat(bytes / one.len())
}

/// A peer that always has data in flight.
struct Pusher {
    peer: TcpStream,
    block: Vec<u8>,
    written: usize,
}

impl Pusher {
    fn new(peer: TcpStream) -> Pusher {
        peer.set_nonblocking(true).unwrap();
        Pusher { peer, block: writes(1 << 20), written: 0 }
    }

    fn push(&mut self) {
        while let Ok(count) = self.peer.write(&self.block[self.written % self.block.len()..]) {
            self.written += count;
        }
    }
}

impl Bench {
    pub(super) fn turn(&mut self) -> bool {
        self.with(|streams, host| {
            streams.woken();
            let busy = streams.turn(host);
            streams.flush(host);
            busy
        })
    }

    /// Runs rounds until there is no work. Returns how many had work.
    ///
    /// The worker would sleep then, until something comes or is due.
    pub(super) fn busy_turns(&mut self) -> usize {
        for count in 0..10_000 {
            if !self.turn() {
                return count;
            }
        }
        panic!("there is no end of it");
    }

    /// Requests connections as peers. Returns the listener, the numbers, and the peers in another
    /// order.
    fn many_requested(
        &mut self,
        device: DeviceId,
        count: usize,
    ) -> (ListenerId, Vec<ConnectionId>, Vec<TcpStream>) {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let (listener, at) = self.listen(device, count);
        let (mut numbers, mut peers) = (Vec::new(), Vec::new());
        while numbers.len() < count {
            peers.extend((0..TOGETHER.min(count - peers.len())).map(|_| ask(at)));
            self.behind.pass();
            for _ in 0..10_000 {
                self.turn();
                let asked = std::iter::from_fn(|| self.streams.next_event(device));
                numbers.extend(asked.map(|event| event.connection));
                if numbers.len() == peers.len() {
                    break;
                }
            }
            assert_eq!(numbers.len(), peers.len(), "each was asked for");
        }
        (listener, numbers, peers)
    }

    /// Opens connections of QPs of this guest. Returns the peers. The guest has nothing else.
    pub(super) fn many(&mut self, device: DeviceId, count: usize) -> Vec<TcpStream> {
        let (listener, numbers, mut peers) = self.many_requested(device, count);
        for number in numbers {
            let qpn = self.qp(device);
            self.accept(device, number, qpn).unwrap();
        }
        self.with(|streams, host| streams.close_listener(device, listener, host)).unwrap();
        self.told(device);
        for peer in &mut peers {
            // Short data does not wait for an acknowledgement.
            peer.set_nodelay(true).unwrap();
            peer.read_exact(&mut [0; 24]).unwrap();
        }
        self.busy_turns();
        peers
    }

    /// Pauses the guest, or lets it continue.
    pub(super) fn suspend(&mut self, device: DeviceId, is_suspended: bool) {
        self.engine.set_suspended(device, is_suspended);
        self.streams.set_suspended(device, is_suspended);
    }

    /// Returns the number of a guest's connections whose QP has failed.
    fn failed(&mut self, device: DeviceId) -> usize {
        let mut failed = 0;
        for handle in self.streams.guest(device).entries.clone() {
            let connection = self.streams.table.connection(handle).unwrap();
            let qpn = connection.bound.qpn();
            failed += usize::from(qpn.is_none_or(|qpn| self.state(device, qpn) == QpState::Err));
        }
        failed
    }

    /// Returns the bytes that were taken from each guest's peers.
    pub(super) fn moved(&self) -> [usize; 2] {
        [A, B].map(|device| self.streams.ready.moved(device) as usize)
    }

    /// Runs rounds in which a peer of B always has data. Returns the bytes that both guests moved.
    fn share(&mut self, pusher: &mut Pusher, turns: usize) -> [usize; 2] {
        let before = self.moved();
        for _ in 0..turns {
            pusher.push();
            self.turn();
        }
        let after = self.moved();
        [after[0] - before[0], after[1] - before[1]]
    }
}

/// Whether each of two has 40 to 60 % of the sum.
pub(super) fn is_fair([a, b]: [usize; 2]) -> bool {
    let all = a + b;
    (all * 4..=all * 6).contains(&(a * 10))
}

#[test]
fn a_guest_with_a_thousand_connections_has_the_bytes_of_one_with_one() {
    let mut bench = Bench::new(1100);
    let mut peers = bench.many(A, 1024);
    let mut pusher = Pusher::new(bench.open(B).2);
    let before = bench.moved();
    let block = writes(8 << 10);
    peers.iter_mut().for_each(|peer| peer.write_all(&block).unwrap());
    let had = bench.share(&mut pusher, 64);
    assert!(had[0] + had[1] > 4 << 20 && is_fair(had), "{had:?}");
    // They were charged for all bytes of their peers, and for nothing else.
    bench.turns();
    bench.busy_turns();
    let all = [0, 1].map(|guest| bench.moved()[guest] - before[guest]);
    assert_eq!(all, [1024 * block.len(), pusher.written]);
    assert_eq!([A, B].map(|device| bench.failed(device)), [0, 0]);
}

#[test]
fn a_thousand_stalled_connections_leave_another_guest_its_bytes() {
    let mut bench = Bench::new(1100);
    let mut peers = bench.many(A, 1024);
    let mut pusher = Pusher::new(bench.open(B).2);
    // The engine takes nothing.
    bench.engine.set_suspended(A, true);
    peers.iter_mut().for_each(|peer| peer.write_all(&[0; 100]).unwrap());
    bench.share(&mut pusher, 64);
    assert_eq!(bench.streams.ready.len_of(A), 1024);
    let [_, of_one] = bench.share(&mut pusher, 64);
    assert_eq!(bench.streams.ready.len_of(A), 1024);
    assert!(of_one >= 64 * (48 << 10), "{of_one}");
    // Each is offered once before the worker sleeps, and once after it.
    drop(pusher);
    bench.turns();
    bench.busy_turns();
    assert!(bench.streams.has_waiting() && !bench.turn());
    bench.engine.set_suspended(A, false);
    bench.streams.slept();
    assert!(bench.busy_turns() >= 1024 / TOGETHER - 1);
    assert_eq!((bench.failed(A), bench.streams.ready.len_of(A)), (1024, 0));
    assert!(!bench.streams.has_waiting());
}

#[test]
fn who_ends_with_others_waiting_leaves_them_their_turns_and_nothing_of_its_own() {
    let mut bench = Bench::new(1100);
    let mut peers = bench.many(A, 200);
    let mut of_b = bench.many(B, 40);
    let block = writes(8 << 10);
    peers.iter_mut().chain(&mut of_b).for_each(|peer| peer.write_all(&block).unwrap());
    let before = bench.moved()[1];
    assert!([A, B].into_iter().all(|device| bench.streams.guest(device).is_watched()));
    bench.turn();
    assert!(bench.streams.ready.len_of(A) > 0);
    bench.with(|streams, _| streams.forget(A));
    assert_eq!(bench.streams.ready.len_of(A), 0);
    bench.turns();
    bench.busy_turns();
    assert_eq!(bench.moved()[1] - before, 40 * block.len());
    assert_eq!(bench.failed(B), 0);
    // The connection that waits first is released, too.
    bench.engine.set_suspended(B, true);
    of_b.iter_mut().for_each(|peer| peer.write_all(&[0; 100]).unwrap());
    bench.turns();
    assert_eq!(bench.streams.ready.len_of(B), 40);
    let numbers: Vec<_> = bench.streams.guest(B).entries.iter().map(|handle| handle.number).collect();
    numbers.into_iter().for_each(|number| bench.release(B, ConnectionId(number)));
    bench.turns();
    assert_eq!((bench.streams.ready.len_of(B), bench.streams.has_waiting()), (0, false));
    // A guest without connections holds no descriptor.
    assert!([A, B].into_iter().all(|device| !bench.streams.guest(device).is_watched()));
}

/// Returns how many peers see that their connection has ended.
fn ended(peers: &mut [TcpStream]) -> usize {
    peers.iter_mut().filter_map(end_of).count()
}

#[test]
fn who_goes_on_is_served_by_turns() {
    let mut bench = Bench::new(1100);
    let mut peers = bench.many(A, 1024);
    bench.suspend(A, true);
    // Zeros are not an FPDU.
    peers.iter_mut().for_each(|peer| peer.write_all(&[0; 100]).unwrap());
    bench.busy_turns();
    assert!(!bench.streams.has_waiting());
    bench.suspend(A, false);
    assert_eq!((bench.failed(A), bench.streams.has_waiting()), (0, true));
    for turn in 1..=1024 / TOGETHER {
        assert!(bench.turn());
        assert_eq!(bench.failed(A), turn * TOGETHER);
    }
}

#[test]
fn a_guest_that_is_reset_has_its_connections_closed_by_turns() {
    let mut bench = Bench::new(1024);
    let mut peers = bench.many(A, 1023);
    bench.streams.forget(A);
    // Each is a descriptor until it is closed.
    let left = 1023 - TOGETHER;
    assert_eq!((bench.streams.count(A), ended(&mut peers)), (left as u32, TOGETHER));
    assert!(bench.streams.has_waiting() && bench.turn());
    assert_eq!(ended(&mut peers), 2 * TOGETHER);
    assert_eq!(bench.busy_turns(), left.div_ceil(TOGETHER) - 2);
    assert_eq!((bench.streams.count(A), ended(&mut peers)), (0, 1023));
    assert!(!bench.streams.has_waiting());
    bench.many(A, 2);
}

#[test]
fn deadlines_that_are_due_together_have_their_turns() {
    let mut bench = Bench::new(1100);
    let (_, _, mut peers) = bench.many_requested(A, 1023);
    bench.now = bench.now + ANSWER_TIME;
    assert!(bench.turn());
    assert_eq!(ended(&mut peers), TOGETHER);
    assert!(bench.streams.next_deadline().is_some_and(|at| at <= bench.now));
    assert!(bench.busy_turns() >= 1023 / TOGETHER - 1);
    assert_eq!(ended(&mut peers), 1023);
    assert!(bench.streams.next_deadline().is_none_or(|at| at > bench.now));
}
