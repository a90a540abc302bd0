//! The switch's decision about a frame, and the reasons to drop it.

/// The ports of the switch: sources and destinations of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchPort {
    /// The Ethernet function of a guest.
    Guest(usize),
    /// The NIC. As a destination, also the guests of other workers.
    Uplink,
    /// The guests of other workers, as a source. Their own switch has checked their frames.
    ///
    /// Frames to them go to [`SwitchPort::Uplink`].
    Worker,
    /// The RDMA engine. It sends for all guests, each packet from its guest's address.
    Engine,
    /// A guest's own TCP in this process. It sends as [`SwitchPort::Engine`].
    Tcp(usize),
}

impl SwitchPort {
    /// Whether frames from this port have already been to all places that the uplink leads to.
    pub fn is_outside(self) -> bool {
        matches!(self, SwitchPort::Uplink | SwitchPort::Worker)
    }
}

/// The switch's decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Drop the frame for this reason.
    Drop(Reason),
    /// Send it to one port.
    To(SwitchPort),
    /// Send it to all ports of its VLAN, except the one it came from.
    Group,
    /// Send a RoCE packet to a group.
    ///
    /// It goes to all ports of its VLAN, except the one it came from. For guests with an RDMA
    /// function it goes to the engine.
    RoceGroup,
    /// Send it to all ports behind which the unknown destination may be, except where it came from.
    ///
    /// [`Switch::floods`](super::switch::Switch::floods) decides which guests these are.
    Unknown,
}

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The Ethernet header is not complete.
    Runt,
    /// The source is not a unicast MAC address.
    GroupSource,
    /// The guest may not use the source MAC address.
    Spoofed,
    /// A RoCE packet from an IP address that the guest may not use as a GID.
    ///
    /// The guest's netdev made it to get around the RDMA function.
    SpoofedGid,
    /// A TCP segment for an iWARP connection, from an IP address that its sender may not use.
    SpoofedTcp,
    /// ARP with an address that the guest may not use.
    SpoofedArp,
    /// Neighbour discovery with, or for, an address that the guest may not use.
    SpoofedNd,
    /// A router's message (advertisement or redirect) from a guest whose addresses are listed.
    Router,
    /// The headers are longer than what the switch reads, so the claimed addresses are unknown.
    Opaque,
    /// It came from a guest in a VLAN that the guest may not use.
    IngressVlan,
    /// It is for a guest that may not use its VLAN.
    EgressVlan,
    /// It came from the uplink with the address of a local guest: a loop, or a spoof.
    OwnSource,
    /// The destination is reserved for bridges (IEEE 802.1Q table 8-1).
    Reserved,
    /// The destination is where the frame came from.
    Hairpin,
}
