//! What a guest receives: its receive queue, and each frame into it.

use super::finish::finish;
use super::frame::FrameView;
use super::rings::Rings;
use super::sender::header_len;
use crate::queue::chains::ChainError;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

/// Descriptors that a driver may spend on one frame: so many, and one more for so many bytes. The
/// sender's turn pays for them.
const DESCRIPTORS: usize = 32;
const DESCRIPTOR_BYTES: usize = 64;
/// Most descriptors of one chain: a driver whose chains are longer is broken.
const MAX_CHAIN: u64 = 256;

/// What happened to what went to a guest.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ReceiverCounters {
    /// Frames that the guest got.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Dropped: the guest has no driver for it running.
    pub rx_no_driver: u64,
    /// Dropped: the guest had no room.
    pub rx_no_buffer: u64,
    /// Dropped: longer than the guest's buffers.
    pub rx_oversize: u64,
    /// Dropped: the guest's buffers are so small that the frame would need too many.
    pub rx_scattered: u64,
    /// Receive queues that broke the rules.
    pub rx_broken: u64,
}

/// A guest's end for what it receives.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Whose it is.
    #[cfg_attr(not(feature = "hooks"), expect(dead_code, reason = "hooks alone ask for it"))]
    name: String,
    /// Its receive queue.
    pub rings: Rings,
    /// What happened.
    pub counters: ReceiverCounters,
    /// Chains taken for a frame, each with where its buffers end.
    chains: Vec<(u16, usize)>,
    /// So many bytes found no room while so many buffers were there (as a free-running index).
    starved: Option<(u16, usize)>,
}

impl Receiver {
    /// That of the guest of this name.
    pub fn of(name: &str) -> Receiver {
        Receiver { name: name.to_owned(), ..Receiver::default() }
    }

    /// Gives a frame to the guest; what its driver cannot do for itself is done in `scratch` first.
    ///
    /// # Errors
    /// The queue is broken from now on.
    pub fn deliver(&mut self, frame: &FrameView<'_>, scratch: &mut [u8]) -> Result<(), ChainError> {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.name);
        if frame.offload.suits(self.rings.features) {
            return self.put(frame);
        }
        let mut result = Ok(());
        finish(frame, &mut |len, fill| {
            let piece = &mut scratch[..len];
            fill(piece);
            result = result.and(self.put(&FrameView::with_headers(frame.headers().copied(), piece)));
        });
        result
    }

    fn put(&mut self, frame: &FrameView<'_>) -> Result<(), ChainError> {
        let Some(queue) = self.rings.queue.as_mut().filter(|queue| !queue.is_broken()) else {
            self.counters.rx_no_driver += 1;
            return Ok(());
        };
        let header = header_len(self.rings.features);
        let mergeable = self.rings.features & 1 << VIRTIO_NET_F_MRG_RXBUF != 0;
        let needed = header + frame.len();
        queue.refresh()?;
        if self.starved.is_some_and(|(at, room)| at == queue.available() && needed >= room) {
            self.counters.rx_no_buffer += 1;
            return Ok(());
        }
        self.starved = None;
        queue.buffers.clear();
        self.chains.clear();
        let most = queue.effort + (DESCRIPTORS + needed / DESCRIPTOR_BYTES) as u64;
        while queue.buffers.len() < needed {
            let (before, effort) = (queue.buffers.len(), queue.effort);
            let Some(chain) = queue.pop()? else {
                queue.rewind(self.chains.len() as u16);
                self.starved = Some((queue.available(), needed));
                self.counters.rx_no_buffer += 1;
                return Ok(());
            };
            let (room, descriptors) = (queue.buffers.len() - before, queue.effort - effort);
            if room < header || descriptors > MAX_CHAIN {
                queue.latch_broken();
                return Err(if room < header {
                    ChainError::Small(room)
                } else {
                    ChainError::Long(descriptors)
                });
            }
            if queue.effort > most {
                queue.rewind(self.chains.len() as u16 + 1);
                self.starved = Some((queue.available(), needed));
                self.counters.rx_scattered += 1;
                return Ok(());
            }
            self.chains.push((chain, queue.buffers.len()));
            if !mergeable && room < needed {
                queue.rewind(1);
                self.counters.rx_oversize += 1;
                return Ok(());
            }
        }
        let bytes = frame.offload.header(self.chains.len() as u16);
        queue.buffers.write(0, &bytes[..header]);
        frame.copy_to(&queue.buffers, header);
        let mut start = 0;
        for &(chain, end) in &self.chains {
            queue.put_used(chain, (end.min(needed) - start) as u32);
            start = end;
        }
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += frame.len() as u64;
        Ok(())
    }

    /// Descriptors read since its queue began.
    pub fn effort(&self) -> u64 {
        self.rings.queue.as_ref().map_or(0, |queue| queue.effort)
    }

    /// The driver or its buffers changed: a frame may find room again.
    pub fn revive(&mut self) {
        self.starved = None;
    }
}
