//! Commands about multicast groups.

use zerocopy::little_endian::U32;

layout! {
    /// Attaches a UD QP to a multicast group, or detaches it: ibv_attach_mcast(3).
    ///
    /// A member receives messages to the group and to QPN 0xffffff, in any VLAN in which the device
    /// has a GID. The sender may be its own guest (the QP itself, too), another guest of the host,
    /// or another host. Q_Key, receive and length are checked for each member separately. If a
    /// member has no receive, only its own copy is lost.
    pub struct McastReq = "vrdma_mcast_req" {
        /// The QP.
        qpn: U32,
        /// Written as zero; refused otherwise.
        reserved: U32,
        /// The group's GID, in network byte order. It is a multicast address of IPv6 (`ff..`) or of
        /// IPv4 (`::ffff:224.0.0.0` to `::ffff:239.255.255.255`).
        mgid: [u8; 16],
    }
}
