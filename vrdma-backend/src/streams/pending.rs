//! What has come in a connection and was not taken by the engine.

use vrdma_transport::PlacedFpdu;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Bytes in order,
    pub bytes: Vec<u8>,
    /// and what follows them, if it was placed before its turn.
    pub placed: Option<PlacedFpdu>,
}

impl Pending {
    /// Whether the engine has all that has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.placed.is_none()
    }
}
