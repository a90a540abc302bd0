//! The stream from the peer, in the record.

use super::{Input, Waiting};
use crate::objects::iwarp::framing::{save_framing, to_framing};
use crate::objects::iwarp::search::Search;
use crate::save::{Violation, record};
use vrdma_wire::iwarp::framing::MAX_FPDU;
use vrdma_wire::iwarp::num::Msn;
use vrdma_wire::iwarp::{Deframer, decode};

/// Bytes that always suffice to tell the length of an FPDU: its length field, behind a marker.
const TELLING: usize = 6;

impl Input {
    /// Returns the record of the stream from the peer.
    pub(crate) fn save(&self) -> record::TcpInput {
        // A search begins anew. `fpdus` counts for loopback connections, which a restored stream is
        // not.
        let Input {
            deframer,
            held,
            waiting,
            fpdus: _,
            is_new,
            ready,
            send_msn,
            search: _,
            request_msn,
            written,
        } = self;
        let waiting = waiting
            .as_ref()
            .map(|Waiting { number, ulpdu }| record::Waiting { number: *number, ulpdu: ulpdu.to_vec() });
        record::TcpInput {
            framing: save_framing(deframer.framing(), deframer.place()),
            held: held.to_vec(),
            waiting,
            is_new: *is_new,
            ready: ready.map(Into::into),
            send_msn: send_msn.0,
            request_msn: request_msn.0,
            written: *written,
        }
    }

    /// Restores the stream from the peer.
    pub(crate) fn restore(record: &record::TcpInput) -> Result<Input, Violation> {
        let record::TcpInput { held, is_new, ready, send_msn, request_msn, written, .. } = record;
        let (framing, place) = to_framing(&record.framing)?;
        // An FPDU that had arrived in full would have been taken.
        let is_part = match decode::fpdu_len(framing, place, held) {
            Some(length) => held.len() < length && length <= MAX_FPDU,
            None => held.len() < TELLING,
        };
        let waiting = record.waiting.as_ref().map(|record::Waiting { number, ulpdu }| Waiting {
            number: *number,
            ulpdu: ulpdu.as_slice().into(),
        });
        let is_ulpdu = waiting.as_ref().is_none_or(|waiting| waiting.ulpdu.len() <= usize::from(u16::MAX));
        if !is_part || !is_ulpdu || waiting.is_some() && !held.is_empty() {
            return Err(Violation::Stream);
        }
        Ok(Input {
            deframer: Deframer::resume(framing, place, held.len()),
            held: held.as_slice().into(),
            waiting,
            fpdus: 0,
            is_new: *is_new,
            ready: ready.map(Into::into),
            send_msn: Msn(*send_msn),
            search: Search::new(),
            request_msn: Msn(*request_msn),
            written: *written,
        })
    }
}
