//! The state of requests: which are sent, outstanding and acknowledged. Pure state, without I/O.
//!
//! The send queue is the retransmit buffer. Its first request begins with PSN `base`, from which
//! the PSNs of all others follow. Answered PSNs end before `una`. PSNs that were sent, for the
//! first time or again, end at the [`Cursor`]. PSNs that were ever sent end before the PSN of
//! [`Requester`](crate::objects::qp::requester::Requester).

mod save;

use crate::collections::pool::At;
use crate::objects::roce::packet::OVERHEAD;
use crate::objects::roce::psn::ahead;
use crate::verbs::op::SendOp;
use crate::verbs::work::Work;
use core::mem;
use vrdma_wire::num::{AethMsn, Mtu, Psn};
use vrdma_wire::roce::Credits;

/// The position of the next packet to send.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Cursor {
    /// The request, or `None` if all have been sent.
    pub(crate) at: Option<At>,
    /// First PSN of that request.
    pub(crate) first: Psn,
    /// PSNs of that request that were sent. For a READ, PSNs that were asked for.
    pub(crate) sent: u32,
    /// Number of that request: the responder's MSN when it is executed.
    ssn: AethMsn,
}

/// The requester's state.
#[derive(Debug)]
pub(crate) struct RequesterState {
    /// First PSN of the first request.
    base: Psn,
    /// Number of the first request.
    ssn: AethMsn,
    /// The oldest PSN without an answer.
    pub(crate) una: Psn,
    pub(crate) cursor: Cursor,
    /// Number of READs and atomics before the cursor, which are all outstanding.
    pub(crate) reads: u32,
    /// Number of outstanding responses to them.
    awaited: u32,
    /// Most request packets without an acknowledge.
    ///
    /// After a loss everything in it may have to be sent again, so such a loss halves it. It also
    /// gets narrower if a loss comes with a queue on the path. Each acknowledge widens it by one.
    /// Beyond [`USUAL_WINDOW`] it widens only after a whole window was acknowledged.
    pub(crate) window: u16,
    /// Packets that were acknowledged since the window grew, if it is wider than usual.
    acknowledged: u16,
    /// Packets since the last one that requested an acknowledge.
    pub(crate) since_ack_req: u8,
    /// Whether nothing was answered since it began, or since it was idle. What the path carries is
    /// not known then.
    pub(crate) is_new: bool,
    /// Whether the packets from `una` on were already retransmitted, because of a NAK or a gap in
    /// the responses.
    pub(crate) retransmitted: bool,
    /// MSN of the last request that the peer has a receive for; `None` if it does not tell.
    limit: Option<AethMsn>,
    /// Bytes of frames with requests that were acknowledged, modulo 2 to the power of 64.
    pub(crate) carried: u64,
}

/// The effect of an acknowledge on the first request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Acked {
    /// The request is complete.
    First,
    /// Nothing more was acknowledged.
    NoMore,
    /// The responses to the request should have arrived before, and are missing.
    Lost,
}

/// Returns the PSNs of a request (IBTA 9.7.3.2: a READ takes those of its responses).
pub(crate) fn psns(work: &Work<'_>, mtu: Mtu) -> u32 {
    work.row.psns(mtu, work.length)
}

/// The widest window. In packets of 4 KiB it is what a link of 100 Gb/s carries in 160 us.
const WINDOW: u16 = 512;
/// The window of a new connection, for which most receivers have room.
const USUAL_WINDOW: u16 = 128;
/// The narrowest window.
const MIN_WINDOW: u16 = 4;
/// Most bytes that are sent in the first round trip. It is half of the usual window at an MTU of
/// 4096.
const FIRST: u32 = 256 << 10;
const _: () = assert!(FIRST / 4096 >= ACK_REQ_EVERY as u32);
/// Packets of a long message after which one requests an acknowledge. The last packet of each
/// message always does.
const ACK_REQ_EVERY: u8 = 32;

impl RequesterState {
    pub(crate) fn new() -> RequesterState {
        let cursor = Cursor { at: None, first: Psn::default(), sent: 0, ssn: AethMsn::default() };
        RequesterState {
            base: Psn::default(),
            ssn: AethMsn::default(),
            una: Psn::default(),
            cursor,
            reads: 0,
            awaited: 0,
            window: USUAL_WINDOW,
            acknowledged: 0,
            since_ack_req: 0,
            is_new: true,
            retransmitted: false,
            limit: None,
            carried: 0,
        }
    }

    /// Sets the PSN of the request at `first`, or of the next request to be posted.
    pub(crate) fn start(&mut self, psn: Psn, first: Option<At>) {
        (self.base, self.una, self.is_new) = (psn, psn, true);
        self.limit = None;
        self.go_back(first);
    }

    /// Records a request that was added to the end of the queue.
    pub(crate) fn posted(&mut self, last: Option<At>) {
        if self.cursor.at.is_none() {
            self.cursor.at = last;
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.cursor.at.is_some()
    }

    /// Returns the first PSN of the first request.
    pub(crate) fn first(&self) -> Psn {
        self.base
    }

    /// Returns the PSN that is sent next.
    pub(crate) fn next(&self) -> Psn {
        self.cursor.first.add(self.cursor.sent)
    }

    /// Returns the number of request packets that were sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u32 {
        ahead(self.next(), self.una).saturating_sub(self.awaited)
    }

    /// Returns the number of outstanding responses to READs and atomics.
    pub(crate) fn awaited(&self) -> u32 {
        self.awaited
    }

    /// Returns the number of PSNs of the first request that were answered.
    pub(crate) fn answered(&self) -> u32 {
        ahead(self.una, self.base)
    }

    /// Whether a request packet has to wait for acknowledges. No more than `most` may be
    /// outstanding.
    pub(crate) fn window_is_full(&self, most: u32) -> bool {
        self.in_flight() >= most.min(self.window.into())
    }

    /// Whether the next packet, which stands for `psns` PSNs, has to request an acknowledge.
    pub(crate) fn ack_req_due(&self, psns: u32) -> bool {
        u32::from(self.since_ack_req) + psns >= u32::from(ACK_REQ_EVERY).min(u32::from(self.window / 2))
    }

    /// Returns the most packets that may be outstanding while nothing is known of the path.
    ///
    /// Many senders may begin at the same time. An acknowledge is requested before so many packets
    /// were sent.
    pub(crate) fn most_of_first(&self, mtu: Mtu) -> u32 {
        if self.is_new { FIRST / mtu.bytes() } else { u32::MAX }
    }

    /// Narrows the window a little after a loss on a path with a queue.
    pub(crate) fn narrow_a_little(&mut self) {
        self.window = (self.window - self.window / 4).max(MIN_WINDOW);
        self.acknowledged = 0;
    }

    /// Narrows the window after a loss.
    pub(crate) fn narrow(&mut self) {
        self.window = (self.window / 2).max(MIN_WINDOW);
        self.acknowledged = 0;
    }

    /// Widens the window after this many packets were acknowledged at once.
    ///
    /// Beyond the usual width it grows only while at least half of it is in use. Otherwise nothing
    /// shows that the peer keeps up with all of it.
    pub(crate) fn widen(&mut self, packets: u32) {
        if self.window < USUAL_WINDOW {
            self.window += 1;
        } else if self.window < WINDOW && self.in_flight() + packets >= u32::from(self.window / 2) {
            self.acknowledged = self.acknowledged.saturating_add(packets.min(WINDOW.into()) as u16);
            if self.acknowledged >= self.window {
                self.window += 1;
                self.acknowledged = 0;
            }
        }
    }

    /// Whether the request at the cursor is the first of the queue, and so the next to end.
    pub(crate) fn cursor_is_first(&self) -> bool {
        self.cursor.first == self.base
    }

    /// Moves the cursor back, so that everything outstanding is retransmitted (go-back-N).
    ///
    /// `first` is the queue's first request.
    pub(crate) fn go_back(&mut self, first: Option<At>) {
        self.cursor = Cursor { at: first, first: self.base, sent: self.answered(), ssn: self.ssn };
        (self.reads, self.awaited, self.since_ack_req) = (0, 0, 0);
    }

    /// Moves the cursor back behind `work`, the first request, which is a READ. `after` is the
    /// request behind it.
    pub(crate) fn go_back_behind_first(&mut self, work: &Work<'_>, mtu: Mtu, after: Option<At>) {
        let psns = psns(work, mtu);
        self.cursor = Cursor { at: after, first: self.base.add(psns), sent: 0, ssn: self.ssn.next() };
        (self.reads, self.awaited, self.since_ack_req) = (1, psns - self.answered(), 0);
    }

    /// Whether the peer's credits do not cover the request at the cursor.
    pub(crate) fn lacks_credit(&self, op: &SendOp) -> bool {
        let number = self.cursor.ssn.next().number();
        op.takes_receive()
            && self
                .limit
                .is_some_and(|limit| Psn::truncate(limit.number()).distance(Psn::truncate(number)) < 0)
    }

    /// Takes the peer's credits (IBTA 9.7.7.2). Returns whether they are others than before.
    pub(crate) fn credited(&mut self, msn: AethMsn, credits: Credits) -> bool {
        let limit = credits.count().map(|count| AethMsn::truncate(msn.number() + count));
        mem::replace(&mut self.limit, limit) != limit
    }

    /// Records that a packet of `work`, the request at the cursor, was sent.
    ///
    /// It stands for `count` of the request's `psns`. `after` is the request behind it.
    pub(crate) fn packet_sent(&mut self, work: &Work<'_>, count: u32, psns: u32, after: Option<At>) {
        let response = work.row.has_response();
        self.cursor.sent += count;
        if response {
            self.awaited += count;
        }
        if self.cursor.sent < psns {
            return;
        }
        if response {
            self.reads += 1;
        }
        self.skip(psns, after);
    }

    /// Moves the cursor to the next request.
    fn skip(&mut self, psns: u32, after: Option<At>) {
        let Cursor { first, ssn, .. } = self.cursor;
        self.cursor = Cursor { at: after, first: first.add(psns), sent: 0, ssn: ssn.next() };
    }

    /// Records that everything before `end` was acknowledged.
    ///
    /// This covers all, a part or nothing of `work`, the first request.
    pub(crate) fn acknowledged(&mut self, end: Psn, work: &Work<'_>, mtu: Mtu) -> Acked {
        let more = ahead(end, self.una);
        if more == 0 {
            return Acked::NoMore;
        }
        if work.row.has_response() {
            return Acked::Lost;
        }
        let left = psns(work, mtu) - self.answered();
        let count = more.min(left);
        let payload = u64::from(count) * u64::from(mtu.bytes());
        let rest = u64::from(work.length).saturating_sub(u64::from(self.answered()) * u64::from(mtu.bytes()));
        self.carried = self.carried.wrapping_add(payload.min(rest) + u64::from(count) * OVERHEAD);
        self.una = self.una.add(count);
        if more >= left {
            return Acked::First;
        }
        self.not_behind();
        Acked::NoMore
    }

    /// Records the next response to `work`, the first request, which stands for `count` PSNs.
    ///
    /// Returns true if it was the last response.
    pub(crate) fn responded(&mut self, work: &Work<'_>, mtu: Mtu, count: u32) -> bool {
        self.una = self.una.add(count);
        // Responses that have not been requested again yet are not awaited.
        let unasked = match self.cursor_is_first() {
            true => self.answered().saturating_sub(self.cursor.sent).min(count),
            false => 0,
        };
        self.awaited = self.awaited.saturating_sub(count - unasked);
        self.not_behind();
        self.answered() == psns(work, mtu)
    }

    /// Moves the cursor forward if it is before answered PSNs, which need no retransmit.
    fn not_behind(&mut self) {
        if self.cursor_is_first() {
            self.cursor.sent = self.cursor.sent.max(self.answered());
        }
    }

    /// Records that the first request, at the cursor, ended without a packet.
    ///
    /// It leaves the queue, and the responder never counts it. `after` is the request behind it.
    pub(crate) fn first_ended_alone(&mut self, after: Option<At>) {
        debug_assert!(self.cursor_is_first() && self.una == self.base, "all before it have ended");
        self.cursor.at = after;
    }

    /// Records that `work`, the first request, succeeded and leaves the queue. `after` is the
    /// request behind it.
    pub(crate) fn first_ended(&mut self, work: &Work<'_>, mtu: Mtu, after: Option<At>) {
        let psns = psns(work, mtu);
        if self.cursor_is_first() {
            self.skip(psns, after);
        } else if work.row.has_response() {
            self.reads = self.reads.saturating_sub(1);
        }
        self.base = self.base.add(psns);
        self.una = self.base;
        self.ssn = self.ssn.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::op::Remote;
    use crate::verbs::work::Flags;

    const READ: SendOp = SendOp::Read { remote: Remote { addr: 0, rkey: vrdma_wire::num::Rkey(0) } };
    const SEND: SendOp = SendOp::Send { imm: None };

    fn work(op: &SendOp, length: u32) -> Work<'_> {
        Work { length, ..Work::plain(op, 0, Flags::new(true, false, false)) }
    }

    #[test]
    fn the_longest_read_takes_half_of_the_psns() {
        let first = Psn::truncate(0xff_fff0);
        let read = work(&READ, 1 << 31);
        let all = psns(&read, Mtu::M256);
        assert_eq!(all, 1 << 23);
        let mut requester = RequesterState::new();
        requester.start(first, None);
        requester.packet_sent(&read, all, all, None);
        assert_eq!(
            (ahead(requester.next(), requester.una), requester.in_flight(), requester.reads),
            (1 << 23, 0, 1)
        );
        for _ in 0..all - 1 {
            assert!(!requester.responded(&read, Mtu::M256, 1));
        }
        assert!(requester.responded(&read, Mtu::M256, 1));
        requester.first_ended(&read, Mtu::M256, None);
        assert_eq!(
            (requester.next(), requester.una, requester.reads),
            (first.add(1 << 23), first.add(1 << 23), 0)
        );
    }

    #[test]
    fn losses_narrow_the_window_and_acknowledges_widen_it() {
        let mut requester = RequesterState::new();
        let message = work(&SEND, 1 << 20);
        let burst = |requester: &mut RequesterState| {
            let mut asked = 0;
            for _ in 0..4096 {
                if requester.window_is_full(u32::MAX) {
                    break;
                }
                asked += u32::from(requester.ack_req_due(1));
                requester.since_ack_req =
                    if requester.ack_req_due(1) { 0 } else { requester.since_ack_req + 1 };
                requester.packet_sent(&message, 1, 4096, None);
            }
            (requester.in_flight(), asked)
        };
        requester.start(Psn::default(), None);
        assert_eq!(burst(&mut requester), (128, 4));
        let mut widths = Vec::new();
        for _ in 0..7 {
            requester.narrow();
            requester.go_back(None);
            widths.push(burst(&mut requester));
        }
        assert_eq!(widths, [(64, 2), (32, 2), (16, 2), (8, 2), (4, 2), (4, 2), (4, 2)]);
        requester.widen(1);
        assert_eq!(burst(&mut requester), (5, 0));
        (0..500).for_each(|_| requester.widen(1));
        assert_eq!(burst(&mut requester).0, 128);
    }

    #[test]
    fn a_window_that_is_used_grows_until_it_is_as_wide_as_may_be() {
        let mut requester = RequesterState::new();
        requester.start(Psn::default(), None);
        let message = work(&SEND, 1 << 31);
        let fill = |requester: &mut RequesterState, most| {
            while requester.in_flight() < most && !requester.window_is_full(u32::MAX) {
                requester.packet_sent(&message, 1, u32::MAX, None);
            }
        };
        for _ in 0..10_000 {
            fill(&mut requester, 63);
            let end = requester.next();
            assert_eq!(requester.acknowledged(end, &message, Mtu::M256), Acked::NoMore);
            requester.widen(63);
        }
        assert_eq!(requester.window, USUAL_WINDOW, "less than half of it was ever used");
        for _ in 0..10_000 {
            fill(&mut requester, u32::MAX);
            let (end, count) = (requester.next(), requester.in_flight());
            assert_eq!(requester.acknowledged(end, &message, Mtu::M256), Acked::NoMore);
            requester.widen(count);
        }
        assert_eq!(requester.window, WINDOW);
        assert!(u32::from(WINDOW) * Mtu::M4096.bytes() > 1_250_000, "100 Gb/s for 100 us");
        requester.narrow();
        assert_eq!(requester.window, WINDOW / 2);
    }

    #[test]
    fn an_acknowledge_overtakes_a_cursor_that_went_back() {
        let mut requester = RequesterState::new();
        requester.start(Psn::truncate(5), None);
        let message = work(&SEND, 1000);
        for _ in 0..4 {
            requester.packet_sent(&message, 1, 4, None);
        }
        assert_eq!(requester.acknowledged(Psn::truncate(6), &message, Mtu::M256), Acked::NoMore);
        requester.go_back(None);
        assert_eq!((requester.next(), requester.in_flight()), (Psn::truncate(6), 0));
        assert_eq!(requester.acknowledged(Psn::truncate(8), &message, Mtu::M256), Acked::NoMore);
        assert_eq!((requester.next(), requester.in_flight()), (Psn::truncate(8), 0));
        assert_eq!(requester.acknowledged(Psn::truncate(9), &message, Mtu::M256), Acked::First);
        requester.first_ended(&message, Mtu::M256, None);
        assert_eq!((requester.next(), requester.una), (Psn::truncate(9), Psn::truncate(9)));
    }

    #[test]
    fn an_acknowledge_past_a_read_says_that_its_response_is_missing() {
        let mut requester = RequesterState::new();
        requester.start(Psn::truncate(5), None);
        let read = work(&READ, 1000);
        requester.packet_sent(&read, 4, 4, None);
        assert_eq!(requester.acknowledged(Psn::truncate(5), &read, Mtu::M256), Acked::NoMore);
        assert_eq!(requester.acknowledged(Psn::truncate(6), &read, Mtu::M256), Acked::Lost);
        assert_eq!(requester.una, Psn::truncate(5));
    }

    #[test]
    fn credits_count_messages() {
        let mut requester = RequesterState::new();
        requester.start(Psn::truncate(0xff_ffff), None);
        assert!(!requester.lacks_credit(&SEND), "no word of credits so far");
        let credits = |count| Credits::at_most(count);
        for (msn, count, lacks) in [(0, 0, true), (0, 1, false), (0xff_ffff, 2, false), (0xff_ffff, 1, true)]
        {
            requester.credited(AethMsn::truncate(msn), credits(count));
            assert_eq!(
                (requester.lacks_credit(&SEND), requester.lacks_credit(&READ)),
                (lacks, false),
                "{msn} {count}"
            );
        }
    }
}
