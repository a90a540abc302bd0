//! TCP options as values.

use super::malformed::Malformed;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
/// The first kind for experiments. The bytes behind it identify the experiment (RFC 4727, RFC
/// 6994).
const EXPERIMENT: u8 = 253;
/// Identifier of this experiment, of 32 bits (RFC 6994, 3.1). It is not registered.
const FPDUS: [u8; 4] = *b"FPDU";
/// Length of the FPDUs option.
const FPDUS_LEN: u8 = 8;

/// Most bytes of all options of a header.
///
/// The header's length has 4 bits, in units of 4 bytes, and the header itself has 20 bytes.
const MOST: usize = 40;
/// Greatest window scale. Greater values count as this one (RFC 7323, 2.3).
const MAX_SCALE: u8 = 14;

/// Blocks of a SACK option (RFC 2018, 3): left edge, and the sequence number behind the last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sacks {
    blocks: [(u32, u32); Sacks::MOST],
    len: u8,
}

impl Sacks {
    /// Most blocks of an option.
    pub const MOST: usize = 4;

    /// Appends a block, unless there are [`Sacks::MOST`] already.
    pub fn push(&mut self, block: (u32, u32)) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// Returns the blocks in their order.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// Returns whether there are no blocks, and so no option.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl FromIterator<(u32, u32)> for Sacks {
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(blocks: I) -> Sacks {
        let mut sacks = Sacks::default();
        blocks.into_iter().for_each(|block| sacks.push(block));
        sacks
    }
}

/// The options of a segment.
///
/// Options of other kinds are ignored. So are options whose length is not that of their kind (RFC
/// 9293, 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size (RFC 9293, 3.7.1).
    pub mss: Option<u16>,
    /// Shift of later windows (RFC 7323, 2.2), at most 14.
    pub window_scale: Option<u8>,
    /// SACKs may be sent (RFC 2018, 2).
    pub sack_permitted: bool,
    /// TSval and TSecr (RFC 7323, 3.2).
    pub timestamps: Option<(u32, u32)>,
    /// Data that arrived beyond the acknowledgment number, or twice (RFC 2018, 3; RFC 2883).
    pub sacks: Sacks,
    /// The segment's data is whole FPDUs of iWARP, in this number of bytes.
    ///
    /// A middlebox that splits or joins segments does not know this option. The number then differs
    /// from the length of the segment's data. In a SYN, 0 bytes ask for the option.
    pub fpdus: Option<u16>,
}

impl Options {
    pub(super) fn parse(mut rest: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::default();
        while let Some((&kind, after)) = rest.split_first() {
            match kind {
                END => break,
                NOP => rest = after,
                _ => {
                    let length = usize::from(*after.first().ok_or(Malformed::OptionLength)?);
                    let body = rest.get(2..length).ok_or(Malformed::OptionLength)?;
                    options.take(kind, body);
                    rest = &rest[length..];
                }
            }
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, body) if body.len() == 8 => {
                self.timestamps = Some((word(&body[..4]), word(&body[4..])));
            }
            (SACK, body) if body.len().is_multiple_of(8) => {
                self.sacks =
                    body.chunks_exact(8).map(|block| (word(&block[..4]), word(&block[4..]))).collect();
            }
            (EXPERIMENT, &[a, b, c, d, high, low]) if [a, b, c, d] == FPDUS => {
                self.fpdus = Some(u16::from_be_bytes([high, low]));
            }
            _ => {}
        }
    }

    /// Returns the length of the options in bytes: a multiple of 4, because NOPs fill up each
    /// option.
    ///
    /// # Panics
    /// If they do not fit into a header. MSS, scale and permission belong to SYNs. Beside
    /// timestamps, at most 3 blocks fit, or one with FPDUs.
    #[allow(clippy::len_without_is_empty, reason = "it counts bytes, not options")]
    pub fn len(&self) -> usize {
        let blocks = self.sacks.as_slice().len();
        let length = 4 * usize::from(self.mss.is_some())
            + 4 * usize::from(self.window_scale.is_some())
            + 4 * usize::from(self.sack_permitted && self.timestamps.is_none())
            + 12 * usize::from(self.timestamps.is_some())
            + usize::from(FPDUS_LEN) * usize::from(self.fpdus.is_some())
            + if blocks > 0 { 4 + 8 * blocks } else { 0 };
        assert!(length <= MOST, "options do not fit into a header");
        length
    }

    /// Writes the options to all of `buf`, which has exactly their length.
    pub(super) fn emit(&self, buf: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            buf[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            put(&[MSS, 4, a, b]);
        }
        // The permission takes the place of the NOPs before the timestamps, as in RFC 7323,
        // appendix A.
        match (self.sack_permitted, self.timestamps) {
            (true, _) if self.timestamps.is_some() => put(&[SACK_PERMITTED, 2]),
            (true, _) => put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, Some(_)) => put(&[NOP, NOP]),
            (false, None) => {}
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if let Some(length) = self.fpdus {
            put(&[EXPERIMENT, FPDUS_LEN]);
            put(&FPDUS);
            put(&length.to_be_bytes());
        }
        if !self.sacks.is_empty() {
            let blocks = self.sacks.as_slice();
            put(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                put(&left.to_be_bytes());
                put(&right.to_be_bytes());
            }
        }
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
