//! Checks captures of the wire with other projects' programs.
//!
//! tshark's InfiniBand dissector checks the packets, and scapy the ICRC. Both run in the guest
//! root, so the machine needs neither.

pub mod iwarp;
mod tools;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::proc::{Ephemeral, indent};
use vrdma_lab::{image, paths, roots, ui};

pub use tools::Checked;
use tools::{Fault, SHOWN, finds_each, in_guest_root};

/// Makes sure that the programs are installed, and checks a capture.
pub fn check_alone(file: &Path, is_iwarp: bool) -> Result<()> {
    {
        let _lock = image::lock()?;
        vrdma_lab::needs::ensure()?;
        roots::guest()?;
    }
    let checked = ui::step(&format!("checking {}", file.display()), || match is_iwarp {
        true => iwarp::check(file),
        false => check(file),
    })?;
    println!("{}\n{} packets, each sound", checked.opcodes, checked.packets);
    Ok(())
}

/// Checks a capture of RoCE packets, of which there must be at least one.
///
/// Every packet must be dissected without an error, and have the ICRC that scapy computes.
pub fn check(file: &Path) -> Result<Checked> {
    let file = file.canonicalize().with_context(|| format!("no file {}", file.display()))?;
    dissect(&file)?;
    recompute(&file)
}

/// Returns fields of the packets that match tshark's display filter: a line each, separated by
/// tabs.
pub fn fields(file: &Path, filter: &str, fields: &[&str]) -> Result<String> {
    let file = file.canonicalize().with_context(|| format!("no file {}", file.display()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wanted: String = fields.iter().map(|field| format!(" -e {field}")).collect();
    let script = format!("exec tshark -Q -n -r '/mnt/{name}' -Y '{filter}' -T fields{wanted}");
    in_guest_root(&file, &script, "tshark-fields")
}

/// Fails with tshark's first findings, if there are any.
///
/// A finding is a malformed packet, one not dissected as InfiniBand, or an expert note of severity
/// warning or error.
///
/// Two settings differ from the default. A UDP checksum of zero is valid over IPv6, too: it is
/// usual for RoCE, and `rdma_rxe` sends it as well. Payload is not dissected as protocols that it
/// resembles by chance, such as RPC over RDMA.
fn dissect(file: &Path) -> Result<()> {
    const PROTOCOLS: &str = "frame,eth,ethertype,vlan,ip,ipv6,udp,infiniband,data";
    const COMPLAINTS: &str =
        "udp.port == 4791 && (!infiniband || _ws.malformed || _ws.expert.severity >= 0x00600000)";
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let script = format!(
        "exec tshark -Q -n -r '/mnt/{name}' --only-protocols {PROTOCOLS} \
         -o udp.ignore_ipv6_zero_checksum:TRUE -Y '{COMPLAINTS}' -T fields -E separator=' ' \
         -e frame.number -e frame.protocols -e _ws.expert.message"
    );
    let said = in_guest_root(file, &script, "tshark")?;
    let complaints: Vec<&str> = said.lines().collect();
    if let Some(first) = complaints.get(..complaints.len().min(SHOWN)).filter(|first| !first.is_empty()) {
        bail!("tshark complains of {} packets:\n{}", complaints.len(), indent(&first.join("\n")));
    }
    Ok(())
}

fn recompute(file: &Path) -> Result<Checked> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let said = in_guest_root(file, &format!("exec python3 -B /srv/icrc.py '/mnt/{name}'"), "scapy")?;
    let lines: Vec<&str> = said.lines().collect();
    let packets = lines.last().and_then(|line| line.split_once(" packets")?.0.parse().ok());
    let packets: u64 = packets.with_context(|| format!("odd words of icrc.py:\n{said}"))?;
    ensure!(packets > 0, "there is no RoCE packet in {}", file.display());
    Ok(Checked { packets, opcodes: lines[..lines.len() - 1].join("\n") })
}

/// Tests the check itself.
///
/// It must accept `rdma_rxe`'s packets, which have each opcode that `rdma_rxe` sends, over IPv4 and
/// IPv6. It must find each fault that is put into them.
pub fn self_test() -> Result<()> {
    const FAULTS: [Fault; 5] = [
        ("a flipped bit of a payload", |pcap| pcap.packet(0)[100] ^= 1, "1 with a wrong ICRC"),
        ("a flipped bit of a PSN", |pcap| pcap.packet(0)[53] ^= 1, "1 with a wrong ICRC"),
        (
            "a flipped bit of an ICRC",
            |pcap| *pcap.packet(1).last_mut().expect("a byte") ^= 1,
            "packet 2: ICRC",
        ),
        ("an opcode that there is not", |pcap| pcap.packet(0)[42] = 0x1f, "with a wrong ICRC"),
        ("a packet that ends in its BTH", |pcap| pcap.shorten(0, 48), "tshark complains"),
    ];
    let golden = fs::read(paths::workspace().join("testing/conformance/checks/rxe.pcap"))?;
    let directory =
        Ephemeral::new(std::env::temp_dir().join(format!("vrdma-capture-{}", std::process::id())));
    paths::make_dir(directory.path())?;
    let file = directory.path().join("capture.pcap");
    paths::write(&file, &golden)?;
    let checked = check(&file).context("rdma_rxe's own packets")?;
    ensure!(checked.packets > 50, "only {} packets were looked at", checked.packets);
    finds_each(&FAULTS, check, &golden, &file)?;
    paths::write(&file, &golden[..golden.len() - 1])?;
    ensure!(check(&file).is_err(), "a file that is cut off was not found");
    paths::write(&file, &golden[..24])?;
    ensure!(
        check(&file).is_err_and(|error| error.to_string().contains("no RoCE packet")),
        "no packets are fine"
    );
    iwarp::self_test()
}
