//! Threads of processes: their names and their processors.

use std::fs;

/// Returns the number of the first thread of this process with that name.
pub fn thread_named(name: &str) -> Option<i32> {
    thread_of(std::process::id(), name)
}

/// Returns the number of the first thread of process `pid` with that name.
pub fn thread_of(pid: u32, name: &str) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive");
    let named = tasks
        .flatten()
        .find(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name));
    named?.file_name().to_str()?.parse().ok()
}

/// Returns whether this thread may run on a processor.
pub fn may_run_on(cpu: usize) -> bool {
    // SAFETY: a `cpu_set_t` is plain bits; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set and its size are valid.
    let known = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0 };
    // SAFETY: the check of `cpu` before this call keeps the access within the set's bits.
    known && cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, &set) }
}

/// Pins a thread (0: this one) to one processor, if that processor exists.
pub fn pin(thread: i32, cpu: usize) {
    // SAFETY: a `cpu_set_t` is plain bits; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a valid value of this function.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set and its size are valid. If the call fails, the thread runs on any processor.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) };
}
