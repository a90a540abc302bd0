//! iWARP: RDMA over TCP, as values and bytes.
//!
//! | module | layer | what it knows |
//! |---|---|---|
//! | [`set_up`] | MPA (RFC 5044, 7.1; RFC 6581) | the request and the reply before the first FPDU |
//! | [`framing`] | MPA (RFC 5044, 4) | how long an FPDU is, and where markers lie |
//! | [`encode`] | MPA | an FPDU, with its markers, padding and CRC |
//! | [`decode`] | MPA | a whole FPDU's ULPDU |
//! | [`deframe`] | MPA | the FPDUs of a stream that comes in order, in pieces of any size |
//! | [`aligned`] | MPA | the FPDUs of a TCP segment that came out of order |
//! | [`crc`] | MPA | CRC32c |
//! | [`ddp`] | DDP (RFC 5041) | which buffer a segment goes to, and where in it |
//! | [`rdmap`] | RDMAP (RFC 5040, RFC 7306) | what a segment is part of |
//! | [`request`] | RDMAP | what READs and atomics ask for and are answered |
//! | [`terminate`] | RDMAP | the last message of a connection that fails |
//! | [`cause`], [`fault`] | all | what a TERMINATE may say, and which malformed input says what |
//! | [`num`] | all | numbers that name things |
//!
//! Words are those of the RFCs: a DDP *segment* is a header and payload; it is the *ULPDU* that one
//! *FPDU* carries; a TCP segment is called so. All of it is stateless but for [`deframe`], whose
//! state is a few bytes of plain data. Which MSN or MO is next, what an STag names, and whether
//! anybody asked for a READ's response is the transport's.
//!
//! All multi-byte fields are big-endian on the wire, but for the CRC.

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
pub use framing::{Framing, Place};
pub use rdmap::Segment;
