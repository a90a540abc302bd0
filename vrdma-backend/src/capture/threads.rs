//! The threads of captures: one for each capture that may run, and two that close descriptors.
//!
//! They are there from the start, because in the jail the admin thread may start none.

use super::descriptor::{DescriptorKeeper, SentDescriptor, close_all};
use super::filter::Filter;
use super::queue::{CaptureQueue, GRACE};
use super::registry::{NotRegistered, Registry};
use super::tap::Tapped;
use super::writer::CaptureJob;
use crate::jail;
use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Most captures at a time.
pub const MOST: usize = 4;
/// How long the end of the daemon waits for threads: longer than a write is waited for.
const JOIN: Duration = GRACE.saturating_mul(2);

/// Why a capture does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// As many run as may run.
    #[error("{MOST} captures run already: end one of them first")]
    TooMany,
    /// The daemon is about to end.
    #[error("the daemon is about to end")]
    Stopping,
}

/// The threads that write captures. They end when this is dropped.
#[derive(Debug)]
pub struct Captures {
    /// `None` while it is being dropped.
    handle: Option<CapturesHandle>,
    /// They are disconnected when the threads have ended that write, and those that close.
    writers: Receiver<()>,
    closers: Receiver<()>,
    /// Whether their end was waited for.
    is_stopped: Cell<bool>,
}

/// Begins captures. Clones are for the same threads.
#[derive(Clone, Debug)]
pub struct CapturesHandle {
    jobs: Sender<Option<CaptureJob>>,
    keeper: DescriptorKeeper,
    /// For clients that may not have captures. They delay only each other.
    observers_keeper: DescriptorKeeper,
    registry: Registry,
}

impl Captures {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system is out of a resource.
    pub fn start(registry: Registry) -> Result<Captures> {
        // No more jobs than registrations, and an end for each thread.
        let (jobs, taken) = unbounded();
        let (runs, writers) = bounded(0);
        for number in 0..MOST {
            let taken = taken.clone();
            start(format!("capture-{number}"), runs.clone(), move || run(&taken))?;
        }
        drop(runs);
        let (runs, closers) = bounded(0);
        let closer = |name: &str| -> Result<DescriptorKeeper> {
            let (keeper, closed) = DescriptorKeeper::new();
            let count = keeper.count();
            start(name.to_owned(), runs.clone(), move || close_all(&closed, &count))?;
            Ok(keeper)
        };
        let (keeper, observers_keeper) = (closer("capture-close")?, closer("observer-close")?);
        let handle = CapturesHandle { jobs, keeper, observers_keeper, registry };
        drop(runs);
        Ok(Captures { handle: Some(handle), writers, closers, is_stopped: Cell::new(false) })
    }

    /// Returns what begins captures.
    pub fn handle(&self) -> &CapturesHandle {
        self.handle.as_ref().expect("it is not being dropped")
    }

    /// Ends all captures, and waits until their files have the rest. No more begin.
    ///
    /// It waits for a bounded time. Called again, it does nothing.
    pub fn stop(&self) {
        if self.is_stopped.replace(true) {
            return;
        }
        let CapturesHandle { jobs, registry, .. } = self.handle();
        registry.close();
        (0..MOST).for_each(|_| _ = jobs.send(None));
        if !has_ended(&self.writers) {
            registry.give_up();
            log::warn!("a write to the file of a capture does not return: the daemon ends without it");
        }
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.stop();
        self.handle = None;
        if !has_ended(&self.closers) {
            log::warn!("a descriptor of a client takes long to be closed: the daemon ends without that");
        }
    }
}

/// Waits until threads have ended, for a bounded time.
fn has_ended(running: &Receiver<()>) -> bool {
    running.recv_timeout(JOIN) != Err(RecvTimeoutError::Timeout)
}

impl CapturesHandle {
    /// Returns what keeps descriptors of clients that may have captures.
    pub fn keeper(&self) -> &DescriptorKeeper {
        &self.keeper
    }

    /// Returns what keeps descriptors of those that may not.
    pub fn observers_keeper(&self) -> &DescriptorKeeper {
        &self.observers_keeper
    }

    /// Gives up captures that are over and whose last write does not return.
    pub fn give_up(&self) {
        self.registry.give_up();
    }

    /// Begins a capture to a descriptor. Returns what the workers need of it, and what it takes.
    ///
    /// At most `snap` bytes of a packet are written, and at most `count` packets.
    ///
    /// # Errors
    /// As many captures run as may run at a time, or the daemon is about to end.
    pub fn begin(
        &self,
        filter: Filter,
        descriptor: SentDescriptor,
        (snap, count): (Option<u32>, Option<u64>),
    ) -> Result<(Tapped, Arc<CaptureQueue>), NotBegun> {
        let queue = CaptureQueue::new(count);
        let guest = filter.guest.as_ref().map(|guest| guest.name.as_str());
        let registration = self.registry.enter(guest, &queue, MOST).map_err(|error| match error {
            NotRegistered::TooMany => NotBegun::TooMany,
            NotRegistered::Stopping => NotBegun::Stopping,
        })?;
        let tapped = Tapped::new(registration.id, filter, snap, queue.clone());
        let job = CaptureJob { descriptor, snap, queue: queue.clone(), registration };
        // There are as many threads as places. They end after the registry is closed.
        if self.jobs.send(Some(job)).is_err() {
            return Err(NotBegun::Stopping);
        }
        Ok((tapped, queue))
    }
}

/// Starts a thread. Nobody joins it, because what it waits for may never come.
fn start(name: String, runs: Sender<()>, f: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        jail::confine(jail::Kind::Capture);
        f();
        drop(runs);
    });
    thread.map(drop).context("a thread for captures")
}

fn run(jobs: &Receiver<Option<CaptureJob>>) {
    while let Ok(Some(job)) = jobs.recv() {
        job.run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowed::Vlans;
    use crate::capture::queue::{CaptureCounts, CaptureEnd};
    use crate::capture::{CapturePlace, CapturedGuest, FrameSource, JoinedGroups, Seen, Tap};
    use crate::wait;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use vrdma_transport::{Fault, PacketPayload};
    use vrdma_wire::num::{FlowLabel, Gid, Mac};
    use vrdma_wire::roce::{Body, Bth, Packet, Part, Path, Rc, SendTail};

    const SEEN: Seen<'_> = Seen { place: CapturePlace::FromWire, comment: None };

    fn start() -> Captures {
        Captures::start(Registry::default()).unwrap()
    }

    fn begin_with(
        captures: &Captures,
        filter: Filter,
        descriptor: OwnedFd,
        limits: (Option<u32>, Option<u64>),
    ) -> Result<(Tap, Arc<CaptureQueue>), NotBegun> {
        let handle = captures.handle();
        let (tapped, queue) = handle.begin(filter, handle.keeper().keep(descriptor), limits)?;
        let mut tap = Tap::default();
        tap.begin(tapped);
        Ok((tap, queue))
    }

    fn begin(captures: &Captures, descriptor: OwnedFd) -> (Tap, Arc<CaptureQueue>) {
        begin_with(captures, Filter::default(), descriptor, (None, None)).unwrap()
    }

    fn end_of(queue: &CaptureQueue) -> CaptureEnd {
        wait::until("the end of a capture", || queue.ended())
    }

    fn file() -> OwnedFd {
        tempfile::tempfile().unwrap().into()
    }

    /// Returns a descriptor whose last user waits for a minute when it closes it, and what keeps it
    /// from ending earlier.
    fn lingering() -> (OwnedFd, impl Sized) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::from_secs(60))).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65536]).is_ok() {}
        (stream.into(), (listener, peer))
    }

    #[test]
    fn a_stalled_reader_misses_packets_and_others_get_all() {
        let captures = start();
        let (stalled, to) = std::io::pipe().unwrap();
        let (slow_tap, slow) = begin(&captures, to.into());
        let (tap, queue) = begin(&captures, file());
        for _ in 0..20_000 {
            slow_tap.frame(SEEN, FrameSource::Wire, &[7; 1500]);
        }
        for _ in 0..100 {
            tap.frame(SEEN, FrameSource::Wire, &[8; 1500]);
        }
        queue.stop(CaptureEnd::Asked);
        assert_eq!(end_of(&queue), CaptureEnd::Asked);
        let counts = queue.progress().0;
        assert_eq!((counts.packets, counts.missed), (100, 0));
        assert!(slow.progress().0.missed > 0 && slow.ended().is_none());
        // It ends although nobody reads the rest, and all packets are accounted for.
        slow.stop(CaptureEnd::Asked);
        assert_eq!(end_of(&slow), CaptureEnd::Asked);
        let counts = slow.progress().0;
        assert_eq!(counts.packets + counts.missed, 20_000);
        assert!(counts.packets > 0, "a pipe holds some of them");
        drop(stalled);
    }

    #[test]
    fn there_are_a_few_at_a_time_and_a_failed_one_leaves_its_place() {
        let captures = start();
        let read_only = tempfile::NamedTempFile::new().unwrap();
        let read_only = std::fs::File::open(read_only.path()).unwrap();
        let kept: Vec<_> = (1..MOST).map(|_| begin(&captures, file())).collect();
        let (tap, queue) = begin(&captures, read_only.into());
        assert_eq!(end_of(&queue), CaptureEnd::Failed("Bad file descriptor".into()));
        tap.frame(SEEN, FrameSource::Wire, &[7; 60]);
        let another = || begin_with(&captures, Filter::default(), file(), (None, None));
        let again = wait::until("a place", || another().ok());
        assert_eq!(another().err(), Some(NotBegun::TooMany));
        captures.stop();
        assert_eq!(again.1.ended(), Some(CaptureEnd::Stopping));
        assert_eq!(another().err(), Some(NotBegun::Stopping));
        drop(kept);
    }

    /// It may be a server of files that does not answer.
    #[test]
    fn a_descriptor_that_closes_slowly_delays_nobody() {
        let captures = start();
        let (slow, _peer) = lingering();
        let (tap, queue) = begin(&captures, slow);
        tap.frame(SEEN, FrameSource::Wire, &[7; 60]);
        queue.stop(CaptureEnd::Asked);
        // The client has its answer, although the descriptor is not closed.
        assert_eq!(end_of(&queue), CaptureEnd::Asked);
        let CaptureCounts { packets, missed, .. } = queue.progress().0;
        assert_eq!(packets + missed, 1, "the socket may have had some room");
        let others: Vec<_> = (1..MOST).map(|_| begin(&captures, file())).collect();
        for (tap, queue) in &others {
            tap.frame(SEEN, FrameSource::Wire, &[7; 60]);
            queue.stop(CaptureEnd::Asked);
            assert_eq!(end_of(queue), CaptureEnd::Asked);
            assert_eq!(queue.progress().0.packets, 1);
        }
        // Descriptors that no capture took are closed by another thread.
        let (slow, _other_peer) = lingering();
        drop(captures.handle().keeper().keep(slow));
        // The daemon ends without these threads.
        let (done, is_done) = bounded(1);
        std::thread::spawn(move || {
            drop(captures);
            done.send(())
        });
        wait::until("the end of the captures", || is_done.try_recv().ok());
    }

    #[test]
    fn a_write_that_does_not_return_is_given_up() {
        let registry = Registry::default();
        let queue = CaptureQueue::new(None);
        let registration = registry.enter(None, &queue, 1).unwrap();
        let mut tap = Tap::default();
        tap.begin(Tapped::new(registration.id, Filter::default(), None, queue.clone()));
        tap.frame(SEEN, FrameSource::Wire, &[7; 60]);
        registry.close();
        // No thread writes it.
        wait::until("the end of a capture", || {
            registry.give_up();
            queue.ended()
        });
        let (counts, end) = queue.progress();
        assert_eq!(counts.missed, 1);
        assert!(
            matches!(&end, Some(CaptureEnd::Failed(reason)) if reason.contains("has not returned")),
            "{end:?}"
        );
        assert!(queue.is_over());
    }

    #[test]
    fn the_captures_of_a_guest_end_with_it() {
        let captures = start();
        let of = |name: &str| {
            let guest = CapturedGuest {
                name: name.into(),
                macs: vec![Mac([2; 6])],
                vlans: Vlans::any(),
                has_net: true,
                has_rdma: true,
                joined: JoinedGroups::default(),
            };
            let filter = Filter { guest: Some(guest), ..Filter::default() };
            begin_with(&captures, filter, file(), (None, None)).unwrap()
        };
        let (first, second, all) = (of("vm1"), of("vm2"), begin(&captures, file()));
        let frame = [&[2; 6][..], &[4; 6], &[8, 6], &[0; 46]].concat();
        for (tap, _) in [&first, &second, &all] {
            tap.frame(SEEN, FrameSource::Wire, &frame);
        }
        captures.handle().registry.guest_left("vm1");
        for (tap, _) in [&first, &second, &all] {
            tap.frame(SEEN, FrameSource::Wire, &frame);
        }
        assert_eq!(end_of(&first.1), CaptureEnd::Removed);
        assert_eq!(first.1.progress().0, CaptureCounts { missed: 0, packets: 1, ..first.1.progress().0 });
        for (_, queue) in [&second, &all] {
            assert_eq!(queue.ended(), None);
            queue.stop(CaptureEnd::Asked);
            end_of(queue);
            assert_eq!(queue.progress().0.packets, 2);
        }
    }

    /// Returns the packets of a file: their bytes, and their length on a wire.
    fn packets_of(file: &std::fs::File) -> Vec<(Vec<u8>, u32)> {
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut &*file).unwrap();
        std::io::Read::read_to_end(&mut &*file, &mut bytes).unwrap();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(block) = block.unwrap() {
                packets.push((block.data.to_vec(), block.original_len));
            }
        }
        packets
    }

    /// A payload of a test. The memory may have gone.
    struct Payload(Option<&'static [u8]>);

    impl PacketPayload for Payload {
        fn length(&self) -> usize {
            1001
        }

        fn read_first(&self, buf: &mut [u8]) -> Result<(), Fault> {
            buf.copy_from_slice(&self.0.ok_or(Fault)?[..buf.len()]);
            Ok(())
        }
    }

    #[test]
    fn packets_are_cut_and_only_whole_ones_have_an_icrc() {
        const DATA: [u8; 1001] = [7; 1001];
        let captures = start();
        let path = Path {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([4; 6]),
            vlan: None,
            src: Gid::from_ipv4([10, 0, 0, 1]),
            dst: Gid::from_ipv4([10, 0, 0, 2]),
            traffic_class: 0,
            flow_label: FlowLabel::default(),
            hop_limit: 64,
            src_port: 0xc000,
        };
        let body = Body::Rc(Rc::Send(Part::Only((), SendTail::Plain)));
        let packet = Packet { path, bth: Bth::default(), body };
        let whole = packet.frame_len(DATA.len());
        for snap in [None, Some(14), Some(60), Some(whole as u32 - 1), Some(whole as u32)] {
            let file = tempfile::tempfile().unwrap();
            let to = file.try_clone().unwrap().into();
            let (tap, queue) = begin_with(&captures, Filter::default(), to, (snap, Some(2))).unwrap();
            // What the packet before left where the next one is put together is not shown.
            tap.frame_made_by(SEEN, FrameSource::Wire, 4000, |frame| frame.fill(0xff));
            // Memory that has gone shows nothing.
            tap.packet(SEEN, &packet, &Payload(None));
            tap.packet(SEEN, &packet, &Payload(Some(&DATA)));
            assert_eq!(end_of(&queue), CaptureEnd::Count);
            tap.packet(SEEN, &packet, &Payload(Some(&DATA)));
            let counts = queue.progress().0;
            assert_eq!((counts.packets, counts.missed), (2, 1), "what comes later is not missed");
            let packets = packets_of(&file);
            let [_, (bytes, length)] = &packets[..] else { panic!("{packets:?}") };
            let kept = snap.map_or(whole, |snap| whole.min(snap as usize));
            assert_eq!((bytes.len(), *length as usize), (kept, whole));
            if kept == whole {
                let parsed = Packet::parse(bytes).unwrap();
                assert_eq!((parsed.packet, parsed.payload, parsed.check_icrc()), (packet, &DATA[..], Ok(())));
            }
        }
    }
}
