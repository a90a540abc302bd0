//! DPDK's environment abstraction layer (EAL). The first port that needs it starts it, once in the
//! process.

use crate::port::UplinkDevice;
use crate::ratelimit::RateLimit;
use anyhow::{Result, anyhow, bail};
use dpdk_sys as dpdk;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Megabytes of memory without hugepages. The system provides them as they are used.
const PLAIN_MEGABYTES: u32 = 512;
/// The number of lines of DPDK's log that an error quotes.
const QUOTED: usize = 6;

/// Proof that EAL runs. It runs until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Eal(());

/// The result of starting EAL, which can be tried only once.
static STARTED: Mutex<Option<Result<(), String>>> = Mutex::new(None);
/// The last warnings and errors that DPDK logged.
///
/// Lines that were held back ([`held_back`]) have the level at which they may still be logged.
static SAID: Mutex<VecDeque<(Option<log::Level>, String)>> = Mutex::new(VecDeque::new());

/// Limits how many of DPDK's messages are logged, during setup and after it.
static MESSAGES: Mutex<RateLimit> = Mutex::new(RateLimit::new(100));

thread_local!(static EXPECTED: Cell<bool> = const { Cell::new(false) });
thread_local!(static HELD: Cell<bool> = const { Cell::new(false) });

unsafe extern "C" {
    /// getopt(3): whether getopt prints what is wrong with an option.
    static mut opterr: c_int;
}

/// Calls DPDK and holds back the warnings and errors that it logs.
///
/// If the call fails, the caller's error quotes them instead. If it succeeds, they are logged after
/// all.
pub fn held_back<T, E>(call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let before = HELD.replace(true);
    let result = call();
    HELD.set(before);
    if result.is_ok() {
        let said: Vec<_> = lock(&SAID).drain(..).collect();
        said.into_iter().for_each(|(level, line)| log_held(level, &line));
    }
    result
}

/// Logs a line that was held back.
fn log_held(level: Option<log::Level>, line: &str) {
    if let Some(level) = level {
        lock(&MESSAGES).log_as("dpdk", level, || line.to_owned());
    }
}

/// Calls DPDK where a failure is a normal answer. What it logs is shown with `-v` only.
pub fn expecting_failure<T>(call: impl FnOnce() -> T) -> T {
    let before = EXPECTED.replace(true);
    let result = call();
    EXPECTED.set(before);
    result
}

impl Eal {
    /// Starts EAL for `device`.
    ///
    /// `arguments` come from the user, separated by spaces. Default arguments are added for what
    /// they leave open. Later calls find EAL running and ignore their arguments.
    ///
    /// # Errors
    /// EAL does not start. The message says why and what helps.
    pub fn start(arguments: &str, device: &UplinkDevice) -> Result<Eal> {
        let mut started = lock(&STARTED);
        let result = started.get_or_insert_with(|| {
            let arguments = arguments.split_whitespace().map(str::to_owned).collect();
            let all = complete(arguments, device, has_hugepages(), &allowed_processors());
            log::debug!("EAL arguments: {}", all.join(" "));
            init(&all)
        });
        match result {
            Ok(()) => Ok(Eal(())),
            Err(message) => Err(anyhow!("{message}")),
        }
    }

    /// Registers the calling thread with DPDK, so that it has its own caches of pools.
    ///
    /// Everything works without this, but slower.
    pub fn adopt_thread(self) {
        struct Registered(Cell<bool>);
        thread_local!(static REGISTERED: Registered = const { Registered(Cell::new(false)) });
        impl Drop for Registered {
            fn drop(&mut self) {
                if self.0.get() {
                    // SAFETY: this thread was registered, and makes no more calls of DPDK.
                    unsafe { dpdk::rte_thread_unregister() };
                }
            }
        }
        REGISTERED.with(|registered| {
            // SAFETY: EAL runs. Only threads that have no lcore number get one.
            unsafe {
                if dpdk::shim_lcore_id() == u32::MAX {
                    registered.0.set(dpdk::rte_thread_register() == 0);
                }
            }
        });
    }

    /// Probes a device, so that EAL knows it.
    ///
    /// # Errors
    /// There is no such device, or no driver for it.
    pub fn probe(self, device: &UplinkDevice) -> Result<()> {
        let text = CString::new(device.to_string())?;
        lock(&SAID).clear();
        // SAFETY: EAL runs. The text is copied.
        let result = unsafe { dpdk::rte_dev_probe(text.as_ptr()) };
        if result == 0 {
            return Ok(());
        }
        let cause = error_text(-result);
        let said = take_said();
        if let Some(typo) = device.typo() {
            bail!("device {device}: {typo} ({cause}){}", quote(&said));
        }
        let hint = if device.is_memif_client() {
            "are the parameters right, and is the server there?"
        } else if device.is_pci() {
            "is the address right (`lspci -D`), and is the device bound to vfio-pci (`dpdk-devbind.py --status`)?"
        } else if said.contains("failed to parse device") || said.contains("annot find") {
            "drivers are net_packet, net_af_packet, net_af_xdp, net_memif, net_ring and what else lies in DPDK's directory of drivers; a \
             number follows the name"
        } else if said.contains("Operation not permitted") || said.contains("Permission denied") {
            "packet sockets need CAP_NET_RAW: start the daemon as root or with that capability"
        } else {
            "are the parameters right?"
        };
        bail!("device {device}: {cause}; {hint}{}", quote(&said))
    }
}

/// Adds default arguments for what the given arguments leave open.
fn complete(mut all: Vec<String>, device: &UplinkDevice, hugepages: bool, processors: &str) -> Vec<String> {
    let says = |all: &[String], names: &[&str]| {
        all.iter().any(|argument| {
            names.iter().any(|name| {
                let long = name.starts_with("--");
                let value = argument.strip_prefix(name);
                value.is_some_and(|rest| rest.is_empty() || !long || rest.starts_with('='))
            })
        })
    };
    let add = |all: &mut Vec<String>, unless: &[&str], arguments: &[&str]| {
        if !says(all, unless) {
            all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        }
    };
    if !hugepages {
        let megabytes = PLAIN_MEGABYTES.to_string();
        add(&mut all, &["--no-huge", "--huge-dir", "--socket-mem", "-m"], &["--no-huge", "-m", &megabytes]);
    }
    // Avoids files that two daemons would conflict over. EAL does not allow `--in-memory` without
    // hugepages.
    let files = ["--in-memory", "--no-shconf", "--huge-dir", "--proc-type", "--file-prefix"];
    let plain = says(&all, &["--no-huge"]);
    add(&mut all, &files, &[if plain { "--no-shconf" } else { "--in-memory" }]);
    if device.is_pci() {
        add(&mut all, &["-a", "--allow", "-b", "--block", "--no-pci"], &["-a", &device.name]);
    } else {
        add(&mut all, &["-a", "--allow", "-b", "--block", "--no-pci"], &["--no-pci"]);
        add(&mut all, &["--iova-mode"], &["--iova-mode=va"]);
    }
    // One lcore, which may run on all processors that we may use. The worker has its own thread,
    // and EAL must not pin it.
    add(&mut all, &["-l", "--lcores", "-c"], &["--lcores", &format!("0@({processors})")]);
    add(&mut all, &["--telemetry", "--no-telemetry"], &["--no-telemetry"]);
    all
}

/// Whether any hugepage is free.
fn has_hugepages() -> bool {
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let free = |size: fs::DirEntry| fs::read_to_string(size.path().join("free_hugepages"));
    sizes
        .filter_map(|size| free(size).ok())
        .any(|count| count.trim().parse::<u64>().is_ok_and(|count| count > 0))
}

/// Returns the processors on which this process may run, for example `0-3,8`.
fn allowed_processors() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or("0", str::trim).to_owned()
}

fn init(arguments: &[String]) -> Result<(), String> {
    let mut words: Vec<CString> = Vec::new();
    for word in ["vrdma-backend"].into_iter().chain(arguments.iter().map(String::as_str)) {
        words.push(CString::new(word).map_err(|error| error.to_string())?);
    }
    let asks_for_help = arguments.iter().any(|argument| matches!(&argument[..], "-h" | "--help"));
    // EAL takes over the thread that starts it: it assigns an lcore number and sets its processors.
    // So it gets a thread of its own.
    let thread = std::thread::Builder::new().name("eal".into());
    let thread = thread.spawn(move || {
        let mut words: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        // SAFETY: EAL may keep, reorder and change the words, so they are never freed. They are C
        // strings, and `count` is their number. The stream is never closed.
        unsafe {
            let stream = dpdk::shim_stream(Some(log_line));
            if !stream.is_null() {
                dpdk::rte_openlog_stream(stream);
            }
            let count = words.len() as i32;
            // getopt would print past our log. The error names the arguments.
            opterr = 0;
            // EAL prints a hundred lines about its arguments. An error says what is wrong with
            // them.
            let silence = (!asks_for_help).then(Silence::start);
            let result = held_back(|| {
                let result = dpdk::rte_eal_init(count, words.as_mut_ptr());
                if result < 0 { Err(dpdk::shim_errno()) } else { Ok(()) }
            });
            drop(silence);
            std::mem::forget(words);
            result
        }
    });
    let result = thread.map_err(|error| error.to_string())?.join().expect("starting EAL does not panic");
    result.map_err(|error| explain(error, arguments, &take_said()))
}

/// Discards what C code prints to standard output, until it is dropped.
///
/// Nothing else writes there meanwhile, because the daemon logs to standard error.
struct Silence(Option<OwnedFd>);

impl Silence {
    fn start() -> Silence {
        flush_c();
        let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 0).ok();
        if let Ok(null) = fs::File::options().write(true).open("/dev/null")
            && stdout.is_some()
        {
            let _ = rustix::stdio::dup2_stdout(null);
        }
        Silence(stdout)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        flush_c();
        if let Some(stdout) = &self.0 {
            let _ = rustix::stdio::dup2_stdout(stdout);
        }
    }
}

/// Flushes the buffers of C's output streams.
fn flush_c() {
    // SAFETY: null means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Explains why EAL did not start, and what helps.
fn explain(error: i32, arguments: &[String], said: &str) -> String {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let hint = if has(&["hugepage", "Hugepage", "HUGE"]) {
        "there are not enough free hugepages: reserve some (`sysctl vm.nr_hugepages=512`), or do without (--eal '--no-huge -m 512')"
    } else if has(&["annot create lock", "another primary process"]) {
        "another DPDK process has this file prefix: give another (--eal '--file-prefix=NAME'), or none"
    } else if has(&["VFIO", "vfio"]) {
        "VFIO is not ready: is the device bound to vfio-pci, the IOMMU on, and may we open /dev/vfio?"
    } else if error == libc::EACCES || error == libc::EPERM || has(&["ermission denied", "not permitted"]) {
        "permission is missing: start the daemon as root, or give it access to /dev/hugepages and /dev/vfio"
    } else if error == libc::ENOMEM || has(&["annot allocate memory", "annot get memory", "ot enough memory"])
    {
        "there is not enough memory: ask for less (--eal '-m MEGABYTES'), or raise the limit of locked memory"
    } else if has(&["unable to find", "failed to parse device", "Bus (", "not find device", "evice is not"]) {
        "a device that was named is not there: PCI addresses are shown by `lspci -D`, drivers by their directory"
    } else if error == libc::EINVAL {
        "an argument of --eal is wrong: they are those of DPDK's EAL parameters"
    } else {
        "what DPDK says is all that is known"
    };
    format!(
        "DPDK's EAL does not start: {}; {hint} (its arguments: {}){}",
        error_text(error),
        arguments.join(" "),
        quote(said)
    )
}

fn quote(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("\nDPDK says:\n{said}") }
}

/// Returns the text of one of DPDK's error numbers.
pub fn error_text(error: i32) -> String {
    // SAFETY: this returns a string in static or thread-local memory. It is copied before the next
    // call.
    unsafe { CStr::from_ptr(dpdk::rte_strerror(error)) }.to_string_lossy().into_owned()
}

/// Returns DPDK's errno as an error.
pub fn last_error() -> anyhow::Error {
    // SAFETY: this reads a thread-local variable.
    anyhow!(error_text(unsafe { dpdk::shim_errno() }))
}

/// Takes what DPDK logged as a warning or an error since the last call, one message a line.
pub fn take_said() -> String {
    let lines: Vec<String> = lock(&SAID).drain(..).map(|(_, line)| format!("  {line}")).collect();
    lines.join("\n")
}

/// Receives DPDK's log messages, and logs them as messages of this program.
unsafe extern "C" fn log_line(bytes: *const c_char, len: usize) {
    // SAFETY: the stream passes as many bytes as it says.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    // SAFETY: this reads a thread-local variable of the message that is being written.
    let level = match unsafe { dpdk::rte_log_cur_msg_loglevel() } as u32 {
        ..=dpdk::SHIM_LOG_ERR => log::Level::Error,
        dpdk::SHIM_LOG_WARNING => log::Level::Warn,
        // For example the number of NUMA nodes.
        dpdk::SHIM_LOG_NOTICE | dpdk::SHIM_LOG_INFO => log::Level::Debug,
        _ => log::Level::Trace,
    };
    let shown = if EXPECTED.get() { level.max(log::Level::Debug) } else { level };
    for line in String::from_utf8_lossy(bytes).lines().map(str::trim).filter(|line| !line.is_empty()) {
        let held = (HELD.get() && level <= log::Level::Warn).then_some(shown);
        if held.is_none() {
            // A peer may be able to make a driver log again and again.
            lock(&MESSAGES).log_as("dpdk", shown, || line.to_owned());
        }
        if level <= log::Level::Warn {
            let mut said = lock(&SAID);
            let first = if said.len() == QUOTED { said.pop_front() } else { None };
            said.push_back((held, line.to_owned()));
            drop(said);
            if let Some((level, line)) = first {
                log_held(level, &line);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind the locks are consistent at any time, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(arguments: &str, device: &str, hugepages: bool) -> String {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        complete(arguments, &device.parse().unwrap(), hugepages, "0-3,8").join(" ")
    }

    #[test]
    fn what_is_left_open_is_added() {
        assert_eq!(
            completed("", "net_ring0", false),
            "--no-huge -m 512 --no-shconf --no-pci --iova-mode=va --lcores 0@(0-3,8) --no-telemetry"
        );
        assert_eq!(
            completed("", "0000:01:00.0", true),
            "--in-memory -a 0000:01:00.0 --lcores 0@(0-3,8) --no-telemetry"
        );
    }

    #[test]
    fn what_was_said_stays() {
        let said =
            "-l 2 --no-huge -m1024 --file-prefix=x --iova-mode=pa --no-telemetry -a 0000:01:00.0,key=1";
        assert_eq!(completed(said, "0000:01:00.0", false), said);
        assert_eq!(completed(said, "net_ring0", true), said);
    }
}
