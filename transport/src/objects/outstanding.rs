//! Outstanding requests: queues of requests that were posted and have not ended.

mod save;
mod successors;
mod watches;

use crate::base::time::Instant;
use crate::collections::pool::{At, List, Pool};
use crate::collections::watches::Watches;
use crate::verbs::attr::{QpInit, Receives};
use crate::verbs::request::{Destination, Payload, RecvList, Sge};
use crate::verbs::work::{OutstandingSend, Work};
use vrdma_wire::num::Lkey;

/// An outstanding send.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct SendSlot {
    send: OutstandingSend,
    count: u16,
    inline: bool,
    /// The first element, or the first bytes of inline data ([`first_bytes`]). The rest is in
    /// `more`.
    first: Sge,
    more: List,
}

/// Number of elements that a receive has in its slot. Its other elements are in further nodes.
const FIRST_SGES: usize = 2;

/// An outstanding receive.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RecvSlot {
    pub(crate) id: u32,
    /// Most bytes that it can take.
    pub(crate) length: u32,
    count: u16,
    first: [Sge; FIRST_SGES],
    more: List,
}

impl Default for RecvSlot {
    fn default() -> RecvSlot {
        RecvSlot { id: 0, length: 0, count: 0, first: [Sge::default(); FIRST_SGES], more: List::EMPTY }
    }
}

/// A request that was taken from its queue, and has to end.
///
/// It ends with a completion, or without one on purpose.
#[must_use = "whoever takes a request ends it"]
pub(crate) struct Taken<T: Copy> {
    request: T,
    since: Option<Instant>,
}

impl<T: Copy> Taken<T> {
    /// Ends the request.
    #[inline]
    pub(crate) fn end(self) -> T {
        let request = self.request;
        core::mem::forget(self);
        request
    }

    /// Returns since when the request was watched, if it was.
    #[inline]
    pub(crate) fn watched_since(&self) -> Option<Instant> {
        self.since
    }
}

impl<T: Copy> Drop for Taken<T> {
    fn drop(&mut self) {
        // In a release build this would be a completion that never comes, which hurts nobody else.
        debug_assert!(std::thread::panicking(), "a request was taken and did not end");
    }
}

const EXTRA_BYTES: usize = 64;
const EXTRA_SGES: usize = 4;

/// Parts of a request that do not fit its slot.
#[derive(Copy, Clone, Debug)]
enum Extra {
    Sges([Sge; EXTRA_SGES]),
    Bytes([u8; EXTRA_BYTES]),
    /// Destination of a datagram. It comes before all other parts.
    To(Destination),
}

impl Default for Extra {
    fn default() -> Extra {
        Extra::Bytes([0; EXTRA_BYTES])
    }
}

/// Buffers in which the payload of an outstanding request is assembled.
#[derive(Default)]
pub(crate) struct Scratch {
    sges: Vec<Sge>,
    bytes: Vec<u8>,
}

/// Returns the bytes that this many elements take beyond those in the request's slot.
fn cost_of_sges(sges: u32, in_slot: u32) -> u64 {
    u64::from(sges.saturating_sub(in_slot).div_ceil(EXTRA_SGES as u32)) * Pool::<Extra>::NODE
}

/// All outstanding requests of a device.
pub(crate) struct Requests {
    sends: Pool<SendSlot>,
    receives: Pool<RecvSlot>,
    extras: Pool<Extra>,
    /// Requests of QPs that were reset or destroyed, which are still to be freed.
    dropped_sends: List,
    dropped_receives: List,
    watches: Watches,
}

impl Requests {
    pub(crate) fn new() -> Requests {
        Requests {
            sends: Pool::new(),
            receives: Pool::new(),
            extras: Pool::new(),
            dropped_sends: List::EMPTY,
            dropped_receives: List::EMPTY,
            watches: Watches::default(),
        }
    }

    /// Returns the bytes that full queues of a QP with these capabilities take.
    pub(crate) fn cost(caps: &QpInit) -> u64 {
        let extra = Pool::<Extra>::NODE;
        let inline = caps.max_inline.saturating_sub(FIRST_BYTES as u32).div_ceil(EXTRA_BYTES as u32);
        let inline = u64::from(inline) * extra;
        let to = if caps.qp_type.is_datagram() { extra } else { 0 };
        let send = Pool::<SendSlot>::NODE + inline.max(cost_of_sges(caps.max_send_sge, 1)) + to;
        let receives = match caps.receives {
            Receives::Own => caps.max_recv_wr,
            // A receive from a shared queue keeps its place there until it ends.
            Receives::Shared(_) => 0,
            // A shared queue of XRC may be destroyed before that.
            Receives::Xrc(_) => 1,
        };
        u64::from(caps.max_send_wr) * send + Requests::cost_of_receives(receives, caps.max_recv_sge)
    }

    /// Returns the bytes that this many receives of this many elements take.
    pub(crate) fn cost_of_receives(count: u32, sges: u32) -> u64 {
        let receive = Pool::<RecvSlot>::NODE + cost_of_sges(sges, FIRST_SGES as u32);
        u64::from(count) * receive
    }

    /// Returns the numbers of outstanding sends and receives.
    #[inline]
    pub(crate) fn counts(&self) -> (u64, u64) {
        let sends = self.sends.len() - self.dropped_sends.len();
        let receives = self.receives.len() - self.dropped_receives.len();
        (sends.into(), receives.into())
    }

    pub(crate) fn push_send(&mut self, queue: &mut List, work: &Work<'_>, payload: Payload<'_>) {
        self.push_to(queue, work, None, payload);
    }

    /// Appends a send, with a destination if it is a datagram.
    pub(crate) fn push_to(
        &mut self,
        queue: &mut List,
        work: &Work<'_>,
        to: Option<&Destination>,
        payload: Payload<'_>,
    ) {
        let (mut more, mut first, mut count, mut inline) = (List::EMPTY, Sge::default(), 0, false);
        to.into_iter().for_each(|to| self.extras.push(&mut more, Extra::To(*to)));
        match payload {
            _ if work.error.is_some() => {}
            Payload::Inline(data) => {
                (inline, count) = (true, data.len() as u16);
                let (begin, rest) = data.split_at(data.len().min(FIRST_BYTES));
                let mut bytes = [0; FIRST_BYTES];
                bytes[..begin.len()].copy_from_slice(begin);
                first = to_first(bytes);
                for part in rest.chunks(EXTRA_BYTES) {
                    let mut bytes = [0; EXTRA_BYTES];
                    bytes[..part.len()].copy_from_slice(part);
                    self.extras.push(&mut more, Extra::Bytes(bytes));
                }
            }
            Payload::Sges(sges) => {
                count = sges.len() as u16;
                if let Some((sge, rest)) = sges.split_first() {
                    first = *sge;
                    self.push_sges(&mut more, rest);
                }
            }
        }
        // Written in place, as in `Work`: a copy of fields that were just stored one by one stalls.
        self.sends.push_with(queue, |slot| {
            work.put(&mut slot.send);
            (slot.count, slot.inline, slot.first, slot.more) = (count, inline, first, more);
        });
    }

    /// Returns the first send of a queue, and its payload in `scratch`.
    pub(crate) fn front_send<'a>(
        &self,
        queue: &List,
        scratch: &'a mut Scratch,
    ) -> Option<(OutstandingSend, Payload<'a>)> {
        Some(self.send_at(queue.head()?, scratch))
    }

    /// Returns the first send of a queue, without its payload.
    #[inline]
    pub(crate) fn first_send(&self, queue: &List) -> Option<&OutstandingSend> {
        self.sends.front(queue).map(|slot| &slot.send)
    }

    /// Returns an outstanding send, and its payload in `scratch`.
    ///
    /// Inlined, because a value that is returned in memory consists of narrow fields. To load them
    /// together stalls (see [`Work`]).
    #[inline(always)]
    pub(crate) fn send_at<'a>(&self, at: At, scratch: &'a mut Scratch) -> (OutstandingSend, Payload<'a>) {
        let slot = self.sends.get(at);
        let payload = match slot.inline {
            true => Payload::Inline(self.bytes_of(slot, &mut scratch.bytes)),
            false => Payload::Sges(self.sges_of(slot, &mut scratch.sges)),
        };
        (slot.send, payload)
    }

    fn bytes_of<'a>(&self, slot: &SendSlot, bytes: &'a mut Vec<u8>) -> &'a [u8] {
        bytes.clear();
        bytes.extend_from_slice(&first_bytes(&slot.first));
        for extra in self.extras.iter(&slot.more) {
            if let Extra::Bytes(more) = extra {
                bytes.extend_from_slice(more);
            }
        }
        bytes.truncate(slot.count.into());
        bytes
    }

    fn sges_of<'a>(&self, slot: &SendSlot, sges: &'a mut Vec<Sge>) -> &'a [Sge] {
        sges.clear();
        sges.push(slot.first);
        self.read_sges(&slot.more, sges);
        sges.truncate(slot.count.into());
        sges
    }

    /// Returns the destination of the first send of a queue, if it is a datagram with one.
    pub(crate) fn front_to(&self, queue: &List) -> Option<Destination> {
        self.destination_at(queue.head()?)
    }

    /// Returns the destination of an outstanding send, if it is a datagram with one.
    fn destination_at(&self, at: At) -> Option<Destination> {
        match self.extras.front(&self.sends.get(at).more)? {
            Extra::To(to) => Some(*to),
            Extra::Sges(_) | Extra::Bytes(_) => None,
        }
    }

    /// Takes the first send from its queue. `part` selects the part of it that is returned.
    #[inline]
    pub(crate) fn take_send<U: Copy>(
        &mut self,
        queue: &mut List,
        part: impl FnOnce(&OutstandingSend) -> U,
    ) -> Option<Taken<U>> {
        let at = queue.head()?;
        let take = |slot: &SendSlot| (part(&slot.send), slot.more, slot.send.flags.is_watched());
        let (request, mut more, is_watched) = self.sends.pop_with(queue, take)?;
        while self.extras.pop(&mut more).is_some() {}
        let since = if is_watched { Some(self.watches.end(at)) } else { None };
        Some(Taken { request, since })
    }

    /// Appends a receive. Only its first 2^32 - 1 bytes are ever used.
    pub(crate) fn push_receive(&mut self, queue: &mut List, id: u32, sges: &[Sge]) {
        let length = sges.iter().map(|sge| u64::from(sge.length)).fold(0, u64::saturating_add);
        let (first, rest) = sges.split_at(sges.len().min(FIRST_SGES));
        let mut more = List::EMPTY;
        self.push_sges(&mut more, rest);
        // Written in place, as in `Work`: a copy of fields that were just stored one by one stalls.
        self.receives.push_with(queue, |slot| {
            slot.id = id;
            slot.length = length.min(u64::from(u32::MAX)) as u32;
            slot.count = sges.len() as u16;
            slot.more = more;
            slot.first.iter_mut().zip(first).for_each(|(place, sge)| *place = *sge);
        });
    }

    /// Appends receives of one element each.
    #[inline]
    pub(crate) fn push_receives(&mut self, queue: &mut List, list: RecvList<'_>) {
        for (id, &sge) in list.receives() {
            self.receives.push_with(queue, |slot| {
                (slot.id, slot.length, slot.count) = (id, sge.length, 1);
                (slot.more, slot.first[0]) = (List::EMPTY, sge);
            });
        }
    }

    #[inline]
    pub(crate) fn front_receive(&self, queue: &List) -> Option<&RecvSlot> {
        self.receives.front(queue)
    }

    /// Returns the elements of a receive, in `scratch` if they are not all in the slot.
    #[inline]
    pub(crate) fn elements<'a>(&self, slot: &'a RecvSlot, scratch: &'a mut Scratch) -> &'a [Sge] {
        let count = usize::from(slot.count);
        if count <= FIRST_SGES {
            return &slot.first[..count];
        }
        scratch.sges.clear();
        scratch.sges.extend_from_slice(&slot.first);
        self.read_sges(&slot.more, &mut scratch.sges);
        scratch.sges.truncate(count);
        &scratch.sges
    }

    /// Takes the first receive from its queue, and returns its id.
    #[inline]
    pub(crate) fn take_receive(&mut self, queue: &mut List) -> Option<Taken<u32>> {
        let (request, mut more) = self.receives.pop_with(queue, |slot| (slot.id, slot.more))?;
        while self.extras.pop(&mut more).is_some() {}
        Some(Taken { request, since: None })
    }

    /// Moves all sends of `other` to the end of `queue`.
    pub(crate) fn append_sends(&mut self, queue: &mut List, other: &mut List) {
        self.sends.append(queue, other);
    }

    /// Moves all receives of `other` to the end of `queue`.
    pub(crate) fn append_receives(&mut self, queue: &mut List, other: &mut List) {
        self.receives.append(queue, other);
    }

    /// Ends all sends of one queue and all receives of another, without completions.
    ///
    /// [`Requests::end_dropped`] frees their memory.
    pub(crate) fn drop_queues(&mut self, sends: &mut List, receives: &mut List) {
        self.sends.append(&mut self.dropped_sends, sends);
        self.receives.append(&mut self.dropped_receives, receives);
    }

    /// Whether dropped requests are still to be freed.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped_sends.is_empty() || !self.dropped_receives.is_empty()
    }

    /// Returns how many dropped requests are still to be freed.
    #[cfg(test)]
    pub(crate) fn num_dropped(&self) -> u32 {
        self.dropped_sends.len() + self.dropped_receives.len()
    }

    /// Frees up to `left` dropped requests.
    pub(crate) fn end_dropped(&mut self, left: &mut usize) {
        let (mut sends, mut receives) = (self.dropped_sends, self.dropped_receives);
        while *left > 0
            && let Some(taken) = self.take_send(&mut sends, |_| ())
        {
            taken.end();
            *left -= 1;
        }
        while *left > 0
            && let Some(taken) = self.take_receive(&mut receives)
        {
            taken.end();
            *left -= 1;
        }
        (self.dropped_sends, self.dropped_receives) = (sends, receives);
        self.trim();
    }

    /// Moves the first receive of a queue to the end of another. Returns false if there is none.
    #[inline]
    pub(crate) fn move_receive(&mut self, from: &mut List, to: &mut List) -> bool {
        self.receives.move_first(from, to)
    }

    /// Frees unused memory.
    fn trim(&mut self) {
        self.sends.trim();
        self.receives.trim();
        self.extras.trim();
    }

    fn push_sges(&mut self, list: &mut List, sges: &[Sge]) {
        for part in sges.chunks(EXTRA_SGES) {
            let mut extra = [Sge { addr: 0, length: 0, lkey: Lkey(0) }; EXTRA_SGES];
            extra[..part.len()].copy_from_slice(part);
            self.extras.push(list, Extra::Sges(extra));
        }
    }

    fn read_sges(&self, list: &List, out: &mut Vec<Sge>) {
        for extra in self.extras.iter(list) {
            if let Extra::Sges(sges) = extra {
                out.extend_from_slice(sges);
            }
        }
    }
}

/// Bytes of inline data in the slot of a send. Further bytes are in further nodes.
const FIRST_BYTES: usize = 16;

/// Packs the first bytes of inline data into an element.
fn to_first(bytes: [u8; FIRST_BYTES]) -> Sge {
    let bits = u128::from_le_bytes(bytes);
    Sge { addr: bits as u64, length: (bits >> 64) as u32, lkey: Lkey((bits >> 96) as u32) }
}

/// Unpacks the bytes that [`to_first`] packed.
fn first_bytes(first: &Sge) -> [u8; FIRST_BYTES] {
    let Sge { addr, length, lkey } = *first;
    let bits = u128::from(addr) | u128::from(length) << 64 | u128::from(lkey.0) << 96;
    bits.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vrdma_wire::num::Qpn;

    fn sges(count: usize) -> Vec<Sge> {
        (0..count).map(|i| Sge { addr: i as u64, length: 1, lkey: Lkey(i as u32) }).collect()
    }

    /// Returns a destination for every other request, which is a datagram.
    fn destination(id: usize) -> Option<Destination> {
        let to = Destination {
            pd: crate::PdId(1),
            qpn: Qpn::GSI,
            qkey: vrdma_wire::num::Qkey(id as u32),
            dgid: vrdma_wire::num::Gid([7; 16]),
            dmac: vrdma_wire::num::Mac([3; 6]),
            sgid_index: 1,
            sl: 2,
            hop_limit: 3,
            traffic_class: 4,
            flow_label: 5,
            udp_sport: 6,
            vlan: Some(7),
        };
        id.is_multiple_of(2).then_some(to)
    }

    proptest! {
        #[test]
        fn what_is_posted_comes_back(counts in proptest::collection::vec((any::<bool>(), 0usize..33), 1..20)) {
            let mut requests = Requests::new();
            let (mut sends, mut receives) = (List::EMPTY, List::EMPTY);
            let data: Vec<u8> = (0..=255).collect();
            for (id, &(inline, count)) in counts.iter().enumerate() {
                let work = Work { id: id as u32, error: None, ..Work::invalid(0) };
                let list = sges(count);
                let to = destination(id);
                let payload = if inline { Payload::Inline(&data[..count * 8 % 256]) } else { Payload::Sges(&list) };
                requests.push_to(&mut sends, &work, to.as_ref(), payload);
                requests.push_receive(&mut receives, id as u32, &list);
            }
            let mut scratch = Scratch::default();
            for (id, &(inline, count)) in counts.iter().enumerate() {
                let list = sges(count);
                let expected = if inline { Payload::Inline(&data[..count * 8 % 256]) } else { Payload::Sges(&list) };
                let (work, payload) = requests.front_send(&sends, &mut scratch).unwrap();
                prop_assert_eq!(payload, expected);
                prop_assert_eq!(work.id, id as u32);
                prop_assert_eq!(requests.front_to(&sends), destination(id));
                prop_assert_eq!(requests.take_send(&mut sends, |send| send.id).map(Taken::end), Some(id as u32));
                let slot = requests.front_receive(&receives).unwrap();
                prop_assert_eq!(requests.elements(slot, &mut scratch), &list[..]);
                prop_assert_eq!(slot.length, count as u32);
                prop_assert_eq!(requests.take_receive(&mut receives).map(Taken::end), Some(id as u32));
            }
            prop_assert_eq!(requests.counts(), (0, 0));
            prop_assert_eq!(requests.extras.len(), 0);
        }
    }

    const _: () = assert!(Pool::<RecvSlot>::NODE <= 64);
    const _: () = assert!(Pool::<SendSlot>::NODE <= 112);
    const _: () = assert!(Pool::<Extra>::NODE <= 80);
}
