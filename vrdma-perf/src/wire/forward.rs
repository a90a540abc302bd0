//! Forwards frames like testpmd, in this thread. Frames of one length go out at one port and come
//! in at the other. Nothing reads their contents.

use super::memory::MEMORY;
use crate::helper::Helper;
use crate::windows::WINDOW_MS;
use anyhow::{Result, ensure};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vrdma_backend::port::{Burst, Port};
use vrdma_wire::icrc::Icrc;

/// Bytes of a RoCE packet beside its payload: Ethernet, IPv4, UDP, BTH, RETH and ICRC.
pub const AROUND: usize = 74;
/// Largest number of frames in flight. With more, their buffers would leave the caches before they
/// are used again.
const DEPTH: u64 = 64;
/// Time without any frame after which the outstanding frames are lost.
const LOST: Duration = Duration::from_micros(300);
/// Time limit for the first frames.
const PATIENCE: Duration = Duration::from_secs(2);
/// An Ethernet header to an unused address, with an experimental `EtherType`.
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5];
/// Bytes of headers of a RoCE packet, including the Ethernet header.
const HEADERS: usize = 70;
/// Number of payloads in a timed pass.
const PASSES: usize = 256;
/// Bytes of a message. The passes go through the payloads of messages.
const MESSAGE: usize = 64 << 10;

/// Measures a window of frames per second.
///
/// # Errors
/// No frame arrives.
pub fn window(ports: &mut [Port], len: usize) -> Result<f64> {
    let last = ports.len() - 1;
    let mut burst = Burst::default();
    let (mut sent, mut received) = (0, 0);
    let mut begin: Option<(Instant, u64)> = None;
    let start = Instant::now();
    let mut latest = start;
    let rate = loop {
        while sent < received + DEPTH && ports[0].has_room() {
            let Some(mut frame) = ports[0].transmit(len) else { break };
            frame.buf()[..HEADER.len()].copy_from_slice(&HEADER);
            frame.commit(len);
            sent += 1;
        }
        ports[0].flush();
        let came = ports[last].receive(&mut burst) as u64;
        burst.clear();
        received += came;
        if came > 0 {
            latest = Instant::now();
        } else if latest.elapsed() > LOST {
            // Other frames are sent in their place.
            (sent, latest) = (received, Instant::now());
        }
        match begin {
            None if received >= DEPTH => begin = Some((Instant::now(), received)),
            None => ensure!(start.elapsed() < PATIENCE, "the port loses frames: {received} of {sent} came"),
            Some((since, before)) if since.elapsed().as_secs_f64() * 1e3 >= WINDOW_MS => {
                break (received - before) as f64 / since.elapsed().as_secs_f64();
            }
            Some(_) => {}
        }
    };
    drain(ports, &mut burst);
    ensure!(rate > 0., "no frame comes");
    Ok(rate)
}

/// Measures frames per second with a thread and a processor for each end. One sends as much as its
/// port takes, and the other receives.
///
/// # Errors
/// No frame arrives.
pub fn apart(ports: &mut Vec<Port>, len: usize, helper: &Helper) -> Result<f64> {
    let mut far = ports.pop().expect("two ports");
    let (stop, received, back) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::new(Mutex::new(None)));
    let theirs = (stop.clone(), received.clone(), back.clone());
    helper.begin(move || {
        let (stop, received, back) = theirs;
        let mut burst = Burst::default();
        far.adopt();
        while !stop.load(Ordering::Relaxed) {
            let came = far.receive(&mut burst) as u64;
            burst.clear();
            received.fetch_add(came, Ordering::Relaxed);
        }
        *back.lock().expect("nobody panicked with it") = Some(far);
        0.
    });
    let port = &mut ports[0];
    let mut window = |time: Duration| {
        let (start, before) = (Instant::now(), received.load(Ordering::Relaxed));
        while start.elapsed() < time {
            for _ in 0..DEPTH {
                if !port.has_room() {
                    break;
                }
                let Some(mut frame) = port.transmit(len) else { break };
                frame.buf()[..HEADER.len()].copy_from_slice(&HEADER);
                frame.commit(len);
            }
            port.flush();
        }
        (received.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64()
    };
    window(Duration::from_millis(1));
    let rate = window(Duration::from_micros((WINDOW_MS * 1e3) as u64));
    stop.store(true, Ordering::Relaxed);
    helper.end();
    ports.extend(back.lock().expect("nobody panicked with it").take());
    drain(ports, &mut Burst::default());
    ensure!(rate > 0., "no frame comes");
    Ok(rate)
}

/// Receives the frames that are still in flight.
fn drain(ports: &mut [Port], burst: &mut Burst) {
    let mut quiet = 0;
    while quiet < 100 {
        ports.iter_mut().for_each(Port::flush);
        let came: usize = ports.iter_mut().map(|port| port.receive(burst)).sum();
        burst.clear();
        quiet = if came == 0 { quiet + 1 } else { 0 };
    }
}

/// Times an ICRC over a payload of `len` bytes, and a copy of it.
#[derive(Debug)]
pub struct Passes {
    from: Vec<u8>,
    to: Vec<u8>,
    len: usize,
    /// Distance of the payloads in bytes.
    step: usize,
    /// Number of payloads.
    places: usize,
}

impl Passes {
    /// Creates passes over payloads of `len` bytes.
    pub fn new(len: usize) -> Passes {
        let (step, places) = (HEADERS + len, (MESSAGE / len).max(1));
        let mut from = vec![1; MEMORY + places * HEADERS];
        // The EtherType of IPv4 is all that the ICRC needs.
        (0..places).for_each(|place| from[place * step + 12..][..2].copy_from_slice(&[8, 0]));
        Passes { to: vec![0; MEMORY + places * HEADERS], from, len, step, places }
    }

    /// Returns the seconds for each payload, of both passes together.
    pub fn window(&mut self) -> f64 {
        let (icrc, copy) = self.each();
        icrc + copy
    }

    /// Returns the seconds for each payload: for its ICRC, and for a copy.
    pub fn each(&mut self) -> (f64, f64) {
        let Passes { from, to, len, step, places } = self;
        let start = Instant::now();
        for pass in 0..PASSES {
            let frame = &from[pass % *places * *step..][..*step];
            black_box(Icrc::new(black_box(frame)).finish());
        }
        let icrc = start.elapsed();
        let start = Instant::now();
        for pass in 0..PASSES {
            let at = pass % *places * *step + HEADERS;
            to[at..][..*len].copy_from_slice(&from[at..][..*len]);
            black_box(&mut *to);
        }
        (icrc.as_secs_f64() / PASSES as f64, start.elapsed().as_secs_f64() / PASSES as f64)
    }
}
