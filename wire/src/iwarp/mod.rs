//! iWARP: RDMA over TCP, as values and bytes.
//!
//! | module | layer | contents |
//! |---|---|---|
//! | [`set_up`] | MPA (RFC 5044, 7.1; RFC 6581) | the request and the reply before the first FPDU |
//! | [`framing`] | MPA (RFC 5044, 4) | length of an FPDU, and positions of markers |
//! | [`encode`] | MPA | writes an FPDU, with its markers, padding and CRC |
//! | [`decode`] | MPA | reads the ULPDU of a whole FPDU |
//! | [`deframe`] | MPA | reads the FPDUs of an in-order stream, in pieces of any size |
//! | [`aligned`] | MPA | reads the FPDUs of a TCP segment that came out of order |
//! | [`crc`] | MPA | CRC32c |
//! | [`ddp`] | DDP (RFC 5041) | the buffer of a segment, and the position in it |
//! | [`rdmap`] | RDMAP (RFC 5040, RFC 7306) | the message of a segment |
//! | [`request`] | RDMAP | requests and responses of READs and atomics |
//! | [`terminate`] | RDMAP | the last message of a connection that fails |
//! | [`cause`], [`fault`] | all | reasons of a TERMINATE, and the reason for each malformed input |
//! | [`num`] | all | identifiers |
//!
//! The terms are those of the RFCs. A DDP *segment* is a header and payload. It is the *ULPDU* that
//! one *FPDU* carries. A TCP segment is always called "TCP segment".
//!
//! Everything is stateless, except [`deframe`], whose state is a few bytes of plain data. The
//! transport tracks the next MSN and MO, resolves STags, and matches READ responses to requests.
//!
//! All multi-byte fields are big-endian on the wire, except the CRC.
pub mod aligned;
pub mod cause;
pub mod crc;
pub mod ddp;
pub mod decode;
pub mod deframe;
pub mod encode;
pub mod fault;
pub mod framing;
pub mod num;
pub mod rdmap;
pub mod request;
pub mod set_up;
pub mod terminate;

pub use cause::{Cause, Code};
pub use deframe::Deframer;
pub use encode::Encoder;
pub use fault::Fault;
pub use framing::{Framing, StreamOffset};
pub use rdmap::Segment;
