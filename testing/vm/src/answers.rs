//! What the verbs answer, and how they answer while the device does not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vrdma_lab::device::Device;
use vrdma_lab::driver::{begin_driver_anew, wait_for_device};
use vrdma_lab::paths;
use vrdma_lab::vm::backend::Backend;
use vrdma_lab::vm::{Job, Pair};
use vrdma_lab::wait::{Watch, pause};
use vrdma_lab::watch::{Holdings, PingPong, said};
use vrdma_vm_macros::vm_test;

/// Limits, access flags and attributes, by a program that is written with pyverbs.
#[vm_test("vm-verbs", lab = Usual)]
fn verbs(pair: &mut Pair) -> Result<()> {
    let script = paths::workspace().join("testing/vm/checks/verbs.py");
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

/// Device memory, and objects that another process imports; a driver that is removed under a
/// process with device memory. Nothing is left, and the kernels find no fault.
#[vm_test("vm-device-memory", lab = Usual, long, disturbs)]
fn device_memory(pair: &mut Pair) -> Result<()> {
    let script = paths::workspace().join("testing/vm/checks/device_memory.py");
    paths::write(&pair.share().join("device_memory.py"), paths::read(&script)?)?;
    let index = Device::Vrdma.gid_index(&pair.a)?;
    let patience = pair.patience(10);
    begin_driver_anew(pair)?;
    let before = Holdings::settled(pair.backend()?, patience)?;
    pair.a.check(&format!("python3 -B /share/device_memory.py {index}"), patience)?;

    let mut holder = pair.b.spawn("exec python3 -B /share/device_memory.py hold")?;
    holder.wait_for("holding", patience).with_context(|| said(&holder))?;
    pair.b.check("rmmod vrdma && sleep 0.3", patience)?;
    ensure!(
        !holder.has_ended()?,
        "a process with device memory does not outlive the driver: {}",
        said(&holder)
    );
    pair.b.check("insmod /lib/vrdma/vrdma.ko", patience)?;
    wait_for_device(pair)?;
    holder.signal(9)?;
    holder.wait(patience).context("a process with device memory is killed and does not end")?;

    for vm in [&pair.a, &pair.b] {
        vm.check("! dmesg | grep -A 20 -e 'WARNING:' -e 'BUG:' -e Oops", patience)?;
    }
    before.with_new_driver("b").expect_return(pair.backend()?, patience)
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

/// The driver's parameters, which tests change.
const PARAMETERS: &str = "/sys/module/vrdma/parameters";

/// A process that runs `stopped.py` in VM b, and says `holding` when it has its objects.
fn spawn_holder(pair: &Pair, arguments: &str) -> Result<Job> {
    let script = paths::workspace().join("testing/vm/checks/stopped.py");
    paths::write(&pair.share().join("stopped.py"), paths::read(&script)?)?;
    let mut holder = pair.b.spawn(&format!("exec python3 -B /share/stopped.py {arguments}"))?;
    holder.wait_for("holding", pair.patience(15)).with_context(|| said(&holder))?;
    Ok(holder)
}

/// One with several hundred objects, which says which events it gets.
fn holder(pair: &Pair, sets: u32) -> Result<Job> {
    spawn_holder(pair, &format!("hold {sets}"))
}

/// One that registers memory when it is told to.
struct Registrar {
    job: Job,
    /// Times that it was told.
    times: u32,
}

impl Registrar {
    fn new(pair: &Pair) -> Result<Self> {
        Ok(Self { job: spawn_holder(pair, "register")?, times: 0 })
    }

    /// Has it try; it says `answer`.
    fn expect(&mut self, answer: &str, patience: Duration) -> Result<()> {
        const SIGUSR1: i32 = 10;
        self.times += 1;
        self.job.signal(SIGUSR1)?;
        let line = format!("{}: {answer}", self.times);
        self.job.wait_for(&line, patience).with_context(|| said(&self.job))
    }

    fn kill(self, patience: Duration) -> Result<()> {
        self.job.signal(9)?;
        self.job.wait(patience).context("a process with a region is killed and does not end").map(|_| ())
    }
}

/// What a [`Registrar`] says while the device does not answer,
const REFUSED: &str = "refused, nothing pinned";
/// and when it does.
const REGISTERED: &str = "registered";

/// A user of the verbs inside the kernel comes.
fn load_ulp(pair: &Pair) -> Result<()> {
    let load = "insmod /lib/vrdma/vrdma_test_ulp.ko && dmesg | grep -q 'vrdma_test_ulp: ready'";
    pair.b.check(load, pair.patience(5)).map(|_| ()).with_context(|| {
        let said = pair.b.exec("dmesg | tail -5", pair.patience(2));
        said.map_or_else(|error| format!("{error:#}"), |said| said.text())
    })
}

/// The driver says something in the log of VM b.
fn wait_for_message(pair: &Pair, message: &str) -> Result<()> {
    let command = format!("until dmesg | grep -q '{message}'; do sleep 0.1; done");
    pair.b.check(&command, pair.patience(5)).map(|_| ()).with_context(|| format!("no message `{message}`"))
}

/// The user inside the kernel goes: as long as the device stands still it waits, since its buffers
/// are not yet its own.
fn unload_ulp(pair: &Pair) -> Result<Job> {
    let mut unloading = pair.b.spawn("exec rmmod vrdma_test_ulp")?;
    wait_for_message(pair, "waits for the device to go on\\|vrdma_test_ulp: the QP is")?;
    pair.b.check("! dmesg | grep 'the QP is'", pair.patience(2))?;
    ensure!(!unloading.has_ended()?, "the kernel's QP is gone while the device may use its buffers");
    Ok(unloading)
}

/// It is gone.
fn expect_unloaded(pair: &Pair, unloading: Job) -> Result<()> {
    let output = unloading.wait(pair.patience(6)).context("rmmod of the user inside the kernel")?;
    ensure!(output.success(), "rmmod: {:?} {}", output.exit, String::from_utf8_lossy(&output.stderr));
    pair.b.check("dmesg | grep 'the QP is destroyed'", pair.patience(2))?;
    pair.b.check("! dmesg | grep 'vrdma_test_ulp: .*failed\\|failed to drain'", pair.patience(2)).map(|_| ())
}

/// The backend stands still for 15 s: commands fail in time and pin nothing, and then everything
/// goes on, without anything that was left behind: neither what a process had that was killed
/// meanwhile, nor what the kernel had. Then it does so for too long.
#[vm_test("vm-stopped-backend", lab = Usual, long, disturbs)]
fn stopped_backend(pair: &mut Pair) -> Result<()> {
    const STILL: Duration = Duration::from_secs(15);
    let patience = pair.patience(5);
    begin_driver_anew(pair)?;
    let quiet = Holdings::settled(pair.backend()?, patience)?;
    let ping_pong = PingPong::start(pair, &pair.a, &pair.b, 19020, "--stall 300", "--stall 300")?;
    let victim = holder(pair, 120)?;
    let mut watcher = holder(pair, 0)?;
    let mut registrar = Registrar::new(pair)?;
    registrar.expect(REGISTERED, patience)?;
    pair.b.check("dmesg -C", patience)?;
    load_ulp(pair)?;
    // A busy machine may need long for all that happens meanwhile: the device is not to be given
    // up.
    let limits = format!("echo 3000 >{PARAMETERS}/cmd_timeout_ms; echo 600 >{PARAMETERS}/fatal_timeout_s");
    pair.b.check(&limits, patience)?;

    let stopped = Stopped::new(pair.backend()?)?;
    let since = Watch::start();
    // The first waits for its time, those that follow are told at once.
    for round in 0..20 {
        let output = pair.b.exec("ibv_devinfo -d vrdma0", patience)?;
        ensure!(!output.success(), "ibv_devinfo {round} has an answer of a backend that is stopped");
    }
    pair.b.check("dmesg | grep -q 'stands still'", patience).context("the driver says nothing")?;
    watcher.wait_for("port error", patience).with_context(|| said(&watcher))?;
    registrar.expect(REFUSED, patience).context("a device that stands still")?;
    // More than the control queue has room for.
    victim.signal(9)?;
    victim.wait(patience).context("a process with hundreds of objects is killed and does not end")?;
    let unloading = unload_ulp(pair)?;
    pause(
        STILL.saturating_sub(since.time()),
        "how long it stands still at least; what has happened by then was waited for",
    );
    drop(stopped);

    wait_for_message(pair, "goes on").context("the device does not go on")?;
    watcher.wait_for("port active", patience).with_context(|| said(&watcher))?;
    expect_unloaded(pair, unloading)?;
    // What was left behind may take it longer than 3 s.
    let answers =
        format!("echo 60000 >{PARAMETERS}/cmd_timeout_ms; until ibv_devinfo -d vrdma0; do sleep 0.1; done");
    pair.b.check(&answers, patience)?;
    registrar.expect(REGISTERED, patience)?;
    registrar.kill(patience)?;
    let turns = ping_pong.finish(pair.patience(6)).context("after 15 s of silence")?;
    ensure!(turns > 50, "the ping-pong made {turns} turns only");
    PingPong::start(pair, &pair.a, &pair.b, 19021, "", "")?
        .finish(pair.patience(6))
        .context("a new connection")?;
    pair.b.check("! dmesg | grep -E 'failed|remains'", patience)?;
    drop(watcher);
    quiet.expect_return(pair.backend()?, patience)?;
    given_up(pair, quiet.with_new_driver("b"))
}

/// A backend that stands still for longer than the driver's limit is given up: programs are told
/// and wait no more. Users in the kernel do, as the backend could use their buffers when it goes
/// on; then it is reset.
fn given_up(pair: &mut Pair, quiet: Holdings) -> Result<()> {
    let patience = pair.patience(5);
    let mut victim = holder(pair, 40)?;
    let mut registrar = Registrar::new(pair)?;
    pair.b.check("dmesg -C", patience)?;
    load_ulp(pair)?;
    let limits = format!("echo 3000 >{PARAMETERS}/cmd_timeout_ms; echo 0 >{PARAMETERS}/fatal_timeout_s");
    pair.b.check(&limits, patience)?;

    let stopped = Stopped::new(pair.backend()?)?;
    let output = pair.b.exec("ibv_devinfo -d vrdma0", patience)?;
    ensure!(!output.success(), "ibv_devinfo has an answer of a backend that is stopped");
    victim.wait_for("port error", patience).with_context(|| said(&victim))?;
    let unloading = unload_ulp(pair)?;
    // From here on it has stood still for too long.
    pair.b.check(&format!("echo 1 >{PARAMETERS}/fatal_timeout_s"), patience)?;
    victim.wait_for("device fatal", patience).with_context(|| said(&victim))?;
    pair.b.check("dmesg | grep -q 'the device failed: it stood still for too long'", patience)?;
    registrar.expect(REFUSED, patience).context("a device that was given up")?;
    registrar.kill(patience)?;
    victim.signal(9)?;
    victim.wait(patience).context("the process of a device that was given up does not end")?;
    pair.b
        .check("! dmesg | grep 'the QP is'", patience)
        .context("a QP of the kernel is drained or gone, and its backend may go on")?;
    drop(stopped);
    expect_unloaded(pair, unloading)?;
    wait_for_message(pair, "the device that was given up is reset")?;

    // As README says, a new start of the driver is a new start of the device.
    begin_driver_anew(pair)?;
    PingPong::start(pair, &pair.a, &pair.b, 19022, "", "")?
        .finish(pair.patience(6))
        .context("a connection with a new driver")?;
    quiet.expect_return(pair.backend()?, patience)
}
