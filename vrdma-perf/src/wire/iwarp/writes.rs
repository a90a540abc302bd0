//! Both iWARP hosts as on two machines. Each has a thread and a processor, and one end of a port.

use super::{Iwarp, deliver_to};
use crate::helper::Helper;
use crate::load::Load;
use crate::wire::host::IwarpHost;
use anyhow::{Error, Result, ensure};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant as Clock;
use vrdma_backend::port::{BURST, Burst, Port};
use vrdma_transport::Instant;

/// The state that both threads share.
#[derive(Default)]
struct Common {
    /// Number of WRITEs that have arrived, by connection.
    arrived: Vec<AtomicU64>,
    /// Ends the rounds of the other thread.
    stop: AtomicBool,
    /// The error that ended them earlier.
    failure: Mutex<Option<Error>>,
}

impl Common {
    /// Runs rounds in the other thread until they have to end.
    fn run(&self, side: &mut Side, port: &mut Port) {
        port.adopt();
        while !self.stop.load(Ordering::Relaxed) {
            if let Err(error) = side.turn(port) {
                *self.failure.lock().expect("nobody panicked with it") = Some(error);
                return;
            }
            for number in side.host.streams.arrivals.new.drain(..) {
                self.arrived[number as usize].fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// A host, with the state of its thread.
struct Side {
    host: IwarpHost,
    burst: Burst,
    start: Clock,
}

impl Side {
    fn turn(&mut self, port: &mut Port) -> Result<Instant> {
        let Side { host, burst, start } = self;
        let now = Instant(start.elapsed().as_nanos() as u64 + 1_000_000_000);
        while port.receive(burst) == BURST {
            deliver_to(burst, host, now);
        }
        deliver_to(burst, host, now);
        host.serve()?;
        ensure!(host.failure.0.is_none(), "a WRITE failed: {:?}", host.failure.0);
        ensure!(host.streams.ended.is_none(), "a stream ended");
        host.transmit(now, port);
        Ok(now)
    }
}

/// The load of WRITEs to another host, which runs between [`Apart::begin`] and [`Apart::end`].
pub struct Apart<'p> {
    near: Side,
    now: Instant,
    /// The other host, with its port while its thread runs.
    far: Arc<Mutex<(Side, Option<Port>)>>,
    /// The key of the other host's memory.
    key: u32,
    ports: &'p RefCell<Vec<Port>>,
    length: u32,
    /// Connections that may post a WRITE. Each is listed once for each free place.
    free: VecDeque<u32>,
    /// Number of WRITEs of each connection that this thread has seen arrive.
    seen: Vec<u64>,
    outstanding: u32,
    common: Arc<Common>,
}

impl<'p> Apart<'p> {
    /// Takes over a pair of hosts that is set up.
    ///
    /// # Errors
    /// Both ends are one port.
    pub fn new(iwarp: Iwarp<'p>) -> Result<Apart<'p>> {
        ensure!(iwarp.ports.borrow().len() == 2, "hosts that are apart want a port each: memif, or a veth");
        let Iwarp { a, b, ports, length, start, now, free, .. } = iwarp;
        let connections = b.streams.all.len();
        let key = b.key;
        let arrived = (0..connections).map(|_| AtomicU64::new(0)).collect();
        let common = Common { arrived, ..Common::default() };
        let side = |host| Side { host, burst: Burst::default(), start };
        Ok(Apart {
            near: side(a),
            now,
            far: Arc::new(Mutex::new((side(b), None))),
            key,
            ports,
            length,
            free,
            seen: vec![0; connections],
            outstanding: 0,
            common: Arc::new(common),
        })
    }

    /// Lets the other host run.
    pub fn begin(&self, helper: &Helper) {
        let port = self.ports.borrow_mut().pop();
        self.far.lock().expect("nobody panicked with it").1 = port;
        self.common.stop.store(false, Ordering::Relaxed);
        let (far, common) = (self.far.clone(), self.common.clone());
        helper.begin(move || {
            let (side, port) = &mut *far.lock().expect("nobody panicked with it");
            common.run(side, port.as_mut().expect("it was put there"));
            0.
        });
    }

    /// Stops the other host.
    pub fn end(&self, helper: &Helper) {
        self.common.stop.store(true, Ordering::Relaxed);
        helper.end();
        let port = self.far.lock().expect("nobody panicked with it").1.take();
        self.ports.borrow_mut().extend(port);
    }

    /// Returns the number of segments that were retransmitted.
    pub fn retries(&self) -> u64 {
        let host = &self.near.host;
        host.streams.user_tcp.stats(host.device).get("retransmits").copied().unwrap_or_default()
    }
}

impl Drop for Apart<'_> {
    /// Ends the other thread, even after an error in this one.
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Relaxed);
    }
}

impl Load for Apart<'_> {
    fn post(&mut self) -> bool {
        let Some(index) = self.free.pop_front() else { return false };
        self.near.host.post(self.now, index as usize, self.key, self.length).expect("there is room");
        self.outstanding += 1;
        true
    }

    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u32> {
        self.now = self.near.turn(&mut self.ports.borrow_mut()[0])?;
        if let Some(error) = self.common.failure.lock().expect("nobody panicked with it").take() {
            return Err(error);
        }
        let mut new = 0;
        for (number, (arrived, seen)) in self.common.arrived.iter().zip(&mut self.seen).enumerate() {
            let now = arrived.load(Ordering::Acquire);
            let more = now - std::mem::replace(seen, now);
            self.free.extend((0..more).map(|_| number as u32));
            new += more as u32;
        }
        self.outstanding -= new;
        Ok(new)
    }

    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }
}
