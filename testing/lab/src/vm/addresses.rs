//! Names and addresses of the VMs of a pair.

/// Addresses of the two VMs.
pub const IP: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Their IPv6 addresses, beside the link-local ones.
pub const IP6: [&str; 2] = ["fd77::1", "fd77::2"];

/// Addresses in VLANs: of a and c alike, and of b.
pub const VLAN_IP: [&str; 2] = ["10.88.0.1", "10.88.0.2"];

/// The VMs' names.
pub(super) const NAMES: [&str; 3] = ["a", "b", THIRD];
/// A guest that the backend waits for: a VM if the pair has a third one, else tests may play it.
pub(super) const THIRD: &str = "c";

/// The backend's guest that is a VM's second one.
pub(super) fn rail(name: &str) -> String {
    format!("{name}2")
}

/// What tells its MAC addresses from others.
pub(super) fn rail_index(index: usize) -> usize {
    index + 0x10
}

/// Another MAC address that the host allows a VM.
pub fn extra_mac(index: usize) -> String {
    format!("52:54:00:77:01:{:02x}", index + 1)
}

/// The MAC address of a VM's functions: 0 is a, 1 is b.
pub fn mac(index: usize) -> String {
    format!("52:54:00:77:00:{:02x}", index + 1)
}
