//! Tests of an engine with two devices on it, memory of their own, and a virtual clock.

mod data;
pub(crate) mod datagrams;
mod errors;
mod fairness;
mod fast;
mod flushes;
mod granted;
pub(crate) mod groups;
mod held;
mod keys;
mod lists;
mod mirror;
mod objects;
mod operations;
mod order;
mod panicked;
mod property;
mod rates;
mod retry;
mod save;
mod shared;
mod slices;
mod states;
mod tcp;
pub(crate) mod unreliable;
mod views;
mod vlans;
mod watched;
mod windows;
pub(crate) mod wire;
mod xrc;

use crate::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use vrdma_wire::num::{Gid, Lkey, Mtu, Psn, Qpn, Rkey};

/// Memory of a test, which all clones share.
///
/// As a region it is the whole memory, or the pages that were registered last.
#[derive(Clone)]
pub(crate) struct Mem(Rc<(RefCell<Vec<u8>>, Cell<bool>)>, Option<MemPages>);

/// Registered pages of a memory, whose addresses begin at 0.
#[derive(Clone)]
struct MemPages {
    pages: Vec<u64>,
    size: u64,
    /// Offset of the first byte in the first page.
    offset: u64,
    length: u64,
}

impl Mem {
    pub(crate) fn new(length: usize) -> Mem {
        Mem(Rc::new((RefCell::new(vec![0; length]), Cell::new(false))), None)
    }

    pub(crate) fn fill(&self, at: usize, data: &[u8]) {
        self.0.0.borrow_mut()[at..at + data.len()].copy_from_slice(data);
    }

    pub(crate) fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        self.0.0.borrow()[at..at + length].to_vec()
    }

    /// Makes the memory inaccessible from here on.
    pub(crate) fn vanish(&self) {
        self.0.1.set(true);
    }

    /// Returns the range as indices. Panics beyond the end: the engine has to have checked.
    fn ranges(&self, offset: u64, len: u64) -> Result<Vec<std::ops::Range<usize>>, Fault> {
        let end = offset.checked_add(len).expect("no range wraps");
        let length = self.1.as_ref().map_or(self.0.0.borrow().len() as u64, |pages| pages.length);
        assert!(end <= length, "{offset} + {len} is outside of the region");
        if self.0.1.get() {
            return Err(Fault);
        }
        let Some(MemPages { pages, size, offset: skipped, .. }) = &self.1 else {
            return Ok(std::iter::once(offset as usize..end as usize).collect());
        };
        let (mut at, end, mut ranges) = (offset + skipped, end + skipped, Vec::new());
        while at < end {
            let now = (size - at % size).min(end - at);
            let start = (pages[(at / size) as usize] + at % size) as usize;
            ranges.push(start..start + now as usize);
            at += now;
        }
        Ok(ranges)
    }
}

impl Region for Mem {
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        let mut data = vec![0; len as usize];
        self.read(offset, &mut data)?;
        dst.write(dst_offset, &data)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let mut buf = buf;
        for range in self.ranges(offset, buf.len() as u64)? {
            let (now, later) = buf.split_at_mut(range.len());
            now.copy_from_slice(&self.0.0.borrow()[range]);
            buf = later;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut data = data;
        for range in self.ranges(offset, data.len() as u64)? {
            let (now, later) = data.split_at(range.len());
            self.0.0.borrow_mut()[range].copy_from_slice(now);
            data = later;
        }
        Ok(())
    }

    fn with_word<T>(&self, offset: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        let [range] = &self.ranges(offset, 8)?[..] else { return Err(Fault) };
        let range = range.clone();
        let bytes = &mut self.0.0.borrow_mut()[range];
        let word = AtomicU64::new(u64::from_ne_bytes(bytes.try_into().unwrap()));
        let result = operation(&word);
        bytes.copy_from_slice(&word.into_inner().to_ne_bytes());
        Ok(result)
    }

    fn register(&mut self, list: &PageList, offset: u64, length: u64) -> Result<(), Fault> {
        let memory = self.0.0.borrow();
        let size = 1 << list.page_shift;
        let is_memory = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= memory.len() as u64);
        if self.0.1.get() || !is_memory(list.addr, 8 * u64::from(list.pages)) {
            return Err(Fault);
        }
        let entries = memory[list.addr as usize..].chunks_exact(8).take(list.pages as usize);
        let pages: Vec<u64> = entries.map(|page| u64::from_le_bytes(page.try_into().unwrap())).collect();
        if !pages.iter().all(|&page| page % size == 0 && is_memory(page, size)) {
            return Err(Fault);
        }
        drop(memory);
        self.1 = Some(MemPages { pages, size, offset, length });
        Ok(())
    }
}

/// Records everything that comes out of the engine.
///
/// All tests use one type of sink, because each type compiles the engine once more.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) completions: Vec<(DeviceId, CqId, Completion)>,
    pub(crate) events: Vec<(DeviceId, Event)>,
    /// Ends of watched sends.
    pub(crate) watched: Vec<(DeviceId, WatchedEnd)>,
    /// Number of completions after which the next one panics.
    pub(crate) breaks_after: Option<usize>,
    /// Takes what is copied within the engine as packets.
    pub(crate) mirror: Option<mirror::Kept>,
}

impl Sink for Log {
    fn complete(&mut self, device: DeviceId, cq: CqId, completion: &Completion) {
        assert_ne!(self.breaks_after, Some(self.completions.len()), "on purpose");
        self.completions.push((device, cq, *completion));
    }

    fn event(&mut self, device: DeviceId, event: Event) {
        self.events.push((device, event));
    }

    fn mirror(&mut self) -> Option<&mut dyn Mirror> {
        self.mirror.as_mut().map(|mirror| mirror as _)
    }

    fn watched(&mut self, device: DeviceId, end: &WatchedEnd) {
        self.watched.push((device, *end));
    }
}

pub(crate) const IOVA: u64 = 0x7f00_0000_0000;
pub(crate) const OWNER: OwnerId = OwnerId(7);
pub(crate) const SEND_CQ: CqId = CqId(10);
pub(crate) const RECV_CQ: CqId = CqId(11);
/// Local ACK timeout of code 8.
pub(crate) const TIMEOUT: Duration = Duration::from_nanos(4096 << 8);
/// RNR timer of code 12.
pub(crate) const RNR: Duration = Duration::from_micros(640);

/// One end of a connection: a QP, and memory.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) device: DeviceId,
    pub(crate) pd: PdId,
    pub(crate) qpn: Qpn,
    pub(crate) gid: Gid,
    pub(crate) memory: Mem,
    pub(crate) key: u32,
}

/// Two ends on one engine.
pub(crate) struct Pair {
    pub(crate) engine: Engine<Mem>,
    pub(crate) now: Instant,
    pub(crate) log: Log,
    pub(crate) a: End,
    pub(crate) b: End,
}

pub(crate) fn qp_init(pd: PdId) -> QpInit {
    QpInit {
        owner: OWNER,
        pd: Some(pd),
        qp_type: QpType::Rc,
        send_cq: SEND_CQ,
        recv_cq: RECV_CQ,
        receives: Receives::Own,
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 8,
        max_recv_sge: 8,
        max_inline: 128,
    }
}

/// All rights that a region can give to requests.
pub(crate) const OF_REGION: Access = Access(Access::ALL.0 | Access::FLUSH_GLOBAL.0);

/// Returns the attributes of a QP that is connected to `peer`.
pub(crate) fn attr_to(peer: &End) -> QpAttr {
    QpAttr {
        access: Access::QP,
        port: 1,
        path_mtu: Mtu::M1024,
        rq_psn: Psn::truncate(0xff_fffe),
        sq_psn: Psn::truncate(0xff_fffe),
        dest_qpn: peer.qpn,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        timeout: 8,
        retry_cnt: 2,
        rnr_retry: 2,
        dgid: peer.gid,
        ..QpAttr::default()
    }
}

pub(crate) const TO_INIT: AttrMask =
    AttrMask::STATE.with(AttrMask::PKEY_INDEX).with(AttrMask::PORT).with(AttrMask::ACCESS_FLAGS);
pub(crate) const TO_RTR: AttrMask = AttrMask::STATE
    .with(AttrMask::AV)
    .with(AttrMask::PATH_MTU)
    .with(AttrMask::DEST_QPN)
    .with(AttrMask::RQ_PSN)
    .with(AttrMask::MAX_DEST_RD_ATOMIC)
    .with(AttrMask::MIN_RNR_TIMER);
pub(crate) const TO_RTS: AttrMask = AttrMask::STATE
    .with(AttrMask::TIMEOUT)
    .with(AttrMask::RETRY_CNT)
    .with(AttrMask::RNR_RETRY)
    .with(AttrMask::SQ_PSN)
    .with(AttrMask::MAX_RD_ATOMIC);

impl Pair {
    /// Creates two QPs in RESET, each with 1 MiB of memory with all rights.
    pub(crate) fn new() -> Pair {
        let mut engine = Engine::new(1);
        let limits = Limits { max_qp: 1 << 10, ..Limits::default() };
        let [a, b] = [1, 2].map(|n| {
            let device = engine.add_device(limits.clone());
            let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]);
            engine.set_gid(device, 0, Some(gid.into())).unwrap();
            let pd = engine.alloc_pd(device, OWNER).unwrap();
            let memory = Mem::new(1 << 20);
            let key = engine.reg_mr(device, pd, OF_REGION, IOVA, 1 << 20, memory.clone()).unwrap();
            let qpn = engine.create_qp(device, qp_init(pd)).unwrap();
            End { device, pd, qpn, gid, memory, key }
        });
        Pair { engine, now: Instant(1_000_000), log: Log::default(), a, b }
    }

    /// Creates two QPs that are connected and in RTS.
    pub(crate) fn connected() -> Pair {
        Pair::connected_with(|_| {}, |_| {})
    }

    /// Creates two QPs that are connected and in RTS, with changed attributes.
    pub(crate) fn connected_with(a: impl FnOnce(&mut QpAttr), b: impl FnOnce(&mut QpAttr)) -> Pair {
        let mut pair = Pair::new();
        let (mut attr_a, mut attr_b) = (attr_to(&pair.b), attr_to(&pair.a));
        a(&mut attr_a);
        b(&mut attr_b);
        for (end, attr) in [(pair.a.clone(), attr_a), (pair.b.clone(), attr_b)] {
            pair.connect(&end, attr, QpState::Rts);
        }
        pair
    }

    /// Changes the state of a QP from RESET to a state up to RTS.
    pub(crate) fn connect(&mut self, end: &End, attr: QpAttr, last: QpState) {
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
            self.modify(end, mask, QpAttr { state, ..attr }).unwrap();
            if state == last {
                break;
            }
        }
    }

    pub(crate) fn modify(&mut self, end: &End, mask: AttrMask, attr: QpAttr) -> Result<(), Error> {
        save::replace_at_times(&mut self.engine);
        self.engine.modify_qp(self.now, end.device, end.qpn, mask, &attr, &mut self.log)
    }

    pub(crate) fn go(&mut self, end: &End, state: QpState) {
        self.modify(end, AttrMask::STATE, QpAttr { state, ..QpAttr::default() }).unwrap();
    }

    /// Reports the failure of a device's CQ.
    pub(crate) fn cq_failed(&mut self, device: DeviceId, cq: CqId) {
        let qps = self.engine.core.devices.get(device.0).into_iter().flat_map(|device| device.qps.iter());
        let users = qps.filter(|entry| entry.qp.send_cq == cq || entry.qp.recv_cq == cq);
        for qpn in users.map(|entry| entry.qp.qpn).collect::<Vec<_>>() {
            self.engine.cq_failed(device, qpn, &mut self.log);
        }
    }

    pub(crate) fn state(&self, end: &End) -> QpState {
        self.engine.query_qp(end.device, end.qpn).unwrap().state
    }

    pub(crate) fn post(
        &mut self,
        end: &End,
        id: u32,
        op: SendOp,
        payload: Payload<'_>,
    ) -> Result<(), PostError> {
        save::replace_at_times(&mut self.engine);
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
        let result = self.engine.post_send(self.now, end.device, OWNER, end.qpn, &request, &mut self.log);
        self.look();
        result
    }

    pub(crate) fn post_recv(&mut self, end: &End, id: u32, sges: &[Sge]) -> Result<(), PostError> {
        save::replace_at_times(&mut self.engine);
        let request = RecvRequest { id, sges };
        self.engine.post_recv(self.now, end.device, OWNER, end.qpn, request, &mut self.log)
    }

    /// Works until nothing is ready.
    pub(crate) fn run(&mut self) {
        save::replace_at_times(&mut self.engine);
        while self.engine.poll(self.now, u64::MAX, &mut self.log) || self.look() {}
    }

    /// Answers all questions, and returns whether there were any.
    ///
    /// The engine already knows all receives, so the answers bring none.
    pub(crate) fn look(&mut self) -> bool {
        let any = answer_all(&mut self.engine, self.now, &mut self.log);
        while any && self.engine.poll(self.now, u64::MAX, &mut self.log) {}
        any
    }

    /// Lets time pass up to the next deadline, and returns how long that was. Returns `None` if
    /// there is none.
    pub(crate) fn sleep(&mut self) -> Option<Duration> {
        self.run();
        let deadline = self.engine.poll_timeout()?;
        let slept = Duration::from_nanos(deadline.0.saturating_sub(self.now.0));
        self.now = self.now.max(deadline);
        self.run();
        Some(slept)
    }

    /// Takes all completions so far, as (device 'a' or 'b', id, status).
    pub(crate) fn statuses(&mut self) -> Vec<(char, u32, WcStatus)> {
        let a = self.a.device;
        let name = |device| if device == a { 'a' } else { 'b' };
        self.log.completions.drain(..).map(|(device, _, c)| (name(device), c.id, c.status)).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<(char, Event)> {
        let a = self.a.device;
        let name = |device| if device == a { 'a' } else { 'b' };
        self.log.events.drain(..).map(|(device, event)| (name(device), event)).collect()
    }

    /// Takes the only completion since the last call.
    pub(crate) fn completion(&mut self) -> Completion {
        assert_eq!(self.log.completions.len(), 1, "{:?}", self.log.completions);
        self.log.completions.remove(0).2
    }
}

/// Answers all questions of an engine. Returns true if there were any.
pub(crate) fn answer_all(engine: &mut Engine<Mem>, now: Instant, log: &mut Log) -> bool {
    let mut any = false;
    while let Some(question) = engine.poll_question() {
        save::replace_at_times(engine);
        engine.answer(now, question, log);
        any = true;
    }
    any
}

impl End {
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: IOVA + offset, length, lkey: Lkey(self.key) }
    }

    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { addr: IOVA + offset, rkey: Rkey(self.key) }
    }
}

pub(crate) const SEND: SendOp = SendOp::Send { imm: None };

pub(crate) fn write_to(remote: Remote) -> SendOp {
    SendOp::Write { remote, imm: None }
}
