//! The protocol between the supervisor (`xtask`) and the agent in a test VM.
//!
//! The link is one byte stream (a virtio-serial port). Everything after the greeting is a
//! [`Frame`]: a 16-byte header (magic, kind, job, length; little-endian) and a payload. The
//! supervisor picks job numbers. Every job ends with exactly one [`Kind::Exit`].
//!
//! A VM may be reset at any byte. Both sides find each other again by a greeting. The supervisor
//! sends [`greeting`]s with a nonce until the agent sends an [`answer`]. The answer repeats the
//! nonce and adds the guest's boot id. A side that waits for a greeting or an answer discards the
//! bytes before it.

use std::io::{self, Read};

/// Name of the virtio-serial port that the agent opens.
pub const PORT: &str = "vrdma.agent";

/// First bytes of a [`greeting`].
pub const GREETING: [u8; 16] = *b"\xf5vrdma-greeting\n";

/// First bytes of an [`answer`].
pub const ANSWER: [u8; 16] = *b"\xf5vrdma-agent-ok\n";

/// Length of a greeting: its first bytes and the nonce.
pub const GREETING_LEN: usize = 16 + 8;

/// Length of an answer: its first bytes, the nonce and the boot id (text form of a UUID).
pub const ANSWER_LEN: usize = 16 + 8 + 36;

/// Longest payload of a frame.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Length of a frame's header.
pub const HEADER_LEN: usize = 16;

const MAGIC: u32 = 0x5652_4446;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// To the agent: run the payload (a command line) with `/bin/sh -c` as a new job.
    Run = 1,
    /// To the agent: the payload goes to the job's standard input; an empty payload closes it.
    Stdin = 2,
    /// To the agent: send the signal (payload: its number, u32) to the job's process group.
    Signal = 3,
    /// From the agent: bytes that the job wrote to standard output.
    Stdout = 4,
    /// From the agent: bytes that the job wrote to standard error.
    Stderr = 5,
    /// From the agent: the job has ended.
    ///
    /// Payload: the exit code (i32), or 256 + the signal that killed it, or [`NOT_STARTED`].
    Exit = 6,
}

/// Exit value of a job that could not be started.
pub const NOT_STARTED: i32 = -1;

impl Kind {
    fn from_wire(value: u32) -> Option<Self> {
        [Self::Run, Self::Stdin, Self::Signal, Self::Stdout, Self::Stderr, Self::Exit]
            .into_iter()
            .find(|kind| *kind as u32 == value)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of the message.
    pub kind: Kind,
    /// The number of the message's job.
    pub job: u32,
    /// The content, which depends on the kind.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns the frame as bytes. The payload must not be longer than [`MAX_PAYLOAD`].
    pub fn to_bytes(&self) -> Vec<u8> {
        debug_assert!(self.payload.len() <= MAX_PAYLOAD);
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.payload.len());
        for word in [MAGIC, self.kind as u32, self.job, self.payload.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Reads one frame.
    ///
    /// Bytes that are no frame are an error of kind `InvalidData`. Then the caller has to wait for
    /// a greeting.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut header = [0; HEADER_LEN];
        from.read_exact(&mut header)?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = word(12) as usize;
        let kind = Kind::from_wire(word(4)).filter(|_| word(0) == MAGIC && length <= MAX_PAYLOAD);
        let kind = kind.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a frame"))?;
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        Ok(Self { kind, job: word(8), payload })
    }
}

/// Returns a greeting, which the supervisor sends until it is answered.
pub fn greeting(nonce: u64) -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[..16].copy_from_slice(&GREETING);
    bytes[16..].copy_from_slice(&nonce.to_le_bytes());
    bytes
}

/// Returns the agent's answer to the greeting with this nonce.
///
/// `boot_id` is the text of `/proc/sys/kernel/random/boot_id`.
pub fn answer(nonce: u64, boot_id: &str) -> [u8; ANSWER_LEN] {
    let mut bytes = [b' '; ANSWER_LEN];
    bytes[..16].copy_from_slice(&ANSWER);
    bytes[16..24].copy_from_slice(&nonce.to_le_bytes());
    for (to, from) in bytes[24..].iter_mut().zip(boot_id.trim().bytes()) {
        *to = from;
    }
    bytes
}

/// Reads and discards bytes until `mark` has been read.
pub fn hunt(from: &mut impl Read, mark: &[u8; 16]) -> io::Result<()> {
    let mut window = [0; 16];
    let mut filled = 0;
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        if filled == 16 {
            window.rotate_left(1);
            window[15] = byte[0];
        } else {
            window[filled] = byte[0];
            filled += 1;
        }
        if filled == 16 && window == *mark {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_survives_the_wire() {
        let frame = Frame { kind: Kind::Stderr, job: 77, payload: b"\x00\xff\n".to_vec() };
        assert_eq!(Frame::read(&mut frame.to_bytes().as_slice()).unwrap(), frame);
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let error = Frame::read(&mut [b'x'; 40].as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn too_long_frames_are_refused() {
        let mut bytes = Frame { kind: Kind::Run, job: 1, payload: vec![] }.to_bytes();
        bytes[12..16].copy_from_slice(&(MAX_PAYLOAD as u32 + 1).to_le_bytes());
        assert_eq!(Frame::read(&mut bytes.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn hunting_skips_rubbish() {
        let mut bytes = b"\xf5vrdma-gre".to_vec();
        bytes.extend_from_slice(&greeting(5));
        let mut reader = bytes.as_slice();
        hunt(&mut reader, &GREETING).unwrap();
        assert_eq!(reader, 5u64.to_le_bytes());
    }
}
