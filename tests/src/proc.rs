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

/// Number of open descriptors.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is alive").count()
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
