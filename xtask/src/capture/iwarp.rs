//! iWARP: is each FPDU of a capture sound? By tshark's dissectors of MPA, DDP and RDMAP, and the CRC that it computes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Checked, Fault, Pcap, SHOWN, finds_each, in_guest_root};
use crate::paths;
use crate::proc::{Ephemeral, indent};

/// Every TCP segment of the file with payload is iWARP's, none is malformed, and every FPDU has a CRC, which is right; there is one.
pub fn check(file: &Path) -> Result<Checked> {
    let file = file.canonicalize().with_context(|| format!("no file {}", file.display()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    complain(&in_guest_root(&file, &script(&name, COMPLAINTS, FIELDS), "tshark-streams")?)?;
    count(&in_guest_root(
        &file,
        &script(&name, "iwarp_mpa.fpdu", "-O iwarp_mpa,iwarp_ddp_rdmap"),
        "tshark-fpdus",
    )?)
    .with_context(|| format!("{}", file.display()))
}

/// Payload that is not taken for iWARP's, but for parts of FPDUs that are dissected with their ends, and what TCP sends again; and what is no iWARP. The dissector knows RFC 5044
/// alone: that a request is of RFC 6581's revision is no fault.
const COMPLAINTS: &str = "tcp.len > 0 && (_ws.malformed || iwarp_mpa.bad_length || !iwarp_mpa && !tcp.reassembled_in \
     && !tcp.analysis.retransmission && !tcp.analysis.keep_alive && !tcp.analysis.zero_window_probe)";
const FIELDS: &str = "-T fields -E separator=' ' -e frame.number -e frame.protocols -e _ws.expert.message";

/// Payload of messages is not searched for protocols that it may look like by chance.
fn script(name: &str, filter: &str, output: &str) -> String {
    format!(
        "exec tshark -Q -n -2 -r '/mnt/{name}' \
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

/// Counts FPDUs, of which each has the CRC that it should have, and operations.
fn count(said: &str) -> Result<Checked> {
    let (mut fpdus, mut right) = (0, 0);
    let mut wrong = Vec::new();
    let mut opcodes: BTreeMap<&str, u64> = BTreeMap::new();
    for line in said.lines().map(str::trim) {
        if line == "FPDU" {
            fpdus += 1;
        } else if line.starts_with("CRC check: ") {
            match line.ends_with("(Good CRC32)") {
                true => right += 1,
                false => wrong.push(line),
            }
        } else if let Some((_, name)) = line.split_once(" = OpCode: ") {
            *opcodes.entry(name).or_default() += 1;
        }
    }
    let shown = wrong[..wrong.len().min(SHOWN)].join("\n");
    ensure!(wrong.is_empty(), "{} with a wrong CRC:\n{}", wrong.len(), indent(&shown));
    ensure!(fpdus > 0, "there is no FPDU");
    ensure!(right == fpdus, "{} of {fpdus} FPDUs have no CRC", fpdus - right);
    let opcodes: Vec<String> = opcodes.iter().map(|(name, count)| format!("{count:8}  {name}")).collect();
    Ok(Checked { packets: fpdus, opcodes: opcodes.join("\n") })
}

/// The check itself works: it passes what siw and we said to each other, and finds each fault that is put in.
pub fn self_test() -> Result<()> {
    /// Ethernet's, IPv4's and TCP's headers with timestamps.
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
    /// A packet with an FPDU.
    const FPDU: usize = 7;
    let golden = fs::read(paths::workspace().join("xtask/checks/siw.pcap"))?;
    let directory = Ephemeral::new(std::env::temp_dir().join(format!("vrdma-fpdus-{}", std::process::id())));
    paths::make_dir(directory.path())?;
    let file = directory.path().join("capture.pcap");
    paths::write(&file, &golden)?;
    let checked = check(&file).context("a conversation with siw")?;
    ensure!(checked.packets > 20, "only {} FPDUs were looked at", checked.packets);
    finds_each(&FAULTS, check, &golden, &file)?;
    // A stream whose beginning is missing is taken for none.
    let mut pcap = Pcap(golden);
    let packets: Vec<u8> = pcap.0.split_off(pcap.place(FPDU));
    pcap.0.truncate(Pcap::FILE);
    pcap.0.extend(packets);
    paths::write(&file, &pcap.0)?;
    ensure!(
        check(&file).is_err_and(|error| format!("{error:#}").contains("tshark complains")),
        "no iWARP is fine"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fpdu_has_a_right_crc() {
        let good = "    FPDU\n  CRC check: 0x9e303e3c (Good CRC32)\n   .... 0011 = OpCode: Send (0x3)\n";
        let checked = count(&good.repeat(2)).unwrap();
        assert_eq!((checked.packets, checked.opcodes.as_str()), (2, "       2  Send (0x3)"));
        let said = |text: &str| count(text).unwrap_err().to_string();
        assert_eq!(said(""), "there is no FPDU");
        assert_eq!(said(&format!("{good}FPDU\n")), "1 of 2 FPDUs have no CRC");
        let bad = "FPDU\nCRC check: 0x00000000 (Bad CRC32, should be 0x9e303e3c)\n";
        assert!(said(&format!("{good}{bad}")).starts_with("1 with a wrong CRC"));
    }
}
