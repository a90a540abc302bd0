//! The receiving half of a QP.

mod save;

use crate::collections::pool::List;
use crate::verbs::attr::QpType;
use crate::verbs::op::Message;
use crate::verbs::segment::Segment;
use vrdma_wire::num::Psn;

/// The receiving half of a QP.
#[derive(Debug)]
pub(crate) struct Responder {
    /// PSN expected next.
    pub(crate) psn: Psn,
    pub(crate) queue: List,
    /// Bytes received of the message in progress.
    pub(crate) received: u32,
    pub(crate) in_progress: Message,
    /// Whether the peer was told that there is no receive.
    pub(crate) sender_waits: bool,
    /// Whether the first message has arrived.
    pub(crate) established: bool,
    /// The service of the QP, which is here because this cache line has room.
    pub(crate) service: QpType,
}

impl Responder {
    pub(crate) fn new(service: QpType) -> Responder {
        Responder {
            psn: Psn::default(),
            queue: List::EMPTY,
            received: 0,
            in_progress: Message::None,
            sender_waits: false,
            established: false,
            service,
        }
    }

    /// Records that a segment was executed.
    #[inline]
    pub(crate) fn accepted(&mut self, segment: &Segment<'_>) {
        self.psn = self.psn.add(segment.packets);
        let message = segment.row.message;
        if message == Message::None {
            return;
        }
        if segment.last {
            self.in_progress = Message::None;
            self.received = 0;
        } else {
            self.in_progress = message;
            self.received += segment.length;
        }
    }

    /// Whether a segment is the expected one.
    ///
    /// There must be no gap before it, and it must not cut off another message.
    #[inline]
    pub(crate) fn is_in_step(&self, segment: &Segment<'_>) -> bool {
        let goes_on = !segment.first || self.in_progress == Message::None && self.received == 0;
        segment.psn == self.psn && goes_on
    }

    /// Ends the message in progress, whose receive stays. `next` is the PSN expected next.
    pub(crate) fn abandon(&mut self, next: Psn) {
        self.psn = next;
        self.received = 0;
        self.in_progress = Message::None;
    }
}
