//! Random actions on an SRQ, against a model that knows only which receives are outstanding.

use super::*;
use crate::base::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Connections of three QP types that share an SRQ, and their outstanding requests.
struct Story {
    group: Group,
    rng: Rng,
    /// Receives that were posted and have not completed.
    outstanding: BTreeSet<u32>,
    max_wr: u32,
    /// Time at which each send was posted.
    sends: BTreeMap<(DeviceId, u32), Instant>,
    next: u32,
    limit: u32,
    /// Whether receives are scarce.
    is_poor: bool,
    ends: BTreeMap<&'static str, u32>,
}

const CONNECTIONS: usize = 6;

impl Story {
    fn new(seed: u64) -> Story {
        let mut group = Group::new(CONNECTIONS / 2);
        let c = third_device(&mut group.pair);
        (0..CONNECTIONS / 2).for_each(|_| group.connect_from(&c));
        let (rng, ends) = (Rng::new(seed), BTreeMap::new());
        let (outstanding, sends) = (BTreeSet::new(), BTreeMap::new());
        Story { group, rng, outstanding, max_wr: 8, sends, next: 0, limit: 0, is_poor: seed % 2 == 1, ends }
    }

    fn pick(&mut self, most: usize) -> usize {
        (self.rng.next() % most as u64) as usize
    }

    fn count(&mut self, what: &'static str) {
        *self.ends.entry(what).or_default() += 1;
    }

    fn act(&mut self) {
        let at = self.pick(CONNECTIONS);
        match self.pick(20) {
            0..5 => {
                if !self.is_poor || self.pick(4) == 0 {
                    self.post_receive();
                }
            }
            5..10 => self.post_send(at),
            10..14 => {
                let budget = [1, 1 << 18, u64::MAX][self.pick(3)];
                let Pair { engine, now, log, .. } = &mut self.group.pair;
                engine.poll(*now, budget, log);
            }
            14 => _ = answer_all(&mut self.group.pair.engine, self.group.pair.now, &mut self.group.pair.log),
            15 => {
                let more = Duration::from_micros(self.rng.next() % 1500);
                self.group.pair.now = self.group.pair.now + more;
            }
            16 => self.resize(),
            17 => self.arm(),
            18 => self.connect_anew(at),
            _ if self.pick(3) == 0 => {
                let device =
                    [self.group.pair.a.device, self.group.pair.b.device, self.group.senders[5].device];
                let device = device[self.pick(3)];
                self.group.pair.engine.set_suspended(device, true);
                self.group.pair.engine.poll(self.group.pair.now, 1 << 16, &mut self.group.pair.log);
                self.group.pair.engine.set_suspended(device, false);
            }
            _ => self.group.pair.engine = save::copied(&self.group.pair.engine),
        }
        self.look();
    }

    fn post_receive(&mut self) {
        if self.outstanding.len() as u32 == self.max_wr {
            return;
        }
        self.next += 1;
        let length = [1 << 10, LONG, LONG, LONG][self.pick(4)];
        let Group { pair: Pair { engine, log, .. }, shared, .. } = &mut self.group;
        let sges = [shared.end.sge(0, length)];
        let request = RecvRequest { id: self.next, sges: &sges };
        engine.post_srq_recv(shared.end.device, OWNER, shared.srq, request, log).unwrap();
        self.outstanding.insert(self.next);
    }

    fn post_send(&mut self, at: usize) {
        let length = [1, 1000, 5000, LONG][self.pick(4)];
        self.next += 1;
        let Group { pair: Pair { engine, now, log, .. }, senders, .. } = &mut self.group;
        let end = &senders[at];
        let payload = [end.sge(0, length)];
        let payload = Payload::Sges(&payload);
        let request =
            SendRequest { id: self.next, signaled: true, solicited: false, fence: false, op: SEND, payload };
        if engine.query_qp(end.device, end.qpn).unwrap().state == QpState::Rts
            && self.sends.keys().filter(|key| key.0 == end.device).count() < 10
        {
            self.sends.insert((end.device, self.next), *now);
            engine.post_send(*now, end.device, OWNER, end.qpn, &request, log).unwrap();
        }
    }

    fn resize(&mut self) {
        let (max_wr, taken) = (1 + self.pick(12) as u32, self.outstanding.len() as u32);
        let fits = max_wr >= taken && max_wr >= self.group.query().limit;
        assert_eq!(self.group.modify(Some(max_wr), None).is_ok(), fits, "{max_wr} of {taken}");
        if fits {
            self.max_wr = max_wr;
            self.count("resized");
        }
    }

    fn arm(&mut self) {
        let limit = 1 + self.pick(3) as u32;
        if limit <= self.max_wr {
            self.limit = limit;
            self.group.modify(None, Some(limit)).unwrap();
        }
    }

    /// Destroys or resets one or both ends of a connection, sometimes through ERR.
    fn connect_anew(&mut self, at: usize) {
        let Group { pair, shared, senders, receivers } = &mut self.group;
        let (a, b) = (senders[at].clone(), receivers[at].clone());
        if self.rng.next().is_multiple_of(2) {
            pair.go(&b, QpState::Err);
        }
        if self.rng.next().is_multiple_of(4) {
            pair.engine.destroy_qp(b.device, b.qpn).unwrap();
            receivers[at].qpn = pair.engine.create_qp(b.device, shared.init(&b)).unwrap();
        } else {
            pair.go(&b, QpState::Reset);
        }
        self.look();
        self.group.pair.go(&a, QpState::Err);
        self.look();
        let Group { pair, receivers, .. } = &mut self.group;
        let b = receivers[at].clone();
        pair.go(&a, QpState::Reset);
        pair.connect(&b, attr_to(&a), QpState::Rts);
        pair.connect(&a, attr_to(&b), QpState::Rts);
        self.count("connected anew");
    }

    /// Asserts that completed receives were outstanding, and that outstanding ones exist.
    fn look(&mut self) {
        let b = self.group.pair.b.device;
        let now = self.group.pair.now;
        for (device, cq, completion) in std::mem::take(&mut self.group.pair.log.completions) {
            let Completion { id, status, .. } = completion;
            if (device, cq) == (b, RECV_CQ) {
                assert!(self.outstanding.remove(&id), "{id} was outstanding");
                self.count(if status == OK { "received" } else { "failed receives" });
                continue;
            }
            let since = self.sends.remove(&(device, id)).expect("it was posted");
            match status {
                WcStatus::RnrRetryExc => {
                    assert!(now >= since + RNR * 2, "a retry was spent before its time");
                    self.count("without a receive");
                }
                OK => self.count("sent"),
                _ => {}
            }
        }
        let held = self.group.pair.engine.counts(b).pending_receives;
        assert_eq!(held, self.outstanding.len() as u64, "no receive is lost");
        let (limit, left) = (self.group.srq().limit, self.group.srq().receives.len());
        assert_eq!(self.group.srq().outstanding(), self.outstanding.len() as u32);
        assert!(limit == 0 || left >= limit);
        for (_, event) in std::mem::take(&mut self.group.pair.log.events) {
            if event == Event::SrqLimitReached(self.group.shared.srq) {
                assert!(std::mem::take(&mut self.limit) > 0, "it was armed");
                assert_eq!(limit, 0);
                self.count("limits reached");
            }
        }
    }

    /// Lets everything complete that needs no time to pass.
    fn settle(&mut self) {
        self.group.pair.run();
        self.look();
        assert!(!self.group.srq().is_wanted(), "who waits had its receive");
    }
}

#[test]
fn no_receive_is_lost_and_nobody_waits_for_one_that_is_there() {
    let mut ends = BTreeMap::new();
    for seed in 0..60 {
        let mut story = Story::new(seed);
        for step in 0..300 {
            story.act();
            if step % 16 == 0 {
                story.settle();
            }
        }
        story.settle();
        for (what, count) in story.ends {
            *ends.entry(what).or_insert(0) += count;
        }
    }
    println!("{ends:?}");
    for what in ["received", "failed receives", "sent", "without a receive", "limits reached", "resized"] {
        assert!(ends.get(what).is_some_and(|&count| count > 20), "{what}: {ends:?}");
    }
}
