//! Child processes that never outlive this process.
//!
//! Each is in a process group of its own, which is killed if this process ends, for any reason:
//!
//! * normal end, error, panic: the owner of a [`Proc`] drops it;
//! * SIGINT, SIGTERM, SIGHUP: the thread of [`catch_signals`] calls [`clean_up`];
//! * SIGKILL: the kernel kills the children (`PR_SET_PDEATHSIG`). That kills a PID namespace of
//!   [`in_root`], and all processes in it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;

use crate::packages::package_of;
use crate::{paths, ui};

/// Time limit of steps that download or build much.
pub const LONG: Duration = Duration::from_secs(30 * 60);

/// Processes to kill and paths to remove if this process ends early.
#[derive(Default)]
struct Registry {
    groups: Vec<Pid>,
    paths: Vec<PathBuf>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { groups: Vec::new(), paths: Vec::new() });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running child. Dropping it kills its whole process group.
pub struct Proc {
    child: Child,
    name: String,
    ended: Option<ExitStatus>,
}

impl Proc {
    /// Starts a command in a process group of its own. Standard input is empty unless set.
    pub fn spawn(name: &str, command: Command) -> Result<Self> {
        // The kernel sends the parent-death signal when the *thread* that forked ends. So one
        // thread that never ends starts all children.
        type Request = (Command, Sender<std::io::Result<Child>>);
        static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
        let spawner = SPAWNER.get_or_init(|| {
            let (requests, inbox) = channel::<Request>();
            thread::spawn(move || {
                for (mut command, reply) in inbox {
                    let _ = reply.send(command.spawn());
                }
            });
            requests
        });

        let mut command = command;
        command.process_group(0);
        // Children do not inherit the signals that `catch_signals` blocks.
        let none = SigSet::empty();
        // SAFETY: prctl and sigmask are async-signal-safe, and the closure touches no memory of the
        // parent.
        unsafe {
            command.pre_exec(move || {
                none.thread_set_mask()?;
                Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
            });
        }
        let (reply, answer) = channel();
        let program = command.get_program().to_owned();
        spawner.send((command, reply)).expect("the spawner never ends");
        let child = answer.recv().expect("the spawner always answers");
        let child = child.map_err(|error| cannot_start(&program, name, error))?;
        let proc = Self { child, name: name.to_owned(), ended: None };
        registry().groups.push(proc.group());
        Ok(proc)
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the child process, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns how the process ended, if it has.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Waits for the end, at most for `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} still runs after {} s", self.name, timeout.as_secs());
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Sends a signal to the process group.
    pub fn signal(&self, signal: Signal) {
        // An error means that the group is gone.
        let _ = killpg(self.group(), signal);
    }

    /// Sends SIGTERM, and kills the process if it still runs after `grace`.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        self.wait(grace).or_else(|_| self.kill())
    }

    /// Kills the process group.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        self.wait(Duration::from_secs(10))
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let group = self.group();
        if !matches!(self.try_wait(), Ok(Some(_))) {
            let _ = self.kill();
        }
        // The leader is gone. This kills what it left in its group.
        let _ = killpg(group, Signal::SIGKILL);
        registry().groups.retain(|other| *other != group);
    }
}

/// A path that is removed when this value is dropped, or when this process ends early.
pub struct Ephemeral(PathBuf);

impl Ephemeral {
    /// Takes ownership of a path.
    pub fn new(path: PathBuf) -> Self {
        registry().paths.push(path.clone());
        Self(path)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Ephemeral {
    fn drop(&mut self) {
        let _ = paths::remove(&self.0);
        registry().paths.retain(|path| *path != self.0);
    }
}

/// Kills every child and removes every ephemeral path.
pub fn clean_up() {
    let registry = registry();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut alive = registry.groups.iter().filter(|group| killpg(**group, signal).is_ok()).count();
        // A child may be another xtask, which needs time to clean up as well.
        let deadline = Instant::now() + Duration::from_secs(2);
        while signal == Signal::SIGTERM && alive > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
            alive = registry.groups.iter().filter(|group| killpg(**group, None).is_ok()).count();
        }
    }
    for path in &registry.paths {
        let _ = paths::remove(path);
    }
}

/// Makes SIGINT, SIGTERM and SIGHUP clean up and end the process.
///
/// Must be called before any thread is started.
pub fn catch_signals() -> Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    thread::spawn(move || {
        let signal = signals.wait().unwrap_or(Signal::SIGTERM);
        ui::say(&format!("{signal}: cleaning up"));
        clean_up();
        std::process::exit(128 + signal as i32);
    });
    Ok(())
}

/// Runs a command to its end, with its output in `log`.
///
/// An error has the log's path and its last lines.
pub fn run_logged(what: &str, mut command: Command, log: &Path, timeout: Duration) -> Result<()> {
    let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut proc = Proc::spawn(what, command)?;
    let status = proc.wait(timeout);
    if let Ok(status) = &status
        && status.success()
    {
        return Ok(());
    }
    let how = match status {
        Ok(status) => describe(status),
        Err(error) => error.to_string(),
    };
    bail!("{what}: {how}\n{}\nlog: {}", indent(&ui::tail(log, 25)), log.display())
}

/// Runs a command to its end and returns its standard output.
pub fn output(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| cannot_start(command.get_program(), &name, error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{name}: {}\n{}", describe(output.status), indent(said.trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Describes in one line why a command could not be started.
///
/// If the program is missing, the message names its package.
pub fn cannot_start(program: &OsStr, what: &str, error: std::io::Error) -> Error {
    let program = program.to_string_lossy();
    if error.kind() != std::io::ErrorKind::NotFound {
        return Error::new(error).context(format!("cannot start {what}"));
    }
    match package_of(program.rsplit('/').next().unwrap_or_default()) {
        Some(package) => anyhow!("{program} is missing ({what}); mend it as root: apt-get install {package}"),
        None => anyhow!("{program} is missing ({what})"),
    }
}

/// Returns a command that runs a shell script with `root` as its root directory.
///
/// It runs in mount and PID namespaces that end with this process. `binds` are pairs of a directory
/// outside and a place in the root, which must exist.
pub fn in_root(root: &Path, binds: &[(&Path, &str)], script: &str) -> Command {
    const SETUP: &str = r#"set -e
        root=$1; script=$2; shift 2
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/dev"
        for device in null zero full random urandom; do
            : >"$root/dev/$device"
            mount --bind "/dev/$device" "$root/dev/$device"
        done
        ln -s /proc/self/fd "$root/dev/fd"
        while [ $# -gt 0 ]; do mount --bind "$1" "$root$2"; shift 2; done
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive sh -ec "$script""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-c", SETUP, "sh"]);
    command.arg(root).arg(script);
    for (outside, inside) in binds {
        command.arg(outside).arg(inside);
    }
    command
}

/// Describes how a process ended.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => {
            format!("killed by {}", Signal::try_from(signal).map_or("a signal", |signal| signal.as_str()))
        }
        (None, None) => "ended".to_owned(),
    }
}

/// Indents each line, for quotes in messages.
pub fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_one_line_with_its_package() {
        let absent = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let said = |program: &str| format!("{:#}", cannot_start(program.as_ref(), "the image", absent()));
        assert_eq!(
            said("/usr/sbin/mke2fs"),
            "/usr/sbin/mke2fs is missing (the image); mend it as root: apt-get install e2fsprogs"
        );
        for program in ["mmdebstrap", "tshark", "strip", "ip", "unshare", "xz", "zstd", "apt-get"] {
            assert!(said(program).contains("apt-get install"), "{program}");
        }
        let missing = Proc::spawn("the test", Command::new("/nonexistent/vrdma")).err().unwrap();
        assert_eq!(format!("{missing:#}"), "/nonexistent/vrdma is missing (the test)");
    }
}
