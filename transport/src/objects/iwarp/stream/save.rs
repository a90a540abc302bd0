//! The stream to the peer, in the record.

use super::{MIN_MSS, ReadyToReceive, Stream};
use crate::objects::iwarp::framing::{save_framing, to_framing};
use crate::objects::qp::Direction;
use crate::save::{Violation, record, same_names};
use vrdma_wire::iwarp::framing::MAX_MULPDU;
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Segment};

same_names!(ReadyToReceive { Fpdu, Write, Read });

impl Stream {
    /// Returns the record of the stream to the peer.
    pub(crate) fn save(&self) -> record::TcpOutput {
        let Stream {
            framing,
            place,
            mulpdu,
            may_send,
            ready,
            blocked,
            // The message follows from what was sent of requests and responses.
            message: _,
            terminate,
            finishes,
            ended,
            // The caller's connections are not in the record, and so no loopback connections.
            fpdus: _,
            joined: _,
        } = self;
        let terminate = terminate.as_ref().map(|segment| {
            let mut ulpdu = vec![0; MAX_HEADERS];
            let length = segment.emit(&mut ulpdu);
            ulpdu.truncate(length);
            ulpdu
        });
        record::TcpOutput {
            framing: save_framing(*framing, *place),
            mulpdu: *mulpdu,
            may_send: *may_send,
            ready: ready.map(Into::into),
            blocked: *blocked,
            terminate,
            finishes: *finishes,
            ended: *ended,
        }
    }

    /// Restores the stream to the peer. `message` is the direction of the message in progress.
    pub(crate) fn restore(
        record: &record::TcpOutput,
        message: Option<Direction>,
    ) -> Result<Stream, Violation> {
        let (framing, place) = to_framing(&record.framing)?;
        let least = framing.mulpdu(MIN_MSS as usize) as u32;
        let terminate = record.terminate.as_deref().map(to_terminate).transpose()?;
        let record::TcpOutput { mulpdu, may_send, ready, blocked, finishes, ended, .. } = *record;
        // An end that may not send yet has no message in progress. A stream that has ended sends
        // nothing.
        let is_right = (may_send || message.is_none())
            && (!ended || terminate.is_none())
            && (least..=MAX_MULPDU as u32).contains(&mulpdu);
        if !is_right {
            return Err(Violation::Stream);
        }
        let ready = ready.map(Into::into);
        Ok(Stream {
            framing,
            place,
            mulpdu,
            may_send,
            ready,
            blocked,
            message,
            terminate,
            finishes,
            ended,
            fpdus: 0,
            joined: None,
        })
    }
}

/// Parses a TERMINATE from its ULPDU, and checks that it is written in the same way.
fn to_terminate(ulpdu: &[u8]) -> Result<Box<Segment>, Violation> {
    let Ok(segment @ Segment::Terminate(..)) = Segment::parse(ulpdu).map(|parsed| parsed.segment) else {
        return Err(Violation::Stream);
    };
    let mut again = [0; MAX_HEADERS];
    let length = segment.emit(&mut again);
    if again[..length] == *ulpdu { Ok(Box::new(segment)) } else { Err(Violation::Stream) }
}
