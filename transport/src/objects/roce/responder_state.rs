//! What the responder has to send: acknowledges, NAKs, and responses to READs and atomics, which
//! may be requested again. Pure state, without I/O.

mod save;

use crate::base::id::PdId;
use crate::objects::roce::packet::OVERHEAD;
use crate::objects::roce::psn::{HALF, ahead};
use vrdma_wire::num::{AethMsn, Mtu, Psn, Rkey};
use vrdma_wire::roce::{Reth, Syndrome};

/// A NAK that is to be sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingNak {
    pub(crate) psn: Psn,
    pub(crate) syndrome: Syndrome,
    /// Whether the QP is in ERR because of it. Nothing is then sent after it.
    pub(crate) fatal: bool,
}

/// A READ or atomic that was executed or accepted, and what of its response is to be sent.
///
/// IBTA 9.7.7 calls them responder resources.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Resource {
    /// The first PSN.
    pub(crate) psn: Psn,
    /// Number of PSNs.
    pub(crate) psns: u32,
    /// The MSN of its response.
    pub(crate) msn: AethMsn,
    pub(crate) kind: ResponseKind,
    state: Pending,
    /// Response packet with which this response begins. It is not 0 if the rest was requested
    /// again.
    pub(crate) from: u32,
    /// The next response packet.
    pub(crate) next: u32,
    /// Response packet behind the last one of this response. It is not that of the READ if a part
    /// was requested again.
    pub(crate) to: u32,
    /// Response packet with which the rest of the READ goes on after this response, or 0.
    then: u32,
}

/// The operation of a [`Resource`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ResponseKind {
    /// None yet.
    None,
    /// A READ of this memory, in that PD.
    ///
    /// It is executed when it is answered, and again when it is requested again (IBTA 9.7.5.1.3).
    Data(Reth, PdId),
    /// An operation that is executed once. An atomic found this value.
    Once(Option<u64>),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Pending {
    /// Nothing is to be sent.
    Nothing,
    /// All or part of the response is to be sent for the first time.
    First,
    /// The response was sent in full, and was requested again.
    Again,
}

const UNUSED: Resource = Resource {
    psn: Psn::truncate(0),
    psns: 0,
    msn: AethMsn::truncate(0),
    kind: ResponseKind::None,
    state: Pending::Nothing,
    from: 0,
    next: 0,
    to: 0,
    then: 0,
};

/// Packets after which an acknowledge is due, requested or not.
const ACK_EVERY: u8 = 64;

/// The responder's state.
#[derive(Debug)]
pub(crate) struct ResponderState {
    /// Messages executed (IBTA 9.7.7.1).
    pub(crate) msn: AethMsn,
    /// Memory of the WRITE in progress.
    pub(crate) write: Reth,
    /// Whether an acknowledge is due.
    ack: bool,
    /// Packets that arrived since the last acknowledge was due.
    unacknowledged: u8,
    /// Whether a NAK for the expected PSN was sent. Until that packet arrives, all later packets
    /// are dropped without another NAK.
    nak_sent: bool,
    /// Whether the NAK for the expected PSN was an RNR NAK. The peer then waits, and sends that
    /// packet and all later ones again.
    peer_waits: bool,
    /// First PSN of an inter-worker packet for which posts were drained. The packet was dropped in
    /// the meantime.
    pub(crate) looked: Option<Psn>,
    pub(crate) nak: Option<PendingNak>,
    /// The last READs and atomics, in a ring whose last entry is `newest`.
    ///
    /// It is empty before the first READ or atomic, because many QPs never have one.
    resources: Box<[Resource]>,
    newest: usize,
    /// Size of the ring once it has entries.
    most: u8,
    /// Number of entries whose response is to be sent.
    pending: u32,
    /// Bytes of frames with data for which READs asked the first time, modulo 2 to the power of 64.
    pub(crate) asked: u64,
}

impl ResponderState {
    /// Makes the state for this many READs and atomics outstanding.
    pub(crate) fn new(resources: u8) -> ResponderState {
        ResponderState {
            msn: AethMsn::default(),
            write: Reth { va: 0, rkey: Default::default(), length: 0 },
            ack: false,
            unacknowledged: 0,
            nak_sent: false,
            peer_waits: false,
            looked: None,
            nak: None,
            resources: Box::default(),
            newest: 0,
            most: resources,
            pending: 0,
            asked: 0,
        }
    }

    /// Changes how many READs and atomics may be outstanding. The newest ones are still remembered.
    pub(crate) fn resize(&mut self, resources: u8) {
        let mut changed = ResponderState::new(resources);
        let old = self.resources.len();
        for age in (0..old.min(changed.most.into())).rev() {
            changed.push(self.resources[(self.newest + old - age) % old]);
        }
        (self.resources, self.newest, self.pending) = (changed.resources, changed.newest, changed.pending);
        self.most = resources;
    }

    /// Whether there is room for one more READ or atomic.
    ///
    /// There is none if as many as the QP allows are outstanding.
    pub(crate) fn has_room(&self) -> bool {
        match self.resources.get(self.oldest()) {
            Some(oldest) => oldest.state != Pending::First,
            None => self.most > 0,
        }
    }

    fn oldest(&self) -> usize {
        if self.newest + 1 < self.resources.len() { self.newest + 1 } else { 0 }
    }

    fn push(&mut self, resource: Resource) {
        if self.resources.is_empty() {
            self.resources = vec![UNUSED; self.most.into()].into();
        }
        self.newest = self.oldest();
        let slot = &mut self.resources[self.newest];
        // If this entry was requested again, the peer has the response meanwhile. Otherwise it
        // could not send more requests.
        self.pending -= u32::from(slot.state != Pending::Nothing);
        self.pending += u32::from(resource.state != Pending::Nothing);
        *slot = resource;
    }

    /// Records that a SEND or WRITE packet was executed.
    pub(crate) fn accepted(&mut self, last: bool, ack_req: bool) {
        self.expected_came();
        if last {
            self.msn = self.msn.next();
        }
        self.unacknowledged += 1;
        if ack_req || self.unacknowledged >= ACK_EVERY {
            self.acknowledge();
        }
    }

    /// Adds a READ or an atomic that was accepted. There must be room for it.
    ///
    /// Its response acknowledges everything before it.
    pub(crate) fn respond(&mut self, psn: Psn, psns: u32, kind: ResponseKind) {
        self.expected_came();
        self.msn = self.msn.next();
        (self.ack, self.unacknowledged) = (false, 0);
        if let ResponseKind::Data(reth, _) = kind {
            let bytes = u64::from(reth.length) + u64::from(psns) * OVERHEAD;
            self.asked = self.asked.wrapping_add(bytes);
        }
        let (state, msn) = (Pending::First, self.msn);
        self.push(Resource { psn, psns, msn, kind, state, from: 0, next: 0, to: psns, then: 0 });
    }

    /// Records that a packet of a SEND or WRITE came again.
    ///
    /// A peer that sends everything again would have an acknowledge of each packet otherwise.
    pub(crate) fn repeated(&mut self, ack_req: bool) {
        self.unacknowledged += 1;
        if ack_req || self.unacknowledged >= ACK_EVERY {
            self.acknowledge();
        }
    }

    /// Records that the expected packet arrived.
    fn expected_came(&mut self) {
        (self.nak_sent, self.peer_waits) = (false, false);
        // A pending NAK would have acknowledged the earlier packets.
        self.ack |= self.nak.take().is_some();
    }

    /// Makes an acknowledge of everything received due.
    pub(crate) fn acknowledge(&mut self) {
        self.ack = true;
        self.unacknowledged = 0;
    }

    /// Makes a NAK due after which the connection goes on. Returns false if one was already sent
    /// for the expected packet.
    pub(crate) fn nak_once(&mut self, psn: Psn, syndrome: Syndrome) -> bool {
        if self.nak_sent {
            return false;
        }
        self.nak_sent = true;
        self.nak = Some(PendingNak { psn, syndrome, fatal: false });
        // The NAK acknowledges everything before it. An acknowledge after it would say less.
        (self.ack, self.unacknowledged) = (false, 0);
        true
    }

    /// Drops all packets until the expected packet, which was dropped, is requested again.
    pub(crate) fn wait(&mut self) {
        self.nak_sent = true;
    }

    /// Requests the expected packet again, which was dropped.
    pub(crate) fn ask_again(&mut self, psn: Psn, syndrome: Syndrome, looked: Option<Psn>) {
        self.looked = looked;
        self.nak_sent = false;
        self.nak_once(psn, syndrome);
    }

    /// Makes an RNR NAK due: the expected packet has arrived, but there is no receive for it.
    pub(crate) fn not_ready(&mut self, psn: Psn, syndrome: Syndrome) {
        self.nak_sent = false;
        self.nak_once(psn, syndrome);
        self.peer_waits = true;
    }

    /// Whether the peer was told to wait for a receive, and has not tried again.
    pub(crate) fn peer_waits(&self) -> bool {
        self.peer_waits
    }

    /// Makes a NAK due that ends the connection.
    pub(crate) fn nak_for_good(&mut self, psn: Psn, syndrome: Syndrome) {
        self.nak = Some(PendingNak { psn, syndrome, fatal: true });
    }

    /// Answers a READ again, which was repeated for all or a part of its data. A part begins and
    /// ends where packets do.
    ///
    /// Returns false if there was no such READ.
    pub(crate) fn read_again(&mut self, psn: Psn, reth: &Reth, mtu: Mtu) -> bool {
        let Some(index) = self.find(psn) else { return false };
        let resource = &mut self.resources[index];
        let ResponseKind::Data(original, _) = resource.kind else { return false };
        let from = ahead(psn, resource.psn);
        // This is within the original length, as `from` is within its PSNs.
        let skipped = from * mtu.bytes();
        let same = reth.rkey == original.rkey && reth.va == original.va.wrapping_add(skipped.into());
        let Some(rest) = original.length.checked_sub(skipped).filter(|_| same) else { return false };
        let to = match reth.length {
            length if length == rest => resource.psns,
            0 => return false,
            length if length < rest && length % mtu.bytes() == 0 => from + length / mtu.bytes(),
            _ => return false,
        };
        if resource.state == Pending::Nothing {
            resource.state = Pending::Again;
            self.pending += 1;
            (resource.from, resource.next, resource.to, resource.then) = (from, from, to, 0);
        } else {
            resource.include(from, to);
        }
        true
    }

    /// Answers an operation again that is executed once. Returns false if there was no such
    /// request.
    pub(crate) fn once_again(&mut self, psn: Psn) -> bool {
        let Some(index) = self.find(psn) else { return false };
        let resource = &mut self.resources[index];
        if !matches!(resource.kind, ResponseKind::Once(_)) {
            return false;
        }
        if resource.state == Pending::Nothing {
            resource.state = Pending::Again;
            self.pending += 1;
        }
        resource.next = 0;
        true
    }

    /// Returns the index of the resource with a PSN.
    fn find(&self, psn: Psn) -> Option<usize> {
        self.resources
            .iter()
            .position(|it| it.kind != ResponseKind::None && ahead(psn, it.psn) < it.psns.min(HALF))
    }

    /// Returns the response that is to be sent first.
    pub(crate) fn first_pending(&self) -> Option<(usize, Resource)> {
        if self.pending == 0 {
            return None;
        }
        let oldest = self.oldest();
        let count = self.resources.len();
        let order = (oldest..count).chain(0..oldest);
        order.map(|index| (index, self.resources[index])).find(|(_, it)| it.state != Pending::Nothing)
    }

    /// Whether any response that is to be sent has data of a READ.
    ///
    /// Those before it go in the same turn.
    pub(crate) fn has_data_pending(&self) -> bool {
        let has_data =
            |it: &Resource| it.state != Pending::Nothing && matches!(it.kind, ResponseKind::Data(..));
        self.pending > 0 && self.resources.iter().any(has_data)
    }

    /// Records that a response packet was sent, which stands for `psns` PSNs.
    pub(crate) fn response_sent(&mut self, index: usize, psns: u32) {
        let resource = &mut self.resources[index];
        resource.next += psns;
        if resource.next < resource.to {
            return;
        }
        if resource.then == 0 {
            return self.settle(index);
        }
        (resource.from, resource.next) = (0, resource.then);
        (resource.to, resource.then) = (resource.psns, 0);
    }

    /// Drops a response that is to be sent.
    pub(crate) fn settle(&mut self, index: usize) {
        self.resources[index].stop();
        self.pending -= 1;
    }

    /// Drops all responses that are to be sent.
    pub(crate) fn drop_pending(&mut self) {
        for resource in &mut self.resources {
            resource.stop();
        }
        self.pending = 0;
    }

    /// Takes the due acknowledge, which covers all packets before a PSN, if nothing has to go
    /// before it.
    pub(crate) fn take_ack(&mut self) -> bool {
        core::mem::take(&mut self.ack)
    }

    pub(crate) fn ack_is_due(&self) -> bool {
        self.ack
    }
}

impl Resource {
    /// Returns the key that a READ named.
    pub(crate) fn rkey(&self) -> Option<Rkey> {
        match self.kind {
            ResponseKind::Data(reth, _) => Some(reth.rkey),
            ResponseKind::None | ResponseKind::Once(_) => None,
        }
    }

    /// Whether the response was sent in full before.
    pub(crate) fn is_repeated(&self) -> bool {
        self.state == Pending::Again
    }

    /// Forgets what is to be sent.
    fn stop(&mut self) {
        (self.state, self.then) = (Pending::Nothing, 0);
    }

    /// Includes response packets that were requested again while others are to be sent.
    fn include(&mut self, from: u32, to: u32) {
        if self.then == 0 && self.to == self.psns && to < self.next {
            // The part goes first. What was to be sent goes on then.
            (self.from, self.next, self.to, self.then) = (from, from, to, self.next);
            return;
        }
        if self.then > 0 && from >= self.then {
            // It comes with the rest.
            return;
        }
        if from < self.next {
            (self.from, self.next) = (from, from);
        }
        self.to = self.to.max(to);
        if self.then > 0 && self.to >= self.then {
            (self.to, self.then) = (self.psns, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(number: u32) -> Psn {
        Psn::truncate(number)
    }

    fn reth(va: u64, length: u32) -> Reth {
        Reth { va, rkey: Default::default(), length }
    }

    /// Settles all pending responses, and returns their first PSNs in order.
    fn pending(responder: &mut ResponderState) -> Vec<u32> {
        core::iter::from_fn(|| {
            let (index, resource) = responder.first_pending()?;
            responder.settle(index);
            Some(resource.psn.number())
        })
        .collect()
    }

    #[test]
    fn responses_are_given_in_the_order_of_requests_and_the_oldest_are_forgotten() {
        let mut responder = ResponderState::new(3);
        for first in [1, 2, 3] {
            assert!(responder.has_room());
            responder.respond(psn(first), 1, ResponseKind::Once(Some(0)));
        }
        assert!(!responder.has_room());
        assert_eq!(pending(&mut responder), [1, 2, 3]);
        responder.respond(psn(4), 1, ResponseKind::Once(Some(0)));
        assert!(
            responder.once_again(psn(3)) && responder.once_again(psn(2)) && !responder.once_again(psn(1))
        );
        assert!(responder.has_room(), "what was answered once is no longer outstanding");
        responder.respond(psn(5), 1, ResponseKind::Once(Some(0)));
        assert_eq!(pending(&mut responder), [3, 4, 5]);
        assert!(!ResponderState::new(0).has_room());
    }

    #[test]
    fn a_read_in_progress_goes_on_where_it_is_or_is_asked_to() {
        let mut responder = ResponderState::new(2);
        responder.respond(psn(10), 4, ResponseKind::Data(reth(0, 1000), PdId(1)));
        for _ in 0..2 {
            let (index, _) = responder.first_pending().unwrap();
            responder.response_sent(index, 1);
        }
        assert!(responder.read_again(psn(13), &reth(768, 232), Mtu::M256));
        assert_eq!(responder.first_pending().unwrap().1.next, 2, "that comes anyway");
        assert!(responder.read_again(psn(11), &reth(256, 744), Mtu::M256));
        let (index, resource) = responder.first_pending().unwrap();
        assert_eq!((resource.from, resource.next, resource.is_repeated()), (1, 1, false));
        for _ in 0..3 {
            responder.response_sent(index, 1);
        }
        assert!(responder.first_pending().is_none());
    }

    #[test]
    fn a_part_of_a_read_is_answered_alone_or_before_the_rest() {
        let mut responder = ResponderState::new(2);
        responder.respond(psn(10), 8, ResponseKind::Data(reth(0, 2000), PdId(1)));
        let send = |responder: &mut ResponderState, count: usize| {
            let sent = (0..count).map_while(|_| {
                let (index, resource) = responder.first_pending()?;
                responder.response_sent(index, 1);
                Some((resource.next, resource.next + 1 == resource.to))
            });
            sent.collect::<Vec<_>>()
        };
        let middle = |range: core::ops::Range<u32>| range.map(|next| (next, false)).collect::<Vec<_>>();
        assert_eq!(send(&mut responder, 5), middle(0..5));
        for (part, why) in [(reth(256, 700), "no whole packets"), (reth(256, 1792), "too long")] {
            assert!(!responder.read_again(psn(11), &part, Mtu::M256), "{why}");
        }
        assert!(!responder.read_again(psn(11), &reth(0, 256), Mtu::M256), "another address");
        assert!(!responder.read_again(psn(11), &reth(256, 0), Mtu::M256), "nothing");
        // 1 and 2 go before the rest.
        assert!(responder.read_again(psn(11), &reth(256, 512), Mtu::M256));
        assert!(responder.read_again(psn(16), &reth(1536, 256), Mtu::M256), "it comes anyway");
        assert_eq!(send(&mut responder, 3), [(1, false), (2, true), (5, false)]);
        // A part that ends in what comes anyway.
        assert!(responder.read_again(psn(14), &reth(1024, 768), Mtu::M256));
        assert_eq!(send(&mut responder, 9), [(4, false), (5, false), (6, false), (7, true)]);
        // All of it was sent.
        assert!(responder.read_again(psn(15), &reth(1280, 256), Mtu::M256));
        assert!(responder.read_again(psn(12), &reth(512, 256), Mtu::M256));
        let both = [(2, false), (3, false), (4, false), (5, true)];
        assert_eq!(send(&mut responder, 9), both, "and what is between them");
        // The rest of it, while a part is sent.
        assert!(responder.read_again(psn(11), &reth(256, 512), Mtu::M256));
        assert!(responder.read_again(psn(13), &reth(768, 1232), Mtu::M256));
        assert_eq!(send(&mut responder, 9).len(), 7);
        assert!(responder.first_pending().is_none());
    }

    #[test]
    fn a_change_of_size_keeps_the_newest() {
        let mut responder = ResponderState::new(4);
        for first in 0..6 {
            responder.respond(psn(first), 1, ResponseKind::Once(Some(0)));
            let (index, _) = responder.first_pending().unwrap();
            responder.settle(index);
        }
        responder.resize(2);
        assert!(
            !responder.once_again(psn(3)) && responder.once_again(psn(4)) && responder.once_again(psn(5))
        );
        responder.resize(8);
        assert_eq!(pending(&mut responder), [4, 5]);
        responder.resize(0);
        assert!(!responder.once_again(psn(5)) && !responder.has_room());
    }

    #[test]
    fn acknowledges_come_when_asked_for_or_after_many() {
        let mut responder = ResponderState::new(0);
        for _ in 0..ACK_EVERY - 1 {
            responder.accepted(false, false);
            assert!(!responder.ack_is_due());
        }
        responder.accepted(false, false);
        assert!(responder.take_ack() && !responder.take_ack());
        responder.accepted(true, true);
        assert!(responder.take_ack());
        assert_eq!(responder.msn, AethMsn::truncate(1));
    }
}
