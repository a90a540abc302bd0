//! What commands say of multicast groups.

use zerocopy::little_endian::U32;

layout! {
    /// Makes a QP of unreliable datagrams a member of a multicast group, or a member no longer:
    /// ibv_attach_mcast(3).
    ///
    /// A member gets what is sent to the group, and to QPN 0xffffff, in any VLAN in which the
    /// device has a GID: by its own guest (by the QP itself, too), by others of the host, and by
    /// other hosts. Q_Key, receive and length are checked for each member by itself; a member that
    /// has no receive loses its copy, nobody else.
    pub struct McastReq = "vrdma_mcast_req" {
        /// The QP.
        qpn: U32,
        /// Written as zero; refused otherwise.
        reserved: U32,
        /// The group's GID, in network byte order: a multicast address of IPv6 (`ff..`), or of IPv4
        /// (`::ffff:224.0.0.0` to `::ffff:239.255.255.255`).
        mgid: [u8; 16],
    }
}
