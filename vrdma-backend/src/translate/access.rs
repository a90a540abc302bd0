//! Access rights of memory regions.

use vrdma_abi::control::{Status, access};
use vrdma_transport::Access;

// Both use the same bits.
const _: () = assert!(
    access::LOCAL_WRITE == Access::LOCAL_WRITE.0
        && access::REMOTE_WRITE == Access::REMOTE_WRITE.0
        && access::REMOTE_READ == Access::REMOTE_READ.0
        && access::REMOTE_ATOMIC == Access::REMOTE_ATOMIC.0
        && access::MW_BIND == Access::MW_BIND.0
        && access::ZERO_BASED == Access::ZERO_BASED.0
        && access::FLUSH_GLOBAL == Access::FLUSH_GLOBAL.0
        && access::FLUSH_PERSISTENT == Access::FLUSH_PERSISTENT.0
        && access::ALL == Access::ALL.0
        && access::QP == Access::QP.0
        && access::REGION == Access::REGION.0
        && access::WINDOW == Access::WINDOW.0
);

/// Returns the access rights of a registration.
///
/// # Errors
/// `INVALID`: an unknown bit, or a remote right to write without the local right to write
/// (`ibv_reg_mr(3)`). `UNSUPPORTED`: persistence, which no memory has here.
pub fn access(bits: u32) -> Result<Access, Status> {
    let known = access::REGION | access::FLUSH_PERSISTENT;
    let writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
    if bits & !known != 0 || (bits & writes != 0 && bits & access::LOCAL_WRITE == 0) {
        return Err(Status::INVALID);
    }
    if bits & access::FLUSH_PERSISTENT != 0 {
        return Err(Status::UNSUPPORTED);
    }
    Ok(Access(bits))
}
