//! Translates the reason why a command was refused.

use vrdma_abi::control::Status;
use vrdma_transport::Error;

/// Returns the status for the driver.
pub fn status(error: Error) -> Status {
    match error {
        Error::NotFound => Status::NOT_FOUND,
        Error::Busy => Status::BUSY,
        Error::Denied => Status::DENIED,
        Error::Invalid => Status::INVALID,
        Error::Unsupported => Status::UNSUPPORTED,
        Error::NoResources => Status::NO_RESOURCES,
    }
}
