//! The transport kind of a connected QP: how its messages reach the peer.

/// The transport kind of a connected QP: how its messages reach the peer.
///
/// It is chosen when the QP goes to RTR, and when its address vector changes. The head of
/// `objects/service.rs` lists what a transport kind has to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TransportKind {
    /// Copies to a QP of this engine, without packets.
    Local,
    /// RoCEv2 packets.
    Roce,
    /// A TCP stream (iWARP).
    Tcp,
}

impl TransportKind {
    /// Whether its QPs get their turns in [`Engine::transmit`](crate::Engine::transmit).
    #[inline]
    pub(crate) fn needs_port(self) -> bool {
        self != TransportKind::Local
    }
}
