//! The receiving end of a guest: its receive queue, and each frame put into it.

use super::finish::finish;
use super::frame::FrameView;
use super::rings::Rings;
use super::sender::header_len;
use crate::queue::chains::ChainError;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

/// Descriptors that a driver may spend on one frame: a fixed number, and one more for some bytes.
///
/// The sender's budget is charged for them.
const DESCRIPTORS: usize = 32;
const DESCRIPTOR_BYTES: usize = 64;
/// Most descriptors of one chain. A queue with longer chains is broken.
const MAX_CHAIN: u64 = 256;

/// The counters of frames to a guest.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ReceiverCounters {
    /// Frames that the guest got.
    pub rx_frames: u64,
    /// Bytes of those frames.
    pub rx_bytes: u64,
    /// Dropped: the guest runs no driver for the queue.
    pub rx_no_driver: u64,
    /// Dropped: the guest had no room.
    pub rx_no_buffer: u64,
    /// Dropped: longer than the guest's buffers.
    pub rx_oversize: u64,
    /// Dropped: the guest's buffers are so small that the frame would need too many of them.
    pub rx_scattered: u64,
    /// Receive queues that broke, because the driver broke the rules.
    pub rx_broken: u64,
}

/// The receiving end of a guest.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Name of the guest.
    #[cfg_attr(not(feature = "hooks"), expect(dead_code, reason = "hooks alone ask for it"))]
    name: String,
    /// Its receive queue.
    pub rings: Rings,
    /// The counters of received frames.
    pub counters: ReceiverCounters,
    /// Chains taken for a frame, each with the end of its buffers.
    chains: Vec<(u16, usize)>,
    /// The index up to which buffers were available when a frame found no room, and the bytes that
    /// the frame needed.
    ///
    /// The index is free-running.
    starved: Option<(u16, usize)>,
}

impl Receiver {
    /// Returns the receiving end of the guest of this name.
    pub fn of(name: &str) -> Receiver {
        Receiver { name: name.to_owned(), ..Receiver::default() }
    }

    /// Delivers a frame to the guest.
    ///
    /// If its driver does not support the frame's offload, the offload is done in `scratch` first.
    ///
    /// # Errors
    /// The queue is broken. It takes no more frames.
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
        let most = queue.cost + (DESCRIPTORS + needed / DESCRIPTOR_BYTES) as u64;
        while queue.buffers.len() < needed {
            let (before, cost) = (queue.buffers.len(), queue.cost);
            let Some(chain) = queue.pop()? else {
                queue.rewind(self.chains.len() as u16);
                self.starved = Some((queue.available(), needed));
                self.counters.rx_no_buffer += 1;
                return Ok(());
            };
            let (room, descriptors) = (queue.buffers.len() - before, queue.cost - cost);
            if room < header || descriptors > MAX_CHAIN {
                queue.latch_broken();
                return Err(if room < header {
                    ChainError::Small(room)
                } else {
                    ChainError::Long(descriptors)
                });
            }
            if queue.cost > most {
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

    /// Returns the number of descriptors read since the queue started.
    pub fn cost(&self) -> u64 {
        self.rings.queue.as_ref().map_or(0, |queue| queue.cost)
    }

    /// Lets frames look for room again, because the driver or its buffers changed.
    pub fn revive(&mut self) {
        self.starved = None;
    }
}
