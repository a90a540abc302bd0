//! UDP source ports, by which routers spread flows over paths.
//!
//! The functions are those of Linux's RDMA core. So both ends of a connection, of any
//! implementation, choose ports by the same rules, which helps to read captures.

use crate::num::{FlowLabel, Qpn};

/// The least source port of RoCE: 0xc000, the first dynamic port of RFC 6335.
const MIN_PORT: u16 = 0xc000;

/// Returns a flow label for a connection: its two QPNs, folded, in any order (Linux:
/// `rdma_calc_flow_label`).
pub const fn flow_label(local: Qpn, remote: Qpn) -> FlowLabel {
    let product = local.number() as u64 * remote.number() as u64;
    let folded = product ^ product >> 20;
    FlowLabel::truncate((folded ^ folded >> 40) as u32)
}

/// Returns the source port of a flow label, 0xc000 to 0xffff (Linux:
/// `rdma_flow_label_to_udp_sport`).
pub const fn udp_source_port(label: FlowLabel) -> u16 {
    let label = label.number();
    MIN_PORT | ((label & 0x3fff) ^ (label >> 14)) as u16
}

/// Returns the source port of a connection, from its flow label or its QPNs (Linux:
/// `rdma_get_udp_sport`).
///
/// The QPNs count if the flow label is 0.
pub const fn connection_source_port(label: FlowLabel, local: Qpn, remote: Qpn) -> u16 {
    udp_source_port(if label.number() == 0 { flow_label(local, remote) } else { label })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_their_range_and_differ() {
        let mut seen = [false; 1 << 14];
        for label in 0..1 << 20 {
            let port = udp_source_port(FlowLabel::truncate(label));
            assert!(port >= MIN_PORT);
            seen[usize::from(port & 0x3fff)] = true;
        }
        assert!(seen.iter().all(|s| *s));
    }

    #[test]
    fn known_values() {
        // Calculated by hand from the C code of include/rdma/ib_verbs.h.
        let qpn = |n| Qpn::new(n).unwrap();
        assert_eq!(flow_label(qpn(0x11), qpn(0x12)).number(), 0x132);
        assert_eq!(flow_label(qpn(0xabcdef), qpn(0x123456)).number(), 0xac3e3);
        assert_eq!(udp_source_port(FlowLabel::truncate(0x132)), 0xc132);
        // Low 14 bits 0x1234, high 6 bits 0b10_0001.
        assert_eq!(udp_source_port(FlowLabel::truncate(0x21 << 14 | 0x1234)), 0xc000 | 0x1234 ^ 0x21);
        let (a, b) = (qpn(0x4321), qpn(0x98765));
        assert_eq!(
            connection_source_port(FlowLabel::default(), a, b),
            connection_source_port(FlowLabel::default(), b, a)
        );
    }
}
