//! The counters that every port has, whatever its driver is.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub frames_received: u64,
    pub bytes_received: u64,
    pub frames_sent: u64,
    pub bytes_sent: u64,
    pub rx_oversize: u64,
    pub tx_oversize: u64,
    pub tx_no_buffer: u64,
    pub tx_full: u64,
    pub tx_link_down: u64,
    pub link_changes: u64,
}

impl Counters {
    /// Returns the counters with their names.
    pub fn by_name(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("frames_received", self.frames_received),
            ("bytes_received", self.bytes_received),
            ("frames_sent", self.frames_sent),
            ("bytes_sent", self.bytes_sent),
            ("rx_oversize", self.rx_oversize),
            ("tx_oversize", self.tx_oversize),
            ("tx_no_buffer", self.tx_no_buffer),
            ("tx_full", self.tx_full),
            ("tx_link_down", self.tx_link_down),
            ("link_changes", self.link_changes),
        ])
    }
}
