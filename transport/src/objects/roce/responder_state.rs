//! What the responder is to send: acknowledges, NAKs, and responses to READs and atomics, which may
//! be asked for again. Pure state, without I/O.

mod save;

use crate::base::id::PdId;
use crate::objects::roce::psn::{HALF, ahead};
use vrdma_wire::num::{Msn, Mtu, Psn, Rkey};
use vrdma_wire::roce::{Reth, Syndrome};

/// A NAK that is to be sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingNak {
    pub(crate) psn: Psn,
    pub(crate) syndrome: Syndrome,
    /// The QP is in ERR because of it: nothing is sent after it.
    pub(crate) fatal: bool,
}

/// A READ or atomic that was executed or accepted, and what of its response is to be sent (IBTA
/// 9.7.7: responder resources).
#[derive(Copy, Clone, Debug)]
pub(crate) struct Resource {
    /// Its first PSN,
    pub(crate) psn: Psn,
    /// and how many it takes.
    pub(crate) psns: u32,
    /// The MSN that goes with its response.
    pub(crate) msn: Msn,
    pub(crate) kind: Kind,
    state: Pending,
    /// Where this response begins: at 0, or further if a rest was asked for again.
    pub(crate) from: u32,
    /// The response packet that is next.
    pub(crate) next: u32,
}

/// What a [`Resource`] was for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nothing yet.
    None,
    /// A READ of this, in memory of that PD. It is executed when it is answered, and anew when it
    /// is asked for again (IBTA 9.7.5.1.3).
    Data(Reth, PdId),
    /// Carried out once; an atomic found this.
    Once(Option<u64>),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Pending {
    /// It was answered.
    Nothing,
    /// Never answered in full.
    First,
    /// Answered before, and asked for again.
    Again,
}

const UNUSED: Resource = Resource {
    psn: Psn::truncate(0),
    psns: 0,
    msn: Msn::truncate(0),
    kind: Kind::None,
    state: Pending::Nothing,
    from: 0,
    next: 0,
};

/// Requests are acknowledged at the latest when there are so many, asked for or not.
const ACK_EVERY: u8 = 64;

/// The responder's state.
#[derive(Debug)]
pub(crate) struct ResponderState {
    /// Messages executed (IBTA 9.7.7.1).
    pub(crate) msn: Msn,
    /// Of the WRITE in progress.
    pub(crate) write: Reth,
    /// An acknowledge is due.
    ack: bool,
    /// Packets that came since the last acknowledge was due.
    unacknowledged: u8,
    /// A NAK for the expected PSN was sent: what follows until it comes is dropped without another.
    nak_sent: bool,
    /// Receives were looked for the near packet that begins with this PSN, which was dropped
    /// meanwhile.
    pub(crate) looked: Option<Psn>,
    pub(crate) nak: Option<PendingNak>,
    /// The last READs and atomics, in a ring, of which `newest` is the last; none before the first,
    /// as many QPs never have one.
    resources: Box<[Resource]>,
    newest: usize,
    /// How many it has then.
    most: u8,
    /// How many of them are pending.
    pending: u32,
}

impl ResponderState {
    /// For so many READs and atomics outstanding.
    pub(crate) fn new(resources: u8) -> ResponderState {
        ResponderState {
            msn: Msn::default(),
            write: Reth { va: 0, rkey: Default::default(), length: 0 },
            ack: false,
            unacknowledged: 0,
            nak_sent: false,
            looked: None,
            nak: None,
            resources: Box::default(),
            newest: 0,
            most: resources,
            pending: 0,
        }
    }

    /// For so many READs and atomics from now on. Those that fit are still remembered.
    pub(crate) fn resize(&mut self, resources: u8) {
        let mut changed = ResponderState::new(resources);
        let old = self.resources.len();
        for age in (0..old.min(changed.most.into())).rev() {
            changed.push(self.resources[(self.newest + old - age) % old]);
        }
        (self.resources, self.newest, self.pending) = (changed.resources, changed.newest, changed.pending);
        self.most = resources;
    }

    /// Whether there is room for one more READ or atomic: not so if all that the QP allows are
    /// outstanding.
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
        // What was asked for again and is overwritten now the peer has got meanwhile: else it could
        // not ask for more.
        self.pending -= u32::from(slot.state != Pending::Nothing);
        self.pending += u32::from(resource.state != Pending::Nothing);
        *slot = resource;
    }

    /// A SEND or WRITE packet was executed.
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

    /// A READ or an atomic was accepted; there is room for it. Its response acknowledges all before
    /// it.
    pub(crate) fn respond(&mut self, psn: Psn, psns: u32, kind: Kind) {
        self.expected_came();
        self.msn = self.msn.next();
        (self.ack, self.unacknowledged) = (false, 0);
        self.push(Resource { psn, psns, msn: self.msn, kind, state: Pending::First, from: 0, next: 0 });
    }

    /// What was missing is there.
    fn expected_came(&mut self) {
        self.nak_sent = false;
        // A NAK that has not left would have acknowledged what came before.
        self.ack |= self.nak.take().is_some();
    }

    /// An acknowledge of all that came is due.
    pub(crate) fn acknowledge(&mut self) {
        self.ack = true;
        self.unacknowledged = 0;
    }

    /// A NAK after which the connection goes on: once, until what is missing comes; then false.
    pub(crate) fn nak_once(&mut self, psn: Psn, syndrome: Syndrome) -> bool {
        if self.nak_sent {
            return false;
        }
        self.nak_sent = true;
        self.nak = Some(PendingNak { psn, syndrome, fatal: false });
        // It acknowledges all before it; an acknowledge after it would say less.
        (self.ack, self.unacknowledged) = (false, 0);
        true
    }

    /// What was expected has come, is dropped, and will be asked for later: what follows is dropped
    /// until then.
    pub(crate) fn wait(&mut self) {
        self.nak_sent = true;
    }

    /// What was dropped at this PSN, which is expected still, is asked for.
    pub(crate) fn ask_again(&mut self, psn: Psn, syndrome: Syndrome, looked: Option<Psn>) {
        self.looked = looked;
        self.nak_sent = false;
        self.nak_once(psn, syndrome);
    }

    /// What was expected has come, and there is no receive for it.
    pub(crate) fn not_ready(&mut self, psn: Psn, syndrome: Syndrome) {
        self.nak_sent = false;
        self.nak_once(psn, syndrome);
    }

    /// A NAK that ends the connection.
    pub(crate) fn nak_for_good(&mut self, psn: Psn, syndrome: Syndrome) {
        self.nak = Some(PendingNak { psn, syndrome, fatal: true });
    }

    /// A READ came again, for all or the rest of what it was for: it is answered again. False if
    /// there was no such READ.
    pub(crate) fn read_again(&mut self, psn: Psn, reth: &Reth, mtu: Mtu) -> bool {
        let Some(index) = self.find(psn) else { return false };
        let resource = &mut self.resources[index];
        let Kind::Data(original, _) = resource.kind else { return false };
        let from = ahead(psn, resource.psn);
        // Within the original, as `from` is within its PSNs.
        let skipped = from * mtu.bytes();
        let same = reth.rkey == original.rkey
            && reth.va == original.va.wrapping_add(skipped.into())
            && Some(reth.length) == original.length.checked_sub(skipped);
        if !same {
            return false;
        }
        if resource.state == Pending::Nothing {
            resource.state = Pending::Again;
            self.pending += 1;
        } else if from >= resource.next {
            // It will come anyway.
            return true;
        }
        (resource.from, resource.next) = (from, from);
        true
    }

    /// What is executed once came again: it is answered again. False if there was no such request.
    pub(crate) fn once_again(&mut self, psn: Psn) -> bool {
        let Some(index) = self.find(psn) else { return false };
        let resource = &mut self.resources[index];
        if !matches!(resource.kind, Kind::Once(_)) {
            return false;
        }
        if resource.state == Pending::Nothing {
            resource.state = Pending::Again;
            self.pending += 1;
        }
        resource.next = 0;
        true
    }

    /// The resource that has a PSN.
    fn find(&self, psn: Psn) -> Option<usize> {
        self.resources.iter().position(|it| it.kind != Kind::None && ahead(psn, it.psn) < it.psns.min(HALF))
    }

    /// The response that is to be sent first.
    pub(crate) fn first_pending(&self) -> Option<(usize, Resource)> {
        if self.pending == 0 {
            return None;
        }
        let oldest = self.oldest();
        let count = self.resources.len();
        let order = (oldest..count).chain(0..oldest);
        order.map(|index| (index, self.resources[index])).find(|(_, it)| it.state != Pending::Nothing)
    }

    /// A packet of a response was sent, of so many PSNs.
    pub(crate) fn response_sent(&mut self, index: usize, psns: u32) {
        let resource = &mut self.resources[index];
        resource.next += psns;
        if resource.next >= resource.psns {
            self.settle(index);
        }
    }

    /// A response is no longer to be sent.
    pub(crate) fn settle(&mut self, index: usize) {
        self.resources[index].state = Pending::Nothing;
        self.pending -= 1;
    }

    /// No response is to be sent any more.
    pub(crate) fn drop_pending(&mut self) {
        for resource in &mut self.resources {
            resource.state = Pending::Nothing;
        }
        self.pending = 0;
    }

    /// The acknowledge that is due, if nothing goes before it: that all before a PSN came.
    pub(crate) fn take_ack(&mut self) -> bool {
        core::mem::take(&mut self.ack)
    }

    pub(crate) fn ack_is_due(&self) -> bool {
        self.ack
    }
}

impl Resource {
    /// The key that a READ named.
    pub(crate) fn rkey(&self) -> Option<Rkey> {
        match self.kind {
            Kind::Data(reth, _) => Some(reth.rkey),
            Kind::None | Kind::Once(_) => None,
        }
    }

    /// Whether the response was given before.
    pub(crate) fn is_repeated(&self) -> bool {
        self.state == Pending::Again
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

    /// First PSNs of what is pending, in order, which is then settled.
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
            responder.respond(psn(first), 1, Kind::Once(Some(0)));
        }
        assert!(!responder.has_room());
        assert_eq!(pending(&mut responder), [1, 2, 3]);
        responder.respond(psn(4), 1, Kind::Once(Some(0)));
        assert!(
            responder.once_again(psn(3)) && responder.once_again(psn(2)) && !responder.once_again(psn(1))
        );
        assert!(responder.has_room(), "what was answered once is no longer outstanding");
        responder.respond(psn(5), 1, Kind::Once(Some(0)));
        assert_eq!(pending(&mut responder), [3, 4, 5]);
        assert!(!ResponderState::new(0).has_room());
    }

    #[test]
    fn a_read_in_progress_goes_on_where_it_is_or_is_asked_to() {
        let mut responder = ResponderState::new(2);
        responder.respond(psn(10), 4, Kind::Data(reth(0, 1000), PdId(1)));
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
    fn a_change_of_size_keeps_the_newest() {
        let mut responder = ResponderState::new(4);
        for first in 0..6 {
            responder.respond(psn(first), 1, Kind::Once(Some(0)));
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
        assert_eq!(responder.msn, Msn::truncate(1));
    }
}
