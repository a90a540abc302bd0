//! Completion queues.

use crate::control::{Answer, run};
use crate::guest::Guest;
use crate::memory::Memory;
use crate::wait;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vrdma_abi::control::{ResizeCqReq, cq_flags};
use vrdma_abi::cqe::{WcOpcode, WcStatus, flags};
use vrdma_verbs::{Arm, Cq as Driver, CqLayout, Cqe};

/// A completion queue in pages of its own, which stay allocated until [`Cq::destroy`].
#[derive(Debug)]
pub struct Cq {
    /// Number of the CQ.
    pub number: u32,
    /// The driver's end.
    pub driver: Driver,
    /// Guest-physical address of the ring.
    pub gpa: u64,
    /// Completion vector.
    pub vector: u16,
    layout: CqLayout,
    /// Completions that were left in former rings after a resize.
    held: VecDeque<(Cqe, u64)>,
    guest: Arc<Guest>,
    // Keeps the memory mapped that `driver` points to.
    _memory: Arc<Memory>,
}

impl Cq {
    /// Creates a CQ with at least `entries` entries.
    ///
    /// # Errors
    /// The device refuses.
    pub fn create(guest: &Arc<Guest>, context: u32, entries: u32, vector: u16) -> Answer<Cq> {
        Cq::create_with(guest, context, entries, vector, 0)
    }

    /// Creates a CQ with at least `entries` entries and with flags (`cq_flags`).
    ///
    /// # Errors
    /// The device refuses.
    pub fn create_with(
        guest: &Arc<Guest>,
        context: u32,
        entries: u32,
        vector: u16,
        flags: u32,
    ) -> Answer<Cq> {
        let layout = CqLayout::for_entries(entries).expect("a possible size");
        let layout = layout.with_timestamps(flags & cq_flags::TIMESTAMP != 0);
        let len = layout.size() as u64;
        let gpa = guest.memory.alloc(len);
        let number = guest
            .create_cq_with(context, layout.entries(), vector, flags, &[run(gpa, len)])
            .inspect_err(|_| {
                guest.memory.free(gpa, len);
            })?;
        // SAFETY: these are fresh pages of the memory that is kept beside the driver.
        let driver = unsafe { Driver::new(guest.memory.host(gpa, len), layout) }.expect("pages are aligned");
        let (held, _memory) = (VecDeque::new(), guest.memory.clone());
        Ok(Cq { number, driver, gpa, vector, layout, held, guest: guest.clone(), _memory })
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u32 {
        self.layout.entries()
    }

    /// Returns the memory that the CQ lies in.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.guest.memory
    }

    /// Returns the guest-physical address of the record of shared words.
    pub fn record(&self) -> u64 {
        self.gpa + self.layout.record_offset() as u64
    }

    /// Takes the next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Wc> {
        self.poll_timed().map(|(wc, _)| wc)
    }

    /// Takes the next completion with its timestamp, which is 0 in a CQ without timestamps.
    #[inline]
    pub fn poll_timed(&mut self) -> Option<(Wc, u64)> {
        let found = self.held.pop_front().or_else(|| self.driver.take_timed());
        self.driver.publish();
        found.map(|(cqe, timestamp)| (Wc(cqe), timestamp))
    }

    /// Resizes the CQ to a new ring of at least `entries` entries.
    ///
    /// # Errors
    /// The device refuses.
    pub fn resize(&mut self, entries: u32) -> Answer<()> {
        self.resize_while(entries, |_| ())
    }

    /// Resizes the CQ, and calls `meanwhile` repeatedly until the device has answered.
    ///
    /// It calls `meanwhile` at least once.
    ///
    /// # Errors
    /// The device refuses.
    pub fn resize_while(&mut self, entries: u32, mut meanwhile: impl FnMut(&mut Cq)) -> Answer<()> {
        let timed = self.layout.is_timed();
        let layout = CqLayout::for_entries(entries).expect("a possible size").with_timestamps(timed);
        let len = layout.size() as u64;
        let (guest, number, held) = (self.guest.clone(), self.number, self.held.len() as u32);
        let gpa = guest.memory.alloc(len);
        guest.memory.fill(gpa, len, 0);
        // SAFETY: these are pages of the memory that is kept beside the driver. They are freed only
        // after the end of the resize.
        assert!(unsafe { self.driver.begin_resize(guest.memory.host(gpa, len), layout) });
        let req = ResizeCqReq {
            cqn: number.into(),
            entries: layout.entries().into(),
            held: held.into(),
            flags: if timed { cq_flags::TIMESTAMP } else { 0 }.into(),
        };
        let answer = thread::scope(|scope| {
            let command = scope.spawn(|| guest.resize_cq(&req, &[run(gpa, len)]));
            meanwhile(self);
            while !command.is_finished() {
                meanwhile(self);
            }
            command.join().expect("an answer")
        });
        if answer.is_err() {
            self.driver.cancel_resize();
            guest.memory.free(gpa, len);
            return answer;
        }
        self.driver.end_resize(|found| self.held.push_back(found));
        guest.memory.free(self.gpa, self.layout.size() as u64);
        (self.gpa, self.layout) = (gpa, layout);
        Ok(())
    }

    /// Waits for the next completion, which must come.
    pub fn wait(&mut self) -> Wc {
        let number = self.number;
        self.wait_within(wait::PATIENCE)
            .unwrap_or_else(|| panic!("waited in vain for a completion in CQ {number}"))
    }

    /// Waits for the next completion, or returns `None` when `time` is over.
    pub fn wait_within(&mut self, time: Duration) -> Option<Wc> {
        wait::within(time, || self.poll())
    }

    /// Waits for the next completion and asserts that it is a success.
    #[track_caller]
    pub fn expect_success(&mut self) -> Wc {
        let wc = self.wait();
        assert_eq!(wc.status(), WcStatus::SUCCESS, "{wc:?}");
        wc
    }

    /// Waits for the next completion and asserts its QP, request and status.
    #[track_caller]
    pub fn expect(&mut self, qpn: u32, wqe_id: u32, status: WcStatus) -> Wc {
        let wc = self.wait();
        assert_eq!((wc.qpn(), wc.id(), wc.status()), (qpn, wqe_id, status), "{wc:?}");
        wc
    }

    /// Asserts that no completion comes within `time`.
    #[track_caller]
    pub fn expect_nothing(&mut self, time: Duration) {
        if let Some(wc) = self.wait_within(time) {
            panic!("a completion that should not be: {wc:?}");
        }
    }

    /// Arms the CQ for an event, then polls it once.
    pub fn arm(&mut self, kind: Arm) -> Option<Wc> {
        self.driver.arm(kind);
        self.poll()
    }

    /// Destroys the CQ and frees its pages.
    ///
    /// # Errors
    /// The device refuses.
    pub fn destroy(self) -> Answer<()> {
        self.guest.destroy_cq(self.number)?;
        self.guest.memory.free(self.gpa, self.layout.size() as u64);
        Ok(())
    }
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Wc(pub Cqe);

#[allow(missing_docs, reason = "each is the field of the CQE of that name")]
impl Wc {
    pub fn id(&self) -> u32 {
        self.0.wqe_id.get()
    }

    pub fn qpn(&self) -> u32 {
        self.0.qpn.get()
    }

    pub fn len(&self) -> u32 {
        self.0.byte_len.get()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn status(&self) -> WcStatus {
        WcStatus(self.0.status)
    }

    pub fn opcode(&self) -> WcOpcode {
        WcOpcode(self.0.opcode)
    }

    /// Returns the immediate data, if the completion has any.
    pub fn imm(&self) -> Option<[u8; 4]> {
        (self.0.flags & flags::IMM != 0).then(|| self.0.imm.to_bytes())
    }

    /// Returns the local key that the message invalidated, if it did.
    pub fn invalidated(&self) -> Option<u32> {
        (self.0.flags & flags::INV != 0).then(|| self.0.imm.get())
    }

    pub fn is_recv(&self) -> bool {
        self.0.flags & flags::RECV != 0
    }

    pub fn src_qpn(&self) -> u32 {
        self.0.src_qpn.get()
    }

    /// Returns the local XRC shared receive queue that the receive was posted to.
    pub fn xrc_srqn(&self) -> Option<u32> {
        (self.0.flags & flags::XRC != 0).then_some(self.0.src_qpn.get())
    }

    /// Returns whether a global route header comes before the data.
    pub fn has_grh(&self) -> bool {
        self.0.flags & flags::GRH != 0
    }

    pub fn smac(&self) -> [u8; 6] {
        self.0.smac
    }

    pub fn vlan(&self) -> u16 {
        self.0.vlan.get()
    }

    pub fn is_solicited(&self) -> bool {
        self.0.flags & flags::SOLICITED != 0
    }
}

impl std::fmt::Debug for Wc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (opcode, status) = (self.opcode(), self.status());
        write!(f, "QP {:#x} request {} {opcode:?} {status:?} ", self.qpn(), self.id())?;
        write!(f, "len {} flags {:#x} imm {:?}", self.len(), self.0.flags, self.imm())
    }
}
