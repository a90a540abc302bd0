//! The stream from the peer: what of it has come. Pure state.

mod save;

use crate::rc::tcp::search::Search;
use crate::rc::tcp::stream::ReadyToReceive;
use vrdma_wire::iwarp::num::Msn;
use vrdma_wire::iwarp::{Deframer, Framing};

/// A ULPDU that waits until the caller has looked for receives; the number is that of the question.
pub(super) struct Waiting {
    pub(super) number: u32,
    pub(super) ulpdu: Box<[u8]>,
}

/// The stream from the peer.
pub(super) struct Input {
    pub(super) deframer: Deframer,
    /// The beginning of an FPDU whose end has not come, between two calls.
    pub(super) held: Box<[u8]>,
    pub(super) waiting: Option<Waiting>,
    /// FPDUs that were taken since the engine has had it.
    pub(super) fpdus: u64,
    /// Nothing has come.
    pub(super) is_new: bool,
    /// What the peer said that its first message is: that one needs no rights.
    pub(super) ready: Option<ReadyToReceive>,
    /// Number of the next SEND or immediate data,
    pub(super) send_msn: Msn,
    /// where receives of later ones are,
    pub(super) search: Search,
    /// and of the next READ or atomic.
    pub(super) request_msn: Msn,
    /// Bytes of the WRITE in progress, or of the last: what immediate data goes with.
    pub(super) written: u32,
}

impl Input {
    pub(super) fn new(framing: Framing, ready: Option<ReadyToReceive>) -> Input {
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

    /// The next SEND or immediate data has ended, and with it its receive.
    pub(super) fn send_ended(&mut self) {
        self.search.passed(self.send_msn);
        self.send_msn = self.send_msn.add(1);
    }

    /// Whether no part of an FPDU is left over.
    pub(super) fn is_between_messages(&self) -> bool {
        self.deframer.held() == 0 && self.waiting.is_none()
    }
}
