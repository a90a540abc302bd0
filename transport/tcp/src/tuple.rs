//! The tuple that identifies a connection.

use crate::connection::Ports;
use vrdma_wire::num::{Gid, Mac, VlanTag};

/// The addresses (IPv4 ones are mapped) and ports of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// This end's address.
    pub local: Gid,
    /// The peer's address.
    pub remote: Gid,
    /// Both ports.
    pub ports: Ports,
}

/// The next hop of a connection's segments on their way to the peer, with its VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NextHop {
    /// The MAC address of the next hop.
    pub mac: Mac,
    /// The 802.1Q tag of frames to it.
    pub vlan: Option<VlanTag>,
}

/// Returns whether an address can belong to a peer.
///
/// Unspecified, multicast and broadcast addresses cannot (RFC 9293, 3.9.2.3: MUST-46, MUST-57).
pub(crate) fn is_unicast(gid: Gid) -> bool {
    match gid.ipv4() {
        Some(v4) => !(v4[0] == 0 || v4[0] >= 224),
        None => gid.0[0] != 0xff && gid.0 != [0; 16],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_no_peer() {
        for v4 in [[0, 0, 0, 0], [224, 0, 0, 1], [239, 1, 2, 3], [255, 255, 255, 255]] {
            assert!(!is_unicast(Gid::from_ipv4(v4)), "{v4:?}");
        }
        assert!(is_unicast(Gid::from_ipv4([223, 1, 2, 3])) && is_unicast(Gid::from_ipv4([10, 0, 0, 1])));
        let v6 = |first| Gid([first; 16]);
        assert!(!is_unicast(v6(0xff)) && !is_unicast(v6(0)) && is_unicast(v6(0xfd)));
    }
}
