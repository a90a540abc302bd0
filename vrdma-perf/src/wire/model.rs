//! A model of one core at a NIC of 100 Gb/s, from measured parts. It gives the cost of packets for
//! the sending and for the receiving core.

use super::account::Stage;
use super::parts::Parts;

/// Bytes of the link in a nanosecond.
const LINK: f64 = 12.5;
/// Bytes of each packet on the link beside its payload. Preamble, Ethernet with its FCS, and gap
/// take 38, and IPv4, UDP, BTH and ICRC take 44.
const OVERHEAD: f64 = 82.;
/// Assumed nanoseconds of a NIC's driver for a packet and its buffer, in each direction.
const DRIVER: f64 = 25.;
/// The sizes of messages, and the path MTUs.
const MESSAGES: [(&str, u32); 3] = [("64 B", 64), ("4 KiB", 4096), ("64 KiB", 64 << 10)];
const MTUS: [u32; 2] = [1024, 4096];

/// The nanoseconds of a packet: the mean over the packets of a message.
#[derive(Clone, Copy, Debug)]
struct Costs {
    send: f64,
    receive: f64,
    /// Nanoseconds on the link.
    link: f64,
    /// Bytes of payload.
    payload: f64,
}

impl Costs {
    /// Returns the costs for messages of this size in bytes. If `copied`, the sender copies the
    /// payload into its frame. Otherwise the NIC reads it from guest memory.
    fn new(parts: &Parts, message: u32, mtu: u32, copied: bool) -> Costs {
        let packets = f64::from(message.div_ceil(mtu));
        let payload = message.min(mtu);
        // The first packet costs as much as that of a short message. The others cost as much as
        // packets of long messages.
        let fixed = |stages: &[Stage]| {
            let of = |which: usize| stages.iter().map(|stage| parts.stage(*stage)[which]).sum::<f64>();
            DRIVER + (of(0) + (packets - 1.) * of(1)) / packets
        };
        let (_, icrc, copy) = parts.passes.iter().find(|pass| pass.0 == payload).expect("it was measured");
        // Half of the cost of ACKs is the sender's, and half the receiver's.
        let acks = parts.stage(Stage::Acknowledge)[usize::from(packets > 1.)] / 2.;
        let send = fixed(&[Stage::Post, Stage::Send, Stage::Build]);
        let receive = fixed(&[Stage::Parse, Stage::Receive]);
        Costs {
            send: send + acks + icrc + if copied { *copy } else { 0. },
            receive: receive + acks + icrc + copy,
            link: (f64::from(payload) + OVERHEAD) / LINK,
            payload: f64::from(payload),
        }
    }

    fn line(&self, name: &str, mtu: u32, copied: bool) -> String {
        let Costs { send, receive, link, payload } = *self;
        // The rate in Gb/s of payload.
        let rate = |ns: f64| 8. * payload / ns;
        let most = send.max(receive).max(link);
        let bound = match most {
            _ if most == link => "link",
            _ if most == send => "sender",
            _ => "receiver",
        };
        let how = if copied { "copied" } else { "read by the NIC" };
        format!(
            "| {name} | {mtu} | {how} | {send:.0} | {receive:.0} | {link:.0} | {:.1} | {:.1} | {:.1} | {:.1} | {bound} |",
            rate(send),
            rate(receive),
            rate(link),
            rate(most)
        )
    }
}

/// Formats the model as a table.
pub fn table(parts: &Parts) -> String {
    let mut text = String::from(
        "| messages | MTU | payload | ns a packet: sender | receiver | link | Gb/s of payload: sender | receiver | link | all | bound by |\n|---|---|---|---|---|---|---|---|---|---|---|",
    );
    for (name, message) in MESSAGES {
        for mtu in MTUS.into_iter().filter(|mtu| message >= *mtu || *mtu == 4096) {
            // Short payloads are always copied.
            for copied in [true, false].into_iter().filter(|copied| *copied || message >= 1024) {
                text += &format!("\n{}", Costs::new(parts, message, mtu, copied).line(name, mtu, copied));
            }
        }
    }
    let passes: Vec<String> = parts
        .passes
        .iter()
        .map(|(len, icrc, copy)| {
            let rate = |ns: &f64| f64::from(*len) / ns;
            format!(
                "{len} B: ICRC {icrc:.0} ns ({:.1} GB/s), copy {copy:.0} ns ({:.1} GB/s)",
                rate(icrc),
                rate(copy)
            )
        })
        .collect();
    text + "\n\nPasses over a payload alone: " + &passes.join("; ") + "."
}

#[cfg(test)]
mod tests {
    use super::super::account::{Account, STAGES};
    use super::*;

    fn parts() -> Parts {
        let account = |ns: f64| Account { stages: vec![ns; STAGES.len()], marks: 0. };
        Parts {
            short: account(10.),
            long: account(4.),
            whole: [0.; 2],
            frames: [0.; 2],
            passes: vec![(64, 1., 2.), (1024, 10., 20.), (4096, 40., 80.)],
            mtu: 4096,
        }
    }

    #[test]
    fn the_first_packet_of_a_message_costs_more_than_the_others() {
        let only = Costs::new(&parts(), 4096, 4096, true);
        assert_eq!((only.send, only.receive), (DRIVER + 30. + 5. + 120., DRIVER + 20. + 5. + 120.));
        let four = Costs::new(&parts(), 4096, 1024, true);
        assert_eq!(four.send, DRIVER + (30. + 3. * 12.) / 4. + 2. + 30.);
        assert_eq!(four.payload, 1024.);
    }

    #[test]
    fn a_payload_that_the_nic_reads_is_not_copied_by_its_sender() {
        let [copied, read] = [true, false].map(|copied| Costs::new(&parts(), 65536, 4096, copied));
        assert_eq!((copied.send - read.send, copied.receive), (80., read.receive));
    }

    #[test]
    fn each_line_says_what_bounds_it() {
        let text = table(&parts());
        let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap();
        assert!(line("| 64 B |").ends_with("| sender |"), "{text}");
        assert!(line("| 64 KiB | 4096 | copied").ends_with("| link |"), "{text}");
        assert!(line("| 4 KiB | 1024 | copied").ends_with("| link |"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("| 64 KiB")).count(), 4);
    }
}
