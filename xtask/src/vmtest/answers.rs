//! What the verbs answer, and how they answer while the device does not.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::paths;
use crate::programs::Device;
use crate::vm::Pair;
use crate::vm::backend::Backend;
use crate::vmtest::watch::{Holdings, PingPong};

/// Limits, access flags and attributes, by a program that is written with pyverbs.
pub fn verbs(pair: &mut Pair) -> Result<()> {
    let script = paths::workspace().join("xtask/checks/verbs.py");
    paths::write(&pair.share().join("verbs.py"), paths::read(&script)?)?;
    let index = Device::Vrdma.gid_index(&pair.a)?;
    // With an MTU that is less than what the device can have.
    let command = format!(
        "before=$(cat /sys/class/net/eth0/mtu) && ip link set dev eth0 mtu 1500
         python3 -B /share/verbs.py {index}; result=$?
         ip link set dev eth0 mtu $before; exit $result"
    );
    pair.a.check(&command, pair.patience(10))?;
    Ok(())
}

/// A backend that is stopped, and goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(backend: &Backend) -> Result<Self> {
        let pid = Pid::from_raw(i32::try_from(backend.pid())?);
        kill(pid, Signal::SIGSTOP)?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // A backend that is gone is noticed by the test.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// The backend stands still for 15 s: commands fail in time and pin nothing, and then everything goes on, without anything that was
/// left behind.
pub fn stopped_backend(pair: &mut Pair) -> Result<()> {
    const STILL: Duration = Duration::from_secs(15);
    const TIMEOUT: &str = "/sys/module/vrdma/parameters/cmd_timeout_ms";
    let patience = pair.patience(5);
    let quiet = Holdings::of(pair.backend()?)?;
    let ping_pong = PingPong::start(pair, &pair.a, &pair.b, 19020, "--stall 60", "--stall 60")?;
    pair.b.check(&format!("dmesg -C; echo 3000 >{TIMEOUT}"), patience)?;

    let stopped = Stopped::new(pair.backend()?)?;
    let since = Instant::now();
    // The first waits for its time, those that follow are told at once.
    for round in 0..20 {
        let output = pair.b.exec("ibv_devinfo -d vrdma0", patience)?;
        ensure!(!output.success(), "ibv_devinfo {round} has an answer of a backend that is stopped");
    }
    pair.b.check("dmesg | grep -q 'stands still'", patience).context("the driver says nothing")?;
    std::thread::sleep(STILL.saturating_sub(since.elapsed()));
    drop(stopped);

    pair.b
        .check("until dmesg | grep -q 'goes on'; do sleep 0.1; done", patience)
        .context("the device does not go on")?;
    pair.b.check(&format!("echo 60000 >{TIMEOUT}; ibv_devinfo -d vrdma0"), patience)?;
    let turns = ping_pong.finish(pair.patience(6)).context("after 15 s of silence")?;
    ensure!(turns > 50, "the ping-pong made {turns} turns only");
    PingPong::start(pair, &pair.a, &pair.b, 19021, "", "")?
        .finish(pair.patience(6))
        .context("a new connection")?;
    pair.b.check("! dmesg | grep -E 'failed|remains'", patience)?;
    quiet.expect_return(pair.backend()?, patience)
}
