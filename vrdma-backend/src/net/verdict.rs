//! What is to be done with a frame, and why not.

/// Where frames come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchPort {
    /// The Ethernet function of a guest.
    Guest(usize),
    /// The NIC, and the guests of other workers.
    Uplink,
    /// The guests of other workers, as a source: what they send was judged by their own switch. (To
    /// them frames go by [`SwitchPort::Uplink`].)
    Worker,
    /// The RDMA engine. It sends for all guests, each packet from the address of the guest whose it
    /// is.
    Engine,
    /// The TCP of a guest, in this process. (It sends as [`SwitchPort::Engine`] does.)
    Tcp(usize),
}

impl SwitchPort {
    /// Whether what comes from there has been wherever the uplink leads.
    pub fn is_outside(self) -> bool {
        matches!(self, SwitchPort::Uplink | SwitchPort::Worker)
    }
}

/// What is to be done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, and why.
    Drop(Reason),
    /// It goes to one port.
    To(SwitchPort),
    /// It goes to all ports of its VLAN but the one it came from.
    Group,
    /// It is a RoCE packet to a group: as above, but for guests with an RDMA function it goes to
    /// the engine.
    RoceGroup,
    /// It goes where addresses may be that nobody knows, but not where it came from: see
    /// [`Switch::floods`](super::switch::Switch::floods).
    Unknown,
}

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has no whole Ethernet header.
    Runt,
    /// Its source is no address of a NIC.
    GroupSource,
    /// Its source is not one that the guest may use.
    Spoofed,
    /// It is a RoCE packet from an IP address that the guest may not use as GID: made by its netdev
    /// to get around its RDMA function.
    SpoofedGid,
    /// It is a TCP segment for a connection of iWARP, from an IP address that its sender may not
    /// use.
    SpoofedTcp,
    /// It is ARP under an address that the guest may not use.
    SpoofedArp,
    /// It is neighbour discovery under, or for, an address that the guest may not use.
    SpoofedNd,
    /// It is a router's (an advertisement or redirect), and comes from a guest whose addresses are
    /// listed.
    Router,
    /// Its headers do not end where the switch looks, so that nobody knows for whom it speaks.
    Opaque,
    /// It came from a guest in a VLAN that the guest may not use.
    IngressVlan,
    /// It is for a guest that may not use its VLAN.
    EgressVlan,
    /// It came from outside with the address of a guest of ours: a loop, or a spoof.
    OwnSource,
    /// Its destination is one that bridges keep to themselves (IEEE 802.1Q table 8-1).
    Reserved,
    /// Its destination is where it came from.
    Hairpin,
}
