//! What it takes from a hole's repair until all that came beyond it has arrived: with FPDUs placed
//! where they came, and with bytes that wait.

use super::{Iwarp, payload};
use anyhow::{Result, bail, ensure};
use std::cell::RefCell;
use std::time::Instant;
use vrdma_backend::port::{BURST, Port};

/// Bytes of each WRITE.
pub const LENGTH: u32 = 1 << 16;
/// Windows without a hole, after which congestion control lets all frames go at once.
const WARM_UP: u32 = 16;

/// After so many turns without a frame none comes: what the peer acknowledged in one makes room in
/// the next.
const IDLE: u32 = 3;

/// Windows until one has a hole.
const TRIES: u32 = 16;

/// One connection, of which the first frame of each window comes last.
pub struct Hole<'p> {
    iwarp: Iwarp<'p>,
    /// WRITEs of a window,
    writes: u32,
    /// and the fewest frames that come beyond the hole.
    beyond: usize,
}

impl<'p> Hole<'p> {
    /// At least `beyond` frames come beyond the hole; `places` says whether their FPDUs are placed
    /// there.
    ///
    /// # Errors
    /// As of [`Iwarp::new`].
    pub fn new(
        ports: &'p RefCell<Vec<Port>>,
        (beyond, places): (u32, bool),
        mtu: u16,
        first: u8,
    ) -> Result<Hole<'p>> {
        let iwarp = Iwarp::new(ports, (LENGTH, 1), (1, 0), mtu, first)?;
        let writes = (beyond + 1).div_ceil(LENGTH.div_ceil(payload(mtu).into()));
        let mut hole = Hole { iwarp, writes, beyond: beyond as usize };
        for _ in 0..WARM_UP {
            hole.post()?;
            while !hole.has_arrived() {
                let frames = hole.gather()?;
                ensure!(!frames.is_empty(), "no frame comes");
                hole.deliver(&frames);
            }
        }
        hole.iwarp.b.places = places;
        Ok(hole)
    }

    /// Microseconds from the repair of a hole to the last WRITE that had waited for it.
    ///
    /// # Errors
    /// Not all frames came, or something waits that should not.
    pub fn window(&mut self) -> Result<f64> {
        for _ in 0..TRIES {
            if let Some(took) = self.repair()? {
                return Ok(took);
            }
        }
        bail!("the first frame of a window was never what is next")
    }

    /// One window; `None` if its first frame was sent once more, of the window before: this program
    /// did not run for a while then.
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
        let held = b.streams.own.stats(b.device)["held_bytes"];
        ensure!((held == 0) == b.places, "{held} bytes wait behind the hole");
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

    /// All frames that may go, none of which is delivered. What the peer has to acknowledge is.
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
