//! The headers of datagrams.

use crate::base::gid::GidEntry;
use crate::objects::device::Device;
use crate::objects::qp::{Qp, hop_limit};
use crate::verbs::attr::QpType;
use crate::verbs::request::Destination;
use vrdma_wire::entropy;
use vrdma_wire::num::{FlowLabel, Imm, Pkey, Qkey, VlanTag};
use vrdma_wire::roce::{Body, Bth, Deth, Packet, Path};

/// Length of a global route header, which precedes the data in a receive (IBTA 9.8.3).
pub(crate) const GRH: usize = 40;
/// Q_Key of QP1 (IBTA 10.2.5).
const GSI_QKEY: Qkey = Qkey(0x8001_0000);
/// Bit of a request's Q_Key: use the QP's own Q_Key (IBTA 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// Returns the own Q_Key of `qp`.
///
/// The QP demands it of datagrams that it receives. Datagrams that it sends have it if the request
/// asks for that.
pub(crate) fn own_qkey(qp: &Qp) -> Qkey {
    match qp.service() {
        QpType::Gsi => GSI_QKEY,
        _ => qp.attr().qkey,
    }
}

/// The headers of a datagram, as a packet. A datagram within this engine is not sent as one.
pub(crate) struct Datagram {
    pub(crate) packet: Packet,
    /// The DETH in the packet's body.
    pub(crate) deth: Deth,
    pub(crate) imm: Option<Imm>,
}

/// Makes the datagram of `qp` from its device's address `source` to its destination.
pub(crate) fn datagram<R>(
    device: &Device<R>,
    qp: &Qp,
    source: GidEntry,
    to: &Destination,
    imm: Option<Imm>,
    solicited: bool,
) -> Datagram {
    let label = FlowLabel::truncate(to.flow_label);
    let src_port = match to.udp_sport {
        0 => entropy::connection_source_port(label, qp.qpn, to.qpn),
        port => port,
    };
    let path = Path {
        src_mac: device.mac,
        dst_mac: to.dmac,
        vlan: VlanTag::in_vlan(source.vlan, device.marks.priority(to.sl)),
        src: source.gid,
        dst: to.dgid,
        traffic_class: device.marks.traffic_class(to.traffic_class),
        flow_label: label,
        hop_limit: hop_limit(to.hop_limit),
        src_port,
    };
    let qkey = if to.qkey.0 & OWN_QKEY == 0 { to.qkey } else { own_qkey(qp) };
    let deth = Deth { qkey, src: qp.qpn };
    let bth = Bth {
        solicited,
        mig: true,
        pkey: Pkey::DEFAULT,
        fecn: false,
        becn: false,
        dest: to.qpn,
        ack_req: false,
        psn: qp.requester.psn,
    };
    Datagram { packet: Packet { path, bth, body: Body::Ud { deth, imm } }, deth, imm }
}

/// Returns how a receive shows an IP header of 20 or 40 bytes. An IPv4 header takes the last 20
/// bytes (IBTA A17.4.5).
pub(crate) fn grh(ip_header: &[u8]) -> [u8; GRH] {
    let mut grh = [0; GRH];
    grh[GRH - ip_header.len()..].copy_from_slice(ip_header);
    grh
}

/// Returns how a receive shows the IP header of a packet that is never written.
pub(crate) fn grh_of(packet: &Packet, payload: usize) -> [u8; GRH] {
    let mut grh = [0; GRH];
    let start = if packet.path.is_ipv4() { GRH - 20 } else { 0 };
    packet.emit_ip(payload, &mut grh[start..]);
    grh
}
