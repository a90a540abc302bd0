//! Checks the FPDUs of a capture of iWARP.
//!
//! tshark dissects MPA, DDP and RDMAP, and computes the CRC.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::paths;
use vrdma_lab::proc::{Ephemeral, indent};

use super::tools::{Checked, Fault, Pcap, SHOWN, finds_each, in_guest_root};

/// Checks a capture of iWARP connections.
///
/// Every TCP segment with payload must be iWARP, and none malformed. Every FPDU must have a valid
/// CRC, and there must be at least one FPDU.
pub fn check(file: &Path) -> Result<Checked> {
    let file = file.canonicalize().with_context(|| format!("no file {}", file.display()))?;
    let again = streams_again(&file)?;
    let mut counted = Counted::default();
    counted.add(&look(&file, &Part::But(&again))?);
    for &stream in &again {
        // Packet numbers in these findings differ from those in the file.
        let alone = look(&file, &Part::Alone(stream));
        counted.add(&alone.with_context(|| format!("stream {stream}, which uses ports again, alone"))?);
    }
    ensure!(counted.fpdus > 0, "there is no FPDU in {}", file.display());
    let opcodes: Vec<String> =
        counted.opcodes.iter().map(|(name, count)| format!("{count:8}  {name}")).collect();
    Ok(Checked { packets: counted.fpdus, opcodes: opcodes.join("\n") })
}

/// The streams that one run of tshark dissects.
///
/// tshark's MPA dissector stores the state of a connection by its addresses and ports. It takes the
/// MPA request of a later connection with the same ones for malformed. So such a stream is checked
/// alone.
enum Part<'a> {
    /// All streams except these.
    But(&'a BTreeSet<u32>),
    /// Only this stream.
    Alone(u32),
}

/// Returns the streams, by tshark's numbers, that reuse addresses and ports of an earlier one.
fn streams_again(file: &Path) -> Result<BTreeSet<u32>> {
    let script = tshark(&place(file), "tcp.analysis.reused_ports", "-T fields -e tcp.stream");
    let said = in_guest_root(file, &script, "tshark-again")?;
    said.lines().map(|line| line.trim().parse().with_context(|| format!("no stream: {line:?}"))).collect()
}

/// Checks some streams of a capture, and counts their FPDUs.
fn look(file: &Path, part: &Part<'_>) -> Result<Counted> {
    complain(&in_guest_root(file, &part.script(file, COMPLAINTS, FIELDS), "tshark-streams")?)?;
    const TREES: &str = "-O iwarp_mpa,iwarp_ddp_rdmap";
    count(&in_guest_root(file, &part.script(file, "iwarp_mpa.fpdu", TREES), "tshark-fpdus")?)
        .with_context(|| format!("{}", file.display()))
}

impl Part<'_> {
    /// Returns a script that prints what the filter matches.
    fn script(&self, file: &Path, filter: &str, output: &str) -> String {
        /// A file in a file system that exists only as long as the script.
        const EXTRACT: &str = "/dev/stream.pcap";
        match self {
            Self::But(streams) if streams.is_empty() => tshark(&place(file), filter, output),
            Self::But(streams) => {
                let streams: Vec<String> = streams.iter().map(u32::to_string).collect();
                let filter = format!("({filter}) && !(tcp.stream in {{{}}})", streams.join(", "));
                tshark(&place(file), &filter, output)
            }
            Self::Alone(stream) => {
                let extract = format!("tcp.stream == {stream}");
                format!(
                    "{}\n{}",
                    tshark(&place(file), &extract, &format!("-F pcap -w {EXTRACT}")),
                    tshark(EXTRACT, filter, output)
                )
            }
        }
    }
}

/// A filter for segments with payload that are malformed or not iWARP.
///
/// Excluded are parts of FPDUs, which are dissected with their last part, and what TCP sends again.
/// The dissector knows only RFC 5044. That a request has the revision of RFC 6581 is no fault.
const COMPLAINTS: &str = "tcp.len > 0 && (_ws.malformed || iwarp_mpa.bad_length || !iwarp_mpa && !tcp.reassembled_in \
     && !tcp.analysis.retransmission && !tcp.analysis.keep_alive && !tcp.analysis.zero_window_probe)";
const FIELDS: &str = "-T fields -E separator=' ' -e frame.number -e frame.protocols -e _ws.expert.message";

/// Returns the path of a file in the guest root.
fn place(file: &Path) -> String {
    format!("/mnt/{}", file.file_name().unwrap_or_default().to_string_lossy())
}

/// Returns a tshark command. Payload is not dissected as protocols that it resembles by chance.
fn tshark(file: &str, filter: &str, output: &str) -> String {
    format!(
        "tshark -Q -n -2 -r '{file}' \
         --only-protocols frame,eth,ethertype,vlan,ip,ipv6,tcp,iwarp_mpa,iwarp_ddp_rdmap,data \
         -o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE -o tcp.reassemble_out_of_order:TRUE -Y '{filter}' {output}"
    )
}

fn complain(said: &str) -> Result<()> {
    let complaints: Vec<&str> = said.lines().collect();
    if !complaints.is_empty() {
        let shown = &complaints[..complaints.len().min(SHOWN)];
        bail!("tshark complains of {} segments:\n{}", complaints.len(), indent(&shown.join("\n")));
    }
    Ok(())
}

/// Number of FPDUs, and of each operation in them by its name.
#[derive(Debug, Default, PartialEq)]
struct Counted {
    fpdus: u64,
    opcodes: BTreeMap<String, u64>,
}

impl Counted {
    fn add(&mut self, other: &Self) {
        self.fpdus += other.fpdus;
        for (name, count) in &other.opcodes {
            *self.opcodes.entry(name.clone()).or_default() += count;
        }
    }
}

/// Counts FPDUs and operations. Fails unless each FPDU has a valid CRC.
fn count(said: &str) -> Result<Counted> {
    let mut counted = Counted::default();
    let mut right = 0;
    let mut wrong = Vec::new();
    for line in said.lines().map(str::trim) {
        if line == "FPDU" {
            counted.fpdus += 1;
        } else if line.starts_with("CRC check: ") {
            match line.ends_with("(Good CRC32)") {
                true => right += 1,
                false => wrong.push(line),
            }
        } else if let Some((_, name)) = line.split_once(" = OpCode: ") {
            *counted.opcodes.entry(name.to_owned()).or_default() += 1;
        }
    }
    let shown = wrong[..wrong.len().min(SHOWN)].join("\n");
    ensure!(wrong.is_empty(), "{} with a wrong CRC:\n{}", wrong.len(), indent(&shown));
    ensure!(right == counted.fpdus, "{} of {} FPDUs have no CRC", counted.fpdus - right, counted.fpdus);
    Ok(counted)
}

/// Tests the check itself.
///
/// It must accept a connection between siw and vrdma, and find each fault that is put into it.
pub fn self_test() -> Result<()> {
    /// Length of the Ethernet, IPv4 and TCP headers, with timestamps.
    const HEADERS: usize = 14 + 20 + 32;
    const FAULTS: [Fault; 3] = [
        ("a flipped bit of a payload", |pcap| pcap.packet(FPDU)[HEADERS + 22] ^= 1, "1 with a wrong CRC"),
        (
            "a flipped bit of a CRC",
            |pcap| *pcap.packet(FPDU).last_mut().expect("a byte") ^= 1,
            "1 with a wrong CRC",
        ),
        ("an opcode that there is not", |pcap| pcap.packet(FPDU)[HEADERS + 3] = 0x4f, "with a wrong CRC"),
    ];
    /// The number of a packet with an FPDU; that of the packet with the MPA request follows.
    const FPDU: usize = 7;
    const REQUEST: usize = 3;
    /// Number of packets in the capture.
    const PACKETS: usize = 130;
    let golden = fs::read(paths::workspace().join("testing/conformance/checks/siw.pcap"))?;
    let directory = Ephemeral::new(std::env::temp_dir().join(format!("vrdma-fpdus-{}", std::process::id())));
    paths::make_dir(directory.path())?;
    let file = directory.path().join("capture.pcap");
    paths::write(&file, &golden)?;
    let checked = check(&file).context("a conversation with siw")?;
    ensure!(checked.packets > 20, "only {} FPDUs were looked at", checked.packets);
    finds_each(&FAULTS, check, &golden, &file)?;
    // A second connection with the same ports is valid, too, and each fault of it is found.
    let mut twice = Pcap(golden.clone());
    twice.0.extend(again(&golden));
    paths::write(&file, &twice.0)?;
    let both = check(&file).context("two conversations with the same ports")?;
    ensure!(both.packets == 2 * checked.packets, "{} FPDUs of two conversations", both.packets);
    const FAULTS_AGAIN: [Fault; 2] = [
        (
            "a flipped bit of the later connection",
            |pcap| pcap.packet(PACKETS + FPDU)[HEADERS + 22] ^= 1,
            "1 with a wrong CRC",
        ),
        (
            "no iWARP in the later connection",
            |pcap| pcap.packet(PACKETS + REQUEST)[HEADERS] ^= 1,
            "tshark complains",
        ),
    ];
    finds_each(&FAULTS_AGAIN, check, &twice.0, &file)?;
    // A stream without its beginning is not iWARP.
    let mut pcap = Pcap(golden);
    let packets: Vec<u8> = pcap.0.split_off(pcap.place(FPDU));
    pcap.0.truncate(Pcap::FILE);
    pcap.0.extend(packets);
    paths::write(&file, &pcap.0)?;
    ensure!(
        check(&file).is_err_and(|error| format!("{error:#}").contains("tshark complains")),
        "no iWARP is fine"
    );
    paths::write(&file, &pcap.0[..Pcap::FILE])?;
    ensure!(
        check(&file).is_err_and(|error| format!("{error:#}").contains("there is no FPDU")),
        "no packets are fine"
    );
    Ok(())
}

/// Returns a capture's packets with other sequence numbers, as of a later connection on the same
/// ports.
fn again(capture: &[u8]) -> Vec<u8> {
    /// Offset of the sequence number in a packet, after the Ethernet and IPv4 headers.
    const SEQUENCE: usize = 14 + 20 + 4;
    const ACKNOWLEDGEMENT: usize = SEQUENCE + 4;
    const FLAGS: usize = SEQUENCE + 9;
    const ACK: u8 = 0x10;
    let mut pcap = Pcap(capture.to_owned());
    let mut index = 0;
    while pcap.place(index) < pcap.0.len() {
        let packet = pcap.packet(index);
        let has_ack = packet[FLAGS] & ACK != 0;
        for place in iter::once(SEQUENCE).chain(has_ack.then_some(ACKNOWLEDGEMENT)) {
            // This is the highest byte of the number.
            packet[place] = packet[place].wrapping_add(0x35);
        }
        index += 1;
    }
    pcap.0.split_off(Pcap::FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fpdu_has_a_right_crc() {
        let good = "    FPDU\n  CRC check: 0x9e303e3c (Good CRC32)\n   .... 0011 = OpCode: Send (0x3)\n";
        let checked = count(&good.repeat(2)).unwrap();
        assert_eq!(checked, Counted { fpdus: 2, opcodes: BTreeMap::from([("Send (0x3)".to_owned(), 2)]) });
        let said = |text: &str| count(text).unwrap_err().to_string();
        assert_eq!(said(&format!("{good}FPDU\n")), "1 of 2 FPDUs have no CRC");
        let bad = "FPDU\nCRC check: 0x00000000 (Bad CRC32, should be 0x9e303e3c)\n";
        assert!(said(&format!("{good}{bad}")).starts_with("1 with a wrong CRC"));
    }
}
