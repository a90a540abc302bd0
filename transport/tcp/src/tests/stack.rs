//! Stacks with many connections: listeners, floods, TIME-WAIT, and segments of no connection.

use crate::stack::{Outgoing, Refused, SegmentSource, Sources, Stack, StackCounters, StackLimits};
use crate::{
    Arrival, Config, Connection, ConnectionId, Event, Instant, NextHop, Ports, Reason, Segment, State, Tuple,
};
use core::time::Duration;
use std::collections::BTreeMap;
use vrdma_wire::num::{Gid, Mac, VlanId, VlanTag};
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

const A: Gid = Gid::from_ipv4([10, 0, 0, 1]);
const B: Gid = Gid::from_ipv4([10, 0, 0, 2]);
const PORT: u16 = 7000;
const HOP: NextHop = NextHop { mac: Mac([2, 0, 0, 0, 0, 9]), vlan: None };

fn from_to(remote: Gid, local: Gid) -> SegmentSource {
    SegmentSource { remote, local, hop: HOP }
}

/// The length of each stream.
#[derive(Default)]
struct Streams(BTreeMap<ConnectionId, u64>);

impl Sources for Streams {
    fn segment_at(&mut self, id: ConnectionId, offset: u64, most: u32) -> u32 {
        let end = self.0.get(&id).copied().unwrap_or(0);
        end.saturating_sub(offset).min(u64::from(most)) as u32
    }
}

fn config() -> Config {
    Config { time_wait: Duration::from_secs(10), ..Config::default() }
}

fn stack() -> Stack {
    Stack::new([1, 2], StackLimits { connections: 20_000, half_open: 10_000, time_wait: 1000 })
}

fn tuple(port: u16) -> Tuple {
    Tuple { local: A, remote: B, ports: Ports { local: port, remote: PORT } }
}

/// Two hosts with a perfect network between them.
struct Pair {
    hosts: [(Stack, Streams); 2],
    now: Instant,
    segments: u64,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            hosts: [(stack(), Streams::default()), (stack(), Streams::default())],
            now: Instant(0),
            segments: 0,
        };
        pair.hosts[1].0.listen(B, PORT, 100, config()).unwrap();
        pair
    }

    /// Delivers segments until there are none.
    fn carry(&mut self) {
        loop {
            let mut is_quiet = true;
            for from in 0..2 {
                let (stack, streams) = &mut self.hosts[from];
                let Some(Outgoing { tuple, hop, segment, .. }) = stack.poll_transmit(self.now, streams)
                else {
                    continue;
                };
                is_quiet = false;
                self.segments += 1;
                let length = (segment.data.end - segment.data.start) as usize;
                let origin = SegmentSource { remote: tuple.local, local: tuple.remote, hop };
                let mut take = |_, arrival: Arrival| arrival.at.len();
                self.hosts[1 - from].0.handle_segment(self.now, origin, &segment.header, length, &mut take);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * 1_000_000_000);
        self.hosts.iter_mut().for_each(|(stack, _)| stack.handle_timeout(self.now));
        self.carry();
    }

    fn events(&mut self, host: usize) -> Vec<(ConnectionId, Event)> {
        std::iter::from_fn(|| self.hosts[host].0.poll_event()).collect()
    }
}

#[test]
fn connections_come_and_go_and_leave_nothing() {
    let mut pair = Pair::new();
    for round in 0..10 {
        let mut ids = Vec::new();
        for port in 1000..2000 {
            ids.push(pair.hosts[0].0.connect(tuple(port), HOP, config(), pair.now).unwrap());
            pair.carry();
        }
        assert_eq!(pair.hosts[0].0.connect(tuple(1000), HOP, config(), pair.now), Err(Refused::InUse));
        let expected: Vec<_> = ids.iter().map(|id| (*id, Event::Established)).collect();
        assert_eq!(pair.events(0), expected, "round {round}");
        let theirs = pair.events(1);
        assert_eq!(theirs.len(), 1000);
        for (id, _) in &theirs {
            assert_eq!(pair.hosts[1].0.tuple(*id).map(|tuple| tuple.remote), Some(A));
        }
        ids.iter().for_each(|id| assert!(pair.hosts[0].0.change(*id, |connection| connection.close())));
        pair.carry();
        for (id, event) in pair.events(1) {
            assert_eq!(event, Event::EndOfStream);
            assert!(pair.hosts[1].0.change(id, |connection| connection.close()));
        }
        pair.carry();
        assert!(pair.events(1).iter().all(|(_, event)| *event == Event::Closed(Reason::Finished)));
        assert_eq!(pair.hosts[1].0.connections(), 0);
        assert_eq!(pair.hosts[0].0.get(ids[0]).unwrap().state(), State::TimeWait);
        pair.wait(11);
        let ours = pair.events(0);
        assert_eq!(ours.iter().filter(|(_, event)| *event == Event::Closed(Reason::Finished)).count(), 1000);
        assert_eq!(pair.hosts[0].0.connections(), 0);
        assert!(pair.hosts[0].0.get(ids[0]).is_none(), "a name is not used again");
    }
    for (stack, _) in &pair.hosts {
        assert_eq!(
            (stack.filed(), stack.poll_timeout(), stack.counters()),
            (0, None, StackCounters::default())
        );
    }
}

#[test]
fn thousands_that_are_idle_have_no_deadlines() {
    let mut pair = Pair::new();
    for n in 0..10_000 {
        let id = pair.hosts[0].0.connect(tuple(1000 + n), HOP, config(), pair.now).unwrap();
        pair.hosts[0].1.0.insert(id, 5000);
        pair.carry();
    }
    pair.wait(5);
    pair.wait(5);
    for (stack, _) in &mut pair.hosts {
        assert_eq!(stack.connections(), 10_000);
        assert_eq!(stack.poll_timeout(), None);
        assert_eq!(stack.filed(), 0);
    }
    let before = pair.segments;
    pair.wait(1000);
    assert_eq!(pair.segments, before);
}

#[test]
fn a_connection_that_waits_for_nothing_is_filed_no_more() {
    let mut pair = Pair::new();
    let id = pair.hosts[0].0.connect(tuple(1000), HOP, config(), pair.now).unwrap();
    pair.carry();
    let (stack, streams) = &mut pair.hosts[0];
    streams.0.insert(id, 5000);
    stack.post(id);
    // No time passes, so no deadline comes.
    pair.carry();
    let stack = &pair.hosts[0].0;
    let connection = stack.get(id).unwrap();
    assert_eq!((connection.acknowledged(), connection.sent()), (5000, 5000));
    assert_eq!((stack.filed(), stack.poll_timeout()), (0, None));
}

#[test]
fn lines_are_those_of_the_connection_between_two() {
    let mut pair = Pair::new();
    let ids = [1, 2].map(|port| pair.hosts[0].0.connect(tuple(port), HOP, config(), pair.now).unwrap());
    let stack = &mut pair.hosts[0].0;
    for (id, port) in ids.into_iter().zip([1, 2]) {
        assert_eq!(stack.lines_of(&tuple(port)), Some((id, stack.lines(id).unwrap())));
    }
    assert_ne!(stack.lines(ids[0]), stack.lines(ids[1]));
    assert_eq!(stack.lines_of(&tuple(3)), None);
    stack.change(ids[0], |connection| connection.end(Reason::Finished));
    while stack.poll_event().is_some() {}
    assert_eq!((stack.lines(ids[0]), stack.lines_of(&tuple(1))), (None, None));
}

#[test]
fn a_router_that_complains_is_heard_if_it_knows_of_what_is_under_way() {
    let mut pair = Pair::new();
    let ids = [1, 2].map(|port| pair.hosts[0].0.connect(tuple(port), HOP, config(), pair.now).unwrap());
    pair.carry();
    let (stack, streams) = &mut pair.hosts[0];
    streams.0.insert(ids[0], 20_000);
    stack.post(ids[0]);
    let mut poll =
        |stack: &mut Stack| stack.poll_transmit(pair.now, streams).map(|outgoing| outgoing.segment);
    let segment = poll(stack).unwrap();
    let (mss, seq) = (stack.get(ids[0]).unwrap().mss(), segment.header.seq);
    let tagged = VlanId::of(Some(VlanTag(5)));
    let untagged = VlanId::of(None);
    // In order: no connection, a connection with nothing in flight, a wrong VLAN, a number before
    // the segment, a number after it.
    let length = mss;
    for (port, vlan, seq) in [
        (3, untagged, seq),
        (2, untagged, seq),
        (1, tagged, seq),
        (1, untagged, seq.wrapping_sub(1)),
        (1, untagged, seq.wrapping_add(length)),
    ] {
        assert!(!stack.handle_too_long(&tuple(port), vlan, seq, 1000), "{port} {vlan:?} {seq}");
    }
    assert_eq!((stack.get(ids[0]).unwrap().mss(), stack.totals().mtu_reduced), (mss, 0));
    assert!(stack.handle_too_long(&tuple(1), untagged, seq, 1000));
    // The lost data is sent again at once, in parts, and later segments are no longer. Timestamps
    // take 12 bytes of each.
    for data in [0..988, 988..u64::from(mss)] {
        assert_eq!(poll(stack).unwrap().data, data);
    }
    assert_eq!(poll(stack).unwrap().data, u64::from(mss)..u64::from(mss) + 988);
    // A larger size than before, and an unchanged one, have no effect.
    assert!(stack.handle_too_long(&tuple(1), untagged, seq, 9000));
    assert!(stack.handle_too_long(&tuple(1), untagged, seq, 1000));
    assert_eq!((stack.get(ids[0]).unwrap().mss(), stack.totals().mtu_reduced), (988, 1));
    // A router cannot make segments shorter than all paths take.
    assert!(stack.handle_too_long(&tuple(1), untagged, seq, 0));
    assert_eq!(stack.get(ids[0]).unwrap().mss(), u32::from(config().min_mss) - 12);
    assert_eq!(stack.get(ids[1]).unwrap().mss(), mss);
}

#[test]
fn another_stack_takes_connections_over() {
    let mut pair = Pair::new();
    let id = pair.hosts[0].0.connect(tuple(1), HOP, config(), pair.now).unwrap();
    pair.carry();
    pair.hosts[0].1.0.insert(id, 1_000_000);
    pair.hosts[0].0.post(id);
    // Some segments are in flight, and lost with the host.
    let (stack, streams) = &mut pair.hosts[0];
    (0..5).for_each(|_| assert!(stack.poll_transmit(pair.now, streams).is_some()));
    let connection = stack.get(id).unwrap().save().restore().unwrap();
    let mut after = self::stack();
    let id = after.adopt(tuple(1), HOP, connection.clone()).unwrap();
    assert_eq!(after.adopt(tuple(1), HOP, connection), Err(Refused::InUse));
    pair.hosts[0] = (after, Streams([(id, 1_000_000)].into()));
    for _ in 0..10 {
        pair.wait(2);
    }
    assert_eq!(pair.hosts[0].0.get(id).unwrap().acknowledged(), 1_000_000);
    let (theirs, _) = pair.events(1)[0];
    assert_eq!(pair.hosts[1].0.get(theirs).unwrap().complete(), 1_000_000);
}

fn segment(flags: Flags, src_port: u16, seq: u32, ack: u32) -> TcpHeader {
    TcpHeader {
        src_port,
        dst_port: PORT,
        seq,
        ack,
        flags,
        window: 1000,
        urgent: 0,
        options: Options::default(),
    }
}

/// Delivers a segment to B, and returns what B sends then.
fn answer(stack: &mut Stack, from: Gid, header: TcpHeader, length: usize) -> Vec<Segment> {
    answer_at(stack, Instant(0), from, header, length)
}

fn answer_at(stack: &mut Stack, now: Instant, from: Gid, header: TcpHeader, length: usize) -> Vec<Segment> {
    stack.handle_segment(now, from_to(from, B), &header, length, &mut |_, arrival| arrival.at.len());
    let mut streams = Streams::default();
    std::iter::from_fn(|| stack.poll_transmit(now, &mut streams)).map(|outgoing| outgoing.segment).collect()
}

#[test]
fn segments_for_nobody_are_reset() {
    let mut stack = stack();
    let reset = |stack: &mut Stack, header, length| {
        let sent = answer(stack, A, header, length);
        assert_eq!(sent.len(), 1);
        let header = sent[0].header;
        assert_eq!((header.src_port, header.dst_port), (PORT, 5));
        (header.flags, header.seq, header.ack)
    };
    // RFC 9293, 3.10.7.1.
    assert_eq!(reset(&mut stack, segment(Flags::SYN, 5, 100, 7), 0), (Flags::RST | Flags::ACK, 0, 101));
    assert_eq!(reset(&mut stack, segment(Flags::FIN, 5, 100, 7), 10), (Flags::RST | Flags::ACK, 0, 111));
    assert_eq!(reset(&mut stack, segment(Flags::ACK, 5, 100, 7), 10), (Flags::RST, 7, 0));
    assert_eq!(answer(&mut stack, A, segment(Flags::RST, 5, 100, 7), 0), []);
    assert_eq!(stack.counters().for_nobody, 3);
    // A listener has no connection for an ACK either, and accepts a plain SYN only.
    stack.listen(B, PORT, 10, config()).unwrap();
    assert_eq!(reset(&mut stack, segment(Flags::ACK, 5, 100, 7), 0), (Flags::RST, 7, 0));
    assert_eq!(answer(&mut stack, A, segment(Flags(0), 5, 100, 7), 10), []);
    assert_eq!(answer(&mut stack, A, segment(Flags::SYN | Flags::FIN, 5, 100, 7), 0), []);
    assert_eq!(stack.connections(), 0);
    // Nothing, not even a RST, is sent to a multicast address.
    assert_eq!(answer(&mut stack, Gid::from_ipv4([224, 0, 0, 1]), segment(Flags::SYN, 5, 100, 7), 0), []);
    assert_eq!(stack.counters().bad_address, 1);
    let many = Tuple { remote: Gid::from_ipv4([255; 4]), ..tuple(1) };
    assert_eq!(stack.connect(many, HOP, config(), Instant(0)), Err(Refused::Address));
}

/// Returns the listening host B after a flood of SYNs from unused addresses.
fn flooded(now: Instant, config: Config) -> Stack {
    let mut stack = stack();
    stack.listen(B, PORT, 16, config).unwrap();
    assert_eq!(stack.listen(B, PORT, 16, config), Err(Refused::InUse));
    flood(&mut stack, now, 10_000);
    let StackCounters { evicted, cookies_sent, no_room, .. } = stack.counters();
    assert_eq!((evicted, cookies_sent, no_room), (0, 10_000 - 16, 0));
    stack
}

fn flood(stack: &mut Stack, now: Instant, count: u32) {
    for n in 0..count {
        let from = Gid::from_ipv4([20, 0, (n >> 8) as u8, n as u8]);
        stack.handle_segment(now, from_to(from, B), &segment(Flags::SYN, 5, 100, 0), 0, &mut |_, _| 0);
        while stack.poll_transmit(now, &mut Streams::default()).is_some() {}
        assert!(stack.connections() <= 16);
    }
}

#[test]
fn a_flood_of_syns_is_bounded_and_others_come_through() {
    for timestamps in [false, true] {
        let config = Config { timestamps, fpdus: true, ..config() };
        let mut pair = Pair::new();
        pair.now = Instant(70_000_000_000);
        pair.hosts[1].0 = flooded(pair.now, config);
        let id = pair.hosts[0].0.connect(tuple(1), HOP, config, pair.now).unwrap();
        pair.hosts[0].1.0.insert(id, 300_000);
        pair.carry();
        assert_eq!(pair.events(0), [(id, Event::Established)]);
        let theirs = pair.events(1);
        assert!(theirs.len() == 1 && theirs[0].1 == Event::Established, "{theirs:?}");
        for _ in 0..20 {
            pair.wait(1);
        }
        let stack = &pair.hosts[1].0;
        let connection = stack.get(theirs[0].0).unwrap();
        assert_eq!((connection.complete(), stack.counters().cookies_taken), (300_000, 1));
        // The connection has all options of the SYN that a cookie has room for.
        let agreed = connection.agreed;
        let all = [agreed.timestamps, agreed.sack, agreed.scaled, agreed.fpdus];
        assert_eq!((all, connection.mss()), ([timestamps; 4], 1460 - if timestamps { 20 } else { 0 }));
        let ours = pair.hosts[0].0.get(id).unwrap();
        assert_eq!(ours.agreed.receive_scale, if timestamps { 5 } else { 0 });
        assert_eq!((agreed.send_scale, connection.counters().retransmits), (ours.agreed.receive_scale, 0));
        assert_eq!(connection.round_trip(), None, "nobody knows when the answer was sent");
    }
}

#[test]
fn what_is_half_open_is_forgotten_and_nobody_is_told() {
    let mut stack = flooded(Instant(0), config());
    let mut streams = Streams::default();
    for second in 0..400 {
        let now = Instant(second * 1_000_000_000);
        stack.handle_timeout(now);
        while stack.poll_transmit(now, &mut streams).is_some() {}
    }
    assert_eq!((stack.connections(), stack.poll_event()), (0, None));
    // There is room again.
    answer(&mut stack, A, segment(Flags::SYN, 1, 100, 0), 0);
    assert_eq!(stack.connections(), 1);
    stack.unlisten(B, PORT);
    assert_eq!(
        answer(&mut stack, A, segment(Flags::SYN, 2, 100, 0), 0).pop().unwrap().header.flags,
        Flags::RST | Flags::ACK
    );
}

#[test]
fn half_open_connections_of_all_listeners_are_bounded_and_one_that_waited_for_long_makes_room() {
    let mut stack = Stack::new([1, 2], StackLimits { connections: 1000, half_open: 8, time_wait: 1 });
    for port in 0..4 {
        stack.listen(B, PORT + port, 5, config()).unwrap();
    }
    let syn = |port, from| TcpHeader { dst_port: PORT + port, ..segment(Flags::SYN, from, 100, 0) };
    for from in 1..=100 {
        answer(&mut stack, A, syn(from % 4, from), 0);
    }
    assert_eq!((stack.connections(), stack.counters().cookies_sent), (8, 92));
    let late = |stack: &mut Stack, milliseconds: u64, from| {
        let now = Instant(milliseconds * 1_000_000);
        stack.handle_segment(now, from_to(A, B), &syn(0, from), 0, &mut |_, _| 0);
        (stack.connections(), stack.counters().evicted)
    };
    assert_eq!(late(&mut stack, 3000, 201), (8, 0));
    assert_eq!(late(&mut stack, 3500, 202), (8, 1));
}

#[test]
fn a_cookie_is_good_for_its_connection_alone_and_not_for_long() {
    let second = |n| Instant(n * 1_000_000_000);
    let mut first = None;
    let mut try_it = |at: u64, from: Gid, port: u16, seq: u32, wrong: u32| {
        let mut stack = flooded(second(100), config());
        let number = answer_at(&mut stack, second(100), A, segment(Flags::SYN, 1, 100, 0), 0)[0].header.seq;
        assert_eq!(*first.get_or_insert(number), number);
        // The flood goes on, so ACKs are checked for cookies.
        flood(&mut stack, second(at), 100);
        let ack = segment(Flags::ACK, port, seq, number.wrapping_add(1) ^ wrong);
        let reset = answer_at(&mut stack, second(at), from, ack, 0).pop();
        let StackCounters { cookies_taken, cookies_refused, .. } = stack.counters();
        let is_taken = stack.poll_event().is_some_and(|(_, event)| event == Event::Established);
        assert_eq!((cookies_taken, cookies_refused), (u64::from(is_taken), u64::from(!is_taken)));
        assert_eq!(reset.map(|reset| reset.header.flags), (!is_taken).then_some(Flags::RST));
        is_taken
    };
    assert!(try_it(100, A, 1, 101, 0) && try_it(190, A, 1, 101, 0));
    for (at, from, port, seq, wrong) in [
        // Old cookies: by one time interval, and by the number of intervals after which the bits
        // repeat.
        (192, A, 1, 101, 0),
        (100 + 32 * 64, A, 1, 101, 0),
        // The cookie of another connection, and forged ones.
        (100, Gid::from_ipv4([10, 0, 0, 3]), 1, 101, 0),
        (100, A, 2, 101, 0),
        (100, A, 1, 102, 0),
        (100, A, 1, 101, 1 << 23),
        (100, A, 1, 101, 1 << 25),
        (100, A, 1, 101, 1 << 28),
    ] {
        assert!(!try_it(at, from, port, seq, wrong), "{at} {port} {seq} {wrong}");
    }
}

#[test]
fn acknowledges_are_no_cookies_where_none_was_sent() {
    let mut stack = stack();
    stack.listen(B, PORT, 16, config()).unwrap();
    answer(&mut stack, A, segment(Flags::ACK, 1, 101, 7), 0);
    assert_eq!((stack.counters().cookies_refused, stack.counters().for_nobody), (0, 1));
}

#[test]
fn no_more_connections_than_there_may_be() {
    let mut stack = Stack::new([1, 2], StackLimits { connections: 2, half_open: 10, time_wait: 1 });
    stack.listen(B, PORT, 10, config()).unwrap();
    for port in 1..=5 {
        answer(&mut stack, A, segment(Flags::SYN, port, 100, 0), 0);
    }
    assert_eq!((stack.connections(), stack.counters().no_room), (2, 3));
    assert_eq!(stack.connect(tuple(9), HOP, config(), Instant(0)), Err(Refused::Full));
}

#[test]
fn listeners_that_go_take_along_what_is_not_set_up() {
    let mut stack = stack();
    stack.listen(B, PORT, 10, config()).unwrap();
    answer(&mut stack, A, segment(Flags::SYN, 1, 100, 0), 0);
    stack.unlisten(B, PORT);
    let mut streams = Streams::default();
    let sent = stack.poll_transmit(Instant(0), &mut streams).unwrap().segment;
    assert_eq!(sent.header.flags, Flags::RST | Flags::ACK);
    assert!(stack.poll_transmit(Instant(0), &mut streams).is_none());
    assert_eq!((stack.connections(), stack.poll_event()), (0, None));
}

/// Returns a connection of A to B that B has closed first, so B is in TIME-WAIT.
fn waiting(config: Config) -> (Pair, ConnectionId) {
    let mut pair = Pair::new();
    pair.hosts[1].0.unlisten(B, PORT);
    pair.hosts[1].0.listen(B, PORT, 10, config).unwrap();
    let ours = pair.hosts[0].0.connect(tuple(1), HOP, config, pair.now).unwrap();
    pair.carry();
    let (theirs, _) = pair.events(1)[0];
    pair.hosts[1].0.change(theirs, |connection| connection.close());
    pair.carry();
    pair.hosts[0].0.change(ours, |connection| connection.close());
    pair.carry();
    pair.events(0);
    pair.events(1);
    assert_eq!(pair.hosts[1].0.get(theirs).unwrap().state(), State::TimeWait);
    (pair, theirs)
}

#[test]
fn time_wait_gives_way_to_newer_numbers() {
    for timestamps in [false, true] {
        let config = Config { timestamps, ..config() };
        let (mut pair, theirs) = waiting(config);
        pair.now = pair.now.after(1_000_000_000);
        let ours = pair.hosts[0].0.connect(tuple(1), HOP, config, pair.now).unwrap();
        pair.carry();
        assert_eq!(pair.events(0), [(ours, Event::Established)], "timestamps {timestamps}");
        assert!(pair.hosts[1].0.get(theirs).is_none());
        // The old connection is not reported twice, and the new one exists.
        let events = pair.events(1);
        assert!(events.iter().any(|(id, event)| *id != theirs && *event == Event::Established), "{events:?}");
    }
}

#[test]
fn time_wait_does_not_give_way_to_older_numbers() {
    let (mut pair, theirs) = waiting(Config { timestamps: false, ..config() });
    let (stack, streams) = &mut pair.hosts[1];
    let old = stack.get(theirs).unwrap().receive_origin.0;
    let mut header = segment(Flags::SYN, 1, old.wrapping_sub(1000), 0);
    header.src_port = 1;
    stack.handle_segment(pair.now, from_to(A, B), &header, 0, &mut |_, _| 0);
    let sent = stack.poll_transmit(pair.now, streams).unwrap().segment;
    assert_eq!(sent.header.flags, Flags::ACK);
    assert_eq!(stack.get(theirs).unwrap().state(), State::TimeWait);
}

/// Returns a connection of A to B that A has closed first, so A is in TIME-WAIT. Its last ACK is
/// lost on request.
fn waiting_to_connect(config: Config, loses_last: bool) -> (Pair, ConnectionId) {
    let mut pair = Pair::new();
    let ours = pair.hosts[0].0.connect(tuple(1), HOP, config, pair.now).unwrap();
    pair.carry();
    let (theirs, _) = pair.events(1)[0];
    pair.hosts[0].0.change(ours, |connection| connection.close());
    pair.carry();
    pair.hosts[1].0.change(theirs, |connection| connection.close());
    if loses_last {
        let (stack, streams) = &mut pair.hosts[1];
        let fin = stack.poll_transmit(pair.now, streams).unwrap().segment.header;
        let (stack, streams) = &mut pair.hosts[0];
        stack.handle_segment(pair.now, from_to(B, A), &fin, 0, &mut |_, _| 0);
        assert!(stack.poll_transmit(pair.now, streams).is_some());
    }
    pair.carry();
    pair.events(0);
    pair.events(1);
    assert_eq!(pair.hosts[0].0.get(ours).unwrap().state(), State::TimeWait);
    (pair, ours)
}

#[test]
fn time_wait_gives_way_to_a_connection_that_its_own_end_begins() {
    for loses_last in [false, true] {
        let (mut pair, old) = waiting_to_connect(config(), loses_last);
        pair.now = pair.now.after(1_000_000);
        let ours = pair.hosts[0].0.connect(tuple(1), HOP, config(), pair.now).unwrap();
        pair.carry();
        if loses_last {
            // B takes the SYN for a segment of the old connection, and is reset. The next SYN is
            // answered.
            let theirs = pair.events(1);
            assert!(matches!(theirs[..], [(_, Event::Closed(_))]), "{theirs:?}");
            pair.wait(2);
        }
        let events = pair.events(0);
        let expected = [(old, Event::Closed(Reason::Finished)), (ours, Event::Established)];
        assert_eq!(events, expected, "the last acknowledgement is lost: {loses_last}");
        assert!(pair.hosts[0].0.get(old).is_none());
        let theirs = pair.events(1);
        assert!(theirs.iter().any(|(_, event)| *event == Event::Established), "{theirs:?}");
        assert_eq!((pair.hosts[0].0.connections(), pair.hosts[1].0.connections()), (1, 1));
    }
}

#[test]
fn a_new_connection_is_set_up_by_what_is_newer_than_all_of_the_former() {
    let (mut pair, _) = waiting_to_connect(config(), false);
    // B's clock has not ticked since the former connection.
    let ours = pair.hosts[0].0.connect(tuple(1), HOP, config(), pair.now).unwrap();
    pair.carry();
    let connection = pair.hosts[0].0.get(ours).unwrap();
    assert_eq!((connection.state(), connection.counters().bad_timestamp), (State::SynSent, 1));
    pair.wait(2);
    assert!(pair.events(0).contains(&(ours, Event::Established)));
}

#[test]
fn two_ends_that_are_both_in_time_wait_connect_again() {
    for ticks in [0, 1] {
        let mut pair = Pair::new();
        let ours = pair.hosts[0].0.connect(tuple(1), HOP, config(), pair.now).unwrap();
        pair.carry();
        let (theirs, _) = pair.events(1)[0];
        // Each has sent its FIN before the peer's FIN arrives.
        for (host, id) in [(0, ours), (1, theirs)] {
            pair.hosts[host].0.change(id, |connection| connection.close());
        }
        let fins = [0, 1].map(|host| {
            let (stack, streams) = &mut pair.hosts[host];
            stack.poll_transmit(pair.now, streams).unwrap().segment.header
        });
        for (host, from, to) in [(0, B, A), (1, A, B)] {
            let origin = from_to(from, to);
            pair.hosts[host].0.handle_segment(pair.now, origin, &fins[1 - host], 0, &mut |_, _| 0);
        }
        pair.carry();
        let states = [(0, ours), (1, theirs)].map(|(host, id)| pair.hosts[host].0.get(id).unwrap().state());
        assert_eq!(states, [State::TimeWait; 2]);
        pair.now = pair.now.after(ticks * 1_000_000);
        let ours = pair.hosts[0].0.connect(tuple(1), HOP, config(), pair.now).unwrap();
        pair.carry();
        if ticks == 0 {
            pair.wait(2);
        }
        let events = pair.events(0);
        assert!(events.contains(&(ours, Event::Established)), "{ticks} ticks: {events:?}");
    }
}

#[test]
fn time_wait_does_not_give_way_without_timestamps() {
    let without = Config { timestamps: false, ..config() };
    for (old, new) in [(without, config()), (config(), without)] {
        let (mut pair, _) = waiting_to_connect(old, false);
        assert_eq!(pair.hosts[0].0.connect(tuple(1), HOP, new, pair.now), Err(Refused::InUse));
    }
}

#[test]
fn time_waits_are_bounded() {
    let mut pair = Pair::new();
    pair.hosts[0].0 = Stack::new([1, 2], StackLimits { connections: 100, half_open: 100, time_wait: 3 });
    for port in 1..=10 {
        let ours = pair.hosts[0].0.connect(tuple(port), HOP, config(), pair.now).unwrap();
        pair.carry();
        let (theirs, _) = pair.events(1)[0];
        pair.hosts[0].0.change(ours, |connection| connection.close());
        pair.carry();
        pair.hosts[1].0.change(theirs, |connection| connection.close());
        pair.carry();
        pair.events(0);
        pair.events(1);
    }
    assert_eq!(pair.hosts[0].0.counters().short_wait, 7);
    assert_eq!(pair.hosts[0].0.connections(), 3);
}

#[test]
fn who_listens_at_any_address_does_so_where_nobody_listens_at_that_one() {
    let mut stack = stack();
    let any = Gid([0; 16]);
    stack.listen(any, PORT, 4, config()).unwrap();
    stack.listen(B, PORT, 4, Config { mss: 999, ..config() }).unwrap();
    assert_eq!(stack.listen(any, PORT, 4, config()), Err(Refused::InUse));
    let mut streams = Streams::default();
    let mut answer = |stack: &mut Stack, local: Gid, port: u16| {
        let syn = segment(Flags::SYN, port, 100, 0);
        stack.handle_segment(Instant(0), from_to(A, local), &syn, 0, &mut |_, _| 0);
        let outgoing = stack.poll_transmit(Instant(0), &mut streams).unwrap();
        assert_eq!((outgoing.tuple.local, outgoing.hop), (local, HOP));
        outgoing.segment.header.options.mss
    };
    let other = Gid::from_ipv4([10, 0, 0, 3]);
    assert_eq!(answer(&mut stack, B, 1), Some(999));
    assert_eq!(answer(&mut stack, other, 1), Some(config().mss));
    stack.unlisten(B, PORT);
    // The half-open connection of the removed listener is reset.
    assert_eq!(answer(&mut stack, B, 2), None);
    assert_eq!(answer(&mut stack, B, 3), Some(config().mss));
}

#[test]
fn a_segment_is_of_a_connection_in_its_vlan_alone_and_answers_go_back_by_it() {
    let mut stack = stack();
    let [five, six] = [5, 6].map(|vlan| VlanId::new(vlan).unwrap());
    let hop = NextHop { mac: Mac([2, 0, 0, 0, 0, 5]), vlan: Some(VlanTag::new(five, 0)) };
    let whole = tuple(1);
    assert!(!stack.takes(&whole, five) && !stack.has(&whole));
    stack.connect(whole, hop, config(), Instant(0)).unwrap();
    assert!(stack.takes(&whole, five) && stack.has(&whole) && !stack.takes(&whole, six));
    assert!(!stack.takes(&whole, VlanId::UNTAGGED) && !stack.takes(&tuple(2), five));
    stack.listen(A, 2, 4, config()).unwrap();
    assert!(stack.takes(&tuple(2), five) && stack.takes(&tuple(2), six) && !stack.has(&tuple(2)));
    assert_eq!(stack.poll_transmit(Instant(0), &mut Streams::default()).unwrap().hop, hop);
    // The answer to a segment of no connection goes back the way it came.
    let hop = NextHop { mac: Mac([2, 0, 0, 0, 0, 6]), vlan: None };
    let origin = SegmentSource { hop, ..from_to(B, A) };
    let stray = segment(Flags::ACK, 9, 100, 7);
    assert_eq!(stack.handle_segment(Instant(0), origin, &stray, 0, &mut |_, _| 0), None);
    let reset = stack.poll_transmit(Instant(0), &mut Streams::default()).unwrap();
    assert_eq!((reset.id, reset.hop, reset.segment.header.flags), (None, hop, Flags::RST));
}

#[test]
fn what_happened_to_connections_is_counted_when_they_are_gone_too() {
    let mut pair = Pair::new();
    let ours = pair.hosts[0].0.connect(tuple(1), HOP, config(), pair.now).unwrap();
    pair.carry();
    let stray = segment(Flags::ACK, 1, 5, 5);
    pair.hosts[1].0.handle_segment(pair.now, from_to(A, B), &stray, 0, &mut |_, _| 0);
    let before = pair.hosts[1].0.totals();
    assert_ne!(before, crate::Totals::default());
    pair.hosts[0].0.change(ours, Connection::abort);
    pair.carry();
    while pair.hosts[1].0.poll_event().is_some() {}
    assert_eq!(pair.hosts[1].0.connections(), 0);
    assert!(pair.hosts[1].0.totals().iter().zip(before.iter()).all(|(now, then)| now.1 >= then.1));
}
