//! A guest's virtio-net driver of its Ethernet function (virtio 1.2, 5.1), with one queue pair.

use crate::front_end::{EVENT_IDX, FrontEnd, Queue};
use crate::memory::{Memory, PAGE};
use crate::ring::Ring;
use crate::virtqueue::{Piece, Virtqueue};
use crate::wait;
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Feature bits (virtio 1.2, 5.1.3).
pub mod feature {
    /// The device accepts frames whose checksum is incomplete.
    pub const CSUM: u64 = 1 << 0;
    /// The driver accepts frames whose checksum is incomplete.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The driver accepts TCP over IPv4 that is not segmented.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver accepts TCP over IPv6 that is not segmented.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The device accepts TCP over IPv4 that is not segmented.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device accepts TCP over IPv6 that is not segmented.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// A frame may occupy several receive buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// Chains may be in tables of their own (VIRTIO_F_INDIRECT_DESC).
    pub const INDIRECT: u64 = 1 << 28;
    /// The features that Linux negotiates.
    pub const ALL: u64 =
        CSUM | GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | HOST_TSO4 | HOST_TSO6 | MRG_RXBUF | INDIRECT;
}

/// Virtqueue of frames to the guest.
pub const RECEIVE: u16 = 0;
/// Virtqueue of frames from the guest.
pub const TRANSMIT: u16 = 1;
/// Bytes of the header before each frame.
pub const HEADER: usize = 12;

/// The header before each frame (virtio 1.2, 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named as in the specification")]
pub struct Header {
    pub flags: u8,
    pub gso_type: u8,
    pub hdr_len: u16,
    pub gso_size: u16,
    pub csum_start: u16,
    pub csum_offset: u16,
    pub num_buffers: u16,
}

/// `flags`: the checksum has to be completed.
pub const NEEDS_CSUM: u8 = 1;
/// `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;

impl Header {
    /// Returns the header's bytes in memory.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        (bytes[0], bytes[1]) = (self.flags, self.gso_type);
        let fields = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset, self.num_buffers];
        for (at, field) in fields.into_iter().enumerate() {
            bytes[2 + 2 * at..][..2].copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Parses the header's bytes in memory.
    pub fn from_bytes(bytes: &[u8]) -> Header {
        let field = |at: usize| u16::from_le_bytes([bytes[2 + 2 * at], bytes[3 + 2 * at]]);
        Header {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: field(0),
            gso_size: field(1),
            csum_start: field(2),
            csum_offset: field(3),
            num_buffers: field(4),
        }
    }
}

/// How a driver is made.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// Features to negotiate.
    pub features: u64,
    /// Whether to negotiate `EVENT_IDX` too.
    pub event_idx: bool,
    /// Entries of each virtqueue.
    pub size: u16,
    /// Number of receive buffers to post.
    pub buffers: u16,
    /// Bytes of each receive buffer.
    pub buffer_len: u32,
}

impl Default for NetOptions {
    fn default() -> Self {
        NetOptions { features: feature::ALL, event_idx: true, size: 256, buffers: 256, buffer_len: 1536 }
    }
}

/// A guest's Ethernet function and its driver.
#[derive(Debug)]
pub struct NetGuest {
    /// The guest's memory.
    pub memory: Arc<Memory>,
    /// The VMM.
    pub front_end: FrontEnd,
    /// The options it was created with.
    pub options: NetOptions,
    /// Both virtqueues, receive first.
    pub queues: [Queue; 2],
    receive: Virtqueue,
    transmit: Virtqueue,
    /// Guest-physical addresses of the receive buffers.
    buffers: Vec<u64>,
    /// The posted buffer of each chain, by the chain's head.
    posted: Vec<u64>,
    /// Buffer of the frame being sent.
    out: u64,
    /// Free buffers of frames that are sent without waiting.
    free: Vec<u64>,
    /// Buffers in use of frames that are sent without waiting, by the head of the chain.
    under_way: Vec<(u16, u64)>,
}

/// Bytes of the buffer `out`.
const OUT: u64 = 128 << 10;
/// Most frames that [`NetGuest::try_send`] has in flight.
pub const WINDOW: usize = 32;

impl NetGuest {
    /// Connects to the daemon's socket, starts both virtqueues and posts buffers.
    ///
    /// # Errors
    /// The daemon is not there, or refuses something.
    pub fn connect(socket: &Path, options: NetOptions) -> Result<NetGuest> {
        let memory = Memory::new(&[(0x1000, 1 << 20), (1 << 32, 32 << 20)])?;
        let features = options.features | if options.event_idx { EVENT_IDX } else { 0 };
        let front_end = FrontEnd::open(socket, features, &memory)?;
        let make = || -> Result<Queue> {
            let eventfd =
                || Ok::<_, std::io::Error>(Arc::new(EventFd::new(EFD_NONBLOCK | libc::EFD_CLOEXEC)?));
            Ok(Queue { ring: Ring::new(&memory, options.size), kick: eventfd()?, call: eventfd()? })
        };
        let queues = [make()?, make()?];
        let [receive, transmit] = [&queues[0], &queues[1]].map(|q| virtqueue(q, options.event_idx));
        let out = memory.alloc(OUT);
        let free = (0..WINDOW).map(|_| memory.alloc(OUT)).collect();
        let posted = vec![0; options.size.into()];
        let buffers = (0..options.buffers).map(|_| memory.alloc(options.buffer_len.into())).collect();
        let mut guest = NetGuest {
            memory,
            front_end,
            options,
            queues,
            receive,
            transmit,
            buffers,
            posted,
            out,
            free,
            under_way: Vec::new(),
        };
        guest.start()?;
        for at in 0..guest.buffers.len() {
            guest.post(guest.buffers[at]);
        }
        Ok(guest)
    }

    fn start(&mut self) -> Result<()> {
        let bases = [self.receive.next_avail(), self.transmit.next_avail()];
        for (index, queue) in self.queues.iter().enumerate() {
            self.front_end.start(index as u16, queue, bases[index])?;
        }
        Ok(())
    }

    /// Pauses the guest, and returns the indices at which its virtqueues may continue.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn pause(&mut self) -> Result<[u16; 2]> {
        Ok([self.front_end.stop(RECEIVE)?, self.front_end.stop(TRANSMIT)?])
    }

    /// Resumes a paused guest.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn resume(&mut self, bases: [u16; 2]) -> Result<()> {
        for (index, queue) in self.queues.iter().enumerate() {
            self.front_end.start(index as u16, queue, bases[index])?;
        }
        Ok(())
    }

    /// Starts the driver anew: clears both virtqueues, starts them at 0 and posts buffers.
    ///
    /// Frames in flight are lost.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn restart(&mut self) -> Result<()> {
        self.pause()?;
        self.queues.iter().for_each(|queue| queue.ring.clear());
        [self.receive, self.transmit] =
            [&self.queues[0], &self.queues[1]].map(|q| virtqueue(q, self.options.event_idx));
        self.start()?;
        for at in 0..self.buffers.len() {
            self.post(self.buffers[at]);
        }
        Ok(())
    }

    /// Returns the transmit virtqueue.
    pub fn transmit(&mut self) -> &mut Virtqueue {
        &mut self.transmit
    }

    /// Posts a receive buffer.
    pub fn post(&mut self, gpa: u64) {
        let head = self.receive.add(&[Piece { gpa, len: self.options.buffer_len, writable: true }]);
        self.posted[usize::from(head.expect("room in the receive queue"))] = gpa;
    }

    /// Sends a frame that is complete, without any offload.
    pub fn send(&mut self, frame: &[u8]) {
        self.send_with(Header::default(), frame, &[]);
    }

    /// Sends a frame, and waits until the device has taken it.
    ///
    /// Header and frame together are cut at `cuts`, and each piece gets a descriptor.
    pub fn send_with(&mut self, header: Header, frame: &[u8], cuts: &[usize]) {
        let bytes = [&header.to_bytes()[..], frame].concat();
        self.memory.write(self.out, &bytes);
        let ends = cuts.iter().copied().filter(|&cut| cut < bytes.len()).chain([bytes.len()]);
        let mut start = 0;
        let pieces: Vec<Piece> = ends
            .map(|end| {
                let piece =
                    Piece { gpa: self.out + start as u64, len: (end - start) as u32, writable: false };
                start = end;
                piece
            })
            .collect();
        self.transmit.add(&pieces).expect("room in the transmit queue");
        self.transmit.wait_used(wait::PATIENCE).expect("the device takes the frame");
    }

    /// Sends a frame without waiting. Returns false if [`WINDOW`] frames are already in flight.
    ///
    /// Do not mix it with the other methods that send.
    pub fn try_send(&mut self, header: Header, frame: &[u8]) -> bool {
        while let Some((head, _)) = self.transmit.take_used() {
            let at = self.under_way.iter().position(|&(of, _)| of == head).expect("it was sent");
            self.free.push(self.under_way.swap_remove(at).1);
        }
        let Some(slot) = self.free.pop() else { return false };
        self.memory.write(slot, &header.to_bytes());
        self.memory.write(slot + HEADER as u64, frame);
        let len = (HEADER + frame.len()) as u32;
        let head = self.transmit.add(&[Piece { gpa: slot, len, writable: false }]);
        self.under_way.push((head.expect("room in the transmit queue"), slot));
        true
    }

    /// Waits for the next frame. It sleeps meanwhile: only an interrupt wakes it.
    pub fn recv(&mut self) -> (Header, Vec<u8>) {
        self.recv_within(wait::PATIENCE).expect("a frame comes")
    }

    /// Waits for the next frame, or returns `None` when `time` is over.
    pub fn recv_within(&mut self, time: Duration) -> Option<(Header, Vec<u8>)> {
        let mut bytes = self.take_buffer(time)?;
        let header = Header::from_bytes(&bytes);
        for _ in 1..header.num_buffers {
            bytes.extend(self.take_buffer(Duration::ZERO).expect("all buffers of a frame come together"));
        }
        Some((header, bytes.split_off(HEADER)))
    }

    /// Takes all frames that have come, without a look at them. Returns the number of buffers that
    /// they filled.
    pub fn discard(&mut self) -> u64 {
        let mut count = 0;
        while let Some((head, _)) = self.receive.take_used() {
            self.post(self.posted[usize::from(head)]);
            count += 1;
        }
        count
    }

    /// Asserts that no frame has come.
    ///
    /// The caller has seen the sender's chain come back, so a frame would have arrived.
    #[track_caller]
    pub fn expect_nothing(&mut self) {
        let found = self.recv_within(Duration::ZERO);
        assert!(found.is_none(), "nothing was expected, but {found:?} came");
    }

    fn take_buffer(&mut self, time: Duration) -> Option<Vec<u8>> {
        let (head, len) = self.receive.wait_used(time)?;
        let gpa = self.posted[usize::from(head)];
        assert!(len <= self.options.buffer_len, "{len} bytes in a buffer");
        let bytes = self.memory.bytes(gpa, len.into());
        // Overwrites the buffer, so that a frame that is not written shows.
        self.memory.fill(gpa, u64::from(self.options.buffer_len).next_multiple_of(PAGE), 0xee);
        self.post(gpa);
        Some(bytes)
    }
}

fn virtqueue(queue: &Queue, event_idx: bool) -> Virtqueue {
    Virtqueue::new(queue.ring.clone(), queue.kick.clone(), queue.call.clone(), event_idx)
}

/// Returns the MAC address of guest `host` of a lab, counted from 1.
pub fn mac(host: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, host]
}

/// Builds an Ethernet frame.
pub fn frame(dst: [u8; 6], src: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&dst[..], &src, &ethertype.to_be_bytes(), payload].concat()
}
