//! Packets of the peer, of any kind, right or nearly right.

use super::*;

impl Lab<'_> {
    fn path(&mut self) -> Path {
        let odd = self.input.byte();
        Path {
            src_mac: PEER_MAC,
            dst_mac: if odd == 1 { PEER_MAC } else { OWN_MAC },
            vlan: (odd == 2).then_some(VlanTag(5)),
            src: match odd {
                3 => OWN_GID,
                4 => Gid::from_ipv4([10, 0, 0, 3]),
                _ => PEER_GID,
            },
            dst: match odd {
                5 => Gid::from_ipv4([10, 0, 0, 9]),
                6 => Gid::from_ipv4([224, 0, 0, 9]),
                _ => OWN_GID,
            },
            traffic_class: odd,
            flow_label: FlowLabel::default(),
            hop_limit: 3,
            src_port: 0xc123,
        }
    }

    /// Delivers a packet of any kind.
    pub fn packet(&mut self) {
        let index = self.qp();
        let (qpn, ..) = self.qps[index];
        let known = self.engine.query_qp(self.device, qpn).unwrap_or_default();
        let path = self.path();
        let body = self.body(index);
        // Responses use the PSNs of the requester, requests those of the responder.
        let response =
            matches!(body, Body::Rc(roce::Rc::Ack(_) | roce::Rc::AtomicAck(..) | roce::Rc::ReadResponse(_)));
        let expected = if response { known.sq_psn.number().wrapping_sub(1) } else { known.rq_psn.number() };
        let flags = self.input.byte();
        let bth = Bth {
            solicited: flags & 1 != 0,
            mig: flags & 2 != 0,
            pkey: if flags & 0xf0 == 0x30 { Pkey(0x7fff) } else { Pkey::DEFAULT },
            fecn: flags & 4 != 0,
            becn: false,
            dest: if flags & 0xf0 == 0x50 { Qpn::truncate(self.input.long()) } else { qpn },
            ack_req: flags & 8 != 0,
            psn: Psn::truncate(self.input.near(expected)),
        };
        let length = match self.input.byte() {
            0..=63 => 1024,
            b @ 64..=127 => usize::from(b - 64),
            b @ 128..=191 => usize::from(b) * 8,
            b => 1024 - usize::from(b - 192),
        };
        let carries = match body {
            Body::Rc(roce::Rc::Send(_) | roce::Rc::Write(_) | roce::Rc::ReadResponse(_)) => length,
            Body::Uc(_) | Body::Ud { .. } => length,
            Body::Rc(roce::Rc::AtomicWrite(_)) => 8,
            _ => 0,
        };
        self.deliver(&Packet { path, bth, body }, carries);
    }

    fn deliver(&mut self, packet: &Packet, length: usize) {
        let payload = vec![0xab; length];
        let mut frame = vec![0; packet.frame_len(length)];
        write_frame::<Mem>(packet, &Pieces::bytes(&payload), &mut frame).expect("bytes are there");
        self.engine.handle_frame(self.now, &frame, &mut self.log);
    }

    fn body(&mut self, index: usize) -> Body {
        let kind = self.input.byte();
        let part = self.input.byte() % 4;
        let imm = Imm::from_bytes([1, 2, 3, 4]);
        let write_tail = if kind & 0x40 != 0 { WriteTail::Imm(imm) } else { WriteTail::Plain };
        match (self.qps[index].1, kind % 16) {
            (QpType::Rc, 0..=3) => {
                let tail = match kind >> 6 {
                    0 | 1 => SendTail::Plain,
                    2 => SendTail::Imm(imm),
                    _ => SendTail::Invalidate(Rkey(self.input.near(self.window))),
                };
                Body::Rc(roce::Rc::Send(parts(part, (), tail)))
            }
            (QpType::Rc, 4..=6) => Body::Rc(roce::Rc::Write(parts(part, self.reth(), write_tail))),
            (QpType::Rc, 7 | 8) => Body::Rc(roce::Rc::ReadRequest(self.reth())),
            (QpType::Rc, 9) => {
                let aeth = self.aeth();
                Body::Rc(roce::Rc::ReadResponse(match part {
                    0 => ReadPart::First(aeth),
                    1 => ReadPart::Middle,
                    2 => ReadPart::Last(aeth),
                    _ => ReadPart::Only(aeth),
                }))
            }
            (QpType::Rc, 10) => Body::Rc(roce::Rc::Ack(self.aeth())),
            (QpType::Rc, 11) => Body::Rc(roce::Rc::AtomicAck(self.aeth(), 77)),
            (QpType::Rc, 12 | 13) => {
                let Reth { va, rkey, .. } = self.reth();
                let atomic = AtomicEth { va, rkey, swap_or_add: 3, compare: 0x3333_3333_3333_3333 };
                Body::Rc(if part & 1 == 0 {
                    roce::Rc::Atomic(roce::AtomicKind::CompareSwap, atomic)
                } else {
                    roce::Rc::Atomic(roce::AtomicKind::FetchAdd, atomic)
                })
            }
            (QpType::Rc, 14) => {
                let reth = self.reth();
                let length = if part & 1 == 0 { 8 } else { reth.length };
                Body::Rc(roce::Rc::AtomicWrite(Reth { length, ..reth }))
            }
            (QpType::Rc, _) => Body::Rc(roce::Rc::Flush(Feth::from_bits(kind), self.reth())),
            (QpType::Uc, 0..=6) => Body::Uc(Uc::Send(parts(part, (), write_tail))),
            (QpType::Uc, 7..=12) => Body::Uc(Uc::Write(parts(part, self.reth(), write_tail))),
            (_, 13) => Body::Cnp,
            _ => Body::Ud {
                deth: Deth { qkey: Qkey(u32::from(part & 1)), src: Qpn::truncate(9) },
                imm: (kind & 0x40 != 0).then_some(imm),
            },
        }
    }

    fn reth(&mut self) -> Reth {
        let va = IOVA + u64::from(self.input.near(0)) * if self.input.byte() & 1 == 0 { 8 } else { 1 };
        let key = if self.input.byte() & 3 == 0 { self.window } else { self.key };
        let rkey = Rkey(self.input.near(key));
        let length = match self.input.byte() {
            0..=63 => 1024,
            b @ 64..=127 => u32::from(b - 64),
            b @ 128..=191 => u32::from(b) * 32,
            _ => self.input.long(),
        };
        Reth { va, rkey, length }
    }

    fn aeth(&mut self) -> Aeth {
        let kind = self.input.byte();
        let syndrome = match kind {
            0..=127 => Syndrome::Ack(Credits::new(kind & 31).expect("5 bits")),
            128..=159 => Syndrome::Rnr(RnrTimer::new(kind & 31).expect("5 bits")),
            160..=199 => Syndrome::Nak(NakCode::PsnSequenceError),
            200..=214 => Syndrome::Nak(NakCode::InvalidRequest),
            215..=229 => Syndrome::Nak(NakCode::RemoteAccessError),
            230..=244 => Syndrome::Nak(NakCode::RemoteOperationalError),
            _ => Syndrome::Nak(NakCode::InvalidRdRequest),
        };
        Aeth { syndrome, msn: AethMsn::truncate(u32::from(kind)) }
    }

    /// Delivers an answer to one of the last packets, right or nearly right.
    pub fn answer(&mut self) {
        let at = usize::from(self.input.byte()) % self.wire.sent.len().max(1);
        let Some(&request) = self.wire.sent.get(at) else { return };
        let aeth = self.aeth();
        let length = usize::from(self.input.byte()) * 5 % 1025;
        let (body, length) = match request.body {
            Body::Rc(roce::Rc::ReadRequest(reth)) => {
                let whole = (reth.length as usize).min(1024);
                let part = match self.input.byte() % 8 {
                    0 => ReadPart::First(aeth),
                    1 => ReadPart::Middle,
                    2 => ReadPart::Last(aeth),
                    _ => ReadPart::Only(aeth),
                };
                let right = self.input.byte() < 200;
                (roce::Rc::ReadResponse(part), if right { whole } else { length })
            }
            Body::Rc(roce::Rc::Atomic(..)) => (roce::Rc::AtomicAck(aeth, 5), 0),
            Body::Rc(roce::Rc::AtomicWrite(_) | roce::Rc::Flush(..)) => {
                (roce::Rc::ReadResponse(ReadPart::Only(aeth)), 0)
            }
            Body::Rc(roce::Rc::Send(_) | roce::Rc::Write(_)) => (roce::Rc::Ack(aeth), 0),
            _ => return,
        };
        let index = self.qp();
        let path = self.path();
        let bth = Bth {
            dest: self.qps[index].0,
            psn: Psn::truncate(self.input.near(request.bth.psn.number())),
            ..Bth::default()
        };
        self.deliver(&Packet { path, bth, body: Body::Rc(body) }, length);
    }
}

/// Returns a packet of a message at this position.
pub fn parts<F, L>(part: u8, head: F, tail: L) -> Part<F, L> {
    match part {
        0 => Part::First(head),
        1 => Part::Middle,
        2 => Part::Last(tail),
        _ => Part::Only(head, tail),
    }
}
