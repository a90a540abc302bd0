//! Which way the messages of a connected QP get to its peer.

/// Which carrier the messages of a connected QP take: decided as it goes to RTR, and when its
/// address vector changes. What a carrier has to do is said at the head of `objects/service.rs`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Carrier {
    /// To a QP of this engine, without packets.
    Local,
    /// In packets of RoCEv2.
    Roce,
    /// In a stream of TCP (iWARP).
    Tcp,
}

impl Carrier {
    /// Whether its QPs have their turns in [`Engine::transmit`](crate::Engine::transmit).
    #[inline]
    pub(crate) fn needs_port(self) -> bool {
        self != Carrier::Local
    }
}
