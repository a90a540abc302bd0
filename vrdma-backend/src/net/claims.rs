//! Checks that a guest uses only its own addresses in RoCE, ARP (RFC 826) and neighbour discovery
//! (RFC 4861).
//!
//! Other IP packets may have any source, because a guest may route. But no host can learn another
//! guest's address from a guest, or mistake its packets for another guest's RDMA.

use super::verdict::Reason;
use crate::frames::{Fragment, ICMPV6, Ip, UDP, untag, word};
use vrdma_wire::eth;
use vrdma_wire::num::{Gid, Mac};
use vrdma_wire::roce::UDP_PORT;

/// Bytes of an ARP packet for IPv4 over Ethernet.
const ARP_LEN: usize = 28;
/// Message types of ICMPv6 (RFC 4861, 4).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
/// Option types that hold an Ethernet address: of the source, and of the target (RFC 4861, 4.6.1).
const LINK_LAYER_OPTIONS: [u8; 2] = [1, 2];
/// The unspecified address: the sender has no address yet.
const UNSPECIFIED: Gid = Gid([0; 16]);

/// The addresses that a guest may use.
pub struct GuestIdentity<I, M> {
    /// Whether an IP address is the guest's.
    pub ip: I,
    /// Whether an Ethernet address is the guest's.
    pub mac: M,
    /// Whether the guest may be a router, with these addresses.
    pub router: bool,
}

impl<I: Fn(Gid) -> bool, M: Fn(Mac) -> bool> GuestIdentity<I, M> {
    /// Checks the head of a frame of the guest.
    ///
    /// # Errors
    /// Why the frame may not be sent.
    pub fn check(&self, head: &[u8]) -> Result<(), Reason> {
        match untag(head).ok_or(Reason::Opaque)? {
            (eth::ARP, start) => self.check_arp(head.get(start..start + ARP_LEN)),
            (eth::IPV4 | eth::IPV6, _) => self.check_ip(head, &Ip::parse(head).ok_or(Reason::Opaque)?),
            _ => Ok(()),
        }
    }

    /// Checks that the sender's addresses are the guest's. A probe has no IP address (RFC 5227,
    /// 2.1.1).
    fn check_arp(&self, arp: Option<&[u8]>) -> Result<(), Reason> {
        let arp = arp.ok_or(Reason::SpoofedArp)?;
        let ethernet_ipv4 = arp[2..6] == [0x08, 0x00, 6, 4];
        let (mac, ip) = (mac(&arp[8..14]), &arp[14..18]);
        let right = ethernet_ipv4 && (self.mac)(mac) && (ip == [0; 4] || (self.ip)(ipv4(ip)));
        if right { Ok(()) } else { Err(Reason::SpoofedArp) }
    }

    fn check_ip(&self, head: &[u8], ip: &Ip) -> Result<(), Reason> {
        // A later fragment is useless without the first one. Receivers drop fragments that overlap
        // (RFC 5722), and a first fragment without all headers (RFC 7112).
        if ip.fragment == Fragment::Later {
            return Ok(());
        }
        match ip.protocol {
            UDP => match word(head, ip.l4 + 2) {
                Some(UDP_PORT) if !(self.ip)(source(head, ip)) => Err(Reason::SpoofedGid),
                Some(_) => Ok(()),
                None => Err(Reason::Opaque),
            },
            ICMPV6 if ip.v6 => self.check_icmp(head, ip),
            _ => Ok(()),
        }
    }

    fn check_icmp(&self, head: &[u8], ip: &Ip) -> Result<(), Reason> {
        let fixed = match head.get(ip.l4) {
            Some(&ROUTER_SOLICITATION) => 8,
            Some(&(NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT)) => 24,
            Some(&(ROUTER_ADVERTISEMENT | REDIRECT)) if !self.router => return Err(Reason::Router),
            Some(&ROUTER_ADVERTISEMENT) => 16,
            Some(&REDIRECT) => 40,
            _ => return Ok(()),
        };
        // Neighbour discovery is not sent in fragments (RFC 6980), nor longer than the head.
        let end = word(head, ip.start + 4).map_or(0, |length| ip.start + 40 + usize::from(length));
        let message = head.get(ip.l4..end).filter(|message| message.len() >= fixed);
        let message = message.filter(|_| ip.fragment == Fragment::Whole).ok_or(Reason::SpoofedNd)?;
        let (options, source) = (&message[fixed..], source(head, ip));
        let target = || (self.ip)(gid(&message[8..24]));
        let own = match message[0] {
            // A probe whether anybody has an address is a claim of it (RFC 4862, 5.4.2).
            NEIGHBOUR_SOLICITATION if source == UNSPECIFIED => target(),
            // Both messages tell where the target is.
            NEIGHBOUR_ADVERTISEMENT | REDIRECT => (self.ip)(source) && target(),
            ROUTER_SOLICITATION if source == UNSPECIFIED => true,
            _ => (self.ip)(source),
        };
        if own && self.owns_links(options) { Ok(()) } else { Err(Reason::SpoofedNd) }
    }

    /// Whether options are well-formed, and all Ethernet addresses in them are the guest's.
    fn owns_links(&self, mut options: &[u8]) -> bool {
        while let [kind, units, ..] = *options {
            let Some((option, rest)) = options.split_at_checked(8 * usize::from(units)) else { return false };
            let link = LINK_LAYER_OPTIONS.contains(&kind);
            if option.is_empty() || link && (units != 1 || !(self.mac)(mac(&option[2..8]))) {
                return false;
            }
            options = rest;
        }
        options.is_empty()
    }
}

/// Returns the source of an IP packet.
fn source(head: &[u8], ip: &Ip) -> Gid {
    if ip.v6 { gid(&head[ip.start + 8..ip.start + 24]) } else { ipv4(&head[ip.start + 12..ip.start + 16]) }
}

fn gid(bytes: &[u8]) -> Gid {
    Gid(bytes.try_into().expect("16 bytes"))
}

fn ipv4(bytes: &[u8]) -> Gid {
    Gid::from_ipv4(bytes.try_into().expect("4 bytes"))
}

fn mac(bytes: &[u8]) -> Mac {
    Mac(bytes.try_into().expect("6 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::HEAD;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use vrdma_wire::roce::is_roce;

    const OWN_MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
    const OTHER_MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 2];
    const NO_IP: [u8; 16] = [0; 16];

    fn v6(last: u8) -> [u8; 16] {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
    }

    /// Checks a frame of a guest with 10.0.0.1 and fe80::1.
    fn check(frame: &[u8]) -> Result<(), Reason> {
        let ip = |gid| [Gid::from_ipv4([10, 0, 0, 1]), Gid(v6(1))].contains(&gid);
        let mac = |mac: Mac| mac.0 == OWN_MAC;
        GuestIdentity { ip, mac, router: false }.check(&frame[..frame.len().min(HEAD)])
    }

    fn frame(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let tags = tags.iter().flat_map(|kind| [kind.to_be_bytes(), [0, 0]]).flatten();
        let ethertype = ethertype.to_be_bytes();
        [0xff; 6]
            .into_iter()
            .chain(OWN_MAC)
            .chain(tags)
            .chain(ethertype)
            .chain(packet.iter().copied())
            .collect()
    }

    fn arp(mac: [u8; 6], ip: [u8; 4]) -> Vec<u8> {
        let body = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, &ip, &[0; 6], &[10, 0, 0, 9]].concat();
        frame(&[], eth::ARP, &body)
    }

    /// Returns ICMPv6 behind extension headers, of which the first is of kind `next`.
    fn behind(next: u8, extensions: &[u8], source: [u8; 16], message: &[u8]) -> Vec<u8> {
        let length = ((extensions.len() + message.len()) as u16).to_be_bytes();
        let header = [&[0x60, 0, 0, 0, length[0], length[1], next, 255][..], &source, &[0xff; 16]].concat();
        frame(&[], eth::IPV6, &[&header, extensions, message].concat())
    }

    fn icmp(source: [u8; 16], message: &[u8]) -> Vec<u8> {
        behind(ICMPV6, &[], source, message)
    }

    fn neighbour(kind: u8, target: [u8; 16], options: &[&[u8]]) -> Vec<u8> {
        [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target, &options.concat()].concat()
    }

    fn link(kind: u8, mac: [u8; 6]) -> Vec<u8> {
        [&[kind, 1][..], &mac].concat()
    }

    #[test]
    fn arp_speaks_of_its_own_addresses() {
        let spoofed = Err(Reason::SpoofedArp);
        assert_eq!(check(&arp(OWN_MAC, [10, 0, 0, 1])), Ok(()));
        assert_eq!(check(&arp(OWN_MAC, [0; 4])), Ok(()), "a probe");
        assert_eq!(check(&arp(OWN_MAC, [10, 0, 0, 2])), spoofed);
        assert_eq!(check(&arp(OTHER_MAC, [10, 0, 0, 1])), spoofed);
        assert_eq!(check(&arp(OTHER_MAC, [0; 4])), spoofed);
        assert_eq!(check(&arp(OWN_MAC, [10, 0, 0, 1])[..41]), spoofed);
        let body = &arp(OWN_MAC, [10, 0, 0, 2])[14..];
        for tags in [&[0x8100][..], &[0x8100, 0x8100], &[0x88a8, 0x8100]] {
            assert_eq!(check(&frame(tags, eth::ARP, body)), spoofed, "{tags:x?}");
        }
        for (at, value) in [(16, 9), (18, 5), (19, 16)] {
            let mut other = arp(OWN_MAC, [10, 0, 0, 1]);
            other[at] = value;
            assert_eq!(check(&other), spoofed, "of another kind");
        }
    }

    #[test]
    fn neighbour_discovery_speaks_of_its_own_addresses() {
        let (spoofed, ok) = (Err(Reason::SpoofedNd), Ok(()));
        let (own, other) = (link(1, OWN_MAC), link(1, OTHER_MAC));
        let (rs, ns, na) = (ROUTER_SOLICITATION, NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT);
        let solicit = |options: &[u8]| [&[rs, 0, 0, 0, 0, 0, 0, 0], options].concat();
        let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
        let cases = [
            (v6(1), neighbour(ns, v6(9), &[&own]), ok, "it asks"),
            (v6(1), neighbour(ns, v6(9), &[&nonce, &own]), ok, "with another option"),
            (v6(2), neighbour(ns, v6(9), &[&own]), spoofed, "as another"),
            (v6(1), neighbour(ns, v6(9), &[&other]), spoofed, "with another's Ethernet address"),
            (v6(1), neighbour(ns, v6(9), &[&nonce, &other]), spoofed, "further behind"),
            (v6(1), neighbour(ns, v6(9), &[&own, &other]), spoofed, "twice"),
            (v6(1), neighbour(ns, v6(9), &[&[1, 2], &[0; 14]]), spoofed, "of another length"),
            (v6(1), neighbour(ns, v6(9), &[&[14, 0, 0, 0, 0, 0, 0, 0]]), spoofed, "an option without end"),
            (v6(1), neighbour(ns, v6(9), &[&[14, 2, 0, 0, 0, 0, 0, 0]]), spoofed, "one beyond the end"),
            (v6(1), neighbour(ns, v6(9), &[&[14]]), spoofed, "a part of one"),
            (v6(1), neighbour(ns, v6(9), &[])[..20].to_vec(), spoofed, "a part of the message"),
            (v6(1), neighbour(ns, v6(9), &[&nonce.repeat(20)]), spoofed, "more than anybody looks at"),
            (NO_IP, neighbour(ns, v6(1), &[]), ok, "it looks whether anybody has its address"),
            (NO_IP, neighbour(ns, v6(2), &[]), spoofed, "or another's"),
            (v6(1), neighbour(na, v6(1), &[&link(2, OWN_MAC)]), ok, "it answers"),
            (v6(1), neighbour(na, v6(2), &[&link(2, OWN_MAC)]), spoofed, "for another"),
            (v6(2), neighbour(na, v6(1), &[&link(2, OWN_MAC)]), spoofed, "as another"),
            (v6(1), neighbour(na, v6(1), &[&link(2, OTHER_MAC)]), spoofed, "with another's Ethernet address"),
            (NO_IP, neighbour(na, v6(1), &[]), spoofed, "as nobody"),
            (v6(1), solicit(&own), ok, "it looks for routers"),
            (NO_IP, solicit(&[]), ok, "without an address"),
            (NO_IP, solicit(&other), spoofed, "with another's"),
            (v6(2), solicit(&own), spoofed, "as another"),
            (v6(1), vec![ROUTER_ADVERTISEMENT; 16], Err(Reason::Router), "it is no router"),
            (v6(1), vec![REDIRECT; 40], Err(Reason::Router), "it is no router"),
            (v6(2), vec![128; 16], ok, "echo is not asked"),
            (v6(2), vec![], ok, "nor nothing"),
        ];
        for (source, message, wanted, what) in cases {
            assert_eq!(check(&icmp(source, &message)), wanted, "{what}");
            let hop_by_hop = [ICMPV6, 0, 1, 4, 0, 0, 0, 0];
            assert_eq!(
                check(&behind(0, &hop_by_hop, source, &message)),
                wanted,
                "{what}, behind an extension"
            );
        }
        let fragment = [ICMPV6, 0, 0, 1, 0, 0, 0, 7];
        assert_eq!(check(&behind(44, &fragment, v6(1), &neighbour(ns, v6(9), &[]))), spoofed, "in fragments");
        assert_eq!(check(&behind(44, &fragment, v6(1), &[REDIRECT; 8])), Err(Reason::Router));
    }

    #[test]
    fn a_router_speaks_of_its_own_addresses() {
        let (spoofed, ok) = (Err(Reason::SpoofedNd), Ok(()));
        let check = |source, message: &[u8]| {
            let (ip, mac) = (|gid| gid == Gid(v6(1)), |mac: Mac| mac.0 == OWN_MAC);
            GuestIdentity { ip, mac, router: true }.check(&icmp(source, message))
        };
        let advertise = |options: &[u8]| [&[ROUTER_ADVERTISEMENT][..], &[0; 15], options].concat();
        let redirect = |target: [u8; 16], options: &[u8]| {
            [&[REDIRECT, 0, 0, 0, 0, 0, 0, 0][..], &target, &[0xfd; 16], options].concat()
        };
        for (source, message, wanted) in [
            (v6(1), advertise(&link(1, OWN_MAC)), ok),
            (v6(2), advertise(&link(1, OWN_MAC)), spoofed),
            (v6(2), advertise(&[]), spoofed),
            (v6(1), advertise(&link(1, OTHER_MAC)), spoofed),
            (v6(1), advertise(&[])[..12].to_vec(), spoofed),
            (v6(1), redirect(v6(1), &link(2, OWN_MAC)), ok),
            (v6(1), redirect(v6(2), &link(2, OWN_MAC)), spoofed),
            (v6(2), redirect(v6(1), &link(2, OWN_MAC)), spoofed),
            (v6(1), redirect(v6(1), &link(2, OTHER_MAC)), spoofed),
        ] {
            assert_eq!(check(source, &message), wanted, "{message:x?}");
        }
    }

    #[test]
    fn roce_is_seen_behind_tags_options_and_extensions() {
        let spoofed = Err(Reason::SpoofedGid);
        let udp = |port: u16| [&[0, 7][..], &port.to_be_bytes(), &[0; 60]].concat();
        let v4 = |words: u8, flags: u8, last: u8, port| {
            let header =
                [&[0x40 | words, 0, 0, 0, 0, 0, flags, 0, 64, UDP, 0, 0, 10, 0, 0, last][..], &[0; 4]];
            [&header.concat()[..], &vec![1; 4 * usize::from(words) - 20], &udp(port)].concat()
        };
        for tags in [&[][..], &[0x8100], &[0x8100, 0x8100], &[0x88a8]] {
            for (words, flags) in [(5, 0), (15, 0), (5, 0x20)] {
                let of = |last, port| check(&frame(tags, eth::IPV4, &v4(words, flags, last, port)));
                assert_eq!((of(1, 4791), of(2, 4791), of(2, 4792)), (Ok(()), spoofed, Ok(())));
            }
        }
        let extension =
            |next: u8, length: u8| [&[next, length][..], &vec![0; 6 + 8 * usize::from(length)]].concat();
        let chains: [(u8, Vec<u8>); 4] = [
            (UDP, vec![]),
            (0, extension(UDP, 1)),
            (43, [extension(60, 2), extension(UDP, 0)].concat()),
            (44, vec![UDP, 0, 0, 1, 0, 0, 0, 0]),
        ];
        for (next, extensions) in chains {
            assert_eq!(check(&behind(next, &extensions, v6(1), &udp(4791))), Ok(()));
            assert_eq!(check(&behind(next, &extensions, v6(2), &udp(4791))), spoofed);
            assert_eq!(check(&behind(next, &extensions, v6(2), &udp(4792))), Ok(()));
        }
        let endless = behind(60, &extension(UDP, 40), v6(2), &udp(4791));
        assert_eq!(check(&endless), Err(Reason::Opaque), "nobody looks so far");
        // The port is just behind the bytes that are read.
        let edge = behind(60, &extension(UDP, 16), v6(2), &udp(4791));
        assert_eq!(check(&edge), Err(Reason::Opaque));
        assert_eq!(check(&frame(&[], 0x88b5, &[0; 10])), Ok(()), "what is no IP");
    }

    proptest! {
        /// The source of every packet that the engine would accept is checked.
        #[test]
        fn all_that_goes_to_the_engine_is_checked(kind in 0..4usize, rest in vec(any::<u8>(), 64..100), words in 0..16u8) {
            let ethertype = [eth::IPV4, eth::IPV6, eth::VLAN, eth::ARP][kind];
            let mut frame = frame(&[], ethertype, &rest);
            (frame[14], frame[20], frame[21], frame[23]) = (0x40 | words, UDP, 0, UDP);
            let at = if ethertype == eth::IPV4 { 14 + 4 * usize::from(words) } else { 54 };
            frame[at + 2..at + 4].copy_from_slice(&UDP_PORT.to_be_bytes());
            if is_roce(&frame) {
                prop_assert!(matches!(check(&frame), Err(Reason::SpoofedGid | Reason::Opaque)));
            }
        }
    }
}
