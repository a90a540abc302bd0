//! Access rights of memory regions.

use vrdma_abi::control::{Status, access};
use vrdma_transport::Access;

// The bits of both mean the same.
const _: () = assert!(
    access::LOCAL_WRITE == Access::LOCAL_WRITE.0
        && access::REMOTE_WRITE == Access::REMOTE_WRITE.0
        && access::REMOTE_READ == Access::REMOTE_READ.0
        && access::REMOTE_ATOMIC == Access::REMOTE_ATOMIC.0
        && access::ALL == Access::ALL.0
);

/// The rights that a registration asks for.
///
/// # Errors
/// `INVALID`: an unknown bit, or a right of peers to write where the owner has none (ibv_reg_mr(3)).
pub fn access(bits: u32) -> Result<Access, Status> {
    let writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
    if bits & !access::ALL != 0 || (bits & writes != 0 && bits & access::LOCAL_WRITE == 0) {
        return Err(Status::INVALID);
    }
    Ok(Access(bits))
}
