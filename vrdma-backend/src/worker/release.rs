//! Waits until the uplink has released guests' memory that its frames carry.
//!
//! A guest that learns that a region is deregistered, or that its device is suspended, may reuse
//! the memory. Frames that still refer to it would carry the new contents.
//!
//! Drivers free what they sent when they like, at the latest with later frames. They are asked from
//! time to time to release it. A driver that keeps memory nevertheless gets copies only.

use super::pending_release::{PendingRelease, RECLAIM_TURNS};
use super::{CommandError, Job, Worker};
use crate::memory::{MrMemory, Pins};
use std::ops::Range;
use std::time::Duration;
use vrdma_transport::{self as transport, DeviceId};
use vrdma_wire::num::Lkey;

/// The time that drivers have to release memory. They also have `TURNS` rounds.
const PATIENCE: Duration = Duration::from_secs(1);
const TURNS: u32 = 1000;

impl Worker {
    /// Calls `then` with true when this memory is released, or with false if it will not be soon.
    pub fn when_released(&mut self, mut pins: Pins, then: impl FnOnce(bool) + Send + 'static) {
        if pins.are_released() {
            return then(true);
        }
        let until = self.now() + PATIENCE;
        self.releases.push(PendingRelease { pins, until, turns: 0, then: Box::new(then) });
    }

    /// Has the uplink release memory that a caller waits for. It is called once a round.
    #[inline]
    pub(super) fn check_pending(&mut self, now: transport::Instant) -> bool {
        self.since_reclaim = self.since_reclaim.saturating_add(1);
        !self.releases.is_empty() && self.check_releases(now)
    }

    #[cold]
    fn check_releases(&mut self, now: transport::Instant) -> bool {
        if let Some(uplink) = self.uplink.as_mut().filter(|_| self.since_reclaim >= RECLAIM_TURNS) {
            self.since_reclaim = 0;
            uplink.reclaim();
        }
        for release in &mut self.releases {
            release.turns = release.turns.saturating_add(1);
        }
        let over = |release: &PendingRelease| release.turns >= TURNS && now >= release.until;
        let done = self.releases.extract_if(.., |release| release.pins.are_released() || over(release));
        for mut release in done.collect::<Vec<_>>() {
            let back = release.pins.are_released();
            if let Some(uplink) = self.uplink.as_mut().filter(|_| !back) {
                uplink.stop_pinning();
            }
            (release.then)(back);
        }
        true
    }

    /// Executes a command that takes a region's memory away, and waits for the uplink to release
    /// it.
    ///
    /// `done` gets the result after that. It gets `Internal` if the release takes too long. Then
    /// the driver keeps the memory unchanged.
    pub(super) fn execute_and_revoke<R: Send + 'static>(
        &mut self,
        id: DeviceId,
        key: Lkey,
        job: Job<R>,
        done: impl FnOnce(Result<R, CommandError>) + Send + 'static,
    ) {
        let pins = self.engine.region(id, key.0).map(MrMemory::pins).unwrap_or_default();
        match self.execute_unless_ended(id, job) {
            Ok(reply) => self
                .when_released(pins, |back| done(if back { Ok(reply) } else { Err(CommandError::Internal) })),
            Err(error) => done(Err(error)),
        }
    }

    /// Returns the memory of these regions of a device that frames may still carry.
    pub(super) fn revoke_pins(&mut self, id: DeviceId, indices: Range<usize>) -> Pins {
        let mut pins = Pins::default();
        self.engine.regions_mut(id, indices).for_each(|(_, region)| pins.extend(region.revoke()));
        pins
    }
}

impl std::fmt::Debug for PendingRelease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recall").field("turns", &self.turns).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{WorkerHandle, inline};
    use super::*;
    use crate::command::{Command, DeregMr, RegMr, ReregMr};
    use crate::config::Config;
    use crate::device::DeviceLimits;
    use crate::device::{NewMemory, NewRegion};
    use crate::memory::tests::memory;
    use crate::memory::{Extent, GuestMemory, MapOptions, RegionSpec};
    use crate::port::{
        Capabilities, Checksums, Dma, DmaMapper, Driver, External, Frame, Frames, Port, Wakeup,
    };
    use std::os::fd::BorrowedFd;
    use std::sync::{Arc, Mutex};
    use vrdma_transport::{
        Access, AttrMask, CqId, Error, GidEntry, OwnerId, Payload, PdId, QpAttr, QpInit, QpState, QpType,
        Receives, Remote, SendOp, SendRequest, Sge,
    };
    use vrdma_wire::num::{Gid, Lkey, Mac, Mtu, Qpn, Rkey, VlanId};

    /// A driver that holds the external memory of its frames. It receives the frames of its second
    /// field.
    #[derive(Debug)]
    struct HoldingDriver(HeldMemory, Vec<Frame>, Option<Dma>);

    /// An IOMMU that maps everything.
    #[derive(Debug)]
    struct Iommu;

    impl DmaMapper for Iommu {
        fn map(&self, _: usize, _: usize) -> anyhow::Result<()> {
            Ok(())
        }
        fn unmap(&self, _: usize, _: usize) {}
        fn tell(&self, _: usize, _: &anyhow::Error) {}
    }

    /// The MAC address of the other host.
    const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    /// Returns a frame by which the switch learns where the other host is.
    fn hello() -> Frame {
        Frame::new([[0xff; 6].as_slice(), &PEER.0, &[0x88, 0xb5], &[0; 46]].concat())
    }

    /// The memory that a driver holds, and how many requests to release it are left before it does.
    type HeldMemory = Arc<Mutex<(Vec<External>, u32)>>;

    impl Driver for HoldingDriver {
        fn capabilities(&self) -> Capabilities {
            Capabilities { mtu: 9000, max_frame: 9018, external: true, checksums: Checksums::default() }
        }

        fn dma(&self) -> Option<Dma> {
            self.2.clone()
        }

        fn mac(&self) -> Mac {
            Mac([2, 0, 0, 0, 0, 1])
        }

        fn link(&mut self) -> bool {
            true
        }

        fn counters(&self, _: &mut dyn FnMut(&'static str, u64)) {}
    }

    impl Frames for HoldingDriver {
        fn receive(&mut self, frames: &mut Vec<Frame>) {
            frames.append(&mut self.1);
        }

        fn allocate(&mut self, frames: &mut Vec<Frame>) {
            frames.push(Frame::new(vec![0; 9018]));
        }

        fn send(&mut self, frames: &mut Vec<Frame>) {
            frames.clear();
        }

        fn attach(&mut self, _: &mut Frame, external: External) -> bool {
            self.0.lock().unwrap().0.push(external);
            true
        }

        fn append(&mut self, _: &mut Frame, _: &[u8]) -> bool {
            true
        }

        fn reclaim(&mut self) {
            let mut held = self.0.lock().unwrap();
            held.1 = held.1.saturating_sub(1);
            if held.1 == 0 {
                held.0.clear();
            }
        }
    }

    impl Wakeup for HoldingDriver {
        fn readiness(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    /// A guest with a connection to another host, and the uplink between them.
    struct Bench {
        id: DeviceId,
        qpn: Qpn,
        pd: PdId,
        guest: Arc<crate::memory::GuestMemory>,
        held: HeldMemory,
        handle: WorkerHandle,
    }

    impl Bench {
        /// The driver releases memory when it was asked this often.
        fn new(asked: u32) -> Bench {
            Bench::with(asked, memory(&[(0, 0x10000)]), None)
        }

        /// Uses other memory, and a driver whose device has to know the memory that it reads.
        fn with(asked: u32, guest: Arc<crate::memory::GuestMemory>, dma: Option<Dma>) -> Bench {
            let handle = inline::start(9000);
            let held = HeldMemory::new(Mutex::new((Vec::new(), asked)));
            let (id, qpn, pd) = inline::with(|worker| {
                worker.set_uplink(Port::new(Box::new(HoldingDriver(held.clone(), vec![hello()], dma))));
                let config = "name=a,socket=/none,mac=52:54:00:00:00:01".parse().unwrap();
                let (id, _) = worker.add_guest(config, DeviceLimits::new(&Config::default()));
                let Worker { engine, outputs, .. } = worker;
                let gid = GidEntry { gid: Gid::from_ipv4([10, 0, 0, 1]), vlan: VlanId::UNTAGGED };
                engine.set_gid(id, 0, Some(gid)).unwrap();
                let pd = engine.alloc_pd(id, OwnerId::KERNEL).unwrap();
                let init = QpInit {
                    owner: OwnerId::KERNEL,
                    pd: Some(pd),
                    qp_type: QpType::Rc,
                    send_cq: CqId(0),
                    recv_cq: CqId(0),
                    receives: Receives::Own,
                    max_send_wr: 16,
                    max_recv_wr: 1,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline: 0,
                };
                let qpn = engine.create_qp(id, init).unwrap();
                let attr = QpAttr {
                    port: 1,
                    path_mtu: Mtu::M4096,
                    dest_qpn: Qpn::new(7).unwrap(),
                    dgid: Gid::from_ipv4([10, 0, 0, 2]),
                    dmac: PEER,
                    hop_limit: 64,
                    max_rd_atomic: 1,
                    max_dest_rd_atomic: 1,
                    ..QpAttr::default()
                };
                let (init, rtr, rts) = (
                    AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
                    AttrMask::STATE
                        | AttrMask::AV
                        | AttrMask::PATH_MTU
                        | AttrMask::DEST_QPN
                        | AttrMask::RQ_PSN
                        | AttrMask::MAX_DEST_RD_ATOMIC
                        | AttrMask::MIN_RNR_TIMER,
                    AttrMask::STATE
                        | AttrMask::TIMEOUT
                        | AttrMask::RETRY_CNT
                        | AttrMask::RNR_RETRY
                        | AttrMask::SQ_PSN
                        | AttrMask::MAX_RD_ATOMIC,
                );
                let now = transport::Instant(0);
                for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
                    engine.modify_qp(now, id, qpn, mask, &QpAttr { state, ..attr }, outputs).unwrap();
                }
                worker.take_turn();
                (id, qpn, pd)
            });
            Bench { id, qpn, pd, guest, held, handle }
        }

        fn register(&self, memory: MrMemory) -> u32 {
            let memory = NewMemory { iova: 0, length: 4096, extents: memory.extents(), memory };
            let region = NewRegion { pd: self.pd, access: Access::LOCAL_WRITE, memory };
            let job = RegMr { region }.job();
            inline::with(|worker| worker.execute(self.id, job)).unwrap().lkey.get()
        }

        fn region(&self) -> u32 {
            self.register(MrMemory::new(&self.guest, &[Extent { gpa: 0x1000, len: 4096 }]).unwrap())
        }

        /// Sends a packet whose payload is large enough to be carried without a copy.
        fn send(&self, key: u32) {
            inline::with(|worker| {
                let sges = [Sge { addr: 0, length: 4096, lkey: Lkey(key) }];
                let request = SendRequest {
                    id: 1,
                    signaled: true,
                    solicited: false,
                    fence: false,
                    op: SendOp::Write { remote: Remote { addr: 0, rkey: Rkey(1) }, imm: None },
                    payload: Payload::Sges(&sges),
                };
                let now = worker.now();
                let Worker { engine, outputs, .. } = worker;
                engine.post_send(now, self.id, OwnerId::KERNEL, self.qpn, &request, outputs).unwrap();
                worker.take_turn();
            });
        }

        /// Deregisters a region. Returns the place of the future answer.
        fn deregister(&self, key: u32) -> Arc<Mutex<Option<Result<(), CommandError>>>> {
            self.ask(DeregMr { key: Lkey(key) })
        }

        /// Gives the region other memory, or only other rights.
        fn change(&self, key: u32, moves: bool) -> Arc<Mutex<Option<Result<(), CommandError>>>> {
            let memory = moves.then(|| {
                let memory = MrMemory::new(&self.guest, &[Extent { gpa: 0x4000, len: 4096 }]).unwrap();
                NewMemory { iova: 0, length: 4096, extents: memory.extents(), memory }
            });
            self.ask(ReregMr { key: Lkey(key), pd: None, access: Some(Access::NONE), memory })
        }

        fn ask<C: Command>(&self, command: C) -> Arc<Mutex<Option<Result<(), CommandError>>>> {
            let answer = Arc::new(Mutex::new(None));
            let place = answer.clone();
            let done = move |result: Result<C::Reply, CommandError>| {
                *place.lock().unwrap() = Some(result.map(|_| ()))
            };
            inline::with(|worker| worker.execute_in_order(self.id, command.job(), done));
            answer
        }

        fn held(&self) -> usize {
            self.held.lock().unwrap().0.len()
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            inline::stop();
        }
    }

    #[test]
    fn a_region_is_gone_when_the_uplink_has_given_its_memory_back() {
        let bench = Bench::new(10);
        let (key, other) = (bench.region(), bench.region());
        bench.send(key);
        assert_eq!(bench.held(), 1, "the payload is pinned");
        let answer = bench.deregister(key);
        // The driver is asked in the first round, and then in each 64th.
        for turn in 0..9 * 64 {
            assert!(answer.lock().unwrap().is_none() && bench.held() == 1, "turn {turn}");
            inline::with(Worker::take_turn);
        }
        inline::with(Worker::take_turn);
        assert_eq!((bench.held(), *answer.lock().unwrap()), (0, Some(Ok(()))));
        // A region that passed nothing to the uplink, or that does not exist, waits for nothing.
        assert_eq!(*bench.deregister(other).lock().unwrap(), Some(Ok(())));
        assert_eq!(
            *bench.deregister(other).lock().unwrap(),
            Some(Err(CommandError::Refused(Error::NotFound)))
        );
    }

    #[test]
    fn a_device_is_loaned_only_what_it_knows() {
        let dma = || Some(Dma::new(Arc::new(Iommu)));
        for (is_known, pinned) in [(false, 0), (true, 1)] {
            let options = MapOptions { dma: dma().filter(|_| is_known), ..MapOptions::default() };
            let file = crate::memory::tests::memfd(0x10000);
            let spec = RegionSpec { gpa: 0, len: 0x10000, front_end_addr: 0, file_offset: 0, file };
            let guest = Arc::new(GuestMemory::empty(options).map_anew(vec![spec]).unwrap());
            let bench = Bench::with(1, guest, dma());
            let key = bench.region();
            bench.send(key);
            assert_eq!(bench.held(), pinned, "known: {is_known}");
            drop(bench.deregister(key));
        }
    }

    #[test]
    fn a_region_has_other_memory_when_the_uplink_has_given_the_old_back() {
        let bench = Bench::new(1);
        let (key, other) = (bench.region(), bench.region());
        bench.send(key);
        assert_eq!(bench.held(), 1, "the payload is pinned");
        let answer = bench.change(key, true);
        assert_eq!((bench.held(), *answer.lock().unwrap()), (1, None));
        for _ in 0..2 * RECLAIM_TURNS {
            inline::with(Worker::take_turn);
        }
        assert_eq!((bench.held(), *answer.lock().unwrap()), (0, Some(Ok(()))));
        // A change of rights without a change of memory waits for nothing.
        bench.send(other);
        assert_eq!(bench.held(), 1);
        assert_eq!(*bench.change(other, false).lock().unwrap(), Some(Ok(())));
        assert_eq!(bench.held(), 1);
    }

    #[test]
    fn a_front_end_that_leaves_takes_its_memory_along() {
        let bench = Bench::new(1);
        let key = bench.region();
        bench.send(key);
        assert_eq!(bench.held(), 1, "the payload is pinned");
        inline::with(|worker| worker.detach_device(bench.id));
        assert_eq!(bench.held(), 0, "it is asked for at once");
    }

    #[test]
    fn a_driver_that_holds_memory_is_loaned_no_more() {
        let bench = Bench::new(u32::MAX);
        let (key, other) = (bench.region(), bench.region());
        bench.send(key);
        let answer = bench.deregister(key);
        inline::with(|worker| worker.pass(2 * PATIENCE));
        for _ in 0..TURNS - 1 {
            inline::with(Worker::take_turn);
        }
        assert_eq!(*answer.lock().unwrap(), None);
        inline::with(Worker::take_turn);
        assert_eq!(*answer.lock().unwrap(), Some(Err(CommandError::Internal)));
        let sent = inline::with(|worker| worker.uplink_stats()["frames_sent"]);
        bench.send(other);
        assert!(inline::with(|worker| worker.uplink_stats()["frames_sent"]) > sent);
        assert_eq!(bench.held(), 1, "it got a copy");
    }

    #[test]
    fn a_device_that_stands_still_has_loaned_nothing() {
        let bench = Bench::new(10);
        let key = bench.region();
        bench.handle.wait_for_device(bench.id).unwrap();
        bench.send(key);
        assert_eq!(bench.held(), 1);
        inline::with(|worker| worker.suspend_device(bench.id));
        bench.handle.wait_for_device(bench.id).unwrap();
        assert_eq!(bench.held(), 0);
    }

    #[test]
    fn a_new_memory_table_waits_for_what_the_old_one_loaned() {
        let bench = Bench::new(10);
        let key = bench.region();
        bench.send(key);
        assert_eq!(bench.held(), 1);
        crate::functions::remap(&bench.handle, bench.id, &memory(&[(0, 0x10000)])).unwrap();
        assert_eq!(bench.held(), 0);
    }

    #[test]
    fn the_region_of_all_memory_is_never_loaned() {
        let bench = Bench::new(u32::MAX);
        let key = bench.register(MrMemory::all(&bench.guest));
        bench.send(key);
        assert_eq!(bench.held(), 0);
        assert_ne!(inline::with(|worker| worker.uplink_stats()["frames_sent"]), 0);
    }
}
