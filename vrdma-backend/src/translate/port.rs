//! The port of the device.

use super::limits::GID_TABLE_LEN;
use vrdma_abi::control::{QueryPortResp, SetPortMtuReq, Status, port_state};
use vrdma_wire::num::Mtu;

/// Largest message, bytes.
const MAX_MESSAGE: u32 = 1 << 31;

/// The port as a guest sees it.
#[derive(Clone, Copy, Debug)]
pub struct PortAttr {
    /// Whether its link is up.
    pub is_up: bool,
    /// Largest path MTU.
    pub max_mtu: Mtu,
    /// Path MTU in use.
    pub active_mtu: Mtu,
    /// Speed in Mb/s.
    pub speed: u32,
    /// Packets or messages refused for a wrong Q_Key.
    pub bad_qkeys: u64,
}

/// The path MTU that a driver sets.
///
/// # Errors
/// `INVALID`: not one of the five that there are (enum ibv_mtu).
pub fn mtu(req: &SetPortMtuReq) -> Result<Mtu, Status> {
    let mtu = (1..=5).filter_map(Mtu::from_code).find(|mtu| mtu.bytes() == req.mtu.get());
    match mtu {
        Some(mtu) if req.reserved.get() == 0 => Ok(mtu),
        _ => Err(Status::INVALID),
    }
}

/// The port, for the driver that asks for it.
pub fn response(port: &PortAttr) -> QueryPortResp {
    QueryPortResp {
        state: if port.is_up { port_state::ACTIVE } else { port_state::DOWN },
        reserved0: 0,
        gid_table_len: GID_TABLE_LEN.into(),
        max_mtu: port.max_mtu.bytes().into(),
        active_mtu: port.active_mtu.bytes().into(),
        speed: port.speed.into(),
        max_msg_size: MAX_MESSAGE.into(),
        bad_qkeys: u32::try_from(port.bad_qkeys).unwrap_or(u32::MAX).into(),
        reserved: 0.into(),
    }
}
