//! Completion queues.

use crate::control::{Answer, run};
use crate::guest::Guest;
use crate::memory::Memory;
use crate::wait;
use std::sync::Arc;
use std::time::Duration;
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
        let layout = CqLayout::for_entries(entries).expect("a possible size");
        let len = layout.size() as u64;
        let gpa = guest.memory.alloc(len);
        let number =
            guest.create_cq(context, layout.entries(), vector, &[run(gpa, len)]).inspect_err(|_| {
                guest.memory.free(gpa, len);
            })?;
        // SAFETY: fresh pages of the memory that is kept beside the driver.
        let driver = unsafe { Driver::new(guest.memory.host(gpa, len), layout) }.expect("pages are aligned");
        Ok(Cq { number, driver, gpa, vector, layout, guest: guest.clone(), _memory: guest.memory.clone() })
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
        self.driver.poll().map(Wc)
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

    pub fn is_recv(&self) -> bool {
        self.0.flags & flags::RECV != 0
    }

    pub fn src_qpn(&self) -> u32 {
        self.0.src_qpn.get()
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
