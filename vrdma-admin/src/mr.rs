//! `org.vrdma.Mr`: memory regions.

use crate::Method;
use serde::{Deserialize, Serialize};

/// The method List.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ListMrs {
    /// Name of the guest.
    pub guest: String,
    /// Where the list goes on; `None` for its beginning.
    #[serde(default)]
    pub from: Option<u64>,
}

/// Some memory regions of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct MrPage {
    /// The regions.
    pub mrs: Vec<Mr>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<u64>,
}

/// A memory region.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Mr {
    /// Name of its guest.
    pub guest: String,
    /// Its key, which is both lkey and rkey. `None` for those who may only look.
    pub key: Option<u32>,
    /// Its protection domain.
    pub pd: u32,
    /// The process in the guest that made it; 0: the guest's kernel.
    pub context: u32,
    /// The address by which requests name its first byte, in hexadecimal.
    pub address: String,
    /// Length in bytes; `None`: all of the guest's memory.
    pub length: Option<u64>,
    /// Rights, by the names of rdma-core.
    pub access: Vec<String>,
    /// Whether it is for fast registration.
    pub is_fast: bool,
}

impl Method for ListMrs {
    const NAME: &'static str = "org.vrdma.Mr.List";
    type Output = MrPage;
}
