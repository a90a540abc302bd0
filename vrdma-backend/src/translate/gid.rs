//! Entries of the GID table.

use vrdma_abi::control::{AddGidReq, QueryGidResp, Status, gid_type};
use vrdma_transport::GidEntry;
use vrdma_wire::num::{Gid, VlanId};

/// VLAN number of frames without a tag.
const UNTAGGED: u16 = 0xffff;

/// The entry that a driver adds.
///
/// # Errors
/// `INVALID`: a GID that is not RoCE v2's, or no number of a VLAN.
pub fn entry(req: &AddGidReq) -> Result<GidEntry, Status> {
    if req.gid_type != gid_type::ROCE_V2 || req.reserved0 != 0 {
        return Err(Status::INVALID);
    }
    let vlan = match req.vlan.get() {
        UNTAGGED => VlanId::UNTAGGED,
        0 => return Err(Status::INVALID),
        number => VlanId::new(number).ok_or(Status::INVALID)?,
    };
    Ok(GidEntry { gid: Gid(req.gid), vlan })
}

/// An entry, for the driver that asks for it.
pub fn response(entry: &GidEntry) -> QueryGidResp {
    let vlan = match entry.vlan {
        VlanId::UNTAGGED => UNTAGGED,
        vlan => vlan.number(),
    };
    QueryGidResp {
        gid: entry.gid.0,
        gid_type: gid_type::ROCE_V2,
        reserved0: 0,
        vlan: vlan.into(),
        reserved: 0.into(),
    }
}
