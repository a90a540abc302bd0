//! What testpmd does, in our own thread: frames of a length go out by one port and come in by the
//! other, and nothing looks at what is in them.

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
/// Frames on their way: with more, their buffers leave the caches before they are used again.
const DEPTH: u64 = 64;
/// What has not come while none came for so long is lost.
const LOST: Duration = Duration::from_micros(300);
/// How long none may come.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of an Ethernet header: to nobody, of a type for experiments.
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5];
/// Headers of a RoCE packet, from the Ethernet header on.
const HEADERS: usize = 70;
/// Payloads that passes are timed over.
const PASSES: usize = 256;
/// Messages' bytes, through which the passes go as messages do.
const MESSAGE: usize = 64 << 10;

/// Frames per second.
///
/// # Errors
/// None comes.
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
            // Others go in their place.
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

/// The same with a thread and a processor for each end: one sends what its port takes, the other
/// takes what comes.
///
/// # Errors
/// None comes.
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

/// Takes what is still on its way.
fn drain(ports: &mut [Port], burst: &mut Burst) {
    let mut quiet = 0;
    while quiet < 100 {
        ports.iter_mut().for_each(Port::flush);
        let came: usize = ports.iter_mut().map(|port| port.receive(burst)).sum();
        burst.clear();
        quiet = if came == 0 { quiet + 1 } else { 0 };
    }
}

/// Seconds of an ICRC over a payload of `len` bytes, and of a copy of it.
#[derive(Debug)]
pub struct Passes {
    from: Vec<u8>,
    to: Vec<u8>,
    len: usize,
    /// Payloads lie so far from each other,
    step: usize,
    /// so many of them.
    places: usize,
}

impl Passes {
    /// Over payloads of so many bytes.
    pub fn new(len: usize) -> Passes {
        let (step, places) = (HEADERS + len, (MESSAGE / len).max(1));
        let mut from = vec![1; MEMORY + places * HEADERS];
        // Frames of IPv4 as far as an ICRC can tell.
        (0..places).for_each(|place| from[place * step + 12..][..2].copy_from_slice(&[8, 0]));
        Passes { to: vec![0; MEMORY + places * HEADERS], from, len, step, places }
    }

    /// Seconds for each payload, of both passes together.
    pub fn window(&mut self) -> f64 {
        let (icrc, copy) = self.each();
        icrc + copy
    }

    /// Seconds for each payload: of its ICRC, and of a copy.
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
