//! Writes and reads iWARP data of other implementations.
//!
//! `vectors/iwarp.py` wrote the data and tshark read it. The examples of RFC 5044 come in addition.

#[path = "support/iwarp.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use vrdma_wire::iwarp::aligned;
use vrdma_wire::iwarp::num::*;
use vrdma_wire::iwarp::rdmap::{SendPart, Tagged};
use vrdma_wire::iwarp::request::*;
use vrdma_wire::iwarp::set_up::*;
use vrdma_wire::iwarp::terminate::{Terminate, Terminated};
use vrdma_wire::iwarp::{Code, Framing, Segment, StreamOffset, decode};

/// A line of `iwarp.txt`: the value of each field.
struct Vector<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Vector<'a> {
    fn number(&self, key: &str) -> u64 {
        let text = self.0.get(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.0));
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    }

    fn word(&self, key: &str) -> u32 {
        self.number(key).try_into().unwrap()
    }

    fn byte(&self, key: &str) -> u8 {
        self.number(key).try_into().unwrap()
    }

    fn flag(&self, key: &str) -> bool {
        self.0.contains_key(key) && self.number(key) == 1
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        let text = self.0[key];
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    fn framing(&self) -> (Framing, StreamOffset) {
        let framing = Framing { markers: self.flag("markers"), crc: self.flag("crc") };
        (framing, StreamOffset::of(self.word("at")))
    }

    fn segment(&self) -> Segment {
        let tagged =
            || Tagged { stag: Stag(self.word("stag")), offset: self.number("to"), last: self.flag("last") };
        let msn = || Msn(self.word("msn"));
        let send = |solicited: bool, invalidates: bool| Segment::Send {
            part: SendPart { msn: msn(), offset: self.word("mo"), last: self.flag("last") },
            solicited,
            invalidate: invalidates.then(|| Stag(self.word("invalidate"))),
        };
        let atomic = |op: AtomicOp| {
            let (id, stag, offset) =
                (self.word("id"), Stag(self.word("atomic_stag")), self.number("atomic_to"));
            Segment::AtomicRequest(msn(), AtomicRequest { id, stag, offset, op })
        };
        let immediate = |solicited: bool| Segment::Immediate {
            msn: msn(),
            solicited,
            data: self.number("imm").to_be_bytes(),
        };
        let (data, mask) = (|| self.number("data"), || self.number("mask"));
        match self.0["kind"] {
            "write" => Segment::Write(tagged()),
            "read_response" => Segment::ReadResponse(tagged()),
            "send" => send(false, false),
            "send_inv" => send(false, true),
            "send_se" => send(true, false),
            "send_se_inv" => send(true, true),
            "immediate" => immediate(false),
            "immediate_se" => immediate(true),
            "read_request" => Segment::ReadRequest(
                msn(),
                ReadRequest {
                    sink: Stag(self.word("sink")),
                    sink_offset: self.number("sink_to"),
                    length: self.word("size"),
                    source: Stag(self.word("source")),
                    source_offset: self.number("source_to"),
                },
            ),
            "fetch_add" => atomic(AtomicOp::FetchAdd { add: data(), mask: mask() }),
            "swap" => atomic(AtomicOp::Swap { swap: data(), mask: mask() }),
            "compare_swap" => atomic(AtomicOp::CompareSwap {
                swap: data(),
                mask: mask(),
                compare: self.number("compare"),
                compare_mask: self.number("compare_mask"),
            }),
            "atomic_response" => Segment::AtomicResponse(
                msn(),
                AtomicResponse { id: self.word("id"), original: self.number("original") },
            ),
            "terminate" => Segment::Terminate(msn(), self.terminate()),
            kind => panic!("{kind}"),
        }
    }

    fn terminate(&self) -> Terminate {
        let code = Code { layer: self.byte("layer"), etype: self.byte("etype"), code: self.byte("code") };
        let segment = self.flag("m").then(|| {
            let mut ulpdu = self.bytes("its_ddp");
            if self.flag("r") {
                ulpdu.extend(self.bytes("its_read"));
            }
            ulpdu.resize(self.number("its_length") as usize, 0x77);
            Terminated::of(&ulpdu, self.flag("r")).unwrap()
        });
        Terminate { code, segment }
    }

    fn set_up<'p>(&self, private_data: &'p [u8]) -> SetUp<'p> {
        let depth = |key: &str| Depth::new(self.number(key) as u16).unwrap_or(Depth::AUTOMATIC);
        let enhanced = self.flag("s").then(|| Enhanced {
            ird: depth("ird"),
            ord: depth("ord"),
            peer_to_peer: self.flag("a"),
            rtr: Rtr { fpdu: self.flag("b"), write: self.flag("c_"), read: self.flag("d") },
        });
        SetUp {
            kind: if self.0["kind"] == "request" { SetUpKind::Request } else { SetUpKind::Reply },
            markers: self.flag("m"),
            crc: self.flag("c"),
            reject: self.flag("r"),
            revision: if self.number("rev") == 1 { Revision::One } else { Revision::Two(enhanced) },
            private_data,
        }
    }
}

fn vectors() -> impl Iterator<Item = Vector<'static>> {
    let lines = include_str!("vectors/iwarp.txt").lines();
    lines.map(|line| Vector(line.split(' ').map(|field| field.split_once('=').unwrap()).collect()))
}

fn is_set_up(vector: &Vector<'_>) -> bool {
    ["request", "reply"].contains(&vector.0["kind"])
}

#[test]
fn requests_and_replies_of_others_are_written_and_read_alike() {
    let mut seen = 0;
    for vector in vectors().filter(is_set_up) {
        let (private, theirs) = (vector.bytes("private"), vector.bytes("bytes"));
        let set_up = vector.set_up(&private);
        let mut ours = [0xee; MAX_LEN];
        let len = set_up.emit(&mut ours);
        assert_eq!(ours[..len], theirs, "{:?}", vector.0);
        assert_eq!(SetUp::parse(&theirs), Ok(Some((set_up, theirs.len()))), "{:?}", vector.0);
        seen += 1;
    }
    assert_eq!(seen, 2 * 8);
}

#[test]
fn fpdus_of_others_are_written_and_read_alike() {
    let mut kinds = BTreeSet::new();
    for vector in vectors().filter(|vector| !is_set_up(vector)) {
        let what = format!("{:?}", vector.0);
        let ((framing, place), theirs) = (vector.framing(), vector.bytes("bytes"));
        let mut buffer = vec![0; theirs.len()];
        assert_eq!(decode::fpdu_len(framing, place, &theirs), Some(theirs.len()), "{what}");
        assert!(aligned::is_whole(framing, place, &theirs), "{what}");
        let ulpdu = decode::ulpdu(framing, place, &theirs, &mut buffer).unwrap();
        assert_eq!(ulpdu.len() as u64, vector.number("ulpdu_length"), "{what}");
        assert_eq!(support::fpdu(framing, place, ulpdu), theirs, "{what}");
        kinds.insert(vector.0["kind"]);
        if vector.0["kind"] == "empty" {
            continue;
        }
        let parsed = Segment::parse(ulpdu).unwrap();
        assert_eq!(parsed.payload.len() as u64, vector.number("payload_length"), "{what}");
        assert_eq!(support::ulpdu(&parsed.segment, parsed.payload), ulpdu, "{what}");
        if let Segment::Terminate(_, terminate) = parsed.segment {
            check_terminated(&vector, terminate);
        }
        // The encoder always writes the segment's length with its headers. Other messages are only
        // read.
        if vector.flag("m") || !vector.flag("d") {
            assert_eq!(parsed.segment, vector.segment(), "{what}");
        }
    }
    assert_eq!(kinds.len(), 14 + 1, "{kinds:?}");
}

fn check_terminated(vector: &Vector<'_>, terminate: Terminate) {
    let Some(its) = terminate.segment else {
        assert!(!vector.flag("d"), "{:?}", vector.0);
        return;
    };
    assert!(vector.flag("d"), "{:?}", vector.0);
    assert_eq!(its.ddp(), vector.bytes("its_ddp"));
    assert_eq!(its.length(), vector.flag("m").then(|| vector.number("its_length") as u16));
    assert_eq!(its.read().map(|read| read.to_vec()), vector.flag("r").then(|| vector.bytes("its_read")));
}

/// The examples of RFC 5044, appendix.
///
/// One is a SEND of 24 zeros as the first FPDU, where a marker lies before it. The other is the
/// second of a queue, with a marker in it.
#[test]
fn the_examples_of_rfc_5044_are_written_and_read_alike() {
    let framing = Framing { markers: true, crc: true };
    for (msn, place, marker_at, pointer, crc) in [
        (1, StreamOffset::START, 0, 0, [0x52, 0x23, 0x99, 0x83]),
        (2, StreamOffset::of(512 - 20), 20, 20, [0x84, 0x92, 0x58, 0x98]),
    ] {
        let mut theirs = vec![0, 0x2a, 0x41, 0x43];
        theirs.extend([0; 4]); // the STag to invalidate
        theirs.extend([0; 4]); // queue
        theirs.extend([0, 0, 0, msn]);
        theirs.extend([0; 4]); // message offset
        theirs.extend([0; 24]);
        theirs.splice(marker_at..marker_at, [0, 0, 0, pointer]);
        theirs.extend(crc);

        let part = SendPart { msn: Msn(msn.into()), offset: 0, last: true };
        let send = Segment::Send { part, solicited: false, invalidate: None };
        let ulpdu = support::ulpdu(&send, &[0; 24]);
        assert_eq!(support::fpdu(framing, place, &ulpdu), theirs, "{msn}");
        let mut buffer = [0; 64];
        assert_eq!(decode::ulpdu(framing, place, &theirs, &mut buffer), Ok(&ulpdu[..]), "{msn}");
    }
}
