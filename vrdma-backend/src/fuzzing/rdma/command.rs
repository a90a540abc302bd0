//! The control commands of a driver.

use super::driver::*;
use crate::fuzzing::lab::{GIDS, MACS};
use vrdma_abi::control::{self as abi, *};
use vrdma_abi::zerocopy::little_endian::{U16, U32};
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};
use vrdma_wire::num::Gid;

/// The first address of a region in its program's address space, by default.
pub const IOVA: u64 = 0x10_0000;

/// A multicast group.
const GROUP: Gid = Gid::from_ipv4([239, 0, 0, 1]);

/// Notes the number in a reply.
type Made = fn(&mut GuestDriver<'_>, u32);

impl GuestDriver<'_> {
    /// Returns one of the known numbers, or a number near it.
    fn one_of(&mut self, numbers: fn(&Self) -> &[u32]) -> u32 {
        let count = numbers(self).len();
        let at = self.input.below(count);
        let number = numbers(self).get(at).copied().unwrap_or_default();
        self.input.near(number)
    }

    fn context(&mut self) -> u32 {
        self.one_of(|driver| &driver.contexts)
    }

    fn pd(&mut self) -> u32 {
        self.one_of(|driver| &driver.pds)
    }

    fn cq(&mut self) -> u32 {
        self.one_of(|driver| &driver.cqs)
    }

    fn qpn(&mut self) -> u32 {
        self.one_of(|driver| &driver.qpns)
    }

    fn srqn(&mut self) -> u32 {
        self.one_of(|driver| &driver.srqns)
    }

    fn object(&mut self, object: u32) -> Vec<u8> {
        let reserved = if self.input.once_in(32) { self.input.long() } else { 0 };
        ObjectReq { object: object.into(), reserved: reserved.into() }.as_bytes().to_vec()
    }

    /// Returns extents with this total length, or nearly so.
    fn runs(&mut self, gpa: u64, bytes: u64) -> Vec<abi::Run> {
        let mut left = bytes;
        let mut runs = Vec::new();
        let mut at = gpa;
        for _ in 0..self.input.below(4) {
            let len = match self.input.byte() % 8 {
                0 => self.input.quad(),
                1 => u64::from(self.input.byte()),
                _ => 0x1000,
            };
            if left <= len {
                break;
            }
            runs.push(abi::Run { addr: at.into(), len: len.into() });
            left -= len;
            at = at.wrapping_add(len);
        }
        if self.input.once_in(16) {
            at = self.input.quad();
        }
        runs.push(abi::Run { addr: at.into(), len: left.into() });
        runs
    }

    /// Executes a command of any kind.
    pub fn command(&mut self) {
        let nothing: Made = |_, _| ();
        let (opcode, body, runs, made): (Opcode, Vec<u8>, Vec<abi::Run>, Made) = match self.input.byte() % 33
        {
            0 => (Opcode::QUERY_DEVICE, vec![], vec![], nothing),
            1 if self.input.once_in(4) => (Opcode::QUERY_PORT, vec![], vec![], nothing),
            1 => {
                let opcode =
                    self.input.pick(&[Opcode::ATTACH_MCAST, Opcode::ATTACH_MCAST, Opcode::DETACH_MCAST]);
                let mgid = self.input.pick(&[GROUP.0, [0xff; 16], GIDS[0].0]);
                let (qpn, reserved) = (self.qpn().into(), u32::from(self.input.once_in(32)).into());
                (opcode, McastReq { qpn, reserved, mgid }.as_bytes().to_vec(), vec![], nothing)
            }
            2 => {
                let index = self.input.near(0);
                (Opcode::QUERY_GID, self.object(index), vec![], nothing)
            }
            3 | 4 => (Opcode::ADD_GID, self.add_gid(), vec![], nothing),
            5 => {
                let index = self.input.near(0);
                (Opcode::DEL_GID, self.object(index), vec![], nothing)
            }
            6 => (Opcode::ALLOC_CONTEXT, vec![], vec![], |driver, number| driver.contexts.push(number)),
            7 => {
                let number = self.context();
                self.contexts.retain(|&context| context == 0 || context != number);
                (Opcode::DEALLOC_CONTEXT, self.object(number), vec![], nothing)
            }
            8 | 9 => {
                let (context, queue) = (self.context(), self.input.near(4) as u16);
                let req = BindChannelReq { context: context.into(), queue: queue.into(), reserved: 0.into() };
                let window = SLOTS + WINDOW * u64::from(queue.wrapping_sub(3) % 3);
                let runs = self.runs(window, WINDOW);
                (Opcode::BIND_CHANNEL, req.as_bytes().to_vec(), runs, nothing)
            }
            10 => {
                let queue = self.input.near(4);
                (Opcode::UNBIND_CHANNEL, self.object(queue), vec![], nothing)
            }
            11 | 12 => {
                let context = self.context();
                (Opcode::ALLOC_PD, self.object(context), vec![], |driver, number| driver.pds.push(number))
            }
            13 => {
                let number = self.pd();
                (Opcode::DEALLOC_PD, self.object(number), vec![], nothing)
            }
            14 | 15 => {
                let (body, runs) = self.create_cq();
                if self.input.once_in(4) {
                    let body = self.resize_cq(&body);
                    (Opcode::RESIZE_CQ, body, runs, nothing)
                } else {
                    (Opcode::CREATE_CQ, body, runs, |driver, number| driver.cqs.push(number))
                }
            }
            16 => {
                let number = self.cq();
                (Opcode::DESTROY_CQ, self.object(number), vec![], nothing)
            }
            17 | 18 => {
                let (body, runs) = self.reg_mr();
                (Opcode::REG_MR, body, runs, |driver, key| driver.keys.push(key))
            }
            19 => {
                let key = self.one_of(|driver| &driver.keys);
                (Opcode::DEREG_MR, self.object(key), vec![], nothing)
            }
            20 => {
                let (pdn, access) = (self.pd(), self.input.near(access::ALL));
                let req = DmaMrReq { pdn: pdn.into(), access: access.into() };
                (Opcode::GET_DMA_MR, req.as_bytes().to_vec(), vec![], |driver, key| driver.keys.push(key))
            }
            21 | 22 => (Opcode::CREATE_QP, self.create_qp(), vec![], |driver, qpn| driver.qpns.push(qpn)),
            23..=26 => (Opcode::MODIFY_QP, self.modify_qp(), vec![], nothing),
            27 => {
                let qpn = self.qpn();
                (Opcode::QUERY_QP, self.object(qpn), vec![], nothing)
            }
            28 => {
                let qpn = self.qpn();
                (Opcode::DESTROY_QP, self.object(qpn), vec![], nothing)
            }
            29 => {
                let entries = self.input.near(16);
                let req = AhTableReq { entries: entries.into(), reserved: 0.into() };
                let runs = self.runs(AHS, 64 * u64::from(entries));
                (Opcode::SET_AH_TABLE, req.as_bytes().to_vec(), runs, nothing)
            }
            30 => {
                let (opcode, body, made) = self.shared_queue();
                (opcode, body, vec![], made)
            }
            31 => self.window_or_again(),
            _ => {
                let opcode = Opcode(self.input.word() % 64);
                let body = self.input.bytes(96).to_vec();
                let runs = self.runs(DATA, 0x100);
                (opcode, body, runs, nothing)
            }
        };
        self.cookie += 1;
        let num_runs = self.input.near(runs.len() as u32);
        let reserved = if self.input.once_in(64) { self.input.word() } else { 0 };
        let header = ReqHeader {
            opcode: opcode.0.into(),
            reserved: U16::new(reserved),
            num_runs: U32::new(num_runs),
            cookie: self.cookie.into(),
        };
        let mut request = [header.as_bytes(), &body, runs.as_bytes()].concat();
        if self.input.once_in(32) {
            let len = self.input.below(request.len()).max(ReqHeader::SIZE);
            request.truncate(len);
        }
        let (status, reply) = self.call(opcode, &request);
        if status == Status::OK
            && let Some((number, _)) = reply.split_first_chunk()
        {
            made(self, u32::from_le_bytes(*number));
        }
    }

    fn add_gid(&mut self) -> Vec<u8> {
        let index = self.input.near(0);
        let gid = self.input.pick(&[GIDS[0].0, GIDS[1].0, [0; 16], [0xff; 16]]);
        let vlan = self.input.pick(&[0xffff, 0, 5, 4095]);
        AddGidReq {
            index: index.into(),
            gid_type: self.input.near(gid_type::ROCE_V2.into()) as u8,
            reserved0: 0,
            vlan: vlan.into(),
            gid,
        }
        .as_bytes()
        .to_vec()
    }

    fn create_cq(&mut self) -> (Vec<u8>, Vec<abi::Run>) {
        let entries = self.input.pick(&[16, 1, 2, 4, 8, 3, 0, 128, 1 << 31]);
        let (context, vector) = (self.context(), self.input.near(0));
        let req = CreateCqReq {
            context: context.into(),
            entries: entries.into(),
            vector: vector.into(),
            flags: if self.input.once_in(8) { self.input.below(8) as u32 } else { 0 }.into(),
        };
        let gpa = CQS + 0x300 * self.input.below(5) as u64;
        let bytes = u64::from(self.input.near(32 * (entries % 1024) + 128));
        let mut runs = self.runs(gpa, bytes);
        if self.input.once_in(4) {
            // Cut between CQEs, which makes many segments.
            let cut = 32 * self.input.below(8) as u64;
            runs = vec![
                abi::Run { addr: gpa.into(), len: cut.into() },
                abi::Run { addr: (gpa + cut + 64).into(), len: bytes.wrapping_sub(cut).into() },
            ];
        }
        (req.as_bytes().to_vec(), runs)
    }

    /// Returns a resize request with the parameters of this creation.
    fn resize_cq(&mut self, create: &[u8]) -> Vec<u8> {
        let (create, _) = CreateCqReq::read_from_prefix(create).expect("it was made here");
        let (cqn, held) = (self.cq().into(), self.input.near(0).into());
        let req = ResizeCqReq { cqn, entries: create.entries, held, flags: create.flags };
        req.as_bytes().to_vec()
    }

    fn reg_mr(&mut self) -> (Vec<u8>, Vec<abi::Run>) {
        let length = match self.input.byte() % 8 {
            0 => self.input.quad(),
            1 => u64::from(self.input.word()),
            n => 0x800 * u64::from(n),
        };
        let iova = if self.input.once_in(8) { self.input.quad() } else { IOVA };
        let (pdn, access) = (self.pd(), self.input.near(access::REGION));
        let req =
            RegMrReq { pdn: pdn.into(), access: access.into(), iova: iova.into(), length: length.into() };
        let gpa = self.input.pick(&[DATA, DATA + 0x800, DATA - 0x400, 0x10000, 0x7f00]);
        let runs = self.runs(gpa, length);
        (req.as_bytes().to_vec(), runs)
    }

    fn create_qp(&mut self) -> Vec<u8> {
        let context = self.context();
        let (pdn, send, recv) = (self.pd(), self.cq(), self.cq());
        let qp_type = self.input.pick(&[QpType::RC, QpType::UC, QpType::UD, QpType::GSI, QpType(5)]).0;
        let srqn = match self.input.once_in(32) {
            true => self.input.long(),
            false if !self.srqns.is_empty() && self.input.once_in(2) => self.srqn(),
            false => limit::NONE,
        };
        let none = limit::NONE;
        // At times an XRC initiator or target, which has few of these objects.
        let (qp_type, pdn, send, recv, srqn, xrcdn) = match self.input.byte() {
            0..=31 => (QpType::XRC_SEND.0, pdn, send, none, none, 0),
            32..=79 => {
                let xrcdn = self.one_of(|driver| &driver.xrcdns);
                (QpType::XRC_RECV.0, none, none, none, none, xrcdn)
            }
            80 => (QpType::XRC_RECV.0, pdn, send, recv, srqn, self.input.near(0)),
            _ => (qp_type, pdn, send, recv, srqn, 0),
        };
        CreateQpReq {
            context: context.into(),
            pdn: pdn.into(),
            qp_type: qp_type.into(),
            send_cqn: send.into(),
            recv_cqn: recv.into(),
            srqn: srqn.into(),
            max_send_wr: self.input.near(8).into(),
            max_recv_wr: self.input.near(8).into(),
            max_send_sge: self.input.near(2).into(),
            max_recv_sge: self.input.near(2).into(),
            max_inline: self.input.near(32).into(),
            xrcdn: xrcdn.into(),
        }
        .as_bytes()
        .to_vec()
    }

    /// Returns a command about a memory window, about a region for fast registration, or for
    /// re-registration.
    fn window_or_again(&mut self) -> (Opcode, Vec<u8>, Vec<abi::Run>, Made) {
        let made: Made = |driver, key| driver.keys.push(key);
        match self.input.byte() % 4 {
            1 if self.input.once_in(2) => {
                let (pdn, max_pages) = (self.pd(), self.input.near(8));
                let req = AllocFastMrReq { pdn: pdn.into(), max_pages: max_pages.into() };
                (Opcode::ALLOC_FAST_MR, req.as_bytes().to_vec(), vec![], made)
            }
            0 | 1 => {
                let (pdn, mw_type) = (self.pd(), self.input.near(2));
                let req = AllocMwReq { pdn: pdn.into(), mw_type: mw_type.into() };
                (Opcode::ALLOC_MW, req.as_bytes().to_vec(), vec![], made)
            }
            2 => {
                let key = self.one_of(|driver| &driver.keys);
                (Opcode::DEALLOC_MW, self.object(key), vec![], |_, _| ())
            }
            _ => {
                let flags = self.input.near(rereg::ALL);
                let has = |flag| flags & flag != 0;
                let lkey = self.one_of(|driver| &driver.keys);
                let pdn = if has(rereg::PD) { self.pd() } else { 0 };
                let access = if has(rereg::ACCESS) { self.input.near(access::REGION) } else { 0 };
                let length = if has(rereg::TRANSLATION) { 0x800 } else { 0 };
                let req = ReregMrReq {
                    lkey: lkey.into(),
                    flags: flags.into(),
                    pdn: pdn.into(),
                    access: access.into(),
                    iova: if has(rereg::TRANSLATION) { IOVA } else { 0 }.into(),
                    length: length.into(),
                };
                let runs = if has(rereg::TRANSLATION) { self.runs(DATA, length) } else { vec![] };
                (Opcode::REREG_MR, req.as_bytes().to_vec(), runs, made)
            }
        }
    }

    /// Returns a command about a shared receive queue, or an XRC domain.
    fn shared_queue(&mut self) -> (Opcode, Vec<u8>, Made) {
        let nothing: Made = |_, _| ();
        match self.input.byte() % 10 {
            8 => (Opcode::ALLOC_XRCD, vec![], |driver, xrcdn| driver.xrcdns.push(xrcdn)),
            9 => {
                let xrcdn = self.one_of(|driver| &driver.xrcdns);
                (Opcode::DEALLOC_XRCD, self.object(xrcdn), nothing)
            }
            0..=2 => {
                let (context, pdn) = (self.context(), self.pd());
                let (xrcdn, cqn) = match self.input.once_in(3) {
                    true => (self.one_of(|driver| &driver.xrcdns), self.cq()),
                    false => (self.input.near(limit::NONE), self.input.near(limit::NONE)),
                };
                let req = CreateSrqReq {
                    context: context.into(),
                    pdn: pdn.into(),
                    max_wr: self.input.near(8).into(),
                    max_sge: self.input.near(2).into(),
                    xrcdn: xrcdn.into(),
                    cqn: cqn.into(),
                };
                (Opcode::CREATE_SRQ, req.as_bytes().to_vec(), |driver, srqn| driver.srqns.push(srqn))
            }
            3..=5 => {
                let (srqn, mask) = (self.srqn(), self.input.near(srq_attr::MAX_WR | srq_attr::LIMIT));
                let (max_wr, limit) = (self.input.near(8).into(), self.input.near(4).into());
                let req = ModifySrqReq { srqn: srqn.into(), mask: mask.into(), max_wr, limit };
                (Opcode::MODIFY_SRQ, req.as_bytes().to_vec(), nothing)
            }
            6 => {
                let srqn = self.srqn();
                (Opcode::QUERY_SRQ, self.object(srqn), nothing)
            }
            _ => {
                let srqn = self.srqn();
                (Opcode::DESTROY_SRQ, self.object(srqn), nothing)
            }
        }
    }

    fn modify_qp(&mut self) -> Vec<u8> {
        use abi::qp_attr as M;
        let (qpn, peer) = (self.qpn(), self.qpn());
        let av = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let (state, mask) = self.input.pick(&[
            (QpState::INIT, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS),
            (QpState::INIT, M::STATE | M::PKEY_INDEX | M::PORT | M::QKEY),
            (QpState::RTR, M::STATE | av | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER),
            (QpState::RTR, M::STATE | av),
            (QpState::RTR, M::STATE),
            (
                QpState::RTS,
                M::STATE | M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_RD_ATOMIC,
            ),
            (QpState::RTS, M::STATE | M::SQ_PSN),
            (QpState::RTS, M::STATE),
            (QpState::SQD, M::STATE),
            (QpState::SQE, M::STATE),
            (QpState::ERR, M::STATE),
            (QpState::RESET, M::STATE),
        ]);
        let mut attr = abi::QpAttr {
            state: state.0 as u8,
            access: access::ALL.into(),
            port: 1,
            path_mtu: 3,
            dest_qpn: peer.into(),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            timeout: 4,
            retry_cnt: 1,
            rnr_retry: 1,
            dgid: self.input.pick(&[GIDS[0], GIDS[1]]).0,
            dmac: self.input.pick(&MACS).0,
            hop_limit: 1,
            vlan: 0xffff.into(),
            ..abi::QpAttr::default()
        };
        if self.input.once_in(4) {
            let bytes = attr.as_mut_bytes();
            let at = self.input.below(bytes.len());
            bytes[at] = self.input.byte();
        }
        let mask = self.input.near(mask);
        ModifyQpReq { qpn: qpn.into(), mask: mask.into(), attr }.as_bytes().to_vec()
    }
}
