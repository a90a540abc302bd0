//! A third guest, a process on this machine, that plays a checked ping-pong with VM a.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::artefacts;
use crate::proc::{Proc, describe, indent};
use crate::ui;
use crate::vm::{Job, Output, Pair};
use crate::wait::{pause, until};

/// The third guest's IP address, and the MAC address that belongs to it.
const ADDRESS: &str = "10.77.0.3";
const MAC: &str = "52:54:00:77:00:03";

/// A ping-pong that runs until [`Self::finish`].
pub struct ThirdGuest {
    peer: Proc,
    log: std::path::PathBuf,
    stop: Arc<AtomicBool>,
    relay: Option<JoinHandle<Result<Output>>>,
}

impl ThirdGuest {
    /// Starts both sides and waits until every QP has made a turn.
    pub fn start(pair: &Pair) -> Result<Self> {
        let program = artefacts::test_peer(pair.build())?;
        // Linux needs a neighbour entry for a GID's address before it connects a QP with that GID.
        let neighbour = format!("ip neighbour replace {ADDRESS} lladdr {MAC} dev eth0 nud permanent");
        pair.a.check(&neighbour, pair.patience(2))?;

        let log = pair.directory().join("third.log");
        let mut command = Command::new(program);
        command.arg(pair.third_socket()).arg(ADDRESS);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut peer = Proc::spawn("the third guest", command)?;
        let stdin = peer.child().stdin.take().context("no pipe")?;
        let stdout = peer.child().stdout.take().context("no pipe")?;
        let job = pair.a.spawn("exec vr-pingpong -d vrdma0 -s 0 --events --qps 2 -")?;

        let stop = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicBool::new(false));
        let relay = {
            let (stop, running) = (stop.clone(), running.clone());
            thread::spawn(move || relay(job, stdin, &read(stdout), &stop, &running))
        };
        let mut guest = Self { peer, log, stop, relay: Some(relay) };
        until("the third guest's ping-pong to start", pair.patience(5), || {
            guest.expect_running()?;
            Ok(if running.load(Ordering::Relaxed) { Ok(()) } else { Err(guest.said()) })
        })?;
        Ok(guest)
    }

    /// Checks that both sides still run.
    pub fn expect_running(&mut self) -> Result<()> {
        if let Some(status) = self.peer.try_wait()? {
            bail!("the third guest: {}\n{}", describe(status), self.said());
        }
        if self.relay.as_ref().is_some_and(JoinHandle::is_finished) {
            let output = self.join()?;
            bail!("the third guest's partner: {:?} {}", output.exit, String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Ends the ping-pong. Returns the number of turns.
    pub fn finish(mut self, patience: Duration) -> Result<u64> {
        self.expect_running()?;
        self.stop.store(true, Ordering::Relaxed);
        let status = self.peer.wait(patience).with_context(|| self.said())?;
        // If one side fails, the other one fails, too.
        let output = self.join()?;
        let partner = String::from_utf8_lossy(&output.stderr);
        ensure!(status.success(), "the third guest: {}\n{}\n{partner}", describe(status), self.said());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.success(), "the third guest's partner: {:?} {said}", output.exit);
        let turns = said.split_once("turns ").and_then(|(_, rest)| rest.split(' ').next());
        turns.and_then(|turns| turns.parse().ok()).with_context(|| format!("no count of turns in {said:?}"))
    }

    fn join(&mut self) -> Result<Output> {
        self.stop.store(true, Ordering::Relaxed);
        let relay = self.relay.take().context("joined once")?;
        relay.join().map_err(|_| anyhow::anyhow!("the relay panicked"))?
    }

    fn said(&self) -> String {
        indent(&ui::tail(&self.log, 20))
    }
}

fn read(mut from: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Passes on the output of each side to the other one, until the job in the VM has ended.
fn relay(
    mut job: Job,
    mut to_peer: ChildStdin,
    from_peer: &Receiver<Vec<u8>>,
    stop: &AtomicBool,
    running: &AtomicBool,
) -> Result<Output> {
    let mut passed = 0;
    let mut stopped = false;
    loop {
        let ended = job.has_ended()?;
        let said = &job.so_far().stdout;
        if said.len() > passed {
            to_peer.write_all(&said[passed..]).context("the third guest does not listen")?;
            to_peer.flush()?;
            passed = said.len();
        }
        if job.so_far().stderr.starts_with(b"running") {
            running.store(true, Ordering::Relaxed);
        }
        if ended {
            return job.wait(Duration::ZERO);
        }
        for bytes in from_peer.try_iter() {
            job.write(&bytes)?;
        }
        if stop.load(Ordering::Relaxed) && !stopped {
            job.signal(15)?;
            stopped = true;
        }
        pause(Duration::from_millis(5), "how often it passes on what was said; the two wait for it");
    }
}
