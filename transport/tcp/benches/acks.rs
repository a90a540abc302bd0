//! The cost of the most expensive ACKs that a peer can send.
//!
//! Run it by `cargo bench -p vrdma-tcp --bench acks`.
//!
//! The peer announces the smallest MSS and a large window, and acknowledges nothing until the
//! maximum number of segments is outstanding. Then it sends one ACK. Each case is repeated on
//! copies of one connection. Its cost is the 10th percentile, because other work of the machine
//! only adds to it. All costs are compared with that of an ACK of two segments, measured in the
//! same run.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a bench has a clock and no users"
)]

use std::time::{Duration, Instant as Clock};
use vrdma_tcp::{Config, Connection, Instant, Ports, Source};
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

/// Maximum unacknowledged bytes of a user: those of the daemon.
const MOST_BYTES: u64 = 1 << 20;
/// The MSS that the peer announces.
const MSS: u16 = 64;
const REPEATS: usize = 501;
const LIMIT: Duration = Duration::from_micros(10);
/// The round-trip time in nanoseconds.
const ROUND: u64 = 1_000_000;

/// A stream that ends where the user's buffer ends.
struct Stream(u64);

impl Source for Stream {
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        self.0.saturating_sub(offset).min(most.into()) as u32
    }
}

/// A connection, and what its peer knows of it.
#[derive(Clone)]
struct Case {
    connection: Connection,
    now: Instant,
    /// The numbers on the wire at which outstanding segments begin, and the end of the last.
    cuts: Vec<u32>,
}

impl Case {
    fn header(&self, ack: u32, sacks: &[(u32, u32)]) -> TcpHeader {
        let options = Options {
            sacks: sacks.iter().copied().collect(),
            timestamps: Some((1, (self.now.0 / 1_000_000) as u32)),
            ..Options::default()
        };
        TcpHeader {
            src_port: 2,
            dst_port: 1,
            seq: 1,
            ack,
            flags: Flags::ACK,
            window: u16::MAX,
            urgent: 0,
            options,
        }
    }

    fn arrives(&mut self, header: &TcpHeader) {
        self.connection.handle_segment(self.now, header, 0, &mut |arrival| arrival.at.len());
    }

    /// Sends what may be sent, and returns the number of segments.
    fn send(&mut self) -> usize {
        let mut source = Stream(self.connection.acknowledged() + MOST_BYTES);
        let mut sent = 0;
        while let Some(segment) = self.connection.poll_transmit(self.now, &mut source) {
            let length = (segment.data.end - segment.data.start) as u32;
            if length > 0 {
                sent += 1;
                for cut in [segment.header.seq, segment.header.seq + length] {
                    if let Err(at) = self.cuts.binary_search(&cut) {
                        self.cuts.insert(at, cut);
                    }
                }
            }
        }
        sent
    }

    /// Returns a connection with the maximum number of outstanding segments, to a peer with this
    /// MSS.
    fn full(mss: u16) -> Case {
        let config = Config { fpdus: true, min_mss: 216, ..Config::default() };
        let connection = Connection::connect(config, Ports { local: 1, remote: 2 }, 0, 0, Instant(0));
        let mut case = Case { connection, now: Instant(0), cuts: vec![1] };
        case.send();
        let options = Options {
            mss: Some(mss),
            sack_permitted: true,
            window_scale: Some(14),
            timestamps: Some((1, 0)),
            fpdus: Some(0),
            ..Options::default()
        };
        let syn = TcpHeader { seq: 0, flags: Flags::SYN | Flags::ACK, options, ..case.header(1, &[]) };
        case.arrives(&syn);
        // The window opens while everything arrives, until it is no longer the limit.
        let mut before = 0;
        loop {
            case.send();
            if case.segments() == before {
                return case;
            }
            before = case.segments();
            case.now = Instant(case.now.0 + ROUND);
            for cut in std::mem::take(&mut case.cuts).split_off(1) {
                let header = case.header(cut, &[]);
                case.arrives(&header);
                case.cuts = vec![cut];
            }
        }
    }

    /// Returns a connection whose segments had to be split.
    ///
    /// A router reports that the path takes less. Of each split segment, all parts except the first
    /// are sacked.
    fn in_parts() -> Case {
        let mut case = Case::full(1000);
        assert!(case.connection.handle_too_long(case.first(), 216));
        loop {
            case.now = Instant(case.now.0 + ROUND);
            if case.send() == 0 {
                return case;
            }
            let sacks: Vec<TcpHeader> = (1..case.segments()).map(|at| case.sack(&[(at, at + 1)])).collect();
            // Segments that are still whole are sacked last, when no more can be split.
            let is_cut = |header: &&TcpHeader| {
                header.options.sacks.as_slice().iter().all(|(from, to)| to - from <= 216)
            };
            sacks.iter().filter(is_cut).for_each(|header| case.arrives(header));
        }
    }

    fn segments(&self) -> usize {
        self.cuts.len() - 1
    }

    fn first(&self) -> u32 {
        self.cuts[0]
    }

    fn last(&self) -> u32 {
        self.cuts[self.segments()]
    }

    /// Returns an ACK that sacks ranges of whole segments, given by indices of boundaries.
    fn sack(&self, blocks: &[(usize, usize)]) -> TcpHeader {
        let blocks: Vec<_> = blocks.iter().map(|&(from, to)| (self.cuts[from], self.cuts[to])).collect();
        self.header(self.first(), &blocks)
    }

    /// Returns a copy of the connection after these segments, a round trip later.
    fn after(&self, headers: &[TcpHeader]) -> Case {
        let mut case = self.clone();
        case.now = Instant(case.now.0 + ROUND);
        headers.iter().for_each(|header| case.arrives(header));
        case
    }

    /// Returns the cost of an ACK.
    fn cost(&self, header: &TcpHeader) -> Duration {
        let mut costs: Vec<Duration> = (0..REPEATS)
            .map(|_| {
                let mut case = self.clone();
                let begun = Clock::now();
                case.arrives(header);
                begun.elapsed()
            })
            .collect();
        costs.sort_unstable();
        costs[REPEATS / 10]
    }

    /// Returns the cost of the most expensive ACK for this connection.
    fn dearest(&self) -> Duration {
        let (n, fresh) = (self.segments(), self.after(&[]));
        let every_other: Vec<TcpHeader> =
            (1..n - 1).step_by(2).map(|at| self.sack(&[(at, at + 1)])).collect();
        let sacked = self.after(&[self.sack(&[(1, n - 1)])]);
        let combed = self.after(&every_other);
        let over_all = self.sack(&[(1, n); 4]);
        let some = self.sack(&[(n - 1, n), (2, 3), (4, 5), (6, 7)]);
        let all = self.header(self.last(), &[]);
        let usual = fresh.cost(&self.header(self.cuts[2], &[]));
        println!("{n} segments outstanding, of {} bytes", self.connection.mss());
        println!("{:>8.2} us: two are acknowledged (the usual)", micros(usual));
        let mut dearest = Duration::ZERO;
        for (name, cost) in [
            ("all but the first are sacked", fresh.cost(&over_all)),
            ("the same is said again", fresh.after(&[self.sack(&[(1, n)])]).cost(&over_all)),
            ("one more is sacked, by blocks over all", sacked.cost(&over_all)),
            ("one more is sacked", fresh.after(&[self.sack(&[(1, 2)])]).cost(&self.sack(&[(3, 4)]))),
            ("the gaps between sacked ones are filled", combed.cost(&over_all)),
            ("the last is sacked, so all others are lost", fresh.cost(&self.sack(&[(n - 1, n)]))),
            ("some more are sacked when every other one is", combed.cost(&some)),
            ("all are acknowledged", fresh.cost(&all)),
            ("all are acknowledged, of which all but one are sacked", sacked.cost(&all)),
            ("all are acknowledged, of which every other one is sacked", combed.cost(&all)),
        ] {
            let ratio = cost.as_secs_f64() / usual.as_secs_f64();
            println!("{:>8.2} us, {ratio:>5.0} times the usual: {name}", micros(cost));
            dearest = dearest.max(cost);
        }
        dearest
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn main() {
    let dearest = Case::full(MSS).dearest().max(Case::in_parts().dearest());
    println!("{:>8.2} us: the dearest; at most {:.0} us", micros(dearest), micros(LIMIT));
    assert!(dearest <= LIMIT, "an acknowledge that a peer can cause costs too much");
}
