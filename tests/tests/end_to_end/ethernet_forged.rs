//! A guest's netdev that sends RoCE under a source address that is not its own.
//!
//! It disguises the packet by a checksum that the device still has to complete.
//!
//! Shows: forged.

use vrdma_tests::abi::control::QpType;
use vrdma_tests::lab::listed;
use vrdma_tests::net::{Header, NEEDS_CSUM, NetGuest, NetOptions, mac};
use vrdma_tests::side::{Side, pair};
use vrdma_tests::{CableOptions, Lab, LabOptions, QpOptions, wait};
use vrdma_wire::icrc::Icrc;
use vrdma_wire::num::{FlowLabel, Gid, Mac, Qkey, Qpn};
use vrdma_wire::roce::{self, Body, Bth, Deth, Path};

/// A guest whose netdev sends an RDMA datagram to the QP of another guest.
///
/// The source address belongs to neither guest.
struct Forger {
    lab: Lab,
    guest: NetGuest,
    victim: Side,
}

/// Offsets of fields in an untagged IPv4 frame.
const SOURCE: usize = 26;
const UDP: usize = 34;
const UDP_CHECKSUM: usize = UDP + 6;

impl Forger {
    fn new(cable: Option<CableOptions>) -> Forger {
        let lab = Lab::with(2, LabOptions { cable, host_says: listed, ..LabOptions::default() });
        let (_, mut victim) = pair(&lab, 1, 4096, &QpOptions::of(QpType::UD));
        victim.recv_any(1);
        victim.process.channel.drain();
        let guest = NetGuest::connect(&lab.net_socket(0), NetOptions::default()).unwrap();
        Forger { lab, guest, victim }
    }

    /// Builds a datagram from 10.0.0.77 with the matching ICRC.
    fn datagram(&self) -> Vec<u8> {
        let packet = roce::Packet {
            path: Path {
                src_mac: Mac(mac(1)),
                dst_mac: Mac(mac(2)),
                vlan: None,
                src: Gid::from_ipv4([10, 0, 0, 77]),
                dst: Gid::from_ipv4([10, 0, 0, 2]),
                traffic_class: 0,
                flow_label: FlowLabel::default(),
                hop_limit: 64,
                src_port: 0xc000,
            },
            bth: Bth { mig: true, dest: Qpn::new(self.victim.qp.number).unwrap(), ..Bth::default() },
            body: Body::Ud {
                deth: Deth { qkey: Qkey(self.victim.qp.options.qkey), src: Qpn::truncate(0x77) },
                imm: None,
            },
        };
        let mut frame = vec![0; packet.header_len()];
        packet.emit(6 + 2, &mut frame);
        let mut icrc = Icrc::new(&frame);
        icrc.update(b"forged!!");
        frame.extend_from_slice(b"forged!!");
        frame.extend_from_slice(&icrc.finish());
        frame
    }

    /// Sends the datagram with the bytes `innocent` at `at`.
    ///
    /// The checksum from `start` on, when completed, would restore the forged bytes at `at`.
    fn send(&mut self, at: usize, innocent: [u8; 2], start: usize) {
        let mut frame = self.datagram();
        let wanted = u16::from_be_bytes([frame[at], frame[at + 1]]);
        frame[at..at + 2].copy_from_slice(&innocent);
        // The UDP checksum can have any value: neither ICRC nor engine check it.
        let sum = |bytes: &[u8]| {
            let words =
                bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| b.into()));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            (sum & 0xffff) + (sum >> 16)
        };
        let free = u32::from(!wanted) + 0xffff - sum(&frame[start..]);
        frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].copy_from_slice(&((free % 0xffff) as u16).to_be_bytes());
        assert_eq!(sum(&frame[start..]) % 0xffff, u32::from(!wanted) % 0xffff);
        let (csum_start, csum_offset) = (start as u16, (at - start) as u16);
        self.guest.send_with(
            Header { flags: NEEDS_CSUM, csum_start, csum_offset, ..Header::default() },
            &frame,
            &[12],
        );
    }

    /// Asserts that nothing reached the QP.
    fn expect_refused(&mut self) {
        // Under its own address the guest may send anything, even a malformed packet. When this
        // packet has been counted, all earlier ones have been processed.
        let mut honest = self.datagram();
        honest[SOURCE + 3] = 1;
        self.guest.send(&honest);
        wait::until("the honest packet", || {
            let stats = if self.lab.remote.is_some() { self.lab.remote_stats() } else { self.lab.stats() };
            (stats.malformed("ip_checksum") == 1).then_some(())
        });
        assert_eq!(self.victim.cq.poll(), None, "a forged datagram reached the QP");
        let stats = self.lab.stats();
        assert_eq!((stats.net(0, "tx_bad_checksum"), stats.net(0, "tx_frames")), (1, 1));
        // Without the disguise, the switch drops the packet for its source address.
        self.guest.send(&self.datagram());
        assert_eq!(self.lab.stats().switch("drop_spoofed_gid"), 1);
    }
}

#[test]
fn a_checksum_turns_no_port_into_that_of_rdma() {
    let mut forger = Forger::new(Some(CableOptions::default()));
    forger.send(UDP + 2, 1234u16.to_be_bytes(), UDP);
    forger.expect_refused();
}

#[test]
fn a_checksum_changes_no_address_on_the_way_to_the_engine() {
    let mut forger = Forger::new(None);
    forger.send(SOURCE + 2, [0, 1], SOURCE + 2);
    forger.expect_refused();
}
