//! Extents of memory: the guest's, and this process's.

/// An extent of guest-physical memory. It need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte, guest-physical.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
}

/// An extent of this process's memory that backs guest memory.
#[derive(Clone, Copy, Debug)]
pub struct HostExtent {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: u64,
}
