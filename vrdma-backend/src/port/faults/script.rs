//! Frames that are lost by plan: the n-th one, or each n-th packet of a kind.

use crate::nearest::nearest;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use vrdma_wire::num::{Gid, Psn, Qpn};
use vrdma_wire::roce::{Body, Packet, Part, Rc, ReadPart, Syndrome, is_roce};

/// A rule about frames that are lost, written as `17` or as `ack/100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Rule", into = "String")]
pub enum PlannedLoss {
    /// The frame with this number is lost. The first one has the number 1.
    Nth(NonZeroU64),
    /// Each n-th packet of a kind is lost.
    Each(PacketKind, NonZeroU64),
}

/// A rule as it is written in a file: a number, or a text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the number of a frame, or KIND/N")]
enum Rule {
    Number(NonZeroU64),
    Text(String),
}

/// A kind of packets of reliable connections, RC and XRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// The last packet of a message, or its only one, when it is sent for the first time.
    Tail,
    /// A packet of a SEND or WRITE before its last one, when it is sent for the first time.
    Middle,
    /// An acknowledgement without data.
    Ack,
    /// A negative acknowledgement. RNR is not among them.
    Nak,
    /// A packet of a request that is sent again.
    Retransmission,
    /// The last packet of a READ's response, or its only one.
    Response,
}

impl PacketKind {
    const ALL: [(&str, PacketKind); 6] = [
        ("tail", PacketKind::Tail),
        ("middle", PacketKind::Middle),
        ("ack", PacketKind::Ack),
        ("nak", PacketKind::Nak),
        ("retransmission", PacketKind::Retransmission),
        ("response", PacketKind::Response),
    ];
}

impl fmt::Display for PlannedLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PlannedLoss::Nth(number) => write!(f, "{number}"),
            PlannedLoss::Each(kind, number) => {
                let name = PacketKind::ALL.iter().find(|(_, known)| *known == kind).map(|(name, _)| name);
                write!(f, "{}/{number}", name.expect("each kind has a name"))
            }
        }
    }
}

impl From<PlannedLoss> for String {
    fn from(rule: PlannedLoss) -> String {
        rule.to_string()
    }
}

impl TryFrom<Rule> for PlannedLoss {
    type Error = String;

    fn try_from(rule: Rule) -> Result<PlannedLoss, String> {
        let text = match rule {
            Rule::Number(number) => return Ok(PlannedLoss::Nth(number)),
            Rule::Text(text) => text,
        };
        let number = |number: &str| {
            number.parse().map_err(|_| format!("'{number}' in '{text}' is not a number from 1 on"))
        };
        let Some((name, each)) = text.split_once('/') else { return number(&text).map(PlannedLoss::Nth) };
        let names = PacketKind::ALL.map(|(name, _)| name);
        match PacketKind::ALL.into_iter().find(|(known, _)| *known == name) {
            Some((_, kind)) => Ok(PlannedLoss::Each(kind, number(each)?)),
            None => Err(match nearest(name, names) {
                Some(meant) => format!("there is no kind {name}: did you mean {meant}?"),
                None => format!("there is no kind {name}: there are {}", names.join(", ")),
            }),
        }
    }
}

/// Most QPs whose newest request is known. Beyond them all are forgotten.
const MOST_QPS: usize = 1 << 16;

/// Rules about frames that are lost, and what they have seen.
#[derive(Debug)]
pub(super) struct Script {
    rules: Vec<PlannedLoss>,
    /// The number of packets that each rule has counted.
    counts: Vec<u64>,
    /// The PSN behind the newest request to each QP.
    newest: HashMap<(Gid, Qpn), Psn>,
}

impl Script {
    pub(super) fn new(rules: Vec<PlannedLoss>) -> Script {
        Script { counts: vec![0; rules.len()], rules, newest: HashMap::new() }
    }

    /// Returns whether there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Takes the next frame, in one piece. Returns whether it is lost.
    pub(super) fn drops(&mut self, frame: &[u8]) -> bool {
        let kind = if is_roce(frame) { self.kind(frame) } else { None };
        let mut drops = false;
        for (rule, count) in self.rules.iter().zip(&mut self.counts) {
            let (counts, number) = match *rule {
                PlannedLoss::Nth(number) => (true, number),
                PlannedLoss::Each(of, number) => (kind == Some(of), number),
            };
            if counts {
                *count += 1;
                drops |= match rule {
                    PlannedLoss::Nth(_) => *count == number.get(),
                    PlannedLoss::Each(..) => count.is_multiple_of(number.get()),
                };
            }
        }
        drops
    }

    /// Returns the kind of a packet, if it is of a kind that rules name.
    fn kind(&mut self, frame: &[u8]) -> Option<PacketKind> {
        let packet = Packet::parse(frame).ok()?.packet;
        let rc = match &packet.body {
            Body::Rc(rc) => rc,
            Body::Xrc(xrc) => xrc.rc(),
            Body::Uc(_) | Body::Ud { .. } | Body::Cnp => return None,
        };
        let is_tail = match rc {
            Rc::Ack(aeth) => {
                return match aeth.syndrome {
                    Syndrome::Ack(_) => Some(PacketKind::Ack),
                    Syndrome::Nak(_) => Some(PacketKind::Nak),
                    Syndrome::Rnr(_) => None,
                };
            }
            Rc::ReadResponse(ReadPart::Last(_) | ReadPart::Only(_)) => return Some(PacketKind::Response),
            Rc::ReadResponse(_) | Rc::AtomicAck(..) => return None,
            Rc::Send(part) => matches!(part, Part::Last(_) | Part::Only(..)),
            Rc::Write(part) => matches!(part, Part::Last(_) | Part::Only(..)),
            Rc::ReadRequest(_) | Rc::Atomic(..) | Rc::AtomicWrite(_) | Rc::Flush(..) => true,
        };
        let psn = packet.bth.psn;
        if self.newest.len() == MOST_QPS {
            self.newest.clear();
        }
        let newest = self.newest.entry((packet.path.dst, packet.bth.dest)).or_insert(psn);
        if psn.distance(*newest) < 0 {
            return Some(PacketKind::Retransmission);
        }
        *newest = psn.add(1);
        Some(if is_tail { PacketKind::Tail } else { PacketKind::Middle })
    }
}
