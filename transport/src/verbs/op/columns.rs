//! Values of the columns of the table of operations.

/// Which services have an operation (IBTA table 38).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Services {
    /// Reliable connections only.
    Reliable,
    /// All connections.
    Connected,
    /// Connections and datagrams.
    All,
}

/// Direction of the payload of an operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum DataDirection {
    /// To the responder.
    Out,
    /// Back to the requester.
    Back,
}

/// Which receives of the peer an operation takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Receive {
    /// None.
    Never,
    /// One, which takes the payload.
    Always,
    /// One, if it has immediate data.
    WithImm,
}

/// What a reliable responder answers.
///
/// `max_rd_atomic` limits how many answers other than acknowledges may be outstanding.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// An acknowledge, which may cover several requests.
    Acknowledge,
    /// A response with data. The request is executed when it is answered, and again when it is
    /// repeated (IBTA 9.7.5.1.3).
    Data,
    /// A response, which returns the old value if the operation has one. The request is executed
    /// once, and the old value is remembered.
    Once,
}

/// The kind of message that has begun and not ended at its responder.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// None: a request is one packet.
    None,
    /// A message into a receive.
    Send,
    /// A message into a region.
    Write,
}
