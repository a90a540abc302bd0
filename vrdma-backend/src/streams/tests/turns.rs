//! How much is done in one turn for a guest with many connections of the host's TCP.

use super::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Entries, deadlines and ends that have their turn together.
pub(super) const TOGETHER: usize = 32;

impl Bench {
    pub(super) fn turn(&mut self) -> bool {
        self.with(|streams, host| {
            streams.woken();
            let busy = streams.turn(host);
            streams.flush(host);
            busy
        })
    }

    /// Turns until none has anything to do; how many had. The worker sleeps then, until something comes or is due.
    pub(super) fn busy_turns(&mut self) -> usize {
        for count in 0..10_000 {
            if !self.turn() {
                return count;
            }
        }
        panic!("there is no end of it");
    }

    /// Connections that peers asked for, with their numbers, which are of no particular peer; and their listener.
    fn many_requested(&mut self, device: DeviceId, count: usize) -> (u32, Vec<u32>, Vec<TcpStream>) {
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

    /// Connections of QPs of this guest, as their peers have them. It has nothing else.
    pub(super) fn many(&mut self, device: DeviceId, count: usize) -> Vec<TcpStream> {
        let (listener, numbers, mut peers) = self.many_requested(device, count);
        for number in numbers {
            let qpn = self.qp(device);
            self.accept(device, number, qpn).unwrap();
        }
        self.with(|streams, host| streams.close_listener(device, listener, host)).unwrap();
        self.told(device);
        for peer in &mut peers {
            // What is short does not wait for an acknowledgement.
            peer.set_nodelay(true).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            peer.read_exact(&mut [0; 24]).unwrap();
        }
        self.busy_turns();
        peers
    }
}

/// How many peers see that their connection has ended.
fn ended(peers: &mut [TcpStream]) -> usize {
    peers.iter_mut().filter_map(end_of).count()
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
