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

/// A completion queue in pages of its own. They stay allocated until [`Cq::destroy`].
#[derive(Debug)]
pub struct Cq {
    /// Its number.
    pub number: u32,
    /// The driver's end.
    pub driver: Driver,
    /// Where it lies.
    pub gpa: u64,
    /// Completion vector.
    pub vector: u16,
    layout: CqLayout,
    /// What was left in former rings.
    held: VecDeque<(Cqe, u64)>,
    guest: Arc<Guest>,
    // Keeps what `driver` points to mapped.
    _memory: Arc<Memory>,
}

impl Cq {
    /// Creates a CQ with at least `entries`.
    ///
    /// # Errors
    /// The device refuses.
    pub fn create(guest: &Arc<Guest>, context: u32, entries: u32, vector: u16) -> Answer<Cq> {
        Cq::create_with(guest, context, entries, vector, 0)
    }

    /// The same with flags (`cq_flags`).
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
        // SAFETY: fresh pages of the memory that is kept beside the driver.
        let driver = unsafe { Driver::new(guest.memory.host(gpa, len), layout) }.expect("pages are aligned");
        let (held, _memory) = (VecDeque::new(), guest.memory.clone());
        Ok(Cq { number, driver, gpa, vector, layout, held, guest: guest.clone(), _memory })
    }

    /// Number of entries.
    pub fn entries(&self) -> u32 {
        self.layout.entries()
    }

    /// The memory it lies in.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.guest.memory
    }

    /// Where the record of shared words is.
    pub fn record(&self) -> u64 {
        self.gpa + self.layout.record_offset() as u64
    }

    /// The next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Wc> {
        self.poll_timed().map(|(wc, _)| wc)
    }

    /// The same with its time stamp; that is 0 in a CQ without.
    #[inline]
    pub fn poll_timed(&mut self) -> Option<(Wc, u64)> {
        let found = self.held.pop_front().or_else(|| self.driver.take_timed());
        self.driver.publish();
        found.map(|(cqe, timestamp)| (Wc(cqe), timestamp))
    }

    /// Has it go on in a ring of at least `entries`.
    ///
    /// # Errors
    /// The device refuses.
    pub fn resize(&mut self, entries: u32) -> Answer<()> {
        self.resize_while(entries, |_| ())
    }

    /// The same; `meanwhile` is done again and again until the device has answered, and once at
    /// least.
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
        // SAFETY: pages of the memory that is kept beside the driver; they are free again only
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

    /// The next completion, which must come.
    pub fn wait(&mut self) -> Wc {
        let number = self.number;
        self.wait_within(wait::PATIENCE)
            .unwrap_or_else(|| panic!("waited in vain for a completion in CQ {number}"))
    }

    /// The next completion, if it comes in time.
    pub fn wait_within(&mut self, time: Duration) -> Option<Wc> {
        wait::within(time, || self.poll())
    }

    /// The next completion, which must be a success.
    #[track_caller]
    pub fn expect_success(&mut self) -> Wc {
        let wc = self.wait();
        assert_eq!(wc.status(), WcStatus::SUCCESS, "{wc:?}");
        wc
    }

    /// The next completion, which must be this one's and have this status.
    #[track_caller]
    pub fn expect(&mut self, qpn: u32, wqe_id: u32, status: WcStatus) -> Wc {
        let wc = self.wait();
        assert_eq!((wc.qpn(), wc.id(), wc.status()), (qpn, wqe_id, status), "{wc:?}");
        wc
    }

    /// That nothing comes for some time.
    #[track_caller]
    pub fn expect_nothing(&mut self, time: Duration) {
        if let Some(wc) = self.wait_within(time) {
            panic!("a completion that should not be: {wc:?}");
        }
    }

    /// Asks for an event, and looks once more.
    pub fn arm(&mut self, kind: Arm) -> Option<Wc> {
        self.driver.arm(kind);
        self.poll()
    }

    /// Destroys it and gives the pages back.
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

    /// Immediate data, if it has any.
    pub fn imm(&self) -> Option<[u8; 4]> {
        (self.0.flags & flags::IMM != 0).then(|| self.0.imm.to_bytes())
    }

    /// The own key that the message invalidated, if it did.
    pub fn invalidated(&self) -> Option<u32> {
        (self.0.flags & flags::INV != 0).then(|| self.0.imm.get())
    }

    pub fn is_recv(&self) -> bool {
        self.0.flags & flags::RECV != 0
    }

    pub fn src_qpn(&self) -> u32 {
        self.0.src_qpn.get()
    }

    /// The own XRC shared receive queue that the receive was posted to.
    pub fn xrc_srqn(&self) -> Option<u32> {
        (self.0.flags & flags::XRC != 0).then_some(self.0.src_qpn.get())
    }

    /// Whether a global route header comes before the data.
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
