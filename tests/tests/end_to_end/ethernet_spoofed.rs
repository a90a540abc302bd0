//! Guests that use addresses that are not theirs.
//!
//! Either the guest's own addresses are listed, or those of another guest are. The guest uses ARP,
//! neighbour discovery, router messages, and RoCE in disguise.
//!
//! Shows: hostile-guest.

use vrdma_backend::config::GuestConfig;
use vrdma_tests::lab::listed;
use vrdma_tests::net::{NetGuest, NetOptions, frame, mac};
use vrdma_tests::{Lab, LabOptions, wait};

const ALL: [u8; 6] = [0xff; 6];
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Guest 0, which sends, and guest 1, which receives what is allowed.
struct Pair {
    lab: Lab,
    a: NetGuest,
    b: NetGuest,
    /// Counters of drops, with their expected values.
    drops: Vec<(&'static str, u64)>,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(listed)
    }

    fn with(host_says: fn(u8, GuestConfig) -> GuestConfig) -> Pair {
        let lab = Lab::without_guests(2, LabOptions { host_says, ..LabOptions::default() });
        let connect =
            |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).expect("accepted");
        let (a, b) = (connect(0), connect(1));
        Pair { lab, a, b, drops: Vec::new() }
    }

    #[track_caller]
    fn passes(&mut self, sent: &[u8]) {
        self.a.send(sent);
        assert_eq!(self.b.recv().1, self.lab.arrives(0, 1, sent));
    }

    /// Sends RoCE to a group, and asserts that it does not reach the netdev.
    ///
    /// Such a packet is for QPs, not for the netdev of a guest that has an RDMA function.
    #[track_caller]
    fn goes_to_members(&mut self, sent: &[u8]) {
        let before = self.lab.stats().switch("group");
        self.a.send(sent);
        self.b.expect_nothing();
        // Each worker's switch counts the packet.
        let wanted = before + u64::from(self.lab.workers());
        wait::until("the switches", || (self.lab.stats().switch("group") == wanted).then_some(()));
        self.b.expect_nothing();
        let after = self.lab.stats();
        assert_eq!(after.net(0, "tx_spoofed"), self.drops.iter().map(|(_, count)| count).sum::<u64>());
    }

    #[track_caller]
    fn is_dropped(&mut self, counter: &'static str, sent: &[u8]) {
        self.a.send(sent);
        self.b.expect_nothing();
        match self.drops.iter_mut().find(|(name, _)| *name == counter) {
            Some((_, count)) => *count += 1,
            None => self.drops.push((counter, 1)),
        }
        let stats = self.lab.stats();
        self.drops.iter().for_each(|&(name, count)| assert_eq!(stats.switch(name), count, "{name}"));
        assert_eq!(stats.net(0, "tx_spoofed"), self.drops.iter().map(|(_, count)| count).sum::<u64>());
    }
}

fn arp(operation: u8, hardware: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let body = [&[0, 1, 8, 0, 6, 4, 0, operation][..], &hardware, &address, &[0; 6], &[10, 0, 0, 2]].concat();
    frame(ALL, mac(1), ARP, &body)
}

fn address(host: u8) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]
}

/// Builds an IPv6 packet with `payload` under the next header `next`.
fn ipv6(next: u8, source: [u8; 16], payload: &[u8]) -> Vec<u8> {
    let header =
        [&[0x60, 0, 0, 0, 0, payload.len() as u8, next, 255][..], &source, &[0xff, 2], &[0; 13], &[1]];
    frame(ALL_NODES, mac(1), IPV6, &[&header.concat(), payload].concat())
}

/// Builds a neighbour discovery message: type, target, and an option with the Ethernet address.
fn neighbour(kind: u8, source: [u8; 16], target: [u8; 16], hardware: [u8; 6]) -> Vec<u8> {
    let option = [if kind == 136 { 2 } else { 1 }, 1];
    ipv6(58, source, &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target, &option, &hardware].concat())
}

#[test]
fn arp_teaches_nobody_anothers_address() {
    let mut pair = Pair::new();
    for operation in [1, 2] {
        pair.passes(&arp(operation, mac(1), [10, 0, 0, 1]));
        pair.is_dropped("drop_spoofed_arp", &arp(operation, mac(1), [10, 0, 0, 3]));
        pair.is_dropped("drop_spoofed_arp", &arp(operation, mac(3), [10, 0, 0, 1]));
    }
    pair.passes(&arp(1, mac(1), [0; 4]));
    // Priority tags make no difference.
    let mut tagged = arp(2, mac(1), [10, 0, 0, 3]);
    tagged.splice(12..12, [0x81, 0, 0, 0]);
    pair.is_dropped("drop_spoofed_arp", &tagged);
    // If no guest has listed addresses, each may use any.
    let lab = Lab::without_guests(2, LabOptions::default());
    let connect = |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).expect("accepted");
    let (mut a, mut b) = (connect(0), connect(1));
    a.send(&arp(2, mac(1), [10, 0, 0, 3]));
    assert_eq!(b.recv().1, lab.arrives(0, 1, &arp(2, mac(1), [10, 0, 0, 3])));
}

#[test]
fn neighbour_discovery_teaches_nobody_anothers_address() {
    let mut pair = Pair::new();
    let (own, other, none) = (address(1), address(3), [0; 16]);
    let eui64 = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0, 0, 1];
    for (kind, source, target) in
        [(135, own, address(2)), (136, own, own), (135, none, own), (136, eui64, eui64)]
    {
        pair.passes(&neighbour(kind, source, target, mac(1)));
    }
    for (kind, source, target, hardware) in [
        (135, other, address(2), mac(1)),
        (135, own, address(2), mac(3)),
        (135, none, other, mac(1)),
        (136, own, other, mac(1)),
        (136, other, own, mac(1)),
        (136, own, own, mac(3)),
    ] {
        pair.is_dropped("drop_spoofed_nd", &neighbour(kind, source, target, hardware));
    }
    // Behind an extension header, the message is found too.
    let message = neighbour(136, own, other, mac(1))[54..].to_vec();
    let extended = [&[58, 0, 1, 4, 0, 0, 0, 0][..], &message].concat();
    pair.is_dropped("drop_spoofed_nd", &ipv6(0, own, &extended));
    // The guest may not act as a router, even from its own address.
    pair.is_dropped("drop_router", &neighbour(134, own, own, mac(1)));
    pair.is_dropped("drop_router", &neighbour(137, own, own, mac(1)));
    // Messages other than neighbour discovery are not checked.
    pair.passes(&ipv6(58, other, &[128, 0, 0, 0, 0, 0, 0, 1]));
}

#[test]
fn roce_in_disguise_is_roce() {
    let mut pair = Pair::new();
    let udp = |port: u16| [&[0xc0, 0][..], &port.to_be_bytes(), &[0, 40, 0, 0], &[0; 32]].concat();
    let extended = |port| [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(port)].concat();
    let fragment = |port| [&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp(port)].concat();
    pair.passes(&ipv6(60, address(1), &extended(4791)));
    pair.passes(&ipv6(60, address(3), &extended(4792)));
    pair.passes(&ipv6(44, address(3), &fragment(4792)));
    pair.is_dropped("drop_spoofed_gid", &ipv6(60, address(3), &extended(4791)));
    pair.is_dropped("drop_spoofed_gid", &ipv6(44, address(3), &fragment(4791)));
    let mut tags = ipv6(17, address(3), &udp(4791));
    tags.splice(12..12, [0x81, 0, 0, 0]);
    pair.is_dropped("drop_spoofed_gid", &tags);
    // An endless chain of extension headers.
    pair.is_dropped(
        "drop_opaque",
        &ipv6(60, address(3), &[[60, 1, 1, 12].as_slice(), &[0; 12]].concat().repeat(15)),
    );
}

/// Configures guest 0 without listed addresses, and guest 1 with a list.
///
/// Guest 1 has 10.0.0.2 in VLAN 10 and untagged, and fe80::2 in any VLAN.
fn one_is_listed(index: u8, guest: GuestConfig) -> GuestConfig {
    if index == 0 {
        return guest;
    }
    let gids = ["10.0.0.2@10", "10.0.0.2@untagged", "fe80::2"].map(|text| text.parse().unwrap()).to_vec();
    GuestConfig { gids, any_gid: false, ..guest }
}

/// Adds VLAN tags to a frame.
fn tagged(tags: &[u8], frame: &[u8]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|&vlan| [0x81, 0, 0, vlan]);
    frame[..12].iter().copied().chain(tags).chain(frame[12..].iter().copied()).collect()
}

#[test]
fn who_may_use_any_address_uses_none_of_another_guest() {
    let mut pair = Pair::with(one_is_listed);
    let (own, other) = (address(1), address(2));
    // ARP in the VLANs in which the address is the other guest's. Behind several tags the effective
    // VLAN is unknown.
    for operation in [1, 2] {
        let theirs = arp(operation, mac(1), [10, 0, 0, 2]);
        pair.is_dropped("drop_spoofed_arp", &theirs);
        pair.is_dropped("drop_spoofed_arp", &tagged(&[0], &theirs));
        pair.is_dropped("drop_spoofed_arp", &tagged(&[10], &theirs));
        pair.passes(&tagged(&[20], &theirs));
        pair.is_dropped("drop_spoofed_arp", &tagged(&[20, 10], &theirs));
        pair.is_dropped("drop_spoofed_arp", &arp(operation, mac(2), [10, 0, 0, 3]));
        pair.passes(&arp(operation, mac(1), [10, 0, 0, 3]));
        pair.passes(&arp(operation, mac(7), [10, 0, 0, 3]));
        pair.passes(&arp(operation, mac(1), [0; 4]));
    }
    // Neighbour discovery from another guest's address, about another guest's address, and its own.
    for (kind, source, target, hardware) in [
        (135, other, address(3), mac(1)),
        (135, [0; 16], other, mac(1)),
        (135, own, address(3), mac(2)),
        (136, own, other, mac(1)),
        (136, other, own, mac(1)),
        (137, own, other, mac(1)),
    ] {
        let message = neighbour(kind, source, target, hardware);
        pair.is_dropped("drop_spoofed_nd", &message);
        pair.is_dropped("drop_spoofed_nd", &tagged(&[20], &message));
    }
    for (kind, source, target) in [(135, own, other), (135, [0; 16], own), (136, own, own)] {
        pair.passes(&neighbour(kind, source, target, mac(1)));
    }
    // The guest may act as a router, but not under the other guest's address.
    let advertisement =
        |source, hardware: [u8; 6]| ipv6(58, source, &[&[134][..], &[0; 15], &[1, 1], &hardware].concat());
    pair.passes(&advertisement(own, mac(1)));
    pair.is_dropped("drop_spoofed_nd", &advertisement(other, mac(1)));
    pair.is_dropped("drop_spoofed_nd", &advertisement(own, mac(2)));
    // RoCE from the guest's netdev.
    let udp = |port: u16| [&[0xc0, 0][..], &port.to_be_bytes(), &[0, 40, 0, 0], &[0; 32]].concat();
    let extended = |port| [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(port)].concat();
    pair.goes_to_members(&ipv6(17, own, &udp(4791)));
    pair.passes(&ipv6(60, own, &extended(4791)));
    pair.passes(&ipv6(17, other, &udp(4792)));
    pair.passes(&ipv6(60, other, &extended(4792)));
    pair.is_dropped("drop_spoofed_gid", &ipv6(17, other, &udp(4791)));
    pair.is_dropped("drop_spoofed_gid", &ipv6(60, other, &extended(4791)));
    pair.is_dropped("drop_spoofed_gid", &tagged(&[20, 30], &ipv6(17, other, &udp(4791))));
    let v4 = |last: u8| {
        let header = [0x45, 0, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, last, 10, 0, 0, 9];
        frame(ALL, mac(1), 0x0800, &[&header[..], &udp(4791)].concat())
    };
    pair.is_dropped("drop_spoofed_gid", &v4(2));
    pair.is_dropped("drop_spoofed_gid", &tagged(&[10], &v4(2)));
    pair.passes(&tagged(&[20], &v4(2)));
    pair.passes(&v4(3));
    // Any of these may be hidden behind an endless chain of headers.
    let endless = [[60, 1, 1, 12].as_slice(), &[0; 12]].concat().repeat(15);
    pair.is_dropped("drop_opaque", &ipv6(60, own, &endless));
}
