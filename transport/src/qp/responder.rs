//! The receiving half of a QP.

mod save;

use crate::message::segment::Segment;
use crate::op::Message;
use crate::pool::List;
use crate::qp::attr::QpType;
use vrdma_wire::num::Psn;

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Responder {
    /// PSN expected next.
    pub(crate) psn: Psn,
    pub(crate) queue: List,
    /// Bytes received of the message in progress.
    pub(crate) received: u32,
    pub(crate) in_progress: Message,
    /// The peer was told that there is no receive.
    pub(crate) sender_waits: bool,
    /// The first message has come.
    pub(crate) established: bool,
    /// The QP's, here because this cache line has room.
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

    /// A segment was executed.
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
}
