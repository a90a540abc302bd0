//! Pending requests: what is kept of a posted request until it ends.

mod save;

use crate::completion::{Completion, WcStatus};
use crate::op::{Data, SendOp, WcOpcode};
use crate::pool::{At, List, Pool};
use crate::qp::Caps;
use crate::qp::attr::QpInit;
use crate::work::{Destination, MAX_MESSAGE, Payload, SendRequest, Sge};
use vrdma_wire::num::{Lkey, Qpn};

/// A send request but for its payload, as it is worked on.
///
/// The operation stays where the caller wrote it: to copy an enum whose fields were just stored one by one costs a stall until the
/// processor's store buffer has drained, which here is full of lines that guests have.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) op: &'a SendOp,
    pub(crate) id: u32,
    /// Of the message. At most [`MAX_MESSAGE`] unless `error` is set.
    pub(crate) length: u32,
    /// The request is broken: how it will end.
    pub(crate) error: Option<WcStatus>,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    /// Always so far: a request starts when those before it have ended.
    pub(crate) fence: bool,
}

/// A send request but for its payload, as a queue keeps it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Kept {
    op: SendOp,
    id: u32,
    length: u32,
    error: Option<WcStatus>,
    signaled: bool,
    solicited: bool,
    fence: bool,
}

impl Default for Kept {
    fn default() -> Kept {
        Work::invalid(0).keep()
    }
}

impl Kept {
    /// To work on.
    #[inline]
    pub(crate) fn work(&self) -> Work<'_> {
        let Kept { ref op, id, length, error, signaled, solicited, fence } = *self;
        Work { op, id, length, error, signaled, solicited, fence }
    }
}

impl Work<'_> {
    /// To keep in a queue.
    fn keep(&self) -> Kept {
        let Work { op, id, length, error, signaled, solicited, fence } = *self;
        Kept { op: *op, id, length, error, signaled, solicited, fence }
    }
}

impl<'a> Work<'a> {
    /// What a request comes to on a QP of these capabilities.
    #[inline]
    pub(crate) fn new(request: &'a SendRequest<'_>, caps: &Caps) -> Work<'a> {
        let row = request.op.row();
        let (length, understood) = match request.payload {
            Payload::Inline(data) => {
                (data.len() as u64, row.data == Data::Out && data.len() <= usize::from(caps.inline))
            }
            Payload::Sges(sges) => {
                let length = sges.iter().map(|sge| u64::from(sge.length)).fold(0, u64::saturating_add);
                (length, sges.len() <= usize::from(caps.send_sge))
            }
        };
        let error = if !understood {
            Some(WcStatus::LocQpOp)
        } else if length > u64::from(MAX_MESSAGE)
            || row.length.is_some_and(|exact| length != u64::from(exact))
        {
            Some(WcStatus::LocLen)
        } else {
            None
        };
        let SendRequest { id, signaled, solicited, fence, ref op, payload: _ } = *request;
        Work { op, id, length: length.min(u64::from(u32::MAX)) as u32, error, signaled, solicited, fence }
    }

    /// A request that could not be understood.
    pub(crate) fn invalid(id: u32) -> Work<'static> {
        Work {
            op: &SendOp::Send { imm: None },
            id,
            length: 0,
            error: Some(WcStatus::LocQpOp),
            signaled: true,
            solicited: false,
            fence: false,
        }
    }

    /// How it ends on QP `qpn`.
    pub(crate) fn completion(&self, qpn: Qpn, status: WcStatus) -> Completion {
        let row = self.op.row();
        let came_back = status == WcStatus::Success && row.data == Data::Back;
        let byte_len = if came_back { self.length } else { 0 };
        let id = self.id;
        Completion {
            id,
            qpn,
            opcode: row.opcode,
            status,
            byte_len,
            imm: None,
            src_qpn: Qpn::default(),
            solicited: false,
            arrival: None,
        }
    }
}

/// A pending send.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SendSlot {
    work: Kept,
    count: u16,
    inline: bool,
    /// The first element; the others, or inline data, are in `more`.
    first: Sge,
    more: List,
}

impl Default for SendSlot {
    fn default() -> SendSlot {
        let work = Kept::default();
        SendSlot { work, count: 0, inline: false, first: Sge::default(), more: List::EMPTY }
    }
}

/// Elements of a receive that need no second node.
const NEAR: usize = 2;

/// A pending receive.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RecvSlot {
    pub(crate) id: u32,
    /// Bytes that it can take.
    pub(crate) length: u32,
    count: u16,
    near: [Sge; NEAR],
    more: List,
}

impl Default for RecvSlot {
    fn default() -> RecvSlot {
        RecvSlot { id: 0, length: 0, count: 0, near: [Sge::default(); NEAR], more: List::EMPTY }
    }
}

/// A request that was taken from its queue, and is to end: with a completion, or without one on purpose.
#[must_use = "whoever takes a request ends it"]
pub(crate) struct Taken<T: Copy>(T);

impl<T: Copy> Taken<T> {
    /// It ends here.
    #[inline]
    pub(crate) fn end(self) -> T {
        let request = self.0;
        core::mem::forget(self);
        request
    }
}

impl<T: Copy> Drop for Taken<T> {
    fn drop(&mut self) {
        // In a release it would be a completion that never comes; nobody else is hurt.
        debug_assert!(std::thread::panicking(), "a request was taken and did not end");
    }
}

/// How a receive of QP `qpn` ends without a message.
pub(crate) fn recv_failure(qpn: Qpn, id: u32, status: WcStatus) -> Completion {
    let opcode = WcOpcode::Recv;
    Completion {
        id,
        qpn,
        opcode,
        status,
        byte_len: 0,
        imm: None,
        src_qpn: Qpn::default(),
        solicited: false,
        arrival: None,
    }
}

const EXTRA_BYTES: usize = 64;
const EXTRA_SGES: usize = 4;

/// What of a request does not fit its slot.
#[derive(Copy, Clone, Debug)]
enum Extra {
    Sges([Sge; EXTRA_SGES]),
    Bytes([u8; EXTRA_BYTES]),
    /// Where a datagram goes; comes before all others.
    To(Destination),
}

impl Default for Extra {
    fn default() -> Extra {
        Extra::Bytes([0; EXTRA_BYTES])
    }
}

/// Where a pending request's payload is put together.
#[derive(Default)]
pub(crate) struct Scratch {
    sges: Vec<Sge>,
    bytes: Vec<u8>,
}

/// All pending requests of a device.
pub(crate) struct Requests {
    sends: Pool<SendSlot>,
    receives: Pool<RecvSlot>,
    extras: Pool<Extra>,
}

impl Requests {
    pub(crate) fn new() -> Requests {
        Requests { sends: Pool::new(), receives: Pool::new(), extras: Pool::new() }
    }

    /// Bytes that full queues of a QP of these capabilities take.
    pub(crate) fn cost(caps: &QpInit) -> u64 {
        let extra = Pool::<Extra>::NODE;
        let far =
            |sges: u32, near: u32| u64::from(sges.saturating_sub(near).div_ceil(EXTRA_SGES as u32)) * extra;
        let inline = u64::from(caps.max_inline.div_ceil(EXTRA_BYTES as u32)) * extra;
        let to = if caps.qp_type.is_datagram() { extra } else { 0 };
        let send = Pool::<SendSlot>::NODE + inline.max(far(caps.max_send_sge, 1)) + to;
        let receive = Pool::<RecvSlot>::NODE + far(caps.max_recv_sge, NEAR as u32);
        u64::from(caps.max_send_wr) * send + u64::from(caps.max_recv_wr) * receive
    }

    /// Pending sends and receives.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sends.len().into(), self.receives.len().into())
    }

    pub(crate) fn push_send(&mut self, queue: &mut List, work: &Work<'_>, payload: Payload<'_>) {
        self.push_to(queue, work, None, payload);
    }

    /// The same with a destination.
    pub(crate) fn push_to(
        &mut self,
        queue: &mut List,
        work: &Work<'_>,
        to: Option<&Destination>,
        payload: Payload<'_>,
    ) {
        let mut slot = SendSlot { work: work.keep(), ..SendSlot::default() };
        if let Some(to) = to {
            self.extras.push(&mut slot.more, Extra::To(*to));
        }
        match payload {
            _ if work.error.is_some() => {}
            Payload::Inline(data) => {
                slot.inline = true;
                slot.count = data.len() as u16;
                for part in data.chunks(EXTRA_BYTES) {
                    let mut bytes = [0; EXTRA_BYTES];
                    bytes[..part.len()].copy_from_slice(part);
                    self.extras.push(&mut slot.more, Extra::Bytes(bytes));
                }
            }
            Payload::Sges(sges) => {
                slot.count = sges.len() as u16;
                if let Some((first, rest)) = sges.split_first() {
                    slot.first = *first;
                    self.push_sges(&mut slot.more, rest);
                }
            }
        }
        self.sends.push(queue, slot);
    }

    /// The first send of a queue, and its payload in `scratch`.
    pub(crate) fn front_send<'a>(
        &self,
        queue: &List,
        scratch: &'a mut Scratch,
    ) -> Option<(Kept, Payload<'a>)> {
        Some(self.send_at(queue.head()?, scratch))
    }

    /// The first send of a queue but for its payload.
    #[inline]
    pub(crate) fn first_send(&self, queue: &List) -> Option<&Kept> {
        self.sends.front(queue).map(|slot| &slot.work)
    }

    /// The send behind another.
    #[inline]
    pub(crate) fn send_after(&self, at: At) -> Option<At> {
        self.sends.after(at)
    }

    /// A pending send, and its payload in `scratch`.
    pub(crate) fn send_at<'a>(&self, at: At, scratch: &'a mut Scratch) -> (Kept, Payload<'a>) {
        let slot = self.sends.get(at);
        let count = usize::from(slot.count);
        if slot.inline {
            scratch.bytes.clear();
            for extra in self.extras.iter(&slot.more) {
                if let Extra::Bytes(bytes) = extra {
                    scratch.bytes.extend_from_slice(bytes);
                }
            }
            scratch.bytes.truncate(count);
            return (slot.work, Payload::Inline(&scratch.bytes));
        }
        scratch.sges.clear();
        scratch.sges.push(slot.first);
        self.read_sges(&slot.more, &mut scratch.sges);
        scratch.sges.truncate(count);
        (slot.work, Payload::Sges(&scratch.sges))
    }

    /// Where the first send of a queue goes, if it is a datagram that says so.
    pub(crate) fn front_to(&self, queue: &List) -> Option<Destination> {
        self.destination_at(queue.head()?)
    }

    /// Where a pending send goes, if it is a datagram that says so.
    fn destination_at(&self, at: At) -> Option<Destination> {
        match self.extras.front(&self.sends.get(at).more)? {
            Extra::To(to) => Some(*to),
            Extra::Sges(_) | Extra::Bytes(_) => None,
        }
    }

    /// Takes the first send from its queue.
    #[inline]
    pub(crate) fn take_send(&mut self, queue: &mut List) -> Option<Taken<Kept>> {
        let mut slot = self.sends.pop(queue)?;
        while self.extras.pop(&mut slot.more).is_some() {}
        Some(Taken(slot.work))
    }

    /// `sges` are of a receive of at most 2^32 - 1 bytes; beyond, the rest is never used.
    pub(crate) fn push_receive(&mut self, queue: &mut List, id: u32, sges: &[Sge]) {
        let length = sges.iter().map(|sge| u64::from(sge.length)).fold(0, u64::saturating_add);
        let mut slot = RecvSlot {
            id,
            length: length.min(u64::from(u32::MAX)) as u32,
            count: sges.len() as u16,
            ..RecvSlot::default()
        };
        let (near, far) = sges.split_at(sges.len().min(NEAR));
        slot.near[..near.len()].copy_from_slice(near);
        self.push_sges(&mut slot.more, far);
        self.receives.push(queue, slot);
    }

    #[inline]
    pub(crate) fn front_receive(&self, queue: &List) -> Option<&RecvSlot> {
        self.receives.front(queue)
    }

    /// The elements of a receive, in `scratch` if they are not together in the slot.
    #[inline]
    pub(crate) fn elements<'a>(&self, slot: &'a RecvSlot, scratch: &'a mut Scratch) -> &'a [Sge] {
        let count = usize::from(slot.count);
        if count <= NEAR {
            return &slot.near[..count];
        }
        scratch.sges.clear();
        scratch.sges.extend_from_slice(&slot.near);
        self.read_sges(&slot.more, &mut scratch.sges);
        scratch.sges.truncate(count);
        &scratch.sges
    }

    /// Takes the first receive, which is its id, from its queue.
    #[inline]
    pub(crate) fn take_receive(&mut self, queue: &mut List) -> Option<Taken<u32>> {
        let mut slot = self.receives.pop(queue)?;
        while self.extras.pop(&mut slot.more).is_some() {}
        Some(Taken(slot.id))
    }

    /// Gives memory back that nothing uses.
    pub(crate) fn trim(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sges(count: usize) -> Vec<Sge> {
        (0..count).map(|i| Sge { addr: i as u64, length: 1, lkey: Lkey(i as u32) }).collect()
    }

    /// Every other request is a datagram.
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
                prop_assert_eq!(requests.take_send(&mut sends).map(|w| w.end().id), Some(id as u32));
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
