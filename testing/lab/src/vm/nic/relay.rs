//! Connects a guest and its peer by their standard input and output.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::vm::{Job, Output};

/// A relay of the output of each side to the input of the other side.
pub struct Relay {
    guest: Job,
    peer: Job,
    passed: [usize; 2],
}

impl Relay {
    /// Returns a relay between these two jobs.
    pub fn new(guest: Job, peer: Job) -> Self {
        Self { guest, peer, passed: [0; 2] }
    }

    /// Relays for this time, or until the guest has ended.
    pub fn run_for(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.step()? {}
        Ok(())
    }

    /// Relays until the guest has ended. Returns the outputs of guest and peer.
    pub fn finish(mut self, patience: Duration) -> Result<(Output, Output)> {
        let deadline = Instant::now() + patience;
        while !self.step()? {
            self.expect_before(deadline, "the guest does not end")?;
        }
        self.peer.close_stdin()?;
        // After the guest failed, vr-pingpong ends only after a minute without progress.
        Ok((self.guest.wait(Duration::ZERO)?, self.peer.wait(patience)?))
    }

    /// Relays until the guest has ended, with a server that is another job than the peer.
    ///
    /// When the server has ended, the guest's input is closed, which tells the guest.
    pub fn finish_after(mut self, server: &mut Job, patience: Duration) -> Result<(Output, Output)> {
        let deadline = Instant::now() + patience;
        while !self.step()? {
            if server.has_ended()? {
                self.guest.close_stdin()?;
                return self.finish(patience);
            }
            self.expect_before(deadline, "neither the guest nor its server ends")?;
        }
        self.finish(patience)
    }

    fn expect_before(&self, deadline: Instant, late: &str) -> Result<()> {
        if Instant::now() < deadline {
            return Ok(());
        }
        let [guest, peer] =
            [&self.guest, &self.peer].map(|job| String::from_utf8_lossy(&job.so_far().stderr));
        bail!("{late} in time; the guest says:\n{guest}\nits peer:\n{peer}");
    }

    /// Relays once in both directions. Returns true if the guest has ended.
    fn step(&mut self) -> Result<bool> {
        let Self { guest, peer, passed } = self;
        let ended = [guest.has_ended()?, peer.has_ended()?];
        if !ended[1] {
            pass_on(guest, peer, &mut passed[0])?;
        }
        if ended[0] {
            return Ok(true);
        }
        pass_on(peer, guest, &mut passed[1])?;
        std::thread::sleep(Duration::from_millis(5));
        Ok(false)
    }
}

fn pass_on(from: &Job, to: &Job, passed: &mut usize) -> Result<()> {
    let said = &from.so_far().stdout[*passed..];
    *passed += said.len();
    if said.is_empty() { Ok(()) } else { to.write(said) }
}
