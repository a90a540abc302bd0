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

/// Processor time that threads with this name have used.
pub fn thread_time(pid: u32, name: &str) -> Duration {
    let mut ticks = 0;
    let mut found = false;
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive").flatten() {
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let (head, rest) = stat.rsplit_once(')').expect("a name in brackets");
        if head.ends_with(&format!("({name}")) {
            // utime and stime are fields 14 and 15 of all, the state behind the name is field 3.
            let fields: Vec<&str> = rest.split_whitespace().collect();
            ticks += fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum::<u64>();
            found = true;
        }
    }
    assert!(found, "no thread {name} in process {pid}");
    // SAFETY: asks for a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Duration::from_millis(ticks * 1000 / per_second)
}
