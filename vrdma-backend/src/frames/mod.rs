//! The contents of an Ethernet frame: headers, checksums, and offloads that its sender requested.
//!
//! | module | question |
//! |---|---|
//! | `headers` | where are the headers? |
//! | `offload` | which offloads were requested? |
//! | `tcp` | how is TCP cut into segments, and how are segments coalesced? |
//! | `checksum`, `sum` | how are checksums computed? |

mod checksum;
mod headers;
mod offload;
mod sum;
mod tcp;

pub use checksum::complete;
pub use headers::{Fragment, ICMPV6, Ip, UDP, is_ip_group, is_reserved, untag, word};
pub use offload::{BadHeader, HEADER, VirtioOffload};
pub use sum::sum;
pub use tcp::{TCP_CHECKSUM, TcpLayout, complete_tcp};

/// Bytes of a frame that are copied before any decision about it.
///
/// They cover all headers that any check reads. Two tags, the longest IPv4 header and the longest
/// TCP header are 142 bytes.
pub const HEAD: usize = 192;
