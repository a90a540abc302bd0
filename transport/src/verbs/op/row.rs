//! What follows from a row of the table of operations: PSNs, services, counts.

use super::{Answer, DataDirection, Row, Services};
use crate::verbs::attr::QpType;
use crate::verbs::counters::Counters;
use vrdma_wire::num::Mtu;

impl Row {
    /// Returns the PSNs of a message (IBTA 9.7.3.2): those of its packets, or of its responses.
    #[inline]
    pub(crate) fn psns(&self, mtu: Mtu, message: u32) -> u32 {
        mtu.packets(message)
    }

    /// Returns the PSNs of a segment of a message.
    ///
    /// The PSNs of responses all belong to the request, which is the first segment (IBTA
    /// 9.7.5.1.5).
    #[inline]
    pub(crate) fn psns_of_segment(&self, mtu: Mtu, first: bool, length: u32, message: u32) -> u32 {
        match self.data {
            DataDirection::Out => mtu.packets(length),
            DataDirection::Back if first => mtu.packets(message),
            DataDirection::Back => 0,
        }
    }

    /// Returns the PSNs of one packet.
    #[inline]
    pub(crate) fn psns_of_packet(&self, mtu: Mtu, message: u32) -> u32 {
        match self.data {
            DataDirection::Out => 1,
            DataDirection::Back => mtu.packets(message),
        }
    }

    /// Whether a service has the operation.
    #[inline]
    pub(crate) fn is_of(&self, service: QpType) -> bool {
        match service {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => true,
            QpType::Uc => self.services != Services::Reliable,
            QpType::Ud | QpType::Gsi => self.services == Services::All,
        }
    }

    /// Whether the peer's answer is for this request alone.
    #[inline]
    pub(crate) fn has_response(&self) -> bool {
        self.answer != Answer::Acknowledge
    }

    /// Counts the bytes of payload that a request of the operation moved.
    ///
    /// The value that an atomic finds is no payload.
    #[inline]
    pub(crate) fn count_bytes(&self, counters: &mut Counters, bytes: u64) {
        match (self.data, self.answer) {
            (DataDirection::Out, _) => counters.bytes_out += bytes,
            (DataDirection::Back, Answer::Data) => counters.bytes_read += bytes,
            (DataDirection::Back, _) => {}
        }
    }

    /// Counts a request that was executed.
    #[inline]
    pub(crate) fn count(&self, counters: &mut Counters) {
        *counters.of(self.opcode) += 1;
    }
}
