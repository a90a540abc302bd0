//! The configuration space of the RDMA function.

use crate::config::{Config, GuestConfig, Transport};
use vrdma_abi::config::{self as abi, device, link, transport};
use vrdma_abi::wqe::unit;
use vrdma_abi::zerocopy::IntoBytes;
use vrdma_wire::num::Mtu;

/// Size of the configuration space in bytes.
pub const SIZE: usize = device::CONFIG_SIZE as usize;

/// Returns the configuration space, which drivers read before they start the device. Unused bytes
/// are zero.
pub fn config_space(config: &Config, guest: &GuestConfig, max_mtu: Mtu) -> [u8; SIZE] {
    let (magic, transport) = match guest.transport {
        Transport::Roce => (device::MAGIC, transport::ROCE),
        Transport::Iwarp => (device::MAGIC_TRANSPORT, transport::IWARP),
        Transport::Both => unreachable!("a guest with both has a function for each"),
    };
    let fields = abi::Config {
        magic: magic.into(),
        version_major: (device::VERSION_MAJOR as u16).into(),
        version_minor: (device::VERSION_MINOR as u16).into(),
        mac: guest.mac.0,
        num_comp_vectors: config.comp_vectors.into(),
        num_channels: config.channels.into(),
        max_wqe_units: unit::MAX_UNITS_V1_1 as u8,
        link: link::UP,
        max_mtu: max_mtu.bytes().into(),
        transport,
        reserved: [0; 39],
    };
    let mut space = [0; SIZE];
    space[..abi::Config::SIZE].copy_from_slice(fields.as_bytes());
    space
}
