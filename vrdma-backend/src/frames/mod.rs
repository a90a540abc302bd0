//! What lies in an Ethernet frame: its headers, its checksums, and what its sender left to be done
//! to it.
//!
//! | module | question |
//! |---|---|
//! | `headers` | where do they lie? |
//! | `offload` | what was left to be done? |
//! | `tcp` | how is TCP cut into segments, and put together from some? |
//! | `checksum`, `sum` | how are checksums computed? |

mod checksum;
mod headers;
mod offload;
mod sum;
mod tcp;

pub use checksum::complete;
pub use headers::{Fragment, ICMPV6, Ip, UDP, untag, word};
pub use offload::{BadHeader, HEADER, VirtioOffload};
pub use sum::sum;
pub use tcp::{TCP_CHECKSUM, Tcp, complete_tcp};

/// Bytes of a frame that are copied before anything is decided about it: all headers that anybody
/// looks at. Two tags, the longest IPv4 header and the longest TCP header are 142 bytes.
pub const HEAD: usize = 192;
