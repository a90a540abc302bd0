//! Inter-worker packets, between engines of one process.

use super::datagrams::ud;
use super::unreliable::uc;
use super::*;
use crate::base::rng::Rng;
use WcStatus::{RemInvReq, RetryExc, RnrRetryExc, Success};
use std::cell::Cell;
use std::rc::Rc as Shared;
use vrdma_wire::num::{Imm, Mtu};

/// Packets in flight.
#[derive(Default)]
pub(crate) struct Ring {
    parcels: VecDeque<Parcel>,
    /// No region is pinned: all payload is copied.
    copies: bool,
    /// Regions are pinned at random.
    random: Option<Rng>,
}

struct Parcel {
    packet: Packet,
    part: InterWorkerPart,
    data: Data,
}

enum Data {
    Bytes(Vec<u8>),
    Lent(Lent),
}

/// A segment of a pinned region, until it is unpinned.
struct Lent {
    memory: Mem,
    offset: u64,
    len: u32,
    is_gone: Shared<Cell<bool>>,
}

impl PinnedRegion<Mem> for Lent {
    fn copy_to(&self, offset: u64, dst: &Mem, dst_offset: u64, len: u64) -> Result<(), Fault> {
        assert!(offset + len <= self.len.into(), "no more than was lent");
        if self.is_gone.get() {
            return Err(Fault);
        }
        self.memory.copy_to(self.offset + offset, dst, dst_offset, len)
    }

    fn is_there(&self) -> bool {
        !self.is_gone.get()
    }
}

impl Ring {
    pub(crate) fn lends(&mut self) -> bool {
        !self.copies && self.random.as_mut().is_none_or(|rng| rng.next().is_multiple_of(2))
    }

    pub(crate) fn take(
        &mut self,
        packet: &Packet,
        part: InterWorkerPart,
        payload: &Pieces<'_, Mem>,
    ) -> Result<(), Fault> {
        let mut pieces = payload.iter();
        let data = match (pieces.next(), pieces.next()) {
            (Some(Piece::Memory { region, offset, length }), None) if part.may_pin && !self.copies => {
                let (memory, is_gone) = (region.clone(), Shared::default());
                Data::Lent(Lent { memory, offset, len: length, is_gone })
            }
            _ => {
                assert!(part.psns == 1, "what is copied is a packet");
                let mut bytes = vec![0; payload.len()];
                payload.read(&mut bytes)?;
                Data::Bytes(bytes)
            }
        };
        self.parcels.push_back(Parcel { packet: *packet, part, data });
        Ok(())
    }
}

impl Net {
    /// Creates two connected QPs that exchange inter-worker packets.
    fn near(a: impl FnOnce(&mut QpAttr), b: impl FnOnce(&mut QpAttr)) -> Net {
        Net::connected_with(a, b).on_near_ways()
    }

    /// Makes both hosts exchange inter-worker packets.
    pub(crate) fn on_near_ways(mut self) -> Net {
        for host in &mut self.hosts {
            (host.cable.near, host.cable.stays_here) = (Some(Ring::default()), true);
        }
        self
    }

    /// Lets a host do all work that is ready.
    ///
    /// A restored engine would not know the inter-worker path until it has sent a packet.
    pub(crate) fn work_near(&mut self, at: usize) {
        let Host { engine, log, cable, .. } = &mut self.hosts[at];
        loop {
            let more = engine.poll(self.now, u64::MAX, log);
            let more = answer_all(engine, self.now, log) || more;
            if !engine.transmit(self.now, 1000, cable, log) && !more {
                break;
            }
        }
    }

    fn ring(&mut self, at: usize) -> &mut Ring {
        self.hosts[at].cable.near.as_mut().unwrap()
    }

    /// Delivers what a host has sent, with a fate for each packet. Returns the number of packets.
    fn hand_over(&mut self, from: usize, fate: impl FnMut(&Packet) -> Fate) -> usize {
        self.bring(from, fate, true)
    }

    /// Delivers what a host has sent, with a fate for each packet. Returns the number of packets.
    ///
    /// With `looks`, the engine's questions about missing receives are answered at once.
    fn bring(&mut self, from: usize, mut fate: impl FnMut(&Packet) -> Fate, looks: bool) -> usize {
        let parcels = std::mem::take(&mut self.ring(from).parcels);
        let count = parcels.len();
        for Parcel { packet, part, data } in parcels {
            let Host { engine, log, .. } = &mut self.hosts[1 - from];
            let fate = fate(&packet);
            let payload = match &data {
                _ if fate == Fate::Lost => continue,
                Data::Bytes(bytes) => InterWorkerPayload::Bytes(bytes),
                Data::Lent(lent) => {
                    lent.is_gone.set(fate == Fate::TakenBack);
                    InterWorkerPayload::Pinned(lent, lent.len)
                }
            };
            let near = InterWorkerPacket { packet: &packet, part, payload };
            engine.handle_inter_worker(self.now, &near, log);
            if looks {
                answer_all(engine, self.now, log);
            }
        }
        count
    }

    /// Delivers what both hosts have sent. Returns the number of packets.
    pub(crate) fn hand_over_all(&mut self) -> usize {
        self.hand_over(A, all_come) + self.hand_over(B, all_come)
    }

    /// Lets both hosts work until nothing is left to do, also later. Returns the number of packets.
    fn run_near(&mut self, mut fate: impl FnMut(&Packet) -> Fate) -> usize {
        let mut count = 0;
        for _ in 0..100_000 {
            self.work_near(A);
            self.work_near(B);
            let handed = self.hand_over(A, &mut fate) + self.hand_over(B, &mut fate);
            count += handed;
            if handed > 0 {
                continue;
            }
            match self.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min() {
                Some(deadline) => self.now = self.now.max(deadline),
                None => return count,
            }
        }
        panic!("this has no end");
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Comes,
    Lost,
    /// The packet arrives, but a pinned payload is gone.
    TakenBack,
}

fn all_come(_: &Packet) -> Fate {
    Fate::Comes
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}

#[test]
fn a_long_message_is_few_packets_and_takes_the_psns_that_it_would_take_on_a_wire() {
    for path_mtu in [Mtu::M256, Mtu::M1024, Mtu::M4096] {
        const LEN: u32 = 200_000;
        let mut net = Net::near(|a| a.path_mtu = path_mtu, |b| b.path_mtu = path_mtu);
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let data = bytes(1, LEN as usize);
        a.memory.fill(0, &data);
        let first = net.expected(B);
        net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, LEN)]));
        // Four packets, and ACKs.
        let packets = net.run_near(all_come);
        assert!((5..=12).contains(&packets), "{packets} packets");
        assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
        assert_eq!(b.memory.bytes(0, LEN as usize), data);
        assert_eq!(net.expected(B), first.add(path_mtu.packets(LEN)));
        net.post_recv(B, 7, &[b.sge(300_000, 250_000)]);
        net.post(A, 2, SendOp::Send { imm: None }, Payload::Sges(&[a.sge(0, LEN)]));
        assert!(net.run_near(all_come) <= 12);
        assert_eq!(
            (net.hosts[A].statuses(), net.hosts[B].statuses()),
            (vec![(2, Success)], vec![(7, Success)])
        );
        assert_eq!(b.memory.bytes(300_000, LEN as usize), data);
        net.post(A, 3, SendOp::Read { remote: b.remote(300_000) }, Payload::Sges(&[a.sge(400_000, LEN)]));
        assert!((5..=8).contains(&net.run_near(all_come)));
        assert_eq!(
            (net.hosts[A].statuses(), a.memory.bytes(400_000, LEN as usize)),
            (vec![(3, Success)], data)
        );
        assert_eq!(net.hosts[A].counters().retries, 0);
    }
}

#[test]
fn what_cannot_be_lent_goes_in_packets_of_the_path_mtu() {
    let mut net = Net::near(|_| {}, |_| {});
    net.ring(A).copies = true;
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let data = bytes(2, 50_000);
    a.memory.fill(0, &data);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 50_000)]));
    net.run_near(|packet| {
        assert!(!matches!(packet.body, Body::Rc(Rc::ReadRequest(_))));
        Fate::Comes
    });
    assert_eq!((net.hosts[A].statuses(), b.memory.bytes(0, 50_000)), (vec![(1, Success)], data));
}

#[test]
fn what_is_lost_or_taken_back_is_sent_again_without_a_retry() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut net = Net::near(|a| a.retry_cnt = 0, |b| b.retry_cnt = 0);
        for at in [A, B] {
            net.ring(at).random = Some(Rng::new(seed + at as u64));
        }
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let mut expected = Vec::new();
        a.memory.fill(0, &bytes(seed, 100_000));
        for id in 0..6 {
            let len = 1 + rng.next() as u32 % 100_000;
            let own = [a.sge(0, len)];
            match id % 3 {
                0 => net.post(A, id, write_to(b.remote(u64::from(id) * 100_000)), Payload::Sges(&own)),
                1 => {
                    net.post_recv(B, id, &[b.sge(u64::from(id) * 100_000, 100_000)]);
                    net.post(A, id, SendOp::Send { imm: None }, Payload::Sges(&own));
                }
                _ => {
                    let own = [a.sge(u64::from(id) * 100_000, len)];
                    let remote = b.remote(u64::from(id - 2) * 100_000);
                    net.post(A, id, SendOp::Read { remote }, Payload::Sges(&own));
                }
            }
            expected.push((id, len as usize));
        }
        // The last packets and all ACKs arrive. Otherwise only a timeout would reveal a loss.
        let mut left = 40;
        net.run_near(|packet| {
            let is_data = !matches!(packet.body, Body::Rc(Rc::Ack(_)));
            left -= 1;
            match rng.next() % 4 {
                0 if left > 0 && is_data => Fate::TakenBack,
                1 if left > 0 && is_data && left % 2 == 0 => Fate::TakenBack,
                _ => Fate::Comes,
            }
        });
        let statuses = net.hosts[A].statuses();
        assert_eq!(statuses, (0..6).map(|id| (id, Success)).collect::<Vec<_>>(), "seed {seed}");
        for (id, len) in expected {
            let at = id as usize * 100_000;
            match id % 3 {
                2 => {
                    let from = b.memory.bytes(at - 200_000, len);
                    assert_eq!(a.memory.bytes(at, len), from, "seed {seed}, READ {id}");
                }
                _ => assert_eq!(b.memory.bytes(at, len), a.memory.bytes(0, len), "seed {seed}, {id}"),
            }
        }
    }
}

#[test]
fn lost_packets_are_found_by_those_behind_them_or_after_a_timeout() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut net = Net::near(|a| a.retry_cnt = 7, |b| b.retry_cnt = 7);
        net.ring(A).random = Some(Rng::new(seed));
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        a.memory.fill(0, &bytes(seed, 300_000));
        net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300_000)]));
        net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(400_000, 300_000)]));
        let mut left = 30;
        net.run_near(|_| {
            left -= 1;
            if left > 0 && rng.next().is_multiple_of(5) { Fate::Lost } else { Fate::Comes }
        });
        assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, Success)], "seed {seed}");
        assert_eq!(b.memory.bytes(0, 300_000), a.memory.bytes(0, 300_000));
        assert_eq!(a.memory.bytes(400_000, 300_000), a.memory.bytes(0, 300_000));
    }
}

#[test]
fn a_missing_receive_is_looked_for_and_then_waited_for() {
    for len in [10, 100_000] {
        let mut net = Net::near(|a| a.rnr_retry = 2, |_| {});
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        a.memory.fill(0, &bytes(3, len as usize));
        let send = |net: &mut Net, id| {
            net.post(A, id, SendOp::Send { imm: None }, Payload::Sges(&[a.sge(0, len)]));
        };
        send(&mut net, 1);
        let mut refused = 0;
        let mut net_now = net.now;
        // The receive is posted after two waits.
        for _ in 0..1000 {
            net.work_near(A);
            net.hand_over(A, all_come);
            net.work_near(B);
            net.hand_over(B, |packet| {
                if let Body::Rc(Rc::Ack(aeth)) = packet.body
                    && matches!(aeth.syndrome, vrdma_wire::roce::Syndrome::Rnr(_))
                {
                    refused += 1;
                }
                Fate::Comes
            });
            if refused == 2 {
                break;
            }
            if let Some(at) = net.hosts[A].engine.poll_timeout()
                && net.hosts[A].cable.near.as_ref().unwrap().parcels.is_empty()
            {
                net.now = net.now.max(at);
                net_now = net.now;
            }
        }
        assert_eq!(refused, 2, "{len} bytes");
        assert_eq!(net.hosts[A].statuses(), []);
        net.post_recv(B, 9, &[b.sge(0, 100_000)]);
        net.run_near(all_come);
        assert!(net.now >= net_now);
        assert_eq!(
            (net.hosts[A].statuses(), net.hosts[B].statuses()),
            (vec![(1, Success)], vec![(9, Success)])
        );
        assert_eq!(b.memory.bytes(0, len as usize), a.memory.bytes(0, len as usize));
        send(&mut net, 2);
        net.run_near(all_come);
        assert_eq!(net.hosts[A].statuses(), [(2, RnrRetryExc)], "{len} bytes");
    }
}

#[test]
fn other_path_mtus_are_refused_where_the_packets_would_be_others() {
    for (len, status) in [(1000, Success), (2000, RemInvReq), (100_000, RemInvReq)] {
        let mut net = Net::near(|a| a.path_mtu = Mtu::M1024, |b| b.path_mtu = Mtu::M4096);
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, len)]));
        net.run_near(all_come);
        assert_eq!(net.hosts[A].statuses(), [(1, status)], "{len} bytes");
    }
}

#[test]
fn a_peer_that_takes_nothing_ends_a_connection_that_has_a_timeout() {
    let mut net = Net::near(|a| a.retry_cnt = 2, |_| {});
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)]));
    net.run_near(|_| Fate::Lost);
    assert_eq!(net.hosts[A].statuses(), [(1, RetryExc)]);
    assert_eq!(net.hosts[A].counters().timeouts, 3);
}

#[test]
fn what_a_window_shows_is_not_lent() {
    let mut net = Net::near(|_| {}, |_| {});
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let data = bytes(4, 100_000);
    b.memory.fill(0, &data);
    let Host { engine, end, .. } = &mut net.hosts[B];
    let rights = OF_REGION | Access::MW_BIND;
    let key = engine.reg_mr(end.device, end.pd, rights, IOVA, MEMORY as u64, end.memory.clone()).unwrap();
    let rkey = engine.alloc_mw(end.device, end.pd, MwType::Type1).unwrap();
    let new_rkey = Rkey(rkey.0 & !0xff | 1);
    let (lkey, access) = (Lkey(key), Access::REMOTE_READ);
    let bind = Bind { rkey, new_rkey, lkey, access, addr: IOVA, length: 100_000 };
    net.post(B, 5, SendOp::BindMw(bind), Payload::Sges(&[]));
    net.run_near(all_come);
    assert_eq!(net.hosts[B].statuses(), [(5, Success)]);
    let remote = Remote { addr: IOVA, rkey: new_rkey };
    net.post(A, 1, SendOp::Read { remote }, Payload::Sges(&[a.sge(0, 100_000)]));
    // A pinned region would be gone.
    let packets = net.run_near(|_| Fate::TakenBack);
    assert!(packets > 90, "{packets} packets");
    assert_eq!((net.hosts[A].statuses(), a.memory.bytes(0, 100_000)), (vec![(1, Success)], data));
}

#[test]
fn messages_of_unreliable_connections_are_copies_and_over_when_they_have_left() {
    let mut net = uc().on_near_ways();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for (id, len) in [(1, 0), (2, 1), (3, 1024), (4, 1025), (5, 100_000)] {
        let data = bytes(id.into(), len as usize);
        let own = [a.sge(0, len)];
        a.memory.fill(0, &data);
        net.post_recv(B, id, &[b.sge(0, len)]);
        net.post(A, id, SEND, Payload::Sges(&own));
        net.post(A, id, write_to(b.remote(500_000)), Payload::Sges(&own));
        net.work_near(A);
        assert_eq!(net.hosts[A].statuses(), [(id, Success); 2]);
        // The program may reuse its memory.
        a.memory.fill(0, &vec![0xee; len as usize]);
        let packets = 2 * len.div_ceil(1024).max(1) as usize;
        assert_eq!(net.run_near(all_come), packets);
        assert_eq!(net.hosts[B].statuses(), [(id, Success)]);
        assert!(
            b.memory.bytes(0, data.len()) == data && b.memory.bytes(500_000, data.len()) == data,
            "{len}"
        );
    }
    assert_eq!(net.hosts[B].counters().uc_gaps, 0);
    assert!(net.hosts.iter().all(|host| host.cable.frames.is_empty()));
}

#[test]
fn a_message_of_an_unreliable_connection_with_a_gap_is_lost_and_the_next_is_whole() {
    for lost in 0..4 {
        let mut net = uc().on_near_ways();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        for id in [1, 2] {
            net.post_recv(B, id, &[b.sge(0, 4096)]);
            a.memory.fill(0, &bytes(id.into(), 4096));
            net.post(A, id, SEND, Payload::Sges(&[a.sge(0, 4096)]));
            net.work_near(A);
        }
        let mut number = 0;
        net.run_near(|_| {
            number += 1;
            if number == lost + 1 { Fate::Lost } else { Fate::Comes }
        });
        assert_eq!(net.hosts[B].statuses(), [(1, Success)]);
        assert!(b.memory.bytes(0, 4096) == bytes(2, 4096), "{lost}");
        assert_eq!(net.hosts[B].counters().uc_gaps, 1);
    }
}

/// Sends two messages of an unreliable type before receives are looked for, then posts `receives`.
fn unreliable_without_receives(mut net: Net, mut send: impl FnMut(&mut Net, u32), receives: &[u32]) -> Net {
    let b = net.hosts[B].end.clone();
    for id in [1, 2] {
        send(&mut net, id);
        net.work_near(A);
    }
    assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, Success)]);
    assert_eq!(net.bring(A, all_come, false), 2);
    assert!(net.hosts[B].engine.has_questions());
    for &id in receives {
        net.post_recv(B, id, &[b.sge(0, 200)]);
    }
    let Host { engine, log, .. } = &mut net.hosts[B];
    answer_all(engine, net.now, log);
    net.run_near(all_come);
    net
}

#[test]
fn what_an_unreliable_service_has_no_receive_for_waits_until_one_was_looked_for() {
    let drops = |net: &Net| {
        let counters = net.hosts[B].counters();
        counters.iter().filter(|(name, count)| name.starts_with("drop_") && *count > 0).collect::<Vec<_>>()
    };
    let connection = |net: &mut Net, id: u32| net.post(A, id, SEND, Payload::Inline(&[id as u8; 9]));
    let datagram = |net: &mut Net, id: u32| net.send(id, &net.way(), SEND, Payload::Inline(&[id as u8; 9]));
    for receives in [&[][..], &[7], &[7, 8]] {
        for is_datagram in [false, true] {
            let mut net = match is_datagram {
                false => unreliable_without_receives(uc().on_near_ways(), connection, receives),
                true => unreliable_without_receives(ud().on_near_ways(), datagram, receives),
            };
            let ended: Vec<_> = receives.iter().map(|&id| (id, Success)).collect();
            assert_eq!(net.hosts[B].statuses(), ended);
            // In order: the last message has overwritten the first.
            let (at, last) = (if is_datagram { 40 } else { 0 }, receives.len() as u8);
            assert_eq!(net.hosts[B].end.memory.bytes(at, 9), [last; 9]);
            assert_eq!(drops(&net).iter().map(|drop| drop.1).sum::<u64>(), 2 - u64::from(last));
        }
    }
}

#[test]
fn a_datagram_has_the_header_that_it_has_as_a_frame() {
    let came = |mut net: Net, imm, payload: &[u8]| {
        let b = net.hosts[B].end.clone();
        net.post_recv(B, 9, &[b.sge(0, 4200)]);
        net.send(1, &net.way(), SendOp::Send { imm }, Payload::Inline(payload));
        match net.hosts[A].cable.near {
            Some(_) => assert_eq!(net.run_near(all_come), 1),
            None => net.run(),
        }
        assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
        let received = net.hosts[B].log.completions.remove(0).2;
        (received, b.memory.bytes(0, 40 + payload.len()))
    };
    for imm in [None, Some(Imm::from_bytes([1, 2, 3, 4]))] {
        let [near, frame] = [ud().on_near_ways(), ud()].map(|net| came(net, imm, b"datagram"));
        assert_eq!(near, frame);
    }
}

#[test]
fn a_datagram_to_a_closed_way_is_not_held_back_and_a_connection_is() {
    let mut net = uc().on_near_ways();
    net.hosts[A].cable.closed = Some(net.hosts[B].mac);
    let b = net.hosts[B].end.clone();
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"later"));
    let Host { engine, log, cable, .. } = &mut net.hosts[A];
    engine.transmit(net.now, 10, cable, log);
    assert_eq!((net.ring(A).parcels.len(), net.hosts[A].statuses()), (0, vec![]));
    net.hosts[A].cable.closed = None;
    assert_eq!(net.run_near(all_come), 1);
    assert_eq!((net.hosts[A].statuses(), b.memory.bytes(0, 5)), (vec![(1, Success)], b"later".to_vec()));
    let mut net = ud().on_near_ways();
    net.hosts[A].cable.closed = Some(net.hosts[B].mac);
    net.send(1, &net.way(), SEND, Payload::Inline(b"now"));
    net.work_near(A);
    // The ring may lose the packet.
    assert_eq!((net.ring(A).parcels.len(), net.hosts[A].statuses()), (1, vec![(1, Success)]));
}
