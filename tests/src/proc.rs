//! The system's statistics about a process, and control of its threads.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;
pub use vrdma_guest::threads::{pin, thread_named, thread_of};
use vrdma_guest::wait;

/// Returns the resident memory in bytes.
pub fn resident(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// Returns the private anonymous resident memory in bytes, without files and shared memory.
pub fn anonymous(pid: u32) -> u64 {
    memory(pid, "RssAnon:")
}

fn memory(pid: u32, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    let line = status.lines().find(|line| line.starts_with(kind)).expect("a line of that name");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024
}

/// Returns the number of open descriptors: the minimum over some time.
///
/// A client of the admin socket shows as one more for a moment.
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

/// Returns the number of mappings of guest memory.
pub fn guest_mappings(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process is alive");
    maps.lines().filter(|line| line.contains("/memfd:guest")).count()
}

/// Returns the bytes of guest memory that are mapped.
pub fn guest_bytes(pid: u32) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process is alive");
    let length = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    };
    maps.lines().filter(|line| line.contains("/memfd:guest")).filter_map(length).sum()
}

/// Returns the number of threads.
pub fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive").count()
}

/// Returns the processor time that a process' threads have used.
pub fn cpu_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive");
    let nanos = tasks.flatten().filter_map(|task| {
        // The first number is the time on a processor in nanoseconds.
        let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Returns the processor time that the first thread with that name has used.
pub fn thread_cpu_time(pid: u32, name: &str) -> Duration {
    let thread = thread_of(pid, name).expect("a thread of that name");
    let schedstat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).expect("it is alive");
    let nanos = schedstat.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
    Duration::from_nanos(nanos)
}

/// Returns the page faults of the first thread with that name, minor and major.
pub fn thread_page_faults(pid: u32, name: &str) -> u64 {
    let thread = thread_of(pid, name).expect("a thread of that name");
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).expect("it is alive");
    // The name in parentheses precedes the state, the parent, and so on (proc(5), fields 10 and
    // 12).
    let (_, fields) = stat.rsplit_once(") ").expect("its name");
    let field = |number: usize| fields.split_whitespace().nth(number - 3).and_then(|n| n.parse::<u64>().ok());
    field(10).zip(field(12)).map(|(minor, major)| minor + major).expect("numbers")
}

/// A counter of the time a thread of this process waited for a processor that others had.
pub struct Waits(fs::File);

impl Waits {
    /// Opens the counter of a thread. Returns `None` if the kernel does not count.
    pub fn of(thread: i32) -> Option<Waits> {
        fs::File::open(format!("/proc/self/task/{thread}/schedstat")).ok().map(Waits)
    }

    /// Returns the total, as of the last time that the thread got a processor.
    pub fn total(&self) -> Duration {
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).expect("the thread is alive");
        let mut numbers = std::str::from_utf8(&text[..len]).expect("text").split_ascii_whitespace();
        // The second of the three numbers is the waiting time in nanoseconds.
        Duration::from_nanos(numbers.nth(1).and_then(|number| number.parse().ok()).expect("a number"))
    }
}

/// A thread stopped by its debugger, which is the calling thread. Dropping this resumes it.
#[derive(Debug)]
pub struct StoppedThread {
    thread: i32,
    /// The kernel identifies debuggers by their thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl StoppedThread {
    /// Stops one thread of a child. Returns `None` if debuggers are not allowed.
    pub fn stop(thread: i32) -> Option<StoppedThread> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests use no memory of this process.
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
        // SAFETY: the request uses no memory of this process, and the thread is stopped.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.thread, none, none) };
    }
}

/// Lets a thread (0: this one) run only if no other thread wants its processor.
pub fn only_when_idle(thread: i32) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are valid. If the call fails, the thread keeps its policy.
    unsafe { libc::sched_setscheduler(thread, libc::SCHED_IDLE, &raw const parameters) };
}
