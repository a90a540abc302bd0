//! An engine's device with memory, and with an RC QP that is connected to another one.

use vrdma_transport::{
    Access, AttrMask, Completion, CqId, DeviceId, Engine, Event, Instant, Limits, OwnerId, Payload, QpAttr,
    QpInit, QpState, QpType, Receives, Region, Remote, SendOp, SendRequest, Sge, Sink, WcStatus,
};
use vrdma_wire::num::{Gid, Lkey, Mac, Mtu, Psn, Qpn, Rkey};

/// Largest number of outstanding requests.
pub const DEPTH: u32 = 128;
const OWNER: OwnerId = OwnerId(1);

/// A sink that counts completions.
#[derive(Default)]
pub struct Done {
    /// Number of completions.
    pub completed: u32,
    /// Status of the last completion with an error.
    pub failed: Option<WcStatus>,
}

impl Sink for Done {
    fn complete(&mut self, _device: DeviceId, _cq: CqId, completion: &Completion) {
        self.completed += 1;
        if completion.status != WcStatus::Success {
            self.failed = Some(completion.status);
        }
    }

    fn event(&mut self, _device: DeviceId, _event: Event) {}
}

/// An engine's device with one RC QP and one region.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The device.
    pub device: DeviceId,
    /// Its MAC address.
    pub mac: Mac,
    gid: Gid,
    qpn: Qpn,
    /// The key of its memory.
    pub key: u32,
}

impl Peer {
    /// Creates a device whose addresses end with `last`, and registers `region` of `length` bytes.
    pub fn new<R: Region>(engine: &mut Engine<R>, last: u8, length: u64, region: R) -> Peer {
        let device = engine.add_device(Limits::default());
        let gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last]);
        let mac = Mac([2, 0, 0, 0, 0x55, last]);
        engine.set_gid(device, 0, Some(gid.into())).expect("a GID table");
        engine.set_mac(device, mac).expect("a device");
        let pd = engine.alloc_pd(device, OWNER).expect("a PD");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = engine.reg_mr(device, pd, access, 0, length, region).expect("an MR");
        let init = QpInit {
            owner: OWNER,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: CqId(0),
            recv_cq: CqId(0),
            receives: Receives::Own,
            max_send_wr: DEPTH,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qpn = engine.create_qp(device, init).expect("a QP");
        Peer { device, mac, gid, qpn, key }
    }

    /// Connects its QP to that of another peer.
    pub fn connect<R: Region>(&self, engine: &mut Engine<R>, other: &Peer, path_mtu: Mtu) {
        let m = AttrMask::STATE;
        let init = m | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let rtr = m
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        let rts = m
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::SQ_PSN
            | AttrMask::MAX_RD_ATOMIC;
        let attr = QpAttr {
            access: Access::REMOTE_WRITE,
            port: 1,
            path_mtu,
            rq_psn: Psn::truncate(1000),
            sq_psn: Psn::truncate(1000),
            dest_qpn: other.qpn,
            timeout: 14,
            retry_cnt: 7,
            dgid: other.gid,
            dmac: other.mac,
            hop_limit: 64,
            ..QpAttr::default()
        };
        for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            let attr = QpAttr { state, ..attr };
            let changed =
                engine.modify_qp(Instant(0), self.device, self.qpn, mask, &attr, &mut Done::default());
            changed.expect("a connection");
        }
    }

    /// Posts a WRITE of `length` bytes, from the start of its memory to the start of the memory
    /// with `rkey`.
    pub fn post<R: Region>(
        &self,
        engine: &mut Engine<R>,
        now: Instant,
        rkey: u32,
        length: u32,
        sink: &mut Done,
    ) {
        let sge = [Sge { addr: 0, length, lkey: Lkey(self.key) }];
        let remote = Remote { addr: 0, rkey: Rkey(rkey) };
        let op = SendOp::Write { remote, imm: None };
        let payload = Payload::Sges(&sge);
        let request = SendRequest { id: 0, signaled: true, solicited: false, fence: false, op, payload };
        engine.post_send(now, self.device, OWNER, self.qpn, &request, sink).expect("room");
    }
}
