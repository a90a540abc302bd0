//! Why a record was refused.

use core::fmt;

/// Why a record was refused, and where in it the fault was found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RestoreError {
    /// The fault.
    pub violation: Violation,
    /// The device with the fault, if it is in a device.
    pub device: Option<u32>,
    /// The QP of that device with the fault, if it is in a QP.
    pub qpn: Option<u32>,
}

impl RestoreError {
    /// Returns the error with this device.
    pub(crate) fn of_device(self, device: u32) -> RestoreError {
        RestoreError { device: Some(device), ..self }
    }

    /// Returns the error with this QP.
    pub(crate) fn of_qp(self, qpn: u32) -> RestoreError {
        RestoreError { qpn: Some(qpn), ..self }
    }
}

impl From<Violation> for RestoreError {
    fn from(violation: Violation) -> RestoreError {
        RestoreError { violation, device: None, qpn: None }
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = self.device {
            write!(f, "device {device}: ")?;
        }
        if let Some(qpn) = self.qpn {
            write!(f, "QP {qpn:#x}: ")?;
        }
        f.write_str(self.violation.text())
    }
}

impl core::error::Error for RestoreError {}

macro_rules! violations {
    ($($variant:ident: $text:literal,)*) => {
        /// A fault in a record.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Violation {
            $(#[doc = $text] $variant,)*
        }

        impl Violation {
            fn text(self) -> &'static str {
                match self {
                    $(Violation::$variant => $text,)*
                }
            }
        }
    };
}

violations! {
    Version: "a version of the format that this engine does not know",
    Congestion: "a rate, or times of congestion, that cannot be",
    Counter: "a counter that does not exist, or cannot have counted so far",
    Limits: "limits beyond what an engine can do",
    Mtu: "an MTU beyond that of the port",
    Gid: "a GID table of a wrong length, or a GID or VLAN that cannot be in one",
    GidTaken: "a GID that another device has in that VLAN",
    Numbers: "lists of used numbers that do not fit each other",
    Number: "a number of an object that was not given out, is another's too, is not of this kind, or not in its place",
    Group: "a multicast group with an address or members that cannot be, or too many, or a packet to one that cannot wait",
    NoPd: "a protection domain that does not exist",
    MemoryRegion: "a memory region with rights or addresses that cannot be",
    MemoryWindow: "a memory window that cannot be bound as it is",
    NoRegion: "no memory was lent for a memory region",
    Owner: "a QP in a protection domain of another owner",
    Capabilities: "a QP that is to hold more than the limits allow",
    RequestMemory: "queues that could take more memory than the limits allow",
    Attributes: "attributes that a QP cannot have",
    State: "a state that a QP of this service cannot be in",
    Psn: "a PSN, MSN, QPN or number of a shared queue of more than 24 bits",
    Request: "a request that its QP cannot have taken",
    SharedQueue: "a shared receive queue that cannot be, or QPs that wait for its receives and are not in its list",
    Xrc: "an XRC target, or a shared receive queue of XRC, that cannot be as it is",
    Queue: "requests beyond a queue's length, or in a state in which there are none",
    Progress: "progress of a send beyond its message, or of none",
    Received: "progress of a message that cannot have come, or into no receive",
    Retries: "more retries left than a QP can have",
    Carrier: "a carrier that a QP cannot have",
    Cursor: "a cursor beyond the send queue or its request, or not where answers have come to",
    Outstanding: "PSNs outstanding that were not sent, or too many",
    Window: "a window or a count of packets that cannot be",
    Resource: "a READ or atomic that cannot have been accepted, or too many",
    Nak: "a NAK that cannot be sent",
    Stream: "a connection in a stream that cannot be as it is",
    Time: "a time after the last, or one without what happened then",
    Losses: "more packets between two losses than there are",
    Early: "responses ahead of a missing one that were not asked for",
    Probe: "probes that contradict each other",
    Peers: "peers of a device that are too many, or not in their places",
    Turns: "a turn of a QP that does not exist, or two turns of one",
    Lost: "a QP that waits for a turn or a time, and is in no list of those that do",
    Carried: "a share of turns that a device cannot have, or that is not in its place",
    Sweep: "a task that cannot be under way",
    Question: "a question that cannot be open, or a send that waits for an answer and did not ask",
    Frame: "a frame that is none, or too long, or too many",
    Held: "more frames held for a QP than there are",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_where_they_are() {
        let error = RestoreError::from(Violation::Nak).of_qp(17).of_device(2);
        assert_eq!(error.to_string(), "device 2: QP 0x11: a NAK that cannot be sent");
        assert_eq!(
            RestoreError::from(Violation::Time).to_string(),
            "a time after the last, or one without what happened then"
        );
    }
}
