//! The state of the stream from the peer. Pure state, without I/O.

mod save;

use crate::objects::iwarp::search::Search;
use crate::objects::iwarp::stream::ReadyToReceive;
use vrdma_wire::iwarp::num::Msn;
use vrdma_wire::iwarp::{Deframer, Framing};

/// A ULPDU that waits until the caller has drained the posts. `number` is that of the question.
pub(crate) struct Waiting {
    pub(crate) number: u32,
    pub(crate) ulpdu: Box<[u8]>,
}

/// The stream from the peer.
pub(crate) struct Input {
    pub(crate) deframer: Deframer,
    /// The beginning of an FPDU whose end has not arrived, kept between two calls.
    pub(crate) held: Box<[u8]>,
    pub(crate) waiting: Option<Waiting>,
    /// FPDUs that were taken since this engine has the stream.
    pub(crate) fpdus: u64,
    /// Whether nothing has arrived.
    pub(crate) is_new: bool,
    /// What the peer announced as its first message. That message needs no rights.
    pub(crate) ready: Option<ReadyToReceive>,
    /// Number of the next SEND or immediate data.
    pub(crate) send_msn: Msn,
    /// The search for receives of later SENDs or immediate data.
    pub(crate) search: Search,
    /// Number of the next READ or atomic.
    pub(crate) request_msn: Msn,
    /// Bytes of the WRITE in progress, or else of the last one. Immediate data belongs to it.
    pub(crate) written: u32,
}

impl Input {
    pub(crate) fn new(framing: Framing, ready: Option<ReadyToReceive>) -> Input {
        Input {
            deframer: Deframer::new(framing),
            held: Box::default(),
            waiting: None,
            fpdus: 0,
            is_new: true,
            ready,
            send_msn: Msn::FIRST,
            search: Search::new(),
            request_msn: Msn::FIRST,
            written: 0,
        }
    }

    /// Records the end of the next SEND or immediate data, and of its receive.
    pub(crate) fn send_ended(&mut self) {
        self.search.passed(self.send_msn);
        self.send_msn = self.send_msn.add(1);
    }

    /// Whether no part of an FPDU is left over.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.deframer.held() == 0 && self.waiting.is_none()
    }
}
