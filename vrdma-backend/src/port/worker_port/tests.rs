use super::*;
use crate::port::pair::Pair;
use crate::port::{BURST, Burst, Cable, External, Frames, Port, Queues, Wakeup, pair};
use anyhow::{Result, ensure};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

/// Guest 1 is on worker 0. Guests 2 and 3 are on worker 1. Worker 2 has no guest.
const HOMES: [(u8, usize); 3] = [(1, 0), (2, 1), (3, 1)];

fn mac(last: u8) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0, last])
}

/// Creates the ports of three workers, and with a NIC also the port of another host.
fn ports(with_nic: bool) -> (Vec<Port>, Option<(Port, Cable)>) {
    let mut table = WorkerOf::default();
    HOMES.into_iter().for_each(|(guest, worker)| table.insert(mac(guest), worker));
    let (nic, outside) = match with_nic {
        true => {
            let (near, far, cable) = pair(1500).unwrap();
            (Some(Box::new(near) as Box<dyn Driver>), Some((Port::new(Box::new(far)), cable)))
        }
        false => (None, None),
    };
    let ports = worker_ports(3, table, 1500, nic).unwrap();
    (ports.into_iter().map(Port::of_worker).collect(), outside)
}

/// Returns a frame from one guest to another. `ff` means broadcast.
fn frame(from: u8, to: u8) -> Vec<u8> {
    let dst = if to == 0xff { Mac([0xff; 6]) } else { mac(to) };
    [&dst.0[..], &mac(from).0, &[0x08, 0x00], &[from; 46]].concat()
}

fn send(port: &mut Port, bytes: &[u8], origin: Origin) {
    let mut token = port.transmit(bytes.len()).expect("room");
    token.made_by(origin);
    token.buf()[..bytes.len()].copy_from_slice(bytes);
    token.commit(bytes.len());
    port.flush();
}

/// Returns all received frames, each with its origin.
fn take(port: &mut Port) -> Vec<(Vec<u8>, Origin)> {
    let mut burst = Burst::default();
    let mut frames = Vec::new();
    while port.receive(&mut burst) != 0 {
        frames.extend(burst.frames().iter().map(|frame| (frame.to_vec(), frame.origin())));
        port.recycle(&mut burst);
    }
    frames
}

#[test]
fn frames_go_to_the_worker_of_their_guest() {
    for with_nic in [false, true] {
        let (mut ports, outside) = ports(with_nic);
        send(&mut ports[0], &frame(1, 2), Origin::Guest);
        send(&mut ports[0], &frame(1, 3), Origin::Engine);
        send(&mut ports[1], &frame(2, 1), Origin::Engine);
        assert_eq!(take(&mut ports[1]), [(frame(1, 2), Origin::Guest), (frame(1, 3), Origin::Engine)]);
        assert_eq!(take(&mut ports[0]), [(frame(2, 1), Origin::Engine)]);
        assert_eq!(take(&mut ports[2]), []);
        assert!(outside.is_none_or(|(mut far, _)| take(&mut far).is_empty()));
    }
}

#[test]
fn frames_for_all_go_to_all_but_where_they_came_from() {
    let (mut ports, outside) = ports(true);
    let (mut far, _cable) = outside.unwrap();
    let all = frame(2, 0xff);
    send(&mut ports[1], &all, Origin::Guest);
    assert_eq!([0, 1, 2].map(|at| take(&mut ports[at]).len()), [1, 0, 1]);
    assert_eq!(take(&mut far), [(all.clone(), Origin::Wire)]);
    // A frame beyond the flood limit goes only to other hosts.
    send(&mut ports[1], &all, Origin::Flooder);
    assert_eq!([0, 1, 2].map(|at| take(&mut ports[at]).len()), [0, 0, 0]);
    assert_eq!(take(&mut far).len(), 1);
    send(&mut far, &frame(9, 0xff), Origin::Wire);
    let came = [0, 1, 2].map(|at| take(&mut ports[at]));
    // One of them is the frame, and a capture shows that one.
    let origins = [Origin::Wire, Origin::WireCopy, Origin::WireCopy];
    assert_eq!(came, origins.map(|origin| vec![(frame(9, 0xff), origin)]));
    assert_eq!(take(&mut far), []);
    // A frame with the source address of one of our guests reaches only the first worker's switch,
    // which counts it once.
    send(&mut far, &frame(2, 0xff), Origin::Wire);
    assert_eq!([0, 1, 2].map(|at| take(&mut ports[at]).len()), [1, 0, 0]);
}

#[test]
fn the_first_worker_s_nic_is_everybody_s() {
    let (mut ports, outside) = ports(true);
    let (mut far, cable) = outside.unwrap();
    for worker in [0, 1] {
        send(&mut ports[worker], &frame(worker as u8 + 1, 9), Origin::Engine);
        take(&mut ports[0]);
        assert_eq!(take(&mut far), [(frame(worker as u8 + 1, 9), Origin::Wire)]);
    }
    send(&mut far, &frame(9, 1), Origin::Wire);
    send(&mut far, &frame(9, 2), Origin::Wire);
    send(&mut far, &frame(9, 8), Origin::Wire);
    // A frame for an unknown address is left to the worker's switch.
    let own = vec![(frame(9, 1), Origin::Wire), (frame(9, 8), Origin::Wire)];
    assert_eq!(take(&mut ports[0]), own);
    assert_eq!(take(&mut ports[1]), [(frame(9, 2), Origin::Wire)]);
    let stats = ports[0].stats();
    assert_eq!((stats["frames_sent"], stats["frames_received"]), (2, 3));
    assert_eq!((stats["bytes_sent"], stats["bytes_received"]), (120, 180));
    // Without a link, guests of other workers are still reached.
    cable.plug(false);
    assert_eq!([0, 1].map(|at| ports[at].poll_link()), [Some(false); 2]);
    send(&mut ports[0], &frame(1, 9), Origin::Engine);
    send(&mut ports[1], &frame(2, 9), Origin::Engine);
    send(&mut ports[0], &frame(1, 2), Origin::Engine);
    assert_eq!((take(&mut ports[0]).len(), take(&mut ports[1]).len()), (0, 1));
    assert_eq!(ports[0].stats()["tx_link_down"], 2);
    cable.plug(true);
    assert_eq!([0, 1].map(|at| ports[at].poll_link()), [Some(true); 2]);
    send(&mut ports[1], &frame(2, 9), Origin::Engine);
    take(&mut ports[0]);
    assert_eq!(take(&mut far).len(), 1);
}

#[test]
fn a_worker_that_takes_nothing_loses_what_is_its_own_alone() {
    let (mut ports, _) = ports(false);
    for _ in 0..channel::DEPTH + 10 {
        send(&mut ports[1], &frame(2, 1), Origin::Engine);
    }
    assert!(!ports[1].way_to(mac(1)).has_room, "who can wait does");
    assert!(
        ports[1].way_to(mac(9)).has_room
            && ports[1].way_to(mac(3)).has_room
            && ports[2].way_to(mac(1)).has_room
    );
    let stats = ports[1].worker_stats();
    assert_eq!((stats["frames_sent"], stats["frames_lost"]), (channel::DEPTH as u64, 10));
    // The same worker reaches others, and other workers do too.
    send(&mut ports[1], &frame(2, 0xff), Origin::Engine);
    assert_eq!(take(&mut ports[2]).len(), 1);
    send(&mut ports[2], &frame(3, 2), Origin::Engine);
    assert_eq!(take(&mut ports[1]).len(), 1);
    assert_eq!(take(&mut ports[0]).len(), channel::DEPTH);
    assert!(ports[1].way_to(mac(1)).has_room);
    assert_eq!([1, 2, 3, 9].map(|last| ports[0].way_to(mac(last)).stays_here), [false, true, true, false]);
    send(&mut ports[1], &frame(2, 1), Origin::Engine);
    assert_eq!(take(&mut ports[0]).len(), 1);
}

#[test]
fn buffers_come_back_to_who_made_them() {
    let mut table = WorkerOf::default();
    table.insert(mac(1), 0);
    table.insert(mac(2), 1);
    let mut ends = worker_ports(2, table, 1500, None).unwrap();
    let (mut to, mut from) = (ends.remove(0), ends.remove(0));
    let mut frames = Vec::new();
    for _ in 0..100 {
        from.allocate(&mut frames);
        for each in &mut frames {
            each.room()[..60].copy_from_slice(&frame(2, 1));
            each.set_len(60);
        }
        from.send(&mut frames);
        let mut came = Vec::new();
        to.receive(&mut came);
        assert_eq!(came.len(), BURST);
        to.recycle(&mut came);
    }
    assert_eq!((from.counters.sent, from.counters.lost, to.counters.received), (6400, 0, 6400));
    assert_eq!((from.counters.buffers, to.counters.buffers), (BURST as u64, 0), "the same again and again");
}

/// A NIC with several queue pairs. Each is one end of its own cable, so the test chooses the queue.
#[derive(Debug)]
struct Several {
    queue: Pair,
    others: Vec<Pair>,
    /// The last byte of the MAC address for which it refuses a rule.
    refuses: u8,
    rules: Arc<Mutex<Vec<(Mac, usize)>>>,
}

impl Driver for Several {
    fn capabilities(&self) -> Capabilities {
        self.queue.capabilities()
    }

    fn mac(&self) -> Mac {
        self.queue.mac()
    }

    fn link(&mut self) -> bool {
        self.queue.link()
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.queue.counters(count);
    }

    fn queues(&mut self) -> Option<&mut dyn Queues> {
        Some(self)
    }
}

impl Frames for Several {
    fn receive(&mut self, frames: &mut Vec<Frame>) {
        self.queue.receive(frames);
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        self.queue.allocate(frames);
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        self.queue.send(frames);
    }

    fn attach(&mut self, frame: &mut Frame, external: External) -> bool {
        self.queue.attach(frame, external)
    }

    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        self.queue.append(frame, bytes)
    }
}

impl Wakeup for Several {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.queue.readiness()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }
}

impl Queues for Several {
    fn split(&mut self) -> Vec<Box<dyn Driver>> {
        self.others.drain(..).map(|queue| Box::new(queue) as Box<dyn Driver>).collect()
    }

    fn steer(&mut self, dst: Mac, queue: usize) -> Result<()> {
        ensure!(dst != mac(self.refuses), "no room");
        self.rules.lock().unwrap().push((dst, queue));
        Ok(())
    }
}

/// Returns the ports of three workers with a queue pair each, the other ends with their cables, and
/// the rules.
#[expect(clippy::type_complexity, reason = "of a test")]
fn queues(refuses: u8) -> (Vec<Port>, Vec<(Port, Cable)>, Vec<(Mac, usize)>) {
    let mut table = WorkerOf::default();
    HOMES.into_iter().for_each(|(guest, worker)| table.insert(mac(guest), worker));
    let (mut near, mut outside) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (end, far, cable) = pair(1500).unwrap();
        near.push(end);
        outside.push((Port::new(Box::new(far) as Box<dyn Driver>), cable));
    }
    let rules = Arc::default();
    let queue = near.remove(0);
    let nic = Several { queue, others: near, refuses, rules: Arc::clone(&rules) };
    let ports = worker_ports(3, table, 1500, Some(Box::new(nic))).unwrap();
    let ports = ports.into_iter().map(Port::of_worker).collect();
    let rules = rules.lock().unwrap().clone();
    (ports, outside, rules)
}

#[test]
fn each_worker_has_its_own_queue_of_the_nic() {
    let (mut ports, mut outside, rules) = queues(0);
    assert_eq!(rules, HOMES.map(|(guest, worker)| (mac(guest), worker)));
    assert!(ports.iter().all(|port| port.has_queue() && port.capabilities().external));
    for worker in [0, 1, 2] {
        send(&mut ports[worker], &frame(3, 9), Origin::Engine);
        let came: Vec<_> = outside.iter_mut().map(|(far, _)| take(far).len()).collect();
        assert_eq!((came[worker], came.iter().sum()), (1, 1), "by its own, and at once");
        send(&mut outside[worker].0, &frame(9, 8), Origin::Wire);
        assert_eq!(take(&mut ports[worker]), [(frame(9, 8), Origin::Wire)], "whom nobody knows");
    }
    // Frames arrive at the queue that the rules name.
    send(&mut outside[1].0, &frame(9, 2), Origin::Wire);
    assert_eq!(take(&mut ports[1]), [(frame(9, 2), Origin::Wire)]);
    let handed_over =
        |ports: &[Port]| -> Vec<u64> { ports.iter().map(|port| port.stats()["rx_handed_over"]).collect() };
    assert_eq!(handed_over(&ports), [0, 0, 0]);
    // Frames between workers do not use the NIC.
    send(&mut ports[1], &frame(2, 1), Origin::Engine);
    assert_eq!(take(&mut ports[0]), [(frame(2, 1), Origin::Engine)]);
    assert!(outside.iter_mut().all(|(far, _)| take(far).is_empty()));
    let stats = ports[0].stats();
    assert_eq!((stats["rules"], stats["rules_refused"]), (3, 0));
    let of_worker = ports[1].worker_stats();
    assert_eq!((of_worker["uplink_sent"], of_worker["uplink_received"]), (1, 2));
}

#[test]
fn what_comes_to_another_worker_s_queue_is_handed_over() {
    let (mut ports, mut outside, rules) = queues(2);
    assert_eq!(rules, [(mac(1), 0), (mac(3), 1)]);
    let stats = ports[0].stats();
    assert_eq!((stats["rules"], stats["rules_refused"]), (2, 1));
    // A frame for each guest arrives at each queue, also at its own worker's.
    for (queue, (far, _)) in outside.iter_mut().enumerate() {
        for (guest, worker) in HOMES {
            send(far, &frame(9, guest), Origin::Wire);
            assert_eq!(take(&mut ports[queue]).len(), usize::from(queue == worker));
            if queue != worker {
                assert_eq!(take(&mut ports[worker]), [(frame(9, guest), Origin::Wire)]);
            }
        }
        assert_eq!(ports[queue].stats()["rx_handed_over"], [2, 1, 3][queue]);
        // A broadcast frame reaches each worker once.
        send(far, &frame(9, 0xff), Origin::Wire);
        let mut came = vec![take(&mut ports[queue])];
        came.extend((0..3).filter(|other| *other != queue).map(|other| take(&mut ports[other])));
        let origins = [Origin::Wire, Origin::WireCopy, Origin::WireCopy];
        assert_eq!(came, origins.map(|origin| vec![(frame(9, 0xff), origin)]));
    }
    // A guest's frame goes out once, by its worker's queue.
    send(&mut ports[1], &frame(2, 0xff), Origin::Guest);
    assert_eq!([0, 1, 2].map(|at| take(&mut ports[at]).len()), [1, 0, 1]);
    assert_eq!([0, 1, 2].map(|at| take(&mut outside[at].0).len()), [0, 1, 0]);
}

#[test]
fn the_first_worker_tells_the_others_of_the_link() {
    let (mut ports, mut outside, _) = queues(0);
    outside[0].1.plug(false);
    // A worker that polls before the first worker has polled sees no change yet.
    assert_eq!(ports[1].poll_link(), None);
    assert_eq!([0, 1, 2].map(|at| ports[at].poll_link()), [Some(false); 3]);
    send(&mut ports[1], &frame(2, 9), Origin::Engine);
    send(&mut ports[1], &frame(2, 1), Origin::Engine);
    assert_eq!((take(&mut outside[1].0).len(), take(&mut ports[0]).len()), (0, 1));
    assert_eq!(ports[1].stats()["tx_link_down"], 1);
    outside[0].1.plug(true);
    assert_eq!([0, 1, 2].map(|at| ports[at].poll_link()), [Some(true); 3]);
    send(&mut ports[1], &frame(2, 9), Origin::Engine);
    assert_eq!(take(&mut outside[1].0).len(), 1);
    // Only the first worker counts it.
    assert_eq!([0, 1, 2].map(|at| ports[at].stats()["link_changes"]), [2, 0, 0]);
}

#[test]
fn a_worker_that_sleeps_is_woken_by_its_queue_and_by_others() {
    let (mut ports, mut outside, _) = queues(0);
    let is_readable = |port: &Port| {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let (fd, now) = (port.readiness().unwrap(), Timespec { tv_sec: 0, tv_nsec: 0 });
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() != 0
    };
    for by_queue in [true, false] {
        assert_eq!(ports[1].arm(), crate::port::LINK_POLL);
        assert!(!is_readable(&ports[1]));
        if by_queue {
            send(&mut outside[1].0, &frame(9, 2), Origin::Wire);
        } else {
            send(&mut outside[2].0, &frame(9, 2), Origin::Wire);
            assert!(take(&mut ports[2]).is_empty());
        }
        assert!(is_readable(&ports[1]));
        ports[1].disarm();
        assert_eq!(take(&mut ports[1]).len(), 1);
    }
}
