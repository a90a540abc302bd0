//! A learning Ethernet switch between guests and the uplink (IEEE 802.1Q): decides where frames go.
//!
//! The configuration tells the guests' addresses. So the switch learns only addresses behind the
//! uplink, and behind guests that may send from any address. A frame to an unknown destination goes
//! to those ports. The switch only decides: it does not touch frames.

use super::claims::GuestIdentity;
use super::table::{Learned, MacTable};
use super::verdict::{Reason, SwitchPort, Verdict};
use crate::allowed::{AllowedGid, FrameVlan, Listed, Vlans};
use crate::config::GuestConfig;
use crate::frames::{is_ip_group, is_reserved};
use std::collections::HashMap;
use vrdma_transport::Instant;
use vrdma_wire::head::{FrameKind, Head};
use vrdma_wire::num::{Gid, Mac, VlanId};

/// The configuration of a guest's addresses.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its own MAC address.
    pub mac: Mac,
    /// Other MAC addresses from which it may send.
    pub extra_macs: Vec<Mac>,
    /// Whether it may send from any MAC address that is no other guest's.
    pub any_mac: bool,
    /// Whether it has an RDMA function. RoCE to its MAC address then goes to the engine.
    pub rdma: bool,
    /// IP addresses that it may use in RoCE, ARP and neighbour discovery.
    ///
    /// If empty, it may use any that no other guest lists.
    pub gids: Vec<AllowedGid>,
    /// VLANs that it may use.
    pub vlans: Vlans,
}

impl Member {
    /// Returns what the switch needs to know of a guest.
    pub fn of(guest: &GuestConfig) -> Member {
        Member {
            mac: guest.mac,
            extra_macs: guest.extra_macs.clone(),
            any_mac: guest.any_mac,
            rdma: guest.rdma_place().is_some(),
            gids: guest.allowed_gids(),
            vlans: guest.member_of(),
        }
    }

    /// Returns what stands for a guest that was removed. No frame comes from it or goes to it.
    fn absent() -> Member {
        Member {
            mac: Mac::default(),
            extra_macs: Vec::new(),
            any_mac: false,
            rdma: false,
            gids: Vec::new(),
            vlans: Vlans::from_iter([]),
        }
    }

    /// Returns its MAC addresses.
    fn addresses(&self) -> impl Iterator<Item = Mac> {
        self.extra_macs.iter().chain([&self.mac]).copied()
    }

    /// Whether the guest's own list allows an IP address.
    ///
    /// Whether another guest lists the address has to be checked as well.
    pub fn may_speak_as(&self, gid: Gid, vlan: VlanId) -> bool {
        self.gids.is_empty() || self.gids.iter().any(|allowed| allowed.allows(vlan, gid))
    }
}

/// The counters of the switch.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SwitchCounters {
    /// Frames to one port, except RoCE packets to the engine.
    pub forwarded: u64,
    /// Frames to all ports: broadcast and multicast.
    pub group: u64,
    /// Frames to an unknown destination.
    pub unknown: u64,
    /// RoCE packets to the engine, except those to groups.
    pub roce: u64,
    /// Dropped: the Ethernet header is not complete.
    pub drop_runt: u64,
    /// Dropped: the source is not a unicast MAC address.
    pub drop_group_source: u64,
    /// Dropped: a guest sent from a MAC address that it may not use.
    pub drop_spoofed: u64,
    /// Dropped: a guest's netdev sent a RoCE packet from an IP address that the guest may not use
    /// as a GID.
    pub drop_spoofed_gid: u64,
    /// Dropped: a TCP segment for an iWARP connection, from an IP address that its sender may not
    /// use.
    ///
    /// Segments from other hosts with the address of a local guest count, too.
    pub drop_spoofed_tcp: u64,
    /// Dropped: a guest sent ARP with an address that it may not use.
    pub drop_spoofed_arp: u64,
    /// Dropped: a guest sent neighbour discovery with, or for, an address that it may not use.
    pub drop_spoofed_nd: u64,
    /// Dropped: a guest whose addresses are listed sent a router advertisement or a redirect.
    pub drop_router: u64,
    /// Dropped: a guest sent an IP packet whose headers exceed the first 192 bytes, and addresses
    /// are listed.
    pub drop_opaque: u64,
    /// Dropped: a guest sent in a VLAN that it may not use, or with several tags.
    pub drop_ingress_vlan: u64,
    /// Dropped: the destination is a guest that may not use the frame's VLAN.
    pub drop_egress_vlan: u64,
    /// Dropped: the uplink received a frame from the MAC address of a local guest.
    pub drop_own_source: u64,
    /// Dropped: the destination is reserved for bridges, like spanning tree and pause frames.
    pub drop_reserved: u64,
    /// Dropped: the destination is where the frame came from.
    pub drop_hairpin: u64,
    /// Addresses learned.
    pub learned: u64,
    /// Addresses that moved from one port to another.
    pub moved: u64,
    /// Addresses for which the table had no room.
    pub table_full: u64,
}

impl SwitchCounters {
    /// Adds the counters of another switch.
    pub fn add(&mut self, other: &SwitchCounters) {
        let SwitchCounters {
            forwarded,
            group,
            unknown,
            roce,
            drop_runt,
            drop_group_source,
            drop_spoofed,
            drop_spoofed_gid,
            drop_spoofed_tcp,
            drop_spoofed_arp,
            drop_spoofed_nd,
            drop_router,
            drop_opaque,
            drop_ingress_vlan,
            drop_egress_vlan,
            drop_own_source,
            drop_reserved,
            drop_hairpin,
            learned,
            moved,
            table_full,
        } = other;
        self.forwarded += forwarded;
        self.group += group;
        self.unknown += unknown;
        self.roce += roce;
        self.drop_runt += drop_runt;
        self.drop_group_source += drop_group_source;
        self.drop_spoofed += drop_spoofed;
        self.drop_spoofed_gid += drop_spoofed_gid;
        self.drop_spoofed_tcp += drop_spoofed_tcp;
        self.drop_spoofed_arp += drop_spoofed_arp;
        self.drop_spoofed_nd += drop_spoofed_nd;
        self.drop_router += drop_router;
        self.drop_opaque += drop_opaque;
        self.drop_ingress_vlan += drop_ingress_vlan;
        self.drop_egress_vlan += drop_egress_vlan;
        self.drop_own_source += drop_own_source;
        self.drop_reserved += drop_reserved;
        self.drop_hairpin += drop_hairpin;
        self.learned += learned;
        self.moved += moved;
        self.table_full += table_full;
    }
}

/// The state of the switch.
#[derive(Debug, Default)]
pub struct Switch {
    members: Vec<Member>,
    /// Numbers of members that were removed. Each is taken by the next guest.
    free: Vec<usize>,
    /// The member that owns each MAC address.
    owners: HashMap<Mac, usize>,
    /// MAC addresses of guests of other workers, as indices into `others`.
    peers: HashMap<Mac, usize>,
    /// The guests of other workers.
    others: Vec<Member>,
    /// IP addresses that members list.
    listed: Listed,
    table: MacTable,
    /// The counters of the switch.
    pub counters: SwitchCounters,
}

impl Switch {
    /// Adds a guest and its port. Returns its number, which may be that of a removed guest.
    pub fn add(&mut self, member: Member) -> usize {
        let index = self.free.pop().unwrap_or(self.members.len());
        self.owners.extend(member.addresses().map(|mac| (mac, index)));
        self.listed.insert(member.mac, &member.gids, &member.vlans);
        if index == self.members.len() {
            self.members.push(member);
        } else {
            self.members[index] = member;
        }
        index
    }

    /// Removes a guest and its port.
    pub fn remove(&mut self, guest: usize) {
        self.members[guest] = Member::absent();
        self.owners.retain(|_, owner| *owner != guest);
        self.table.forget(SwitchPort::Guest(guest));
        self.list_again();
        self.free.push(guest);
    }

    /// Adds a guest of another worker.
    pub fn add_peer(&mut self, member: &Member) {
        self.peers.extend(member.addresses().map(|mac| (mac, self.others.len())));
        self.listed.insert(member.mac, &member.gids, &member.vlans);
        self.others.push(member.clone());
    }

    /// Removes the guest of another worker that has this MAC address.
    pub fn remove_peer(&mut self, mac: Mac) {
        self.others.retain(|other| other.mac != mac);
        let others = self.others.iter().enumerate();
        self.peers =
            others.flat_map(|(index, other)| other.addresses().map(move |mac| (mac, index))).collect();
        self.list_again();
    }

    /// Collects the IP addresses that guests list.
    fn list_again(&mut self) {
        self.listed = Listed::default();
        for member in self.members.iter().chain(&self.others) {
            self.listed.insert(member.mac, &member.gids, &member.vlans);
        }
    }

    /// Returns to how many ports beyond this switch a flooded frame goes.
    ///
    /// The NIC is one port. All other workers together are one port.
    pub fn ways_out(&self, verdict: Verdict, from: SwitchPort) -> u64 {
        let to_workers = verdict != Verdict::Unknown && !self.peers.is_empty();
        if from.is_outside() { 0 } else { 1 + u64::from(to_workers) }
    }

    /// Returns the IP addresses that members list.
    pub fn listed(&self) -> &Listed {
        &self.listed
    }

    /// Whether a flooded frame with this verdict goes to a guest's port.
    pub fn floods(&self, guest: usize, verdict: Verdict, vlan: FrameVlan) -> bool {
        let member = &self.members[guest];
        let meant = match verdict {
            Verdict::Drop(_) | Verdict::To(_) => false,
            Verdict::Group => true,
            Verdict::RoceGroup => !member.rdma,
            Verdict::Unknown => member.any_mac,
        };
        meant && member.vlans.admits(vlan)
    }

    /// Returns the guest that has a MAC address.
    pub fn owner(&self, mac: Mac) -> Option<usize> {
        self.owners.get(&mac).copied()
    }

    /// Whether a guest of another worker has a MAC address.
    pub fn is_peer(&self, mac: Mac) -> bool {
        self.peers.contains_key(&mac)
    }

    /// Decides where a frame goes, by its headers.
    ///
    /// `head` is the beginning of the frame. It is read only in frames of guests, to check the
    /// addresses that they claim.
    pub fn decide(&mut self, now: Instant, headers: Option<&Head>, head: &[u8], from: SwitchPort) -> Verdict {
        let verdict = match headers {
            Some(headers) => self.verdict(now, headers, head, from),
            None => Verdict::Drop(Reason::Runt),
        };
        let counters = &mut self.counters;
        *match verdict {
            Verdict::To(SwitchPort::Engine) => &mut counters.roce,
            Verdict::To(_) => &mut counters.forwarded,
            Verdict::Group | Verdict::RoceGroup => &mut counters.group,
            Verdict::Unknown => &mut counters.unknown,
            Verdict::Drop(Reason::Runt) => &mut counters.drop_runt,
            Verdict::Drop(Reason::GroupSource) => &mut counters.drop_group_source,
            Verdict::Drop(Reason::Spoofed) => &mut counters.drop_spoofed,
            Verdict::Drop(Reason::SpoofedGid) => &mut counters.drop_spoofed_gid,
            Verdict::Drop(Reason::SpoofedTcp) => &mut counters.drop_spoofed_tcp,
            Verdict::Drop(Reason::SpoofedArp) => &mut counters.drop_spoofed_arp,
            Verdict::Drop(Reason::SpoofedNd) => &mut counters.drop_spoofed_nd,
            Verdict::Drop(Reason::Router) => &mut counters.drop_router,
            Verdict::Drop(Reason::Opaque) => &mut counters.drop_opaque,
            Verdict::Drop(Reason::IngressVlan) => &mut counters.drop_ingress_vlan,
            Verdict::Drop(Reason::EgressVlan) => &mut counters.drop_egress_vlan,
            Verdict::Drop(Reason::OwnSource) => &mut counters.drop_own_source,
            Verdict::Drop(Reason::Reserved) => &mut counters.drop_reserved,
            Verdict::Drop(Reason::Hairpin) => &mut counters.drop_hairpin,
        } += 1;
        verdict
    }

    /// Returns the guest that sent an admitted frame from this port and MAC address.
    ///
    /// `None` for another host.
    pub fn sender(&self, from: SwitchPort, src: Mac) -> Option<&Member> {
        match from {
            SwitchPort::Guest(guest) => self.members.get(guest),
            SwitchPort::Worker => self.peers.get(&src).map(|&other| &self.others[other]),
            SwitchPort::Engine | SwitchPort::Tcp(_) => {
                self.owners.get(&src).map(|&guest| &self.members[guest])
            }
            SwitchPort::Uplink => None,
        }
    }

    /// Changes the decision about a frame to one port: drops it as a spoofed TCP segment.
    pub fn refuse_spoofed_tcp(&mut self) -> Verdict {
        self.counters.forwarded -= 1;
        self.counters.drop_spoofed_tcp += 1;
        Verdict::Drop(Reason::SpoofedTcp)
    }

    fn verdict(&mut self, now: Instant, headers: &Head, head: &[u8], from: SwitchPort) -> Verdict {
        let (eth, is_roce) = (&headers.eth, headers.kind == FrameKind::Roce);
        let vlan = FrameVlan::of(eth);
        if let SwitchPort::Guest(guest) = from
            && !self.members[guest].vlans.admits(vlan)
        {
            return Verdict::Drop(Reason::IngressVlan);
        }
        let outer = VlanId::of(eth.vlan);
        if let Err(reason) = self.admit(now, (outer, eth.src), from) {
            return Verdict::Drop(reason);
        }
        if let SwitchPort::Guest(guest) = from
            && let Err(reason) = self.check_claims(guest, vlan, outer, head)
        {
            return Verdict::Drop(reason);
        }
        if is_reserved(eth.dst) {
            return Verdict::Drop(Reason::Reserved);
        }
        if eth.dst.0[0] & 1 != 0 {
            return if is_ip_group(eth.dst) && is_roce { Verdict::RoceGroup } else { Verdict::Group };
        }
        let to = match self.owners.get(&eth.dst) {
            Some(&guest) if from == SwitchPort::Guest(guest) => from,
            Some(&guest) if !self.members[guest].vlans.admits(vlan) => {
                return Verdict::Drop(Reason::EgressVlan);
            }
            Some(&guest) if is_roce && self.members[guest].rdma && eth.dst == self.members[guest].mac => {
                SwitchPort::Engine
            }
            Some(&guest) => SwitchPort::Guest(guest),
            None if self.peers.contains_key(&eth.dst) => SwitchPort::Uplink,
            None => match self.table.find(now, (outer, eth.dst)) {
                Some(port) => port,
                None => return Verdict::Unknown,
            },
        };
        if to == from || to == SwitchPort::Uplink && from.is_outside() {
            Verdict::Drop(Reason::Hairpin)
        } else {
            Verdict::To(to)
        }
    }

    /// Checks that a guest's frame claims only addresses that the guest may use.
    ///
    /// These are its listed addresses. If it lists none, they are the addresses that no guest
    /// lists.
    fn check_claims(&self, guest: usize, vlan: FrameVlan, outer: VlanId, head: &[u8]) -> Result<(), Reason> {
        let member = &self.members[guest];
        let any = member.gids.is_empty();
        if any && self.listed.is_empty() {
            return Ok(());
        }
        let ip = |gid| member.may_speak_as(gid, outer) && !self.listed.is_anothers(member.mac, vlan, gid);
        let mac = |mac: Mac| match self.owners.get(&mac) {
            Some(&owner) => owner == guest,
            None if self.peers.contains_key(&mac) => false,
            None => any || member.any_mac && mac.is_unicast(),
        };
        GuestIdentity { ip, mac, router: any }.check(head)
    }

    /// Checks that a frame from this port may have this source, and learns the source.
    fn admit(&mut self, now: Instant, (vlan, src): (VlanId, Mac), from: SwitchPort) -> Result<(), Reason> {
        if !src.is_unicast() {
            return Err(Reason::GroupSource);
        }
        if from == SwitchPort::Engine {
            // The engine sets the source address itself. Skip the look-up for each packet.
            return Ok(());
        }
        let owner = self.owners.get(&src).copied();
        let is_peers = self.peers.contains_key(&src);
        match (from, owner) {
            // The sender's own switch has checked it, and the configuration tells the port.
            (SwitchPort::Worker, _) if is_peers => return Ok(()),
            (SwitchPort::Worker, _) => return Err(Reason::OwnSource),
            (SwitchPort::Guest(_), _) if is_peers => return Err(Reason::Spoofed),
            (SwitchPort::Uplink, _) if is_peers => return Err(Reason::OwnSource),
            (SwitchPort::Guest(guest), Some(owner)) if guest == owner => return Ok(()),
            (SwitchPort::Guest(guest), None) if self.members[guest].any_mac => {}
            (SwitchPort::Guest(_), _) => return Err(Reason::Spoofed),
            (SwitchPort::Uplink, Some(_)) => return Err(Reason::OwnSource),
            (SwitchPort::Uplink, None) | (SwitchPort::Engine | SwitchPort::Tcp(_), _) => {}
        }
        match self.table.learn(now, (vlan, src), from) {
            Learned::Known => {}
            Learned::New => self.counters.learned += 1,
            Learned::Moved => self.counters.moved += 1,
            Learned::Full => self.counters.table_full += 1,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Drop, Group, RoceGroup, To, Unknown};

    const A: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
    const B: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);
    /// The address of guest 2, which may send from any address, like a nested bridge.
    const C: Mac = Mac([0x52, 0x54, 0, 0, 0, 3]);
    const INNER: Mac = Mac([0x02, 0, 0, 0, 0, 9]);
    const FAR: Mac = Mac([0x02, 0, 0, 0, 0, 0x77]);
    const FARTHER: Mac = Mac([0x02, 0, 0, 0, 0, 0x78]);
    const ALL: Mac = Mac([0xff; 6]);
    const GA: SwitchPort = SwitchPort::Guest(0);
    const GB: SwitchPort = SwitchPort::Guest(1);
    const GC: SwitchPort = SwitchPort::Guest(2);

    fn member(mac: Mac) -> Member {
        let vlans = Vlans::any();
        Member { mac, extra_macs: Vec::new(), any_mac: false, rdma: true, gids: Vec::new(), vlans }
    }

    fn switch() -> Switch {
        let mut switch = Switch::default();
        for (mac, any_mac, rdma) in [(A, false, true), (B, false, false), (C, true, true)] {
            switch.add(Member { any_mac, rdma, ..member(mac) });
        }
        switch
    }

    fn decide(switch: &mut Switch, now: Instant, frame: &[u8], from: SwitchPort) -> Verdict {
        switch.decide(now, Head::parse(frame).ok().as_ref(), frame, from)
    }

    fn frame(src: Mac, dst: Mac) -> Vec<u8> {
        [&dst.0[..], &src.0, &[0x08, 0x06], &[0; 46]].concat()
    }

    fn tagged(vlan: u16, src: Mac, dst: Mac) -> Vec<u8> {
        [&dst.0[..], &src.0, &[0x81, 0x00], &vlan.to_be_bytes(), &[0x08, 0x06], &[0; 46]].concat()
    }

    /// Returns a UDP packet to `port` over IPv4.
    fn udp(src: Mac, dst: Mac, port: u16) -> Vec<u8> {
        let mut ip = [0u8; 28];
        (ip[0], ip[3], ip[9]) = (0x45, 28, 17);
        ip[22..24].copy_from_slice(&port.to_be_bytes());
        [&dst.0[..], &src.0, &[0x08, 0x00], &ip, &[0; 20]].concat()
    }

    #[test]
    fn guests_and_the_world_talk() {
        let mut switch = switch();
        let mut says = |from, frame: &[u8]| decide(&mut switch, Instant(1), frame, from);
        assert_eq!(says(GA, &frame(A, ALL)), Group);
        assert_eq!(says(GB, &frame(B, A)), To(GA));
        assert_eq!(says(GA, &frame(A, FAR)), Unknown, "nobody has heard of it");
        assert_eq!(says(SwitchPort::Uplink, &frame(FAR, A)), To(GA));
        assert_eq!(says(GA, &frame(A, FAR)), To(SwitchPort::Uplink), "it answered");
        assert_eq!(
            says(SwitchPort::Uplink, &frame(FARTHER, FAR)),
            Drop(Reason::Hairpin),
            "both are out there"
        );
        assert_eq!(says(SwitchPort::Uplink, &frame(FARTHER, INNER)), Unknown);
        assert_eq!(says(GC, &frame(INNER, FARTHER)), To(SwitchPort::Uplink));
        assert_eq!(says(SwitchPort::Uplink, &frame(FARTHER, INNER)), To(GC));
        assert_eq!(
            (switch.counters.learned, switch.counters.forwarded, switch.counters.drop_hairpin),
            (3, 5, 1)
        );
    }

    #[test]
    fn guests_of_other_workers_are_known() {
        let mut switch = Switch::default();
        switch.add(member(A));
        assert_eq!([GA, SwitchPort::Uplink].map(|from| switch.ways_out(Group, from)), [1, 0]);
        switch.add_peer(&Member { extra_macs: vec![INNER], ..member(B) });
        let ways = [Group, RoceGroup, Unknown].map(|verdict| switch.ways_out(verdict, GA));
        assert_eq!(ways, [2, 2, 1], "what nobody knows is not there");
        assert_eq!([SwitchPort::Uplink, SwitchPort::Worker].map(|from| switch.ways_out(Group, from)), [0; 2]);
        let mut says = |from, frame: &[u8]| decide(&mut switch, Instant(1), frame, from);
        for theirs in [B, INNER] {
            assert_eq!(says(GA, &frame(A, theirs)), To(SwitchPort::Uplink));
            assert_eq!(says(SwitchPort::Engine, &udp(A, theirs, 4791)), To(SwitchPort::Uplink));
            assert_eq!(says(GA, &frame(theirs, FAR)), Drop(Reason::Spoofed));
            assert_eq!(says(SwitchPort::Uplink, &frame(theirs, A)), Drop(Reason::OwnSource));
            assert_eq!(says(SwitchPort::Uplink, &frame(FAR, theirs)), Drop(Reason::Hairpin));
            assert_eq!(says(SwitchPort::Worker, &frame(theirs, A)), To(GA));
            assert_eq!(says(SwitchPort::Worker, &udp(theirs, A, 4791)), To(SwitchPort::Engine));
            assert_eq!(says(SwitchPort::Worker, &frame(theirs, ALL)), Group);
            // The worker of that guest delivers it. No other worker does.
            assert_eq!(says(SwitchPort::Worker, &frame(theirs, B)), Drop(Reason::Hairpin));
        }
        assert_eq!(says(SwitchPort::Worker, &frame(A, ALL)), Drop(Reason::OwnSource));
        assert_eq!(says(SwitchPort::Worker, &frame(FAR, A)), Drop(Reason::OwnSource), "that is no guest");
        assert_eq!(says(GA, &frame(A, FAR)), To(SwitchPort::Uplink), "heard of in a frame for another");
        assert_eq!(switch.counters.learned, 1, "where guests are needs no learning");
    }

    #[test]
    fn addresses_are_learned_for_each_vlan() {
        let mut switch = switch();
        let mut says = |from, frame: &[u8]| decide(&mut switch, Instant(1), frame, from);
        assert_eq!(says(SwitchPort::Uplink, &tagged(5, FAR, A)), To(GA));
        assert_eq!(says(GA, &tagged(5, A, FAR)), To(SwitchPort::Uplink));
        assert_eq!(says(GA, &tagged(0xe005, A, FAR)), To(SwitchPort::Uplink), "priority does not matter");
        assert_eq!(says(GA, &tagged(6, A, FAR)), Unknown);
        assert_eq!(says(GA, &frame(A, FAR)), Unknown);
        assert_eq!(says(GA, &tagged(6, A, B)), To(GB), "guests are in all of them");
    }

    /// Returns a frame with several tags, each a type and an identifier.
    fn stacked(tags: &[(u16, u16)], src: Mac, dst: Mac) -> Vec<u8> {
        let tags: Vec<u8> =
            tags.iter().flat_map(|tag| [tag.0.to_be_bytes(), tag.1.to_be_bytes()].concat()).collect();
        [&dst.0[..], &src.0, &tags, &[0x08, 0x06], &[0; 46]].concat()
    }

    #[test]
    fn guests_are_in_their_vlans_alone() {
        const TAG: u16 = 0x8100;
        let vlans = |list: &[u16]| list.iter().copied().filter_map(VlanId::new).collect();
        let mut switch = Switch::default();
        switch.add(Member { vlans: vlans(&[10]), ..member(A) });
        switch.add(Member { vlans: vlans(&[0, 20]), any_mac: true, ..member(B) });
        switch.add(member(C));
        let mut says = |from, tags: &[(u16, u16)], src, dst| {
            decide(&mut switch, Instant(1), &stacked(tags, src, dst), from)
        };
        let (ingress, egress) = (Drop(Reason::IngressVlan), Drop(Reason::EgressVlan));
        for dst in [ALL, B, C, FAR] {
            for tags in [&[][..], &[(TAG, 20)], &[(TAG, 0)], &[(TAG, 4095)], &[(TAG, 10), (TAG, 20)]] {
                assert_eq!(says(GA, tags, A, dst), ingress, "{tags:?}");
            }
            for tags in
                [&[(TAG, 0), (TAG, 10)][..], &[(0x88a8, 10)], &[(0x9100, 10)], &[(TAG, 10), (0x88a8, 10)]]
            {
                assert_eq!(says(GA, tags, A, dst), ingress, "{tags:?}");
            }
        }
        assert_eq!(says(GA, &[(TAG, 10)], A, C), To(GC));
        assert_eq!(says(GA, &[(TAG, 0xe00a)], A, C), To(GC), "a priority changes nothing");
        assert_eq!(says(GA, &[(TAG, 10)], A, B), egress);
        assert_eq!(says(GB, &[(TAG, 0)], B, C), To(GC), "priority alone is no VLAN");
        assert_eq!(says(GB, &[], B, A), egress);
        for (tags, to) in [(&[][..], egress), (&[(TAG, 20)], egress), (&[(TAG, 10)], To(GA))] {
            assert_eq!(says(SwitchPort::Uplink, tags, FAR, A), to, "{tags:?}");
        }
        assert_eq!(says(SwitchPort::Uplink, &[(TAG, 10), (TAG, 10)], FAR, A), egress);
        assert_eq!(says(GC, &[(0x88a8, 5), (TAG, 10)], C, FAR), To(SwitchPort::Uplink), "it may use all");
        // An address is known only in the VLAN in which it sent.
        assert_eq!(says(GB, &[(TAG, 20)], INNER, FAR), To(SwitchPort::Uplink));
        assert_eq!(says(SwitchPort::Uplink, &[(TAG, 20)], FAR, INNER), To(GB));
        assert_eq!(says(SwitchPort::Uplink, &[(TAG, 10)], FAR, INNER), Unknown);
        let counters = &switch.counters;
        assert_eq!((counters.drop_ingress_vlan, counters.drop_egress_vlan), (36, 5));
        // Flooded frames go to members of the VLAN only.
        let floods = |verdict, vlan| [0, 1, 2].map(|guest| switch.floods(guest, verdict, vlan));
        let one = |number| FrameVlan::One(VlanId::new(number).unwrap());
        assert_eq!(floods(Group, one(0)), [false, true, true]);
        assert_eq!(floods(Group, one(10)), [true, false, true]);
        assert_eq!(floods(Group, one(30)), [false, false, true]);
        assert_eq!(floods(Group, FrameVlan::Stacked), [false, false, true]);
        assert_eq!(floods(RoceGroup, one(10)), [false; 3], "the engine has them for all of these");
        assert_eq!(floods(Unknown, one(20)), [false, true, false]);
        assert_eq!(floods(Unknown, one(10)), [false; 3]);
    }

    #[test]
    fn nobody_speaks_as_somebody_else() {
        let mut switch = switch();
        let mut says = |from, frame: &[u8]| decide(&mut switch, Instant(1), frame, from);
        for dst in [ALL, B, FAR] {
            assert_eq!(says(GA, &frame(FAR, dst)), Drop(Reason::Spoofed));
            assert_eq!(says(GA, &frame(B, dst)), Drop(Reason::Spoofed));
            assert_eq!(says(GC, &frame(A, dst)), Drop(Reason::Spoofed), "any but other guests'");
            assert_eq!(says(SwitchPort::Uplink, &frame(A, dst)), Drop(Reason::OwnSource));
        }
        for src in [ALL, Mac([0; 6]), Mac([0x33, 0x33, 0, 0, 0, 1])] {
            assert_eq!(says(GC, &frame(src, A)), Drop(Reason::GroupSource));
            assert_eq!(says(SwitchPort::Uplink, &frame(src, A)), Drop(Reason::GroupSource));
        }
        assert_eq!(says(GB, &frame(B, FAR)), Unknown, "nothing was learned of it");
        let mut extra = Switch::default();
        extra.add(Member { extra_macs: vec![INNER], ..member(A) });
        assert_eq!(decide(&mut extra, Instant(1), &frame(INNER, ALL), GA), Group);
        assert_eq!(decide(&mut extra, Instant(1), &frame(FAR, INNER), SwitchPort::Uplink), To(GA));
        assert_eq!(
            decide(&mut extra, Instant(1), &frame(INNER, A), SwitchPort::Uplink),
            Drop(Reason::OwnSource)
        );
    }

    #[test]
    fn what_is_for_bridges_stays_here() {
        let mut switch = switch();
        for last in 0..=0x10u8 {
            let group = Mac([0x01, 0x80, 0xc2, 0, 0, last]);
            let wanted = if last < 0x10 { Drop(Reason::Reserved) } else { Group };
            assert_eq!(decide(&mut switch, Instant(1), &frame(A, group), GA), wanted);
            assert_eq!(decide(&mut switch, Instant(1), &frame(FAR, group), SwitchPort::Uplink), wanted);
        }
        for len in 0..14 {
            assert_eq!(decide(&mut switch, Instant(1), &frame(A, B)[..len], GA), Drop(Reason::Runt));
        }
    }

    #[test]
    fn roce_goes_to_the_engine_of_guests_that_have_one() {
        let mut switch = switch();
        let mut says = |from, frame: &[u8]| decide(&mut switch, Instant(1), frame, from);
        assert_eq!(says(SwitchPort::Uplink, &udp(FAR, A, 4791)), To(SwitchPort::Engine));
        assert_eq!(says(GB, &udp(B, A, 4791)), To(SwitchPort::Engine), "soft-RoCE in a guest");
        assert_eq!(says(SwitchPort::Uplink, &udp(FAR, A, 4792)), To(GA));
        assert_eq!(says(SwitchPort::Uplink, &udp(FAR, B, 4791)), To(GB), "soft-RoCE's own");
        for group in [Mac([0x33, 0x33, 0, 0, 0, 9]), Mac([1, 0, 0x5e, 0x7f, 0, 9])] {
            assert_eq!(says(SwitchPort::Uplink, &udp(FAR, group, 4791)), RoceGroup);
            assert_eq!(says(SwitchPort::Engine, &udp(A, group, 4791)), RoceGroup);
            assert_eq!(says(SwitchPort::Uplink, &udp(FAR, group, 4792)), Group);
        }
        for no_ip_group in [ALL, Mac([1, 0, 0x5e, 0x80, 0, 9])] {
            assert_eq!(says(SwitchPort::Uplink, &udp(FAR, no_ip_group, 4791)), Group);
        }
        assert_eq!(says(GB, &udp(B, ALL, 4792)), Group);
        assert_eq!(says(GA, &udp(A, A, 4791)), Drop(Reason::Hairpin));
        // Packets that the engine sends.
        assert_eq!(says(SwitchPort::Engine, &udp(A, FAR, 4791)), To(SwitchPort::Uplink));
        assert_eq!(says(SwitchPort::Engine, &udp(A, B, 4791)), To(GB));
        assert_eq!(
            says(SwitchPort::Engine, &udp(A, C, 4791)),
            Drop(Reason::Hairpin),
            "guests of one engine meet in it"
        );
        assert_eq!(says(SwitchPort::Engine, &udp(A, FARTHER, 4791)), Unknown);
    }

    #[test]
    fn a_netdev_sends_no_roce_from_addresses_that_the_guest_may_not_have() {
        let (own, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let v6 = |last| Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        let gids = ["10.0.0.1", "fe80::1", "10.0.0.3@10"].map(|text| text.parse().unwrap());
        let mut switch = Switch::default();
        switch.add(Member { gids: gids.to_vec(), ..member(A) });
        switch.add(member(B));
        let mut says = |from, frame: &[u8]| decide(&mut switch, Instant(1), frame, from);
        let from_v4 = |src, ip: [u8; 4], port| {
            let mut frame = udp(src, FAR, port);
            frame[26..30].copy_from_slice(&ip);
            frame
        };
        let from_v6 = |ip: Gid| {
            let mut header = [0u8; 48];
            (header[0], header[6]) = (0x60, 17);
            header[42..44].copy_from_slice(&4791u16.to_be_bytes());
            header[8..24].copy_from_slice(&ip.0);
            [&FAR.0[..], &A.0, &[0x86, 0xdd], &header, &[0; 20]].concat()
        };
        assert_eq!(says(GA, &from_v4(A, own, 4791)), Unknown);
        assert_eq!(says(GA, &from_v4(A, other, 4791)), Drop(Reason::SpoofedGid));
        assert_eq!(says(GA, &from_v4(A, other, 53)), Unknown, "what is no RoCE is not asked");
        assert_eq!(says(GA, &from_v6(v6(1))), Unknown);
        assert_eq!(says(GA, &from_v6(v6(2))), Drop(Reason::SpoofedGid));
        let mut third = from_v4(A, [10, 0, 0, 3], 4791);
        assert_eq!(says(GA, &third), Drop(Reason::SpoofedGid), "not without a tag");
        third.splice(12..12, [0x81, 0x00, 0, 10]);
        assert_eq!(says(GA, &third), Unknown, "in this VLAN it may");
        third[15] = 20;
        assert_eq!(says(GA, &third), Drop(Reason::SpoofedGid), "in no other");
        assert_eq!(says(GB, &from_v4(B, other, 4791)), Unknown, "it may have any");
        assert_eq!(says(GB, &from_v4(B, own, 4791)), Drop(Reason::SpoofedGid), "but those of others");
        let mut third = from_v4(B, [10, 0, 0, 3], 4791);
        assert_eq!(says(GB, &third), Unknown, "which another has in VLAN 10");
        third.splice(12..12, [0x81, 0x00, 0, 10]);
        assert_eq!(says(GB, &third), Drop(Reason::SpoofedGid));
        third.splice(12..12, [0x81, 0x00, 0, 20]);
        assert_eq!(says(GB, &third), Drop(Reason::SpoofedGid), "behind the tag of another");
        assert_eq!(says(SwitchPort::Engine, &from_v4(A, other, 4791)), Unknown, "the engine has checked it");
    }

    #[test]
    fn what_is_not_heard_of_is_forgotten() {
        let mut switch = switch();
        let second = 1_000_000_000;
        assert_eq!(decide(&mut switch, Instant(0), &frame(FAR, A), SwitchPort::Uplink), To(GA));
        assert_eq!(decide(&mut switch, Instant(299 * second), &frame(A, FAR), GA), To(SwitchPort::Uplink));
        assert_eq!(decide(&mut switch, Instant(300 * second), &frame(A, FAR), GA), Unknown);
    }
}
