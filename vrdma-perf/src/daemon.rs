//! A daemon that this program starts, in a process of its own as with real guests.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use toml::Table;
use vrdma_backend::config::{Args, Config};
use vrdma_guest::threads::thread_of;

/// Time limit for a daemon to start.
const START: Duration = Duration::from_secs(20);

/// Returns the settings that differ from the defaults. A daemon of another version may not know all
/// others.
fn unusual(config: &Config) -> Result<String> {
    let (mut all, usual) = (Table::try_from(config)?, Table::try_from(Config::default())?);
    all.retain(|key, value| usual.get(key) != Some(value));
    Ok(toml::to_string(&all)?)
}

/// A child process that ends when dropped, and when this process ends.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `program`, or this program as a daemon. Its files are in `dir`.
    ///
    /// # Errors
    /// It does not start. The message contains its last output.
    pub fn start(program: Option<&Path>, config: &Config, dir: &Path) -> Result<Daemon> {
        let [file, log] = ["daemon.toml", "daemon.log"].map(|name| dir.join(name));
        std::fs::write(&file, unusual(config)?)?;
        let mut command = match program {
            Some(program) => Command::new(program),
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("daemon");
                command
            }
        };
        command
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        // SAFETY: this is a plain system call, which may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let name = program.map_or_else(|| "the daemon".to_owned(), |program| program.display().to_string());
        let child = command.spawn().with_context(|| name.clone())?;
        let mut daemon = Daemon { child, log };
        let start = Instant::now();
        let sockets: Vec<&PathBuf> = config.guests.iter().filter_map(|guest| guest.socket.as_ref()).collect();
        while !sockets.iter().all(|socket| socket.exists()) || daemon.worker().is_none() {
            let ended = daemon.child.try_wait()?.is_some();
            ensure!(!ended && start.elapsed() < START, "{name} does not start: {}", daemon.last_words());
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(daemon)
    }

    /// Returns the thread id of its worker.
    pub fn worker(&self) -> Option<i32> {
        thread_of(self.child.id(), "worker")
    }

    /// Returns the processor time that it has used.
    ///
    /// # Errors
    /// It has ended.
    pub fn processor_time(&self) -> Result<Duration> {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: both pointers refer to values of their types.
        let failed = unsafe {
            libc::clock_getcpuclockid(self.child.id() as i32, &raw mut clock) != 0
                || libc::clock_gettime(clock, &raw mut time) != 0
        };
        ensure!(!failed, "the daemon has ended: {}", self.last_words());
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// Returns the bytes of its anonymous memory. Files, and memory shared with guests, do not
    /// count.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).context("/proc/PID/status has no RssAnon")
    }

    /// Returns the last line that it wrote.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().next_back().unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs as the daemon, until a signal ends it.
///
/// # Errors
/// The errors of [`vrdma_backend::daemon::Daemon::start`].
pub fn run(args: &Args) -> Result<()> {
    vrdma_backend::logger::start(None);
    // As in the daemon's own program, a panic ends the process.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
    let _daemon = vrdma_backend::daemon::Daemon::start(Config::load(args)?)?;
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_is_not_said() {
        assert_eq!(unusual(&Config::default()).unwrap(), "");
        let guest = "name=a,mac=02:00:00:00:00:01,socket=/s".parse().unwrap();
        let config = Config { busy_poll: true, guests: vec![guest], ..Config::default() };
        let text = unusual(&config).unwrap();
        assert!(text.contains("busy_poll = true") && !text.contains("workers"), "{text}");
        let read: Table = text.parse().unwrap();
        assert_eq!((read.len(), &read["guest"][0]["name"]), (2, &"a".into()), "{text}");
    }
}
