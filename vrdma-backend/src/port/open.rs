//! Chooses the driver of a device.

use super::dpdk::{Eal, Ethdev};
use super::packet::PacketSocket;
use super::{Driver, UplinkDevice};
use anyhow::Result;

/// Opens a device: this crate's packet socket, or what [`Ethdev::open_with`] returns.
///
/// # Errors
/// The device cannot be opened. The message says why and what helps.
pub fn open(
    eal: Eal,
    device: &UplinkDevice,
    mtu: Option<u16>,
    zero_copy: bool,
    workers: u16,
) -> Result<Box<dyn Driver>> {
    if device.is_packet() {
        if workers > 1 {
            log::info!(
                "uplink {}: it has one queue pair: the first worker sends and receives for all",
                device.name
            );
        }
        return Ok(Box::new(PacketSocket::open(eal, device, mtu)?));
    }
    Ok(Box::new(Ethdev::open_with(eal, device, mtu, zero_copy, workers)?))
}
