//! What the system says of a process.

use std::fs;
use std::time::Duration;

/// Resident memory in bytes.
pub fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024
}

/// Number of open descriptors: the least of some time, as a client of the admin socket shows as one for a moment.
pub fn descriptors(pid: u32) -> usize {
    let count = |_| {
        std::thread::sleep(Duration::from_millis(1));
        fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is alive").count()
    };
    (0..5).map(count).min().expect("some")
}

/// Number of mappings of guests' memory.
pub fn guest_mappings(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process is alive");
    maps.lines().filter(|line| line.contains("/memfd:guest")).count()
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

/// Number of the first thread of this process with that name.
pub fn thread_named(name: &str) -> Option<i32> {
    let tasks = fs::read_dir("/proc/self/task").expect("this process is alive");
    let named = tasks
        .flatten()
        .find(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name));
    named?.file_name().to_str()?.parse().ok()
}

/// Keeps a thread (0: this one) on one processor, if there are so many.
pub fn pin(thread: i32, cpu: usize) {
    // SAFETY: a set of processors is plain bits, and zero is none.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: sets a bit of it.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is valid, and so is its size. Where it fails the thread runs anywhere.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) };
}
