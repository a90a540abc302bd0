//! The daemon, in a thread of this process or as a process of its own.
//!
//! Tests can count the memory and descriptors of a separate process.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use vrdma_backend::config::{Config, GuestConfig};
use vrdma_backend::daemon;
use vrdma_backend::jail::{self, Seccomp};
use vrdma_backend::port::Port;
use vrdma_guest::wait;

/// A running daemon. It ends when dropped.
#[derive(Debug)]
pub enum Daemon {
    /// In threads of this process.
    Thread(Box<daemon::Daemon>),
    /// As a child process.
    Process {
        /// The child. It ends when its standard input is closed.
        child: Child,
        /// Path of its admin socket.
        admin: PathBuf,
        /// Path of its log.
        log: PathBuf,
    },
}

impl Daemon {
    /// Starts the daemon in this process.
    ///
    /// # Errors
    /// Those of [`daemon::Daemon::start`].
    pub fn start(config: Config) -> Result<Daemon> {
        confine_threads();
        Ok(Daemon::Thread(Box::new(daemon::Daemon::start(config)?)))
    }

    /// Starts the daemon in this process, with the uplink `uplink`.
    ///
    /// # Errors
    /// Those of [`daemon::Daemon::start_with`].
    pub fn start_with(config: Config, uplink: Port) -> Result<Daemon> {
        confine_threads();
        Ok(Daemon::Thread(Box::new(daemon::Daemon::start_with(config, Some(uplink))?)))
    }

    /// Starts the daemon as a child. `program` is the helper `vrdma-test-daemon`.
    ///
    /// # Errors
    /// The child does not start.
    pub fn spawn(program: &Path, config: &Config) -> Result<Daemon> {
        let admin = config.admin.clone().context("a child is asked through its admin socket")?;
        let file = admin.with_extension("toml");
        std::fs::write(&file, config.to_toml()?)?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&file);
        let log = admin.with_extension("log");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("spawn")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "the daemon says {line:?}");
        Ok(Daemon::Process { child, admin, log })
    }

    /// Returns the process in which the daemon runs.
    pub fn pid(&self) -> u32 {
        match self {
            Daemon::Thread(_) => std::process::id(),
            Daemon::Process { child, .. } => child.id(),
        }
    }

    /// Returns the daemon's log if it is a child, or an empty string.
    pub fn messages(&self) -> String {
        match self {
            Daemon::Thread(_) => String::new(),
            Daemon::Process { log, .. } => std::fs::read_to_string(log).unwrap_or_default(),
        }
    }

    /// Returns the daemon's counters.
    ///
    /// # Errors
    /// The daemon is not alive.
    pub fn stats(&self) -> Result<Stats> {
        match self {
            Daemon::Thread(daemon) => Ok(Stats(serde_json::to_value(daemon.stats()?)?)),
            Daemon::Process { admin, .. } => {
                let line = wait::until("the daemon's answer", || ask(admin, b"stats\n").transpose())?;
                Ok(Stats(serde_json::from_str(&line)?))
            }
        }
    }
}

/// Gives the threads of a daemon in this process the filters of system calls that they have in the
/// jail. Threads of the test have none.
///
/// With `VRDMA_TEST_SECCOMP=log` a forbidden call does not end the test. The kernel's log names it.
fn confine_threads() {
    let is_log = std::env::var("VRDMA_TEST_SECCOMP").is_ok_and(|action| action == "log");
    let action = if is_log { Seccomp::Log } else { Seccomp::Kill };
    jail::confine_threads(action).expect("there are filters for this architecture");
}

/// Asks the admin socket and returns one line of answer.
///
/// It is `None` if the daemon closed the connection. The daemon does so if a busy machine delays
/// the question for seconds.
fn ask(admin: &Path, question: &[u8]) -> std::io::Result<Option<String>> {
    let mut stream = UnixStream::connect(admin)?;
    let mut line = String::new();
    match stream.write_all(question).and_then(|()| BufReader::new(stream).read_line(&mut line)) {
        Ok(_) => Ok(Some(line).filter(|line| !line.is_empty())),
        Err(error) if [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let messages = self.messages();
        if let Daemon::Process { child, .. } = self {
            drop(child.stdin.take());
            if std::thread::panicking() {
                let last: Vec<&str> = messages.lines().rev().take(20).collect();
                last.iter().rev().for_each(|line| eprintln!("daemon: {line}"));
                // The failure may keep the child from ending by itself.
                let _ = child.kill();
                let _ = child.wait();
            } else {
                assert!(child.wait().expect("the child ends").success(), "the daemon failed");
            }
        }
    }
}

/// Permissions of guests in most tests.
const ANYTHING: &str = "any-gid=true,any-vlan=true";

/// Returns the configuration of a guest that may use any address and VLAN.
pub fn guest_config(name: &str, socket: &Path, host: u8) -> GuestConfig {
    let spec = format!("name={name},socket={},mac=52:54:00:00:00:{host:02x},{ANYTHING}", socket.display());
    spec.parse().expect("a valid guest")
}

/// The daemon's counters by name. Methods panic for a name that does not exist.
#[derive(Clone, Debug)]
pub struct Stats(Value);

impl Stats {
    /// Returns whether the uplink's link is up.
    pub fn is_link_up(&self) -> bool {
        self.0["link"]["up"].as_bool().unwrap_or_else(|| panic!("no link in {}", self.0))
    }

    /// Returns how many objects of a kind a guest has.
    pub fn objects(&self, guest: usize, kind: &str) -> u64 {
        self.number(guest, "objects", kind)
    }

    /// Returns the ports at which a guest accepts iWARP connections.
    pub fn listening(&self, guest: usize) -> Vec<u64> {
        let ports = self.0["guests"][guest]["listening"].as_array().expect("a list");
        ports.iter().map(|port| port.as_u64().expect("a port")).collect()
    }

    /// Returns all kinds of objects that a guest has, with their numbers.
    pub fn all_objects(&self, guest: usize) -> Vec<(String, u64)> {
        let all = self.0["guests"][guest]["objects"].as_object().expect("a map");
        let all = all.iter().map(|(kind, count)| (kind.clone(), count.as_u64().expect("a number")));
        all.filter(|(_, count)| *count != 0).collect()
    }

    /// Returns a counter between guest and device.
    pub fn device(&self, guest: usize, counter: &str) -> u64 {
        self.number(guest, "device", counter)
    }

    /// Returns a counter of the daemon's own TCP for a guest.
    pub fn tcp(&self, guest: usize, counter: &str) -> u64 {
        self.number(guest, "tcp", counter)
    }

    /// Returns a counter between queue pairs.
    pub fn transport(&self, guest: usize, counter: &str) -> u64 {
        self.number(guest, "transport", counter)
    }

    /// Returns a counter of a guest's Ethernet function.
    pub fn net(&self, guest: usize, counter: &str) -> u64 {
        self.number(guest, "net", counter)
    }

    /// Returns a counter of the uplink.
    pub fn uplink(&self, counter: &str) -> u64 {
        self.0["uplink"][counter].as_u64().unwrap_or_else(|| panic!("no uplink.{counter} in {}", self.0))
    }

    /// Returns a counter of RoCE packets that belong to no single guest.
    pub fn roce(&self, counter: &str) -> u64 {
        self.0["roce"][counter].as_u64().unwrap_or_else(|| panic!("no roce.{counter} in {}", self.0))
    }

    /// Returns the number of frames that were malformed for this reason.
    pub fn malformed(&self, reason: &str) -> u64 {
        self.0["malformed"][reason].as_u64().unwrap_or_else(|| panic!("no malformed.{reason} in {}", self.0))
    }

    /// Returns a counter of the switch.
    pub fn switch(&self, counter: &str) -> u64 {
        self.0["switch"][counter].as_u64().unwrap_or_else(|| panic!("no switch.{counter} in {}", self.0))
    }

    /// Returns the number of memory regions whose file a front-end truncated.
    pub fn memory_faults(&self) -> u64 {
        self.0["memory_faults"].as_u64().expect("a number")
    }

    /// Returns a counter of a worker.
    pub fn worker(&self, worker: usize, counter: &str) -> u64 {
        let number = self.0["workers"][worker][counter].as_u64();
        number.unwrap_or_else(|| panic!("no {counter} of worker {worker} in {}", self.0))
    }

    /// Returns whether a worker is stuck.
    pub fn is_stuck(&self, worker: usize) -> bool {
        self.0["workers"][worker]["stuck"].as_bool().expect("a truth value")
    }

    /// Returns whether any worker is stuck.
    pub fn has_stuck_worker(&self) -> bool {
        let workers = self.0["workers"].as_array().expect("a list");
        workers.iter().any(|worker| worker["stuck"] == true)
    }

    /// Returns the names of a worker's guests.
    pub fn guests_of(&self, worker: usize) -> Vec<&str> {
        let names = self.0["workers"][worker]["guests"].as_array().expect("a list");
        names.iter().map(|name| name.as_str().expect("a name")).collect()
    }

    /// Returns the number of guests with counters of their own in the answer.
    pub fn guests(&self) -> usize {
        self.0["guests"].as_array().expect("a list").len()
    }

    /// Returns how often the worker slept.
    pub fn worker_sleeps(&self) -> u64 {
        self.0["worker_sleeps"].as_u64().expect("a number")
    }

    fn number(&self, guest: usize, group: &str, name: &str) -> u64 {
        let number = self.0["guests"][guest][group][name].as_u64();
        number.unwrap_or_else(|| panic!("no {group}.{name} of guest {guest} in {}", self.0))
    }
}
