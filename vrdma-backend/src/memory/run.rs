//! Runs of memory: the guest's, and this process's.

/// A run of guest-physical memory that is not known to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte, guest-physical.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A run of this process's memory that backs guest memory.
#[derive(Clone, Copy, Debug)]
pub struct HostRun {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: u64,
}
