//! Fields that several commands about connections have.

use super::super::base::StatusResult;
use crate::config::GuestConfig;
use crate::streams::cm::Depths;
use crate::tcp::TrafficClass;
use std::net::{IpAddr, Ipv6Addr};
use vrdma_abi::control::{Status, cm_limit};

/// Returns the address in a field.
///
/// `::ffff:a.b.c.d` becomes an IPv4 address. All zeros are the unspecified address of both
/// families.
pub(super) fn address(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}

/// Returns the bytes of an address field.
pub(super) fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Checks the traffic class of the segments that a connection sends.
///
/// # Errors
/// `INVALID`: it has ECN bits.
pub(super) fn traffic_class(value: u8) -> StatusResult<TrafficClass> {
    TrafficClass::new(value).ok_or(Status::INVALID)
}

/// Checks the numbers of READs and atomics that the driver asks for (IRD and ORD). It may ask for
/// more than the device has.
///
/// # Errors
/// `INVALID`: more than any device has.
pub(super) fn depths(ird: u16, ord: u16) -> StatusResult<Depths> {
    let depth = |wish: u16| u8::try_from(wish).ok().filter(|&wish| u32::from(wish) <= cm_limit::MAX_DEPTH);
    match (depth(ird), depth(ord)) {
        (Some(ird), Some(ord)) => Ok(Depths { ird, ord }),
        _ => Err(Status::INVALID),
    }
}

/// Returns the private data of a request.
///
/// # Errors
/// `INVALID`: it is longer than MPA allows.
pub(super) fn private_data(data: &[u8; 512], length: u16) -> StatusResult<Vec<u8>> {
    let length = usize::from(length);
    if length > cm_limit::MAX_PRIVATE_DATA as usize {
        return Err(Status::INVALID);
    }
    Ok(data[..length].to_vec())
}

/// Returns whether the address may belong to a guest with its own TCP, in at least one VLAN.
///
/// The VLAN itself is checked later, by the worker.
pub(super) fn may_be_own(address: IpAddr, guest: &GuestConfig) -> bool {
    let gids = guest.allowed_gids();
    !address.is_multicast()
        && !address.is_loopback()
        && (gids.is_empty() || gids.iter().any(|allowed| allowed.address == address))
}
