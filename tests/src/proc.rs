//! What the system says of a process.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;
pub use vrdma_guest::threads::{pin, thread_named, thread_of};
use vrdma_guest::wait;

/// Resident memory in bytes.
pub fn resident(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// Resident memory in bytes that is the process' own: none of a file or shared.
pub fn anonymous(pid: u32) -> u64 {
    memory(pid, "RssAnon:")
}

fn memory(pid: u32, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    let line = status.lines().find(|line| line.starts_with(kind)).expect("a line of that name");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024
}

/// Number of open descriptors: the least of some time, as a client of the admin socket shows as one
/// for a moment.
pub fn descriptors(pid: u32) -> usize {
    let count = |_| {
        wait::pause(
            Duration::from_millis(1),
            "a client that is seen each time costs who counts another look",
        );
        fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is alive").count()
    };
    (0..5).map(count).min().expect("some")
}

/// Number of mappings of guests' memory.
pub fn guest_mappings(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process is alive");
    maps.lines().filter(|line| line.contains("/memfd:guest")).count()
}

/// Bytes of guests' memory that are mapped.
pub fn guest_bytes(pid: u32) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process is alive");
    let length = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    };
    maps.lines().filter(|line| line.contains("/memfd:guest")).filter_map(length).sum()
}

/// Number of threads.
pub fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive").count()
}

/// Processor time that a process' threads have used.
pub fn cpu_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive");
    let nanos = tasks.flatten().filter_map(|task| {
        // Nanoseconds on a processor come first.
        let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Processor time that the first thread with that name has used.
pub fn thread_cpu_time(pid: u32, name: &str) -> Duration {
    let thread = thread_of(pid, name).expect("a thread of that name");
    let schedstat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).expect("it is alive");
    let nanos = schedstat.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
    Duration::from_nanos(nanos)
}

/// Page faults of the first thread with that name, minor and major.
pub fn thread_page_faults(pid: u32, name: &str) -> u64 {
    let thread = thread_of(pid, name).expect("a thread of that name");
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).expect("it is alive");
    // Behind the name, in parentheses, come the state, the parent, ... (proc(5), fields 10 and 12).
    let (_, fields) = stat.rsplit_once(") ").expect("its name");
    let field = |number: usize| fields.split_whitespace().nth(number - 3).and_then(|n| n.parse::<u64>().ok());
    field(10).zip(field(12)).map(|(minor, major)| minor + major).expect("numbers")
}

/// How long a thread of this process waited for a processor that others had.
pub struct Waits(fs::File);

impl Waits {
    /// Of a thread; none where the kernel does not count.
    pub fn of(thread: i32) -> Option<Waits> {
        fs::File::open(format!("/proc/self/task/{thread}/schedstat")).ok().map(Waits)
    }

    /// In all, as of the last time it got one.
    pub fn total(&self) -> Duration {
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).expect("the thread is alive");
        let mut numbers = std::str::from_utf8(&text[..len]).expect("text").split_ascii_whitespace();
        // Of the three numbers the second, in nanoseconds.
        Duration::from_nanos(numbers.nth(1).and_then(|number| number.parse().ok()).expect("a number"))
    }
}

/// A thread that a debugger has stopped: this thread. It goes on when this is dropped.
#[derive(Debug)]
pub struct StoppedThread {
    thread: i32,
    /// The kernel knows debuggers by their thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl StoppedThread {
    /// Stops a thread of a child, and no other; `None` where debuggers are not allowed.
    pub fn stop(thread: i32) -> Option<StoppedThread> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: requests without memory of ours.
        let stopped = unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0
                && libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) == 0
                && libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) == thread
        };
        stopped.then_some(StoppedThread { thread, _not_send: std::marker::PhantomData })
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: a request without memory of ours, to a thread that is stopped.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.thread, none, none) };
    }
}

/// Lets a thread (0: this one) run only when no other wants its processor.
pub fn only_when_idle(thread: i32) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are valid. Where it fails the thread runs as it did.
    unsafe { libc::sched_setscheduler(thread, libc::SCHED_IDLE, &raw const parameters) };
}
