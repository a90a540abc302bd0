//! A switch with a queue before the port of each receiving host.
//!
//! A port sends at a rate. Frames that find no room in its queue are dropped. Others are marked as
//! having met congestion, the more of them the longer the queue is.

use crate::rng::Rng;
use std::collections::BTreeMap;
use vrdma_transport::Instant;
use vrdma_wire::ecn;
use vrdma_wire::num::Mac;

/// The queue before a port.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Picoseconds that a byte takes to leave. It is not 0.
    pub pace: u64,
    /// The number of bytes for which there is room, with those of the frame that is leaving.
    pub room: u64,
    /// The number of waiting bytes below which no frame is marked.
    pub ecn_min: u64,
    /// The number of waiting bytes from which on all frames are marked whose ends understand it.
    ///
    /// Between the two, the probability is linear in the number of bytes.
    pub ecn_max: u64,
}

/// What a switch saw in a millisecond.
#[derive(Clone, Debug, Default)]
pub struct Millisecond {
    /// Frames that found no room.
    pub dropped: u64,
    /// The longest time that a frame waited, in nanoseconds.
    pub longest_wait: u64,
    /// Bytes of frames that were taken, by the address of the sender.
    pub bytes: BTreeMap<[u8; 6], u64>,
}

pub struct Switch {
    queue: Queue,
    /// The port that leads to each address.
    ports: Vec<(Mac, usize)>,
    /// When each port will have sent everything that waits, in picoseconds.
    idle: Vec<u64>,
    rng: Rng,
    /// The number of frames that found no room.
    pub dropped: u64,
    /// The number of frames that were marked.
    pub marked: u64,
    /// What it saw, by the millisecond of the simulation.
    pub seen: BTreeMap<u64, Millisecond>,
}

impl Switch {
    /// Creates a switch with the ports of these addresses.
    pub fn new(queue: Queue, ports: Vec<(Mac, usize)>, rng: Rng) -> Switch {
        assert!(queue.pace > 0 && queue.ecn_min <= queue.ecn_max);
        let count = ports.iter().map(|(_, port)| port + 1).max().unwrap_or(0);
        Switch { queue, ports, idle: vec![0; count], rng, dropped: 0, marked: 0, seen: BTreeMap::new() }
    }

    /// Takes a frame. Returns when the last byte has left; `None` if the frame goes nowhere.
    pub fn take(&mut self, now: Instant, frame: &mut [u8]) -> Option<Instant> {
        let Queue { pace, room, ecn_min, ecn_max } = self.queue;
        let &(_, port) = self.ports.iter().find(|(mac, _)| frame[..6] == mac.0)?;
        let (now, length) = (now.0 * 1000, frame.len() as u64);
        let waiting = self.idle[port].saturating_sub(now).div_ceil(pace);
        let seen = self.seen.entry(now / 1_000_000_000).or_default();
        if waiting + length > room {
            self.dropped += 1;
            seen.dropped += 1;
            return None;
        }
        seen.longest_wait = seen.longest_wait.max(waiting * pace / 1000);
        let source = frame[6..12].try_into().expect("six bytes are six");
        *seen.bytes.entry(source).or_default() += length;
        let is_marked = match waiting {
            _ if waiting < ecn_min => false,
            _ if waiting >= ecn_max => true,
            _ => self.rng.range(0..=ecn_max - ecn_min - 1) < waiting - ecn_min,
        };
        self.marked += u64::from(is_marked && ecn::mark(frame));
        self.idle[port] = self.idle[port].max(now) + length * pace;
        Some(Instant(self.idle[port].div_ceil(1000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Faults, Link};
    use crate::memory::Mem;
    use vrdma_transport::{Pieces, write_frame};
    use vrdma_wire::num::{FlowLabel, Gid};
    use vrdma_wire::roce::{Body, Bth, Packet, Part, Path, Rc, SendTail};

    const QUEUE: Queue = Queue { pace: 800, room: 1 << 40, ecn_min: 1 << 40, ecn_max: 1 << 40 };
    const NOT_ECT: u8 = 0x40;
    const ECT: u8 = 0x42;
    const CE: u8 = 0x43;

    /// Returns a frame to a port, with 1000 bytes of payload that begin with `number`.
    fn frame(port: u8, number: u32, v4: bool, traffic_class: u8) -> Vec<u8> {
        let gid = |n| if v4 { Gid::from_ipv4([10, 0, 0, n]) } else { Gid([0xfd; 16]) };
        let path = Path {
            src_mac: Mac([2, 0, 0, 0, 0, 9]),
            dst_mac: Mac([2, 0, 0, 0, 0, port]),
            vlan: None,
            src: gid(9),
            dst: gid(port),
            traffic_class,
            flow_label: FlowLabel::truncate(0x54321),
            hop_limit: 64,
            src_port: 0xc000,
        };
        let body = Body::Rc(Rc::Send(Part::Only((), SendTail::Plain)));
        let packet = Packet { path, bth: Bth::default(), body };
        let mut payload = vec![0; 1000];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let mut frame = vec![0; packet.frame_len(payload.len())];
        write_frame::<Mem>(&packet, &Pieces::bytes(&payload), &mut frame).unwrap();
        frame
    }

    /// Returns the number and the traffic class of a frame. Its checksums must be right.
    fn look(frame: &[u8]) -> (u32, u8) {
        let parsed = Packet::parse(frame).expect("the IPv4 checksum is right");
        assert_eq!(parsed.check_icrc(), Ok(()));
        let number = parsed.payload[..4].try_into().unwrap();
        (u32::from_be_bytes(number), parsed.packet.path.traffic_class)
    }

    /// Returns a perfect link with the ports 0 and 1.
    fn link(queue: Queue) -> Link {
        let mut link = Link::new(3, Faults { delay: 1000, ..Faults::default() }, Rng::new(1));
        let ports = [0, 1].map(|port| (Mac([2, 0, 0, 0, 0, port]), port.into())).to_vec();
        link.switch = Some(Switch::new(queue, ports, Rng::new(2)));
        link
    }

    /// Returns when each frame arrives, at which port, and what it is.
    fn arrivals(link: &mut Link) -> Vec<(u64, u8, (u32, u8))> {
        let mut arrivals = Vec::new();
        while let Some(now) = link.next() {
            while let Some((_, mac, frame)) = link.arrived(now) {
                arrivals.push((now.0, mac.0[5], look(&frame)));
            }
        }
        arrivals
    }

    #[test]
    fn a_queue_has_its_rate_and_keeps_the_order() {
        let mut link = link(QUEUE);
        for number in 0..50 {
            link.send(Instant(0), 1 + number as usize % 2, frame(0, number, true, ECT));
        }
        link.send(Instant(0), 1, frame(1, 50, true, ECT));
        let taken = frame(0, 0, true, ECT).len() as u64 * 800;
        let mut expected: Vec<_> =
            (0..50).map(|n| (1000 + ((u64::from(n) + 1) * taken).div_ceil(1000), 0, (n, ECT))).collect();
        // The other port has nothing else to send.
        expected.insert(1, (1000 + taken.div_ceil(1000), 1, (50, ECT)));
        assert_eq!(arrivals(&mut link), expected);
        // An idle port begins at once.
        link.send(Instant(1 << 30), 1, frame(0, 51, true, ECT));
        assert_eq!(arrivals(&mut link)[0].0, (1 << 30) + 1000 + taken.div_ceil(1000));
    }

    #[test]
    fn a_full_queue_drops_what_comes() {
        let length = frame(0, 0, true, ECT).len() as u64;
        let mut link = link(Queue { room: 10 * length, ..QUEUE });
        for number in 0..30 {
            link.send(Instant(0), 1, frame(0, number, true, ECT));
        }
        link.send(Instant(0), 1, frame(1, 30, true, ECT));
        // When two frames have left, there is room for two.
        let later = Instant(2 * length * 800 / 1000 + 1);
        for number in 31..34 {
            link.send(later, 1, frame(0, number, true, ECT));
        }
        let mut came: Vec<u32> = arrivals(&mut link).iter().map(|(_, _, (number, _))| *number).collect();
        came.sort_unstable();
        assert_eq!(came, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 30, 31, 32]);
        assert_eq!(link.switch.as_ref().map(|switch| switch.dropped), Some(21));
    }

    #[test]
    fn marks_begin_at_a_length_and_are_certain_from_another_on() {
        let length = frame(0, 0, true, ECT).len() as u64;
        for v4 in [true, false] {
            let mut link = link(Queue { ecn_min: 100 * length, ecn_max: 500 * length, ..QUEUE });
            for number in 0..600 {
                link.send(Instant(0), 1, frame(0, number, v4, ECT));
            }
            let marked: Vec<bool> = arrivals(&mut link).iter().map(|(.., (_, class))| *class == CE).collect();
            let count = |range: std::ops::Range<usize>| marked[range].iter().filter(|it| **it).count();
            // The first frame of all waits for none.
            assert_eq!((count(0..100), count(500..600)), (0, 100));
            let quarters = [100, 200, 300, 400].map(|from| count(from..from + 100));
            let expected = [12, 37, 62, 87];
            let near = |(count, expected): (&usize, usize)| count.abs_diff(expected) <= 12;
            assert!(quarters.iter().zip(expected).all(near), "{quarters:?}");
            let all = link.switch.as_ref().map(|switch| switch.marked);
            assert_eq!(all, Some(marked.iter().filter(|it| **it).count() as u64));
        }
    }

    #[test]
    fn only_frames_whose_ends_understand_marks_are_marked() {
        for v4 in [true, false] {
            let mut link = link(Queue { ecn_min: 0, ecn_max: 0, ..QUEUE });
            for (number, class) in [NOT_ECT, ECT, 0x41, CE].into_iter().enumerate() {
                link.send(Instant(0), 1, frame(0, number as u32, v4, class));
            }
            let classes: Vec<u8> = arrivals(&mut link).iter().map(|(.., (_, class))| *class).collect();
            assert_eq!(classes, [NOT_ECT, CE, CE, CE]);
        }
        assert!(!ecn::mark(&mut [0; 10]) && !ecn::mark(&mut [0; 60]), "what is no IP packet");
    }
}
