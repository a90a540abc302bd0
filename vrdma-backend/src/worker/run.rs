//! The loop of a worker: in each round it runs the parts that have work.

use super::Worker;
use super::polling::{NAP, Pause};
use crate::cycles::{self, Stage};
use crate::device::broken::{contained, step};
use crate::device::outputs::Outputs;
use crate::memory::MrMemory;
use crossbeam_channel::TryRecvError;
use std::time::Instant;
use vrdma_transport::{self as transport, Engine};

/// Bytes that the engine may copy in one round before channels are drained again.
const COPY_BUDGET: u64 = 1 << 20;
/// Messages executed in one round. The limit keeps guests that give commands without end from
/// starving others.
const MESSAGES: usize = 16;
/// Rounds for which one reading of the clock is good enough while no deadline is pending: a few
/// microseconds.
const CLOCK_TURNS: u32 = 16;
/// Rounds without work before each pauses briefly, in favour of other threads on the same core.
const PROMPT: u32 = 8;
/// Rounds without work after which the worker offers its processor to others between rounds.
const SPINS: u32 = 256;
/// Rounds after which a worker that does not sleep takes a second look at consumers.
const LOOK_TURNS: u32 = 4096;

impl Worker {
    /// Runs rounds until the worker is stopped.
    pub(super) fn run(mut self) {
        let mut idle_turns = 0u32;
        cycles::begin();
        while !self.stop {
            let busy = self.turn();
            cycles::end_turn(busy);
            if busy {
                self.rounds.busy += 1;
                self.polling.stop();
                idle_turns = 0;
                continue;
            }
            let _idle = cycles::enter(Stage::Idle);
            self.rounds.idle += 1;
            idle_turns = idle_turns.saturating_add(1);
            let spins = if self.polling.is_brief() { PROMPT } else { SPINS };
            if idle_turns < spins || self.polling.is_endless() {
                if idle_turns > PROMPT {
                    std::hint::spin_loop();
                }
                continue;
            }
            self.pause(&mut idle_turns);
        }
    }

    /// Waits between two rounds without work.
    fn pause(&mut self, idle_turns: &mut u32) {
        let now = Instant::now();
        self.usage.add(self.outputs.clock.at(now), self.rounds);
        match self.polling.pause(now, self.requests) {
            Pause::Yield => {
                std::thread::yield_now();
                let end = Instant::now();
                self.usage.pause(self.outputs.clock.at(end), false);
                self.polling.yielded(end, end - now);
            }
            Pause::Nap => {
                std::thread::sleep(NAP);
                self.usage.pause(self.now(), false);
                *idle_turns = 0;
            }
            Pause::Sleep => {
                let woken = self.sleep();
                let end = Instant::now();
                self.asleep += end - now;
                self.usage.pause(self.outputs.clock.at(end), true);
                self.woke(self.outputs.clock.at(now), self.outputs.clock.at(end));
                self.polling.slept(end, woken);
                *idle_turns = 0;
            }
        }
    }

    /// Runs one round. Returns true if there was work.
    pub(super) fn turn(&mut self) -> bool {
        let _mark = cycles::enter(Stage::Poll);
        let mut busy = self.mail.may_be_there() && self.run_messages();
        let now = self.recent();
        busy |= self.receive_frames(now);
        busy |= self.receive_packets(now);
        busy |= cycles::within(Stage::Wire, || self.serve_streams(now));
        self.end_broken();
        busy |= self.drain_channels(now, busy);
        busy |= self.pass_barriers(now);
        busy |= cycles::within(Stage::Execute, || self.poll_engine(now));
        busy |= self.serve_ethernet(now);
        busy |= self.transmit_packets(now);
        self.end_broken();
        busy |= self.check_pending(now);
        self.watch_link(now);
        busy |= self.fail_cqs();
        busy |= cycles::within(Stage::Complete, || self.outputs.flush(now));
        self.net.flush();
        self.end_broken();
        self.turns = self.turns.saturating_add(1);
        let look = self.turns >= LOOK_TURNS;
        #[cfg(feature = "hooks")]
        let look = look && crate::hooks::has_second_looks();
        if look {
            #[cfg(feature = "hooks")]
            crate::hooks::run();
            self.look_for_consumers();
        }
        busy
    }

    /// Runs the engine's own work. Returns true if there is more.
    fn poll_engine(&mut self, now: transport::Instant) -> bool {
        let Worker { engine, outputs, .. } = self;
        let poll =
            |engine: &mut Engine<MrMemory>, outputs: &mut Outputs| engine.poll(now, COPY_BUDGET, outputs);
        // After a panic, the remaining devices may have more.
        contained(step::TURN, None, engine, outputs, poll).unwrap_or(true)
    }

    /// Returns a time that is at most a few rounds old, or now if a deadline is pending.
    fn recent(&mut self) -> transport::Instant {
        let waits = self.engine.poll_timeout().is_some()
            || self.outputs.next_timer().is_some()
            || self.streams.user_tcp.next_deadline().is_some();
        if self.clock.1 == 0 || waits {
            self.clock = (self.now(), CLOCK_TURNS);
            self.usage.add(self.clock.0, self.rounds);
            if self.samples_at(self.clock.0) {
                self.sample(self.clock.0, self.clock.0);
            }
        }
        self.clock.1 -= 1;
        self.clock.0
    }

    /// Runs messages of the inbox, some in each round. Returns true if there were any.
    pub(super) fn run_messages(&mut self) -> bool {
        self.mail.take();
        for taken in 0..MESSAGES {
            match self.inbox.try_recv() {
                Ok(message) => message(self),
                Err(TryRecvError::Empty) => return taken != 0,
                Err(TryRecvError::Disconnected) => {
                    self.stop = true;
                    return taken != 0;
                }
            }
        }
        // There may be more.
        self.mail.announce();
        true
    }
}
