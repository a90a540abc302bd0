//! The time from a gap's repair until everything beyond the gap has arrived. FPDUs are placed out
//! of order, or their bytes wait.

use super::{Iwarp, payload};
use anyhow::{Result, bail, ensure};
use std::cell::RefCell;
use std::time::Instant;
use vrdma_backend::port::{BURST, Port};

/// Size of each WRITE in bytes.
pub const LENGTH: u32 = 1 << 16;
/// Number of windows without a gap, after which congestion control sends all frames at once.
const WARM_UP: u32 = 16;

/// Number of rounds without a frame after which no more come. An ACK in one round makes room in the
/// next.
const IDLE: u32 = 3;

/// Largest number of windows until one has a gap.
const TRIES: u32 = 16;

/// One connection. In each window, the first frame is delivered last.
pub struct Gap<'p> {
    iwarp: Iwarp<'p>,
    /// Number of WRITEs in a window.
    writes: u32,
    /// Least number of frames that arrive beyond the gap.
    beyond: usize,
}

impl<'p> Gap<'p> {
    /// Creates the connection. At least `beyond` frames arrive beyond the gap, and `places` says
    /// whether their FPDUs are placed.
    ///
    /// # Errors
    /// The errors of [`Iwarp::new`].
    pub fn new(
        ports: &'p RefCell<Vec<Port>>,
        (beyond, places): (u32, bool),
        mtu: u16,
        first: u8,
    ) -> Result<Gap<'p>> {
        let iwarp = Iwarp::new(ports, (LENGTH, 1), (1, 0), mtu, first)?;
        let writes = (beyond + 1).div_ceil(LENGTH.div_ceil(payload(mtu).into()));
        let mut gap = Gap { iwarp, writes, beyond: beyond as usize };
        for _ in 0..WARM_UP {
            gap.post()?;
            while !gap.has_arrived() {
                let frames = gap.gather()?;
                ensure!(!frames.is_empty(), "no frame comes");
                gap.deliver(&frames);
            }
        }
        gap.iwarp.b.places = places;
        Ok(gap)
    }

    /// Measures the microseconds from the repair of a gap to the last WRITE that had waited for it.
    ///
    /// # Errors
    /// Not all frames arrived, or bytes wait that should not.
    pub fn window(&mut self) -> Result<f64> {
        for _ in 0..TRIES {
            if let Some(took) = self.repair()? {
                return Ok(took);
            }
        }
        bail!("the first frame of a window was never what is next")
    }

    /// Measures one window. `None` if its first frame was a retransmission from the window before.
    /// That happens if this program did not run for a while.
    fn repair(&mut self) -> Result<Option<f64>> {
        self.post()?;
        let frames = self.gather()?;
        ensure!(frames.len() > self.beyond, "only {} frames came", frames.len());
        self.deliver(&frames[1..]);
        if self.has_arrived() {
            return Ok(None);
        }
        let Iwarp { b, now, .. } = &mut self.iwarp;
        ensure!(b.streams.arrivals.new.is_empty(), "a WRITE arrived without its first frame");
        let held = b.streams.user_tcp.stats(b.device)["held_bytes"];
        ensure!((held == 0) == b.places, "{held} bytes wait behind the gap");
        let start = Instant::now();
        b.handle_frame(*now, &frames[0]);
        b.serve()?;
        let took = start.elapsed();
        ensure!(self.has_arrived(), "not all has arrived");
        Ok(Some(took.as_secs_f64() * 1e6))
    }

    fn post(&mut self) -> Result<()> {
        let Iwarp { a, b, now, .. } = &mut self.iwarp;
        b.streams.arrivals.new.clear();
        (0..self.writes).try_for_each(|_| a.post(*now, 0, b.key, LENGTH))
    }

    fn has_arrived(&self) -> bool {
        self.iwarp.b.streams.arrivals.new.len() == self.writes as usize
    }

    fn deliver(&mut self, frames: &[Vec<u8>]) {
        let Iwarp { b, now, .. } = &mut self.iwarp;
        frames.iter().for_each(|frame| b.handle_frame(*now, frame));
    }

    /// Collects all frames that the sender may send, without delivering them. ACKs of the peer are
    /// delivered.
    fn gather(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        self.iwarp.tick();
        let Iwarp { a, b, ports, burst, now, .. } = &mut self.iwarp;
        let ports = &mut *ports.borrow_mut();
        let last = ports.len() - 1;
        let mut idle = 0;
        while idle < IDLE {
            let before = frames.len();
            b.transmit(*now, &mut ports[last]);
            a.transmit(*now, &mut ports[0]);
            for port in ports.iter_mut() {
                let mut count = BURST;
                while count == BURST {
                    count = port.receive(burst);
                    for frame in burst.frames() {
                        if frame[..6] == a.mac.0 {
                            a.handle_frame(*now, frame);
                        } else if frame[..6] == b.mac.0 {
                            frames.push(frame.to_vec());
                        }
                    }
                    burst.clear();
                }
            }
            a.serve()?;
            idle = if frames.len() == before { idle + 1 } else { 0 };
        }
        Ok(frames)
    }
}
