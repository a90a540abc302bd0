//! Threads of processes: what they are called, and on which processor they run.

use std::fs;

/// Number of the first thread of this process with that name.
pub fn thread_named(name: &str) -> Option<i32> {
    thread_of(std::process::id(), name)
}

/// Number of the first thread of a process with that name.
pub fn thread_of(pid: u32, name: &str) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive");
    let named = tasks
        .flatten()
        .find(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name));
    named?.file_name().to_str()?.parse().ok()
}

/// Whether this thread may run on a processor.
pub fn may_run_on(cpu: usize) -> bool {
    // SAFETY: a set of processors is plain bits, and zero is none.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid, and so is its size.
    let known = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0 };
    // SAFETY: a processor beyond the set's bits is in none.
    known && cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, &set) }
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
