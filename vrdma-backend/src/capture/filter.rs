//! Decides what a capture gets.

use super::groups::JoinedGroups;
use crate::allowed::{FrameVlan, Vlans};
use crate::frames::{is_ip_group, is_reserved, untag};
use vrdma_wire::eth;
use vrdma_wire::head::{FrameKind, Head};
use vrdma_wire::num::{Gid, Mac, Qpn, VlanId};
use vrdma_wire::roce::{self, Body, Packet, Path};

/// What a capture gets. All parts that are there have to agree.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// What this guest sends or receives.
    pub guest: Option<CapturedGuest>,
    /// What queue pairs of this number send or receive.
    pub qpn: Option<Qpn>,
    /// What has this address as its source or destination.
    pub peer: Option<Gid>,
}

/// A guest, as a filter knows it.
#[derive(Clone, Debug)]
pub struct CapturedGuest {
    /// Its name in the configuration.
    pub name: String,
    /// Its MAC addresses.
    pub macs: Vec<Mac>,
    /// The VLANs that it is a member of. No frame of another one reaches it.
    pub vlans: Vlans,
    /// Whether it has an Ethernet function, which gets frames to groups of its VLANs.
    pub has_net: bool,
    /// Whether it has an RDMA function. RoCE packets to groups then reach it there alone.
    pub has_rdma: bool,
    /// The groups that its queue pairs have joined.
    pub joined: JoinedGroups,
}

/// Who sent a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSource<'a> {
    /// Another host, whatever the source address is.
    Wire,
    /// The guest of this name in the configuration, whatever the source address is.
    Guest(&'a str),
    /// This guest, or another host if it is `None`. The switch drops the frame, so it reaches
    /// nobody.
    Dropped(Option<&'a str>),
}

/// What a connected queue pair of this worker sends to.
///
/// A packet does not tell which queue pair sent it, unless it is a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpPeer {
    /// MAC address of the queue pair's guest.
    pub mac: Mac,
    /// The peer's number.
    pub qpn: Qpn,
    /// The peer's address.
    pub gid: Gid,
}

/// An end of a message within a worker.
#[derive(Clone, Copy, Debug)]
pub struct MessageEnd<'a> {
    /// Name of the guest in the configuration.
    pub guest: &'a str,
    /// Its queue pair.
    pub qpn: Qpn,
}

impl Filter {
    /// Whether a frame is captured.
    pub fn takes_frame(&self, source: FrameSource<'_>, frame: &[u8], peers: &[QpPeer]) -> bool {
        self.may_take_frame(source, frame)
            && (self.qpn.is_none()
                || Packet::parse(frame).is_ok_and(|parsed| self.is_of_qp(&parsed.packet, peers)))
    }

    /// Whether a frame may be captured that begins with these bytes.
    pub fn may_take_frame(&self, source: FrameSource<'_>, head: &[u8]) -> bool {
        let is_guests = self.guest.as_ref().is_none_or(|guest| {
            let (sender, is_dropped) = match source {
                FrameSource::Wire => (None, false),
                FrameSource::Guest(name) => (Some(name), false),
                FrameSource::Dropped(sender) => (sender, true),
            };
            sender == Some(guest.name.as_str())
                || !is_dropped && Head::parse(head).is_ok_and(|headers| guest.receives_frame(&headers, head))
        });
        let is_peers =
            self.peer.is_none_or(|peer| addresses(head).is_some_and(|(src, dst)| src == peer || dst == peer));
        is_guests && is_peers && (self.qpn.is_none() || roce::is_roce(head))
    }

    /// Whether a packet of the engine is captured. The engine sends from its guests' addresses.
    pub fn takes_packet(&self, packet: &Packet, peers: &[QpPeer]) -> bool {
        let path = &packet.path;
        let is_guests =
            |guest: &CapturedGuest| guest.macs.contains(&path.src_mac) || guest.receives_packet(path);
        self.guest.as_ref().is_none_or(is_guests) && self.is_of_peer(path) && self.is_of_qp(packet, peers)
    }

    /// Whether a packet of the engine is captured that the switch drops. It reaches nobody.
    pub fn takes_dropped_packet(&self, packet: &Packet, peers: &[QpPeer]) -> bool {
        let is_senders = |guest: &CapturedGuest| guest.macs.contains(&packet.path.src_mac);
        self.guest.as_ref().is_none_or(is_senders) && self.takes_packet(packet, peers)
    }

    /// Whether packets between two queue pairs of a worker may be captured.
    ///
    /// `to` is `None` for a multicast group.
    pub fn may_take_message(&self, from: MessageEnd<'_>, to: Option<MessageEnd<'_>>) -> bool {
        match to {
            Some(to) => self.is_end(from) || self.is_end(to),
            None => self.is_end(from) || self.qpn.is_none(),
        }
    }

    /// Whether a packet between two queue pairs of a worker is captured.
    ///
    /// `to` is `None` for a multicast group.
    pub fn takes_message(&self, from: MessageEnd<'_>, to: Option<MessageEnd<'_>>, path: &Path) -> bool {
        let receives = || match to {
            Some(to) => self.is_end(to),
            None => self.qpn.is_none() && self.guest.as_ref().is_none_or(|guest| guest.receives_packet(path)),
        };
        self.is_of_peer(path) && (self.is_end(from) || receives())
    }

    /// Whether a queue pair is one of the filter.
    fn is_end(&self, end: MessageEnd<'_>) -> bool {
        let is_guest = self.guest.as_ref().is_none_or(|guest| guest.name == end.guest);
        is_guest && self.qpn.is_none_or(|qpn| qpn == end.qpn)
    }

    /// Whether one of the addresses is the wanted one.
    fn is_of_peer(&self, path: &Path) -> bool {
        self.peer.is_none_or(|peer| path.src == peer || path.dst == peer)
    }

    /// Whether a queue pair of the wanted number sent a packet, or receives it.
    fn is_of_qp(&self, packet: &Packet, peers: &[QpPeer]) -> bool {
        let Some(qpn) = self.qpn else { return true };
        let Packet { path, bth, body } = packet;
        let is_guest = |mac| self.guest.as_ref().is_none_or(|guest| guest.macs.contains(&mac));
        let sends = match body {
            Body::Ud { deth, .. } => deth.src == qpn,
            _ => {
                let is_it =
                    |peer: &QpPeer| peer.mac == path.src_mac && peer.qpn == bth.dest && peer.gid == path.dst;
                peers.iter().any(is_it)
            }
        };
        bth.dest == qpn && is_guest(path.dst_mac) || sends && is_guest(path.src_mac)
    }
}

impl CapturedGuest {
    /// Whether the switch brings a frame to the guest, which another one sent.
    fn receives_frame(&self, headers: &Head, head: &[u8]) -> bool {
        let dst = headers.eth.dst;
        if is_reserved(dst) || !self.vlans.admits(FrameVlan::of(&headers.eth)) {
            return false;
        }
        if !is_group(dst) {
            return self.macs.contains(&dst);
        }
        if !self.has_rdma || headers.kind != FrameKind::Roce || !is_ip_group(dst) {
            return self.has_net;
        }
        addresses(head).is_some_and(|(_, group)| self.joined.contain(group, VlanId::of(headers.eth.vlan)))
    }

    /// Whether a RoCE packet of another guest comes to this one.
    fn receives_packet(&self, path: &Path) -> bool {
        let (dst, vlan) = (path.dst_mac, VlanId::of(path.vlan));
        if !self.vlans.contains(vlan) {
            return false;
        }
        match is_group(dst) {
            false => self.macs.contains(&dst),
            true if self.has_rdma => self.joined.contain(path.dst, vlan),
            true => self.has_net,
        }
    }
}

fn is_group(mac: Mac) -> bool {
    mac.0[0] & 1 != 0
}

/// Returns the addresses of an IP packet: source and destination.
fn addresses(frame: &[u8]) -> Option<(Gid, Gid)> {
    let (ethertype, start) = untag(frame)?;
    let header = frame.get(start..)?;
    match ethertype {
        eth::IPV4 => {
            let v4 = |at: usize| header.get(at..)?.first_chunk().map(|address| Gid::from_ipv4(*address));
            Some((v4(12)?, v4(16)?))
        }
        eth::IPV6 => {
            let v6 = |at: usize| header.get(at..)?.first_chunk().map(|address| Gid(*address));
            Some((v6(8)?, v6(24)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_wire::num::{FlowLabel, Qkey, VlanTag};
    use vrdma_wire::roce::{Bth, Deth, Part, Rc, SendTail};

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const C: Mac = Mac([2, 0, 0, 0, 0, 3]);
    const OURS: Gid = Gid::from_ipv4([10, 0, 0, 1]);
    const THEIRS: Gid = Gid::from_ipv4([10, 0, 0, 2]);

    fn qpn(number: u32) -> Qpn {
        Qpn::truncate(number)
    }

    fn packet(dest: u32, body: Body) -> Packet {
        let path = Path {
            src_mac: A,
            dst_mac: B,
            vlan: None,
            src: OURS,
            dst: THEIRS,
            traffic_class: 0,
            flow_label: FlowLabel::default(),
            hop_limit: 64,
            src_port: 0xc000,
        };
        Packet { path, bth: Bth { dest: qpn(dest), ..Bth::default() }, body }
    }

    fn send(dest: u32) -> Packet {
        packet(dest, Body::Rc(Rc::Send(Part::Only((), SendTail::Plain))))
    }

    fn frame(packet: &Packet) -> Vec<u8> {
        let mut frame = vec![0; packet.frame_len(0)];
        packet.emit(0, &mut frame);
        vrdma_wire::icrc::seal(&mut frame);
        frame
    }

    fn guest(name: &str, mac: Mac) -> CapturedGuest {
        CapturedGuest {
            name: name.into(),
            macs: vec![mac],
            vlans: Vlans::from_iter([VlanId::UNTAGGED, vlan(10)]),
            has_net: true,
            has_rdma: true,
            joined: JoinedGroups::default(),
        }
    }

    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).unwrap()
    }

    fn of_guest(mac: Mac) -> Filter {
        Filter { guest: Some(guest("vm1", mac)), ..Filter::default() }
    }

    /// Whether a packet is captured that a guest with the address `A` sends, also as a frame.
    fn takes(filter: &Filter, packet: &Packet, peers: &[QpPeer]) -> bool {
        let takes = filter.takes_packet(packet, peers);
        let sender = filter.guest.as_ref().filter(|guest| guest.macs.contains(&A));
        let source = FrameSource::Guest(sender.map_or("another", |guest| &guest.name));
        assert_eq!(filter.takes_frame(source, &frame(packet), peers), takes);
        takes
    }

    /// Returns a frame of no known protocol.
    fn other(dst: Mac, src: Mac, tag: Option<u16>) -> Vec<u8> {
        let tag = tag.map(|number| [&[0x81, 0][..], &number.to_be_bytes()].concat()).unwrap_or_default();
        [&dst.0[..], &src.0, &tag, &[8, 6], &[0; 46]].concat()
    }

    #[test]
    fn a_guest_has_what_it_sends_and_receives() {
        for (mac, is_taken) in [(A, true), (B, true), (C, false)] {
            assert_eq!(takes(&of_guest(mac), &send(7), &[]), is_taken);
        }
        // The network device of a guest may send from any address.
        let nested = other(B, A, None);
        let sent_by = |name, frame: &[u8]| of_guest(C).takes_frame(FrameSource::Guest(name), frame, &[]);
        assert!(sent_by("vm1", &nested) && !sent_by("vm2", &nested));
        assert!(sent_by("vm1", &nested[..5]) && !sent_by("vm2", &nested[..5]));
        // What the switch drops is its sender's alone.
        for (sender, is_taken) in [(Some("vm1"), true), (Some("vm2"), false), (None, false)] {
            assert_eq!(of_guest(B).takes_frame(FrameSource::Dropped(sender), &nested, &[]), is_taken);
            assert!(Filter::default().takes_frame(FrameSource::Dropped(sender), &nested, &[]));
        }
        for (mac, is_taken) in [(A, true), (B, false), (C, false)] {
            assert_eq!(of_guest(mac).takes_dropped_packet(&send(7), &[]), is_taken);
        }
        assert!(Filter::default().takes_dropped_packet(&send(7), &[]));
        // Nobody else sends from its address, whatever a frame says.
        for source in [FrameSource::Wire, FrameSource::Guest("vm2")] {
            assert!(!of_guest(A).takes_frame(source, &nested, &[]), "{source:?}");
            assert!(of_guest(B).takes_frame(source, &nested, &[]), "{source:?}");
        }
    }

    #[test]
    fn a_guest_has_no_frames_of_other_vlans_and_groups() {
        const ALL: Mac = Mac([0xff; 6]);
        const BRIDGES: Mac = Mac([1, 0x80, 0xc2, 0, 0, 0]);
        const GROUP: Gid = Gid::from_ipv4([239, 0, 0, 5]);
        const GROUP_MAC: Mac = Mac([1, 0, 0x5e, 0, 0, 5]);
        let filter = of_guest(C);
        let takes_frame = |filter: &Filter, frame: &[u8]| filter.takes_frame(FrameSource::Wire, frame, &[]);
        for (tag, is_taken) in [(None, true), (Some(10), true), (Some(11), false)] {
            for dst in [ALL, GROUP_MAC, C] {
                assert_eq!(takes_frame(&filter, &other(dst, A, tag)), is_taken, "{dst:?} {tag:?}");
            }
        }
        assert!(!takes_frame(&filter, &other(BRIDGES, A, None)));
        assert!(!takes_frame(&filter, &other(B, ALL, None)), "a source is no destination");
        let without_net = |mut filter: Filter| {
            filter.guest.as_mut().unwrap().has_net = false;
            filter
        };
        assert!(!takes_frame(&without_net(filter.clone()), &other(ALL, A, None)));
        // RoCE goes to those that have joined.
        let datagram = |group: Gid, tag: Option<u16>| {
            let deth = Deth { qkey: Qkey(1), src: qpn(8) };
            let mut packet = packet(0xff_ffff, Body::Ud { deth, imm: None });
            (packet.path.dst, packet.path.dst_mac, packet.path.vlan) = (group, GROUP_MAC, tag.map(VlanTag));
            packet
        };
        let other_group = Gid::from_ipv4([239, 128, 0, 5]);
        let guest = filter.guest.as_ref().unwrap();
        assert!(!takes(&filter, &datagram(GROUP, None), &[]), "it has joined none");
        guest.joined.set([GROUP].into_iter(), [vlan(10)].into_iter());
        for (group, tag, is_taken) in [
            (GROUP, Some(10), true),
            (GROUP, None, false),
            (GROUP, Some(11), false),
            (other_group, Some(10), false),
        ] {
            let packet = datagram(group, tag);
            assert_eq!(takes(&filter, &packet, &[]), is_taken, "{group:?} {tag:?}");
            let from = MessageEnd { guest: "vm2", qpn: qpn(8) };
            assert!(filter.may_take_message(from, None));
            assert_eq!(filter.takes_message(from, None, &packet.path), is_taken, "{group:?} {tag:?}");
        }
        guest.joined.set([].into_iter(), [vlan(10)].into_iter());
        assert!(!takes(&filter, &datagram(GROUP, Some(10)), &[]), "it has left");
        // Without an RDMA function, packets come to the Ethernet function.
        let mut without_rdma = filter.clone();
        without_rdma.guest.as_mut().unwrap().has_rdma = false;
        assert!(takes(&without_rdma, &datagram(other_group, Some(10)), &[]));
        assert!(!takes(&without_net(without_rdma), &datagram(other_group, Some(10)), &[]));
    }

    #[test]
    fn what_a_filter_takes_is_decided_by_the_head_as_far_as_that_tells() {
        let packet = frame(&send(7));
        let cut = &packet[..packet.len() - 4];
        let of_qp = |number| Filter { qpn: Some(qpn(number)), ..Filter::default() };
        assert!(of_qp(7).may_take_frame(FrameSource::Wire, cut));
        assert!(of_qp(8).may_take_frame(FrameSource::Wire, cut), "the rest tells");
        assert!(!of_qp(7).may_take_frame(FrameSource::Wire, &other(B, A, None)));
        let of_peer = |peer| Filter { peer: Some(peer), ..Filter::default() };
        assert!(of_peer(OURS).may_take_frame(FrameSource::Wire, cut));
        assert!(!of_peer(Gid::ZERO).may_take_frame(FrameSource::Wire, cut));
        assert!(of_guest(B).may_take_frame(FrameSource::Wire, cut));
        assert!(!of_guest(C).may_take_frame(FrameSource::Wire, cut));
    }

    #[test]
    fn a_queue_pair_is_known_by_its_number_its_peer_or_its_datagrams() {
        let of = |number: u32| Filter { qpn: Some(qpn(number)), ..Filter::default() };
        assert!(takes(&of(7), &send(7), &[]) && !takes(&of(8), &send(7), &[]));
        let peer = QpPeer { mac: A, qpn: qpn(7), gid: THEIRS };
        assert!(takes(&of(8), &send(7), &[peer]), "it is connected to that one");
        for wrong in [QpPeer { mac: B, ..peer }, QpPeer { qpn: qpn(9), ..peer }, QpPeer { gid: OURS, ..peer }]
        {
            assert!(!takes(&of(8), &send(7), &[wrong]));
        }
        let deth = Deth { qkey: Qkey(1), src: qpn(8) };
        assert!(takes(&of(8), &packet(7, Body::Ud { deth, imm: None }), &[]));
        // Another guest's queue pair may have the number.
        let mut both = of_guest(A);
        both.qpn = Some(qpn(7));
        assert!(!takes(&both, &send(7), &[]));
        both.guest = of_guest(B).guest;
        assert!(takes(&both, &send(7), &[]));
        assert!(!of(7).takes_frame(FrameSource::Wire, &other(B, A, None), &[]));
    }

    #[test]
    fn a_peer_is_source_or_destination() {
        for (address, is_taken) in
            [(OURS, true), (THEIRS, true), (Gid::from_ipv4([10, 0, 0, 3]), false), (Gid::ZERO, false)]
        {
            let filter = Filter { peer: Some(address), ..Filter::default() };
            assert_eq!(takes(&filter, &send(7), &[]), is_taken);
        }
        let filter = Filter { peer: Some(Gid([7; 16])), ..Filter::default() };
        let v6 = [&B.0[..], &A.0, &[0x86, 0xdd], &[0; 8], &[7; 16], &[9; 16]].concat();
        assert!(filter.takes_frame(FrameSource::Wire, &v6, &[]));
        assert!(!filter.takes_frame(FrameSource::Wire, &v6[..40], &[]), "it is cut");
    }

    #[test]
    fn messages_of_a_worker_are_those_of_either_end() {
        let end = |guest, number| MessageEnd { guest, qpn: qpn(number) };
        let (from, to) = (end("vm1", 7), Some(end("vm2", 8)));
        let path = send(8).path;
        let takes = |filter: &Filter, from, to| {
            let takes = filter.takes_message(from, to, &path);
            assert!(!takes || filter.may_take_message(from, to));
            takes
        };
        let mut filter = of_guest(A);
        assert!(takes(&filter, from, to) && takes(&filter, end("vm2", 8), Some(from)));
        filter.qpn = Some(qpn(8));
        assert!(!takes(&filter, from, to), "that is another guest's");
        filter.guest = None;
        assert!(takes(&filter, from, to));
        filter.peer = Some(Gid::ZERO);
        assert!(!takes(&filter, from, to));
        (filter.peer, filter.qpn) = (None, Some(qpn(9)));
        assert!(!takes(&filter, from, to) && !takes(&filter, from, None));
    }
}
