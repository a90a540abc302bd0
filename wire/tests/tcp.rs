//! Writes and reads TCP segments that scapy wrote and tshark read (see `vectors/README.md`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::Gid;
use vrdma_wire::tcp::{Flags, Options, TcpHeader, is_sound};

/// A line of `tcp.txt`: the value of each field.
struct Vector<'a>(BTreeMap<&'a str, &'a str>);

impl Vector<'_> {
    fn number(&self, key: &str) -> Option<u32> {
        Some(hex(self.0.get(key)?))
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        let text = self.0[key];
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    fn gid(&self, key: &str) -> Gid {
        match self.0[key].parse().unwrap() {
            IpAddr::V4(v4) => Gid::from_ipv4(v4.octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }

    fn header(&self) -> TcpHeader {
        let field = |key| self.number(key).unwrap();
        let edges: Vec<u32> =
            self.0.get("sacks").map_or(Vec::new(), |edges| edges.split(',').map(hex).collect());
        TcpHeader {
            src_port: field("src_port") as u16,
            dst_port: field("dst_port") as u16,
            seq: field("seq"),
            ack: field("ack"),
            flags: Flags(field("flags") as u8),
            window: field("window") as u16,
            urgent: field("urgent") as u16,
            options: Options {
                mss: self.number("mss").map(|mss| mss as u16),
                window_scale: self.number("ws").map(|shift| shift as u8),
                sack_permitted: self.0.contains_key("sackok"),
                timestamps: self.number("ts_value").map(|value| (value, field("ts_echo"))),
                sacks: edges.chunks_exact(2).map(|edges| (edges[0], edges[1])).collect(),
                fpdus: None,
            },
        }
    }
}

fn hex(text: &str) -> u32 {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

#[test]
fn segments_of_others_are_written_and_read_alike() {
    let mut seen = 0;
    for line in include_str!("vectors/tcp.txt").lines() {
        let vector = Vector(line.split(' ').map(|field| field.split_once('=').unwrap()).collect());
        let name = format!("{} over IPv{}", vector.0["name"], vector.0["version"]);
        let (src, dst) = (vector.gid("src"), vector.gid("dst"));
        let (header, data, theirs) = (vector.header(), vector.bytes("payload"), vector.bytes("segment"));

        assert!(is_sound(src, dst, &theirs), "{name}");
        assert_eq!(TcpHeader::parse(&theirs), Ok((header, &data[..])), "{name}");
        let mut ours = vec![0xee; header.len()];
        assert_eq!(header.emit(src, dst, Sum::of(&data), &mut ours), ours.len());
        ours.extend_from_slice(&data);
        assert_eq!(ours, theirs, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 30);
}
