//! Packets of the peers that a record names, right or nearly right.

use super::packets::parts;
use super::restore::Lab;
use super::world::Mem;
use vrdma_transport::{Pieces, record, write_frame};
use vrdma_wire::num::*;
use vrdma_wire::roce::{self, *};

impl Lab<'_> {
    /// Returns a frame from the peer of a QP.
    pub fn frame(&mut self) -> Option<Vec<u8>> {
        let (place, qp) = self.place()?;
        let device = self.record.devices[place.device.0 as usize].clone()?;
        let path = path(&device, &qp)?;
        let known = self.engines[0].query_qp(place.device, place.qpn).unwrap_or_default();
        let (body, carries) = self.body(&qp, device.mrs.first());
        let response =
            matches!(body, Body::Rc(roce::Rc::Ack(_) | roce::Rc::AtomicAck(..) | roce::Rc::ReadResponse(_)));
        let expected = if response { known.sq_psn.number().wrapping_sub(1) } else { known.rq_psn.number() };
        let psn = Psn::truncate(self.input.near(expected));
        let bth = Bth { dest: place.qpn, ack_req: self.input.byte() & 1 == 0, psn, ..Bth::default() };
        let length = match self.input.byte() {
            0..=127 => 1024,
            byte => usize::from(byte - 128) * 8,
        };
        let payload = vec![0xab; if carries { length } else { 0 }];
        let packet = Packet { path, bth, body };
        let mut frame = vec![0; packet.frame_len(payload.len())];
        write_frame::<Mem>(&packet, &Pieces::bytes(&payload), &mut frame).ok()?;
        Some(frame)
    }

    /// Returns the body of a packet to a QP, and whether it has a payload.
    fn body(&mut self, qp: &record::Qp, mr: Option<&record::MemoryRegion>) -> (Body, bool) {
        let (kind, part) = (self.input.byte(), self.input.byte() % 4);
        let reth = self.reth(mr);
        match qp.init.qp_type {
            record::QpType::Rc | record::QpType::XrcSend | record::QpType::XrcRecv => {}
            record::QpType::Uc if kind & 1 == 0 => {
                return (Body::Uc(Uc::Send(parts(part, (), WriteTail::Plain))), true);
            }
            record::QpType::Uc => return (Body::Uc(Uc::Write(parts(part, reth, WriteTail::Plain))), true),
            record::QpType::Ud | record::QpType::Gsi => {
                return (
                    Body::Ud { deth: Deth { qkey: Qkey(qp.attr.qkey), src: Qpn::truncate(9) }, imm: None },
                    true,
                );
            }
        }
        let aeth = self.aeth();
        let (rc, carries) = match kind % 8 {
            0 => (roce::Rc::Send(parts(part, (), SendTail::Plain)), true),
            1 => (roce::Rc::Write(parts(part, reth, WriteTail::Plain)), true),
            2 => (roce::Rc::ReadRequest(reth), false),
            3 => {
                let Reth { va, rkey, .. } = reth;
                (
                    roce::Rc::Atomic(
                        roce::AtomicKind::FetchAdd,
                        AtomicEth { va, rkey, swap_or_add: 1, compare: 0 },
                    ),
                    false,
                )
            }
            4 | 5 => (roce::Rc::Ack(aeth), false),
            6 => (roce::Rc::AtomicAck(aeth, 7), false),
            _ => {
                let part = match part {
                    0 => ReadPart::First(aeth),
                    1 => ReadPart::Middle,
                    2 => ReadPart::Last(aeth),
                    _ => ReadPart::Only(aeth),
                };
                (roce::Rc::ReadResponse(part), true)
            }
        };
        if qp.init.qp_type == record::QpType::Rc {
            return (Body::Rc(rc), carries);
        }
        // The first number of a shared receive queue.
        let known = qp.responder.srq.unwrap_or(1 << 16);
        let srqn = rc.is_request().then(|| Srqn::truncate(self.input.near(known)));
        (Body::Xrc(Xrc::new(rc, srqn).expect("requests name a queue")), carries)
    }

    fn reth(&mut self, mr: Option<&record::MemoryRegion>) -> Reth {
        let (key, iova) = mr.map_or((0, 0), |mr| (mr.key, mr.iova));
        Reth {
            va: iova.wrapping_add(u64::from(self.input.word())),
            rkey: Rkey(self.input.near(key)),
            length: u32::from(self.input.word()),
        }
    }

    fn aeth(&mut self) -> Aeth {
        let kind = self.input.byte();
        let syndrome = match kind >> 5 {
            0..=3 => Syndrome::Ack(Credits::new(kind & 31).expect("5 bits")),
            4 => Syndrome::Rnr(RnrTimer::new(kind & 31).expect("5 bits")),
            5 | 6 => Syndrome::Nak(NakCode::PsnSequenceError),
            _ => Syndrome::Nak(NakCode::RemoteAccessError),
        };
        Aeth { syndrome, msn: AethMsn::truncate(self.input.near(u32::from(kind))) }
    }
}

/// Returns the path from the peer of a QP, or from a made-up host.
fn path(device: &record::Device, qp: &record::Qp) -> Option<roce::Path> {
    let av = qp.attr.av.as_ref();
    let own = device.gids.get(av.map_or(0, |av| usize::from(av.sgid_index)))?.as_ref()?;
    Some(roce::Path {
        src_mac: Mac([2, 0, 0, 0, 0, 7]),
        dst_mac: Mac(device.mac),
        vlan: VlanTag::in_vlan(VlanId::new(own.vlan)?, 0),
        src: av.map_or(Gid::from_ipv4([10, 0, 0, 77]), |av| Gid(av.dgid)),
        dst: Gid(own.gid),
        traffic_class: 0,
        flow_label: FlowLabel::default(),
        hop_limit: 3,
        src_port: 0xc123,
    })
}
