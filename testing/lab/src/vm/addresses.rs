//! Names and addresses of a pair's VMs.

/// IPv4 addresses of VMs a and b.
pub const IP: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// IPv6 addresses of VMs a and b, besides the link-local ones.
pub const IP6: [&str; 2] = ["fd77::1", "fd77::2"];

/// Addresses in VLANs: that of a and c, which is the same, and that of b.
pub const VLAN_IP: [&str; 2] = ["10.88.0.1", "10.88.0.2"];

/// The VMs' names.
pub(super) const NAMES: [&str; 3] = ["a", "b", THIRD];
/// The name of a third guest of the backend: a VM if the pair has three, else a guest played by
/// tests.
pub(super) const THIRD: &str = "c";

/// Returns the name of the backend's guest that is a VM's second one.
pub(super) fn rail(name: &str) -> String {
    format!("{name}2")
}

/// Returns the index by which a second guest's MAC addresses differ from others.
pub(super) fn rail_index(index: usize) -> usize {
    index + 0x10
}

/// Returns another MAC address that the host allows a VM to use.
pub fn extra_mac(index: usize) -> String {
    format!("52:54:00:77:01:{:02x}", index + 1)
}

/// Returns the MAC address of a VM's functions: 0 is a, 1 is b.
pub fn mac(index: usize) -> String {
    format!("52:54:00:77:00:{:02x}", index + 1)
}
