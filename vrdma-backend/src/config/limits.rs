//! The limits of each guest.

use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::OnceLock;

/// The limits of each guest: the keys of `[limits]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename = "Limits")]
pub struct GuestLimits {
    /// User contexts (processes).
    pub contexts: u32,
    /// Protection domains.
    pub pds: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Entries of one completion queue; a power of two.
    pub cq_entries: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Extents of memory in one region.
    pub mr_runs: u32,
    /// Extents of memory in all regions and queues together.
    pub total_runs: u64,
    /// Queue pairs; a power of two.
    pub qps: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Outstanding requests of one queue.
    pub qp_requests: u32,
    /// Outstanding requests of all queues together.
    pub total_requests: u64,
    /// Bytes of daemon memory that the pending requests of all queues may take, if all queues are
    /// full.
    pub request_memory: u64,
    /// Bytes of daemon memory that the pending requests of all guests together may take.
    pub all_request_memory: u64,
    /// Bytes of daemon memory for received and sent data that connections of its own TCP still
    /// keep.
    ///
    /// Each connection may have a little more in any case.
    pub stream_memory: u64,
    /// Bytes of daemon memory for such data of all guests together.
    ///
    /// A guest has no more than the others leave. So a guest that is alone has half of it.
    pub all_stream_memory: u64,
    /// Address handles. Each connection of `rdma_cm` has one while it is established.
    pub ahs: u32,
    /// Connections and listeners of iWARP. Each is a file descriptor of the daemon.
    pub connections: u32,
    /// MiB of memory that its VMM may share with one function. By default the size of the machine's
    /// memory.
    ///
    /// A sparse file may be longer. Pages that the daemon is the first to touch would count as the
    /// daemon's.
    pub memory_max: u64,
    /// MiB of pages that the daemon may allocate for one function. By default an eighth of the
    /// machine's memory.
    ///
    /// The daemon allocates pages when it registers memory that the VMM had not touched. They count
    /// for the daemon's control group.
    pub pages_max: u64,
    /// MiB of such pages of all guests together. By default a quarter of the machine's memory.
    pub all_pages_max: u64,
    /// Flooded frames of its Ethernet function that other guests get in a second.
    ///
    /// These are frames to several ports: broadcast, multicast, unknown destinations. The uplink
    /// gets all.
    pub flood_rate: u32,
}

impl GuestLimits {
    /// Returns `pages_max` in bytes.
    pub fn pages_bytes(&self) -> u64 {
        self.pages_max.saturating_mul(1 << 20)
    }

    /// Returns `all_pages_max` in bytes.
    pub fn all_pages_bytes(&self) -> u64 {
        self.all_pages_max.saturating_mul(1 << 20)
    }

    /// Returns `memory_max` in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_max.saturating_mul(1 << 20)
    }
}

impl Default for GuestLimits {
    fn default() -> Self {
        GuestLimits {
            contexts: 1024,
            pds: 16384,
            cqs: 16384,
            cq_entries: 1 << 20,
            mrs: 131_072,
            mr_runs: 1 << 20,
            total_runs: 1 << 22,
            qps: 16384,
            srqs: 16384,
            qp_requests: 32768,
            total_requests: 1 << 22,
            request_memory: 256 << 20,
            all_request_memory: 4 << 30,
            stream_memory: 512 << 20,
            all_stream_memory: 4 << 30,
            ahs: 16384,
            connections: 1024,
            memory_max: machine_memory(),
            pages_max: (machine_memory() / 8).max(64),
            all_pages_max: (machine_memory() / 4).max(64),
            flood_rate: 10_000,
        }
    }
}

/// Returns the MiB of memory of the machine, or a tebibyte if the system does not tell.
fn machine_memory() -> u64 {
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        total(&text).unwrap_or(1 << 20)
    })
}

/// Returns the MiB in the line `MemTotal:       65842612 kB` of meminfo (proc(5)).
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib >> 10).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_no_more_memory_by_default_than_the_machine() {
        let machine = total(&fs::read_to_string("/proc/meminfo").unwrap()).unwrap();
        assert_eq!(GuestLimits::default().memory_max, machine);
        assert_eq!(total("MemFree: 5 kB\nMemTotal:       65842612 kB\n"), Some(64_299));
        assert_eq!(total("MemTotal: 12 kB"), Some(1));
        assert_eq!((total(""), total("MemTotal: many kB"), total("MemTotal: 5 GB")), (None, None, None));
    }
}
