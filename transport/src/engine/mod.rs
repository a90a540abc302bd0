//! The engine: devices and their objects.
//!
//! Work requests are in [`post`], work that is due in [`run`], creation and changes of QPs in
//! [`qps`], and packets in [`wire`].

mod arrive;
mod datagram;
mod devices;
mod drains;
mod flush;
pub(crate) mod groups;
mod inter_worker;
mod keys;
pub(crate) mod lines;
mod loopback;
mod panicked;
mod post;
mod qps;
mod rates;
pub(crate) mod reorder;
mod run;
mod save;
mod srqs;
mod streams;
pub(crate) mod sweep;
mod view;
mod wake;
mod watch;
pub(crate) mod wire;
mod xrcds;

#[cfg(test)]
pub(crate) use run::{DEADLINES, TURNS};

use crate::agenda::fan_out::FanOuts;
use crate::agenda::sweeps::Sweeps;
use crate::base::memory::Region;
use crate::base::rng::Rng;
use crate::message::core::Core;
use crate::objects::outstanding::Scratch;

/// The protocol engine: devices, their objects, and the messages between them. The [crate]
/// documents its use.
///
/// # Example
///
/// A WRITE between two devices of one engine. It needs no packets.
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
/// use std::sync::atomic::AtomicU64;
/// use vrdma_transport::*;
/// use vrdma_wire::num::{Gid, Lkey, Mac, Rkey};
///
/// /// The memory of a guest.
/// #[derive(Clone)]
/// struct Memory(Rc<RefCell<Vec<u8>>>);
///
/// impl Region for Memory {
///     fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
///         let (memory, offset) = (self.0.borrow(), offset as usize);
///         buf.copy_from_slice(memory.get(offset..offset + buf.len()).ok_or(Fault)?);
///         Ok(())
///     }
///     fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
///         let (mut memory, offset) = (self.0.borrow_mut(), offset as usize);
///         memory.get_mut(offset..offset + data.len()).ok_or(Fault)?.copy_from_slice(data);
///         Ok(())
///     }
///     fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
///         let mut bytes = vec![0; len as usize];
///         self.read(offset, &mut bytes)?;
///         dst.write(dst_offset, &bytes)
///     }
///     fn with_word<T>(&self, _: u64, _: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
///         Err(Fault) // This memory has no atomics.
///     }
/// }
///
/// /// Keeps the status of completions.
/// #[derive(Default)]
/// struct Completed(Vec<(u32, WcStatus)>);
///
/// impl Sink for Completed {
///     fn complete(&mut self, _: DeviceId, _: CqId, completion: &Completion) {
///         self.0.push((completion.id, completion.status));
///     }
///     fn event(&mut self, _: DeviceId, event: Event) {
///         panic!("{event:?}");
///     }
/// }
///
/// let mut engine = Engine::new(1); // The seed of its random numbers.
/// let mut done = Completed::default();
/// let owner = OwnerId(1);
///
/// // Two devices with a region and a QP each.
/// let ends = [1, 2].map(|n| {
///     let device = engine.add_device(Limits::default());
///     let gid = Gid::from_ipv4([10, 0, 0, n]);
///     engine.set_mac(device, Mac([2, 0, 0, 0, 0, n])).unwrap();
///     engine.set_gid(device, 0, Some(gid.into())).unwrap();
///     let pd = engine.alloc_pd(device, owner).unwrap();
///     let memory = Memory(Rc::new(RefCell::new(vec![n; 4096])));
///     let key = engine.reg_mr(device, pd, Access::ALL, 0x1000, 4096, memory.clone()).unwrap();
///     let init = QpInit {
///         owner,
///         pd: Some(pd),
///         qp_type: QpType::Rc,
///         send_cq: CqId(0),
///         recv_cq: CqId(0),
///         receives: None.into(),
///         max_send_wr: 16,
///         max_recv_wr: 16,
///         max_send_sge: 1,
///         max_recv_sge: 1,
///         max_inline: 0,
///     };
///     (device, engine.create_qp(device, init).unwrap(), gid, memory, key)
/// });
///
/// // INIT, RTR, RTS, as ibv_modify_qp(3) has it.
/// for (own, peer) in [(0, 1), (1, 0)] {
///     let attr = QpAttr {
///         access: Access::ALL,
///         port: 1,
///         dest_qpn: ends[peer].1,
///         dgid: ends[peer].2,
///         hop_limit: 1,
///         ..QpAttr::default()
///     };
///     use AttrMask as M;
///     let init = M::STATE.with(M::PKEY_INDEX).with(M::PORT).with(M::ACCESS_FLAGS);
///     let rtr = M::STATE.with(M::AV).with(M::PATH_MTU).with(M::DEST_QPN).with(M::RQ_PSN);
///     let rtr = rtr.with(M::MAX_DEST_RD_ATOMIC).with(M::MIN_RNR_TIMER);
///     let rts = M::STATE.with(M::SQ_PSN).with(M::TIMEOUT).with(M::RETRY_CNT).with(M::RNR_RETRY);
///     let rts = rts.with(M::MAX_RD_ATOMIC);
///     for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
///         let attr = QpAttr { state, ..attr };
///         engine.modify_qp(Instant(1), ends[own].0, ends[own].1, mask, &attr, &mut done).unwrap();
///     }
/// }
///
/// let [(device, qpn, _, _, lkey), (_, _, _, there, rkey)] = &ends;
/// let element = [Sge { addr: 0x1000, length: 8, lkey: Lkey(*lkey) }];
/// let request = SendRequest {
///     id: 42,
///     signaled: true,
///     solicited: false,
///     fence: false,
///     op: SendOp::Write { remote: Remote { addr: 0x1100, rkey: Rkey(*rkey) }, imm: None },
///     payload: Payload::Sges(&element),
/// };
/// engine.post_send(Instant(1), *device, owner, *qpn, &request, &mut done).unwrap();
/// while done.0.is_empty() {
///     engine.poll(Instant(1), 1 << 20, &mut done);
/// }
/// assert_eq!(done.0, [(42, WcStatus::Success)]);
/// assert_eq!(there.0.borrow()[0x100..0x108], [1; 8]);
/// ```
pub struct Engine<R: Region> {
    pub(crate) core: Core<R>,
    /// Elements of a request of the peer, while a QP on a loopback connection has its turn.
    place_scratch: Scratch,
    /// Tasks for all QPs of a device.
    pub(crate) sweeps: Sweeps,
    /// Packets to multicast groups that some members have not had.
    pub(crate) fan_outs: FanOuts,
    /// Most bytes that the pending requests of all devices may take.
    pub(crate) request_memory: u64,
    rng: Rng,
    /// Buffer in which an FPDU is reassembled. Empty until there is a stream.
    fpdu: Vec<u8>,
    /// How many loopback connections were made.
    joins: u64,
}

impl<R: Region> Engine<R> {
    /// Makes an engine without devices. Equal seeds and equal calls give equal results.
    pub fn new(seed: u64) -> Self {
        Engine {
            core: Core::new(),
            place_scratch: Scratch::default(),
            sweeps: Sweeps::default(),
            fan_outs: FanOuts::default(),
            request_memory: u64::MAX,
            rng: Rng::new(seed),
            fpdu: Vec::new(),
            joins: 0,
        }
    }
}
