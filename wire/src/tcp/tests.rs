extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const A: Gid = Gid::from_ipv4([10, 0, 0, 1]);
const B: Gid = Gid::from_ipv4([10, 0, 0, 2]);

fn options() -> impl Strategy<Value = Options> {
    let mss = any::<Option<u16>>();
    let scale = prop::option::of(0_u8..=14);
    let timestamps = any::<Option<(u32, u32)>>();
    let syn = (mss, scale, any::<bool>(), timestamps, any::<Option<u16>>()).prop_map(
        |(mss, window_scale, sack_permitted, timestamps, fpdus)| Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            sacks: Sacks::default(),
            fpdus,
        },
    );
    let data = (any::<Option<(u32, u32)>>(), prop::collection::vec(any::<(u32, u32)>(), 0..=3)).prop_map(
        |(timestamps, sacks)| Options {
            timestamps,
            sacks: sacks.into_iter().collect(),
            ..Options::default()
        },
    );
    prop_oneof![syn, data]
}

prop_compose! {
    fn header()(ports: (u16, u16), numbers: (u32, u32), flags: u8, window: u16, urgent: u16, options in options()) -> TcpHeader {
        TcpHeader {
            src_port: ports.0,
            dst_port: ports.1,
            seq: numbers.0,
            ack: numbers.1,
            flags: Flags(flags),
            window,
            urgent,
            options,
        }
    }
}

proptest! {
    #[test]
    fn segments_come_back(header in header(), data: Vec<u8>, v6: bool) {
        let (src, dst) = if v6 { (Gid([3; 16]), Gid([7; 16])) } else { (A, B) };
        let mut segment = vec![0xee; MAX_LEN];
        let length = header.emit(src, dst, Sum::of(&data), &mut segment);
        prop_assert_eq!(length, header.len());
        segment.truncate(length);
        segment.extend_from_slice(&data);
        prop_assert!(is_sound(src, dst, &segment));
        // An open checksum, completed from the pseudo header's sum, gives an equal segment.
        let mut open = vec![0xee; length];
        prop_assert_eq!(header.emit_open(src, dst, data.len(), &mut open), length);
        open.extend_from_slice(&data);
        let checksum = Sum::of(&open).finish();
        open[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        prop_assert_eq!(&open, &segment);
        prop_assert_eq!(TcpHeader::parse(&segment), Ok((header, &data[..])));
        for short in 0..length {
            prop_assert_eq!(TcpHeader::parse(&segment[..short]), Err(Malformed::Truncated));
        }
        // A flipped bit is detected.
        let last = segment.len() - 1;
        segment[last] ^= 1;
        prop_assert!(!is_sound(src, dst, &segment));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        if let Ok((header, data)) = TcpHeader::parse(&bytes) {
            prop_assert!(data.len() + MIN_LEN <= bytes.len());
            prop_assert!(header.options.window_scale.is_none_or(|shift| shift <= 14));
        }
    }
}

/// Returns a segment with these bytes of options, padded with zeros.
fn with_options(bytes: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; MIN_LEN];
    segment.extend_from_slice(bytes);
    segment.resize(segment.len().next_multiple_of(4), 0);
    segment[12] = (segment.len() as u8 / 4) << 4;
    segment
}

fn parsed(bytes: &[u8]) -> Result<Options, Malformed> {
    TcpHeader::parse(&with_options(bytes)).map(|(header, _)| header.options)
}

#[test]
fn options_that_nobody_knows_are_passed_over() {
    let mss = Options { mss: Some(0x1234), ..Options::default() };
    assert_eq!(parsed(&[254, 2, 253, 5, 1, 2, 3, 1, 2, 4, 0x12, 0x34]), Ok(mss));
    // An MSS with the length of another kind is ignored.
    assert_eq!(parsed(&[2, 3, 9, 2, 4, 0x12, 0x34]), Ok(mss));
    // Bytes behind the end of the list are not options.
    assert_eq!(parsed(&[2, 4, 0x12, 0x34, 0, 4, 2, 0]), Ok(mss));
    assert_eq!(parsed(&[3, 3, 15]).unwrap().window_scale, Some(14));
}

#[test]
fn an_experiment_is_known_by_its_identifier() {
    let fpdus = Options { fpdus: Some(0x1234), ..Options::default() };
    assert_eq!(parsed(&[253, 8, b'F', b'P', b'D', b'U', 0x12, 0x34]), Ok(fpdus));
    let others = [&[253, 8, b'F', b'P', b'D', b'V', 0x12, 0x34][..], &[253, 6, b'F', b'P', b'D', b'U']];
    for other in others {
        assert_eq!(parsed(other), Ok(Options::default()));
    }
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    assert_eq!(parsed(&[1, 1, 1, 2]), Err(Malformed::OptionLength));
    assert_eq!(parsed(&[2, 0, 0, 0]), Err(Malformed::OptionLength));
    assert_eq!(parsed(&[2, 1, 0, 0]), Err(Malformed::OptionLength));
    assert_eq!(parsed(&[2, 5, 0, 0]), Err(Malformed::OptionLength));
    let mut short = with_options(&[]);
    short[12] = 4 << 4;
    assert_eq!(TcpHeader::parse(&short), Err(Malformed::DataOffset));
}

#[test]
fn blocks_beyond_four_are_passed_over() {
    let sacks: Sacks = (0..9).map(|n| (n, n + 1)).collect();
    assert_eq!(sacks.as_slice(), [(0, 1), (1, 2), (2, 3), (3, 4)]);
}
