//! The limits of one guest, over those of all.

use super::GuestLimits;
use serde::{Deserialize, Serialize};

macro_rules! own_limits {
    ($($key:ident: $kind:ty,)*) => {
        /// Limits of a guest of its own: the keys of `limits` in a `[[guest]]`.
        ///
        /// Each stands for the key of [`GuestLimits`] with its name. Keys that bound all guests
        /// together are not among them.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(deny_unknown_fields, default, rename = "Limits")]
        #[allow(missing_docs, reason = "each field is documented in GuestLimits")]
        pub struct OwnLimits {
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $key: Option<$kind>,)*
        }

        impl OwnLimits {
            /// Returns the limits of the guest, where `all` are those of guests without own ones.
            pub fn over(&self, all: &GuestLimits) -> GuestLimits {
                let mut limits = all.clone();
                $(limits.$key = self.$key.unwrap_or(limits.$key);)*
                limits
            }
        }
    };
}

own_limits! {
    contexts: u32,
    pds: u32,
    cqs: u32,
    cq_entries: u32,
    mrs: u32,
    mr_runs: u32,
    total_runs: u64,
    qps: u32,
    srqs: u32,
    qp_requests: u32,
    total_requests: u64,
    request_memory: u64,
    stream_memory: u64,
    ahs: u32,
    connections: u32,
    memory_max: u64,
    pages_max: u64,
    flood_rate: u32,
}

impl OwnLimits {
    /// Whether the guest has no limits of its own.
    pub fn is_empty(&self) -> bool {
        *self == OwnLimits::default()
    }
}
