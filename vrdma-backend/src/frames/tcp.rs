//! TCP in a frame that can be cut into segments or coalesced from them.

use super::checksum::{complete, fold, sum};
use super::headers::{Fragment, Ip, TCP, word};

/// Offset of the checksum in a TCP header.
pub const TCP_CHECKSUM: usize = 16;
/// Flag bits in byte 13 of a TCP header (RFC 9293 3.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;
/// The flags and fragment offset of an IPv4 header with Don't Fragment only.
const DF: u16 = 0x4000;

/// Positions of the headers of a TCP frame, in bytes from its beginning.
///
/// All of the headers are in the frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLayout {
    pub(super) v6: bool,
    ip: usize,
    tcp: usize,
    payload: usize,
}

/// Completes a segment's checksum. Its field has the sum of the pseudo header.
///
/// # Panics
/// The segment is shorter than a header.
pub fn complete_tcp(segment: &mut [u8]) {
    complete(segment, TCP_CHECKSUM, 0);
}

impl TcpLayout {
    /// Finds the TCP headers in the head of a frame that is not a fragment.
    pub fn of(head: &[u8]) -> Option<TcpLayout> {
        let ip = Ip::parse(head).filter(|ip| ip.fragment == Fragment::Whole)?;
        TcpLayout::parse(&ip, head)
    }

    /// Finds the TCP headers behind a known IP header.
    pub(super) fn parse(ip: &Ip, head: &[u8]) -> Option<TcpLayout> {
        let words = usize::from(head.get(ip.l4 + 12)? >> 4);
        let payload = ip.l4 + 4 * words;
        // With a routing header, the checksum would cover the address behind it. The sender of such
        // packets has to cut them itself.
        let simple = ip.protocol == TCP && ip.is_plain() && words >= 5 && payload <= head.len();
        simple.then_some(TcpLayout { v6: ip.v6, ip: ip.start, tcp: ip.l4, payload })
    }

    /// Returns the position of the IP header.
    pub fn ip(&self) -> usize {
        self.ip
    }

    /// Returns the position of the TCP header.
    pub fn header(&self) -> usize {
        self.tcp
    }

    /// Returns the position of the payload.
    pub fn payload(&self) -> usize {
        self.payload
    }

    /// Returns the sequence number of the first payload byte.
    pub fn seq(&self, frame: &[u8]) -> u32 {
        let at = self.tcp + 4;
        u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
    }

    /// Whether the PSH bit is set.
    pub fn pushes(&self, frame: &[u8]) -> bool {
        frame[self.tcp + 13] & PSH != 0
    }

    /// Adapts a copy of the whole frame's headers to piece number `index`.
    ///
    /// `done` bytes of payload are in the pieces before it.
    pub fn adapt(&self, frame: &mut [u8], index: u16, done: u32, last: bool) {
        if !self.v6 {
            let id = word(frame, self.ip + 4).unwrap_or_default().wrapping_add(index);
            frame[self.ip + 4..self.ip + 6].copy_from_slice(&id.to_be_bytes());
        }
        let pseudo_header = self.put_length(frame, frame.len());
        let seq = self.seq(frame).wrapping_add(done);
        let segment = &mut frame[self.tcp..];
        segment[4..8].copy_from_slice(&seq.to_be_bytes());
        if !last {
            segment[13] &= !(FIN | PSH);
        }
        if index != 0 {
            segment[13] &= !CWR;
        }
        segment[TCP_CHECKSUM..TCP_CHECKSUM + 2].fill(0);
        complete(segment, TCP_CHECKSUM, pseudo_header);
    }

    /// Adapts the headers of the first piece to the whole frame, with `payload` bytes of payload.
    ///
    /// The checksum field gets the sum of the pseudo header only.
    pub fn make_whole(&self, headers: &mut [u8], payload: usize, pushes: bool) {
        let pseudo_header = self.put_length(headers, self.payload + payload);
        let segment = &mut headers[self.tcp..];
        if pushes {
            segment[13] |= PSH;
        }
        segment[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&fold(pseudo_header).to_be_bytes());
    }

    /// Writes the length of a frame into its IP header. Returns the sum of TCP's pseudo header.
    fn put_length(&self, frame: &mut [u8], len: usize) -> u64 {
        let ip = &mut frame[self.ip..self.tcp];
        let mut put = |at: usize, value: u16| ip[at..at + 2].copy_from_slice(&value.to_be_bytes());
        if self.v6 {
            put(4, (len - self.ip - 40) as u16);
        } else {
            put(2, (len - self.ip) as u16);
            put(10, 0);
            let checksum = !fold(sum(ip));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        self.pseudo_header(frame, len)
    }

    /// Returns the sum of TCP's pseudo header in a frame of `len` bytes.
    fn pseudo_header(&self, frame: &[u8], len: usize) -> u64 {
        let addresses = if self.v6 { self.ip + 8..self.ip + 40 } else { self.ip + 12..self.ip + 20 };
        sum(&frame[addresses]) + u64::from(TCP) + (len - self.tcp) as u64
    }

    /// Whether the checksum is correct.
    pub fn is_sound(&self, frame: &[u8]) -> bool {
        let segment = !super::sum::sum(&frame[self.tcp..]).finish();
        fold(self.pseudo_header(frame, frame.len()) + u64::from(segment)) == 0xffff
    }

    /// Whether a frame with headers at these positions is a segment with data and nothing else.
    ///
    /// It has no flags besides ACK and PSH, no padding, and is never fragmented, so its IPv4
    /// identification has no meaning.
    pub fn is_plain(&self, frame: &[u8]) -> bool {
        let length = |at: usize| word(frame, self.ip + at).map(usize::from);
        let is_right = if self.v6 {
            length(4).map(|length| length + 40) == Some(frame.len() - self.ip)
        } else {
            let header = &frame[self.ip..self.tcp];
            length(2) == Some(frame.len() - self.ip)
                && word(frame, self.ip + 6) == Some(DF)
                && fold(sum(header)) == 0xffff
        };
        is_right && frame.len() > self.payload && frame[self.tcp + 13] & !PSH == ACK
    }

    /// Clears the header fields that differ between the pieces of a frame.
    pub fn blank(&self, headers: &mut [u8]) {
        let of_ip = if self.v6 { &[4, 5][..] } else { &[2, 3, 4, 5, 10, 11] };
        of_ip.iter().for_each(|at| headers[self.ip + at] = 0);
        headers[self.tcp + 4..self.tcp + 8].fill(0);
        headers[self.tcp + 13] &= !PSH;
        headers[self.tcp + TCP_CHECKSUM..self.tcp + TCP_CHECKSUM + 2].fill(0);
    }
}
