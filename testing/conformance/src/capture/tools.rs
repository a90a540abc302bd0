//! What the checks of captures have in common: where they run, and faults that they have to find.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::paths;
use vrdma_lab::proc;

/// What scapy counted.
#[derive(Clone, Debug)]
pub struct Checked {
    /// RoCE packets, or FPDUs of iWARP.
    pub packets: u64,
    /// A line for each opcode: its count and its name.
    pub opcodes: String,
}

/// Both programs are done with some thousand packets a second.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Complaints that are shown.
pub(super) const SHOWN: usize = 10;

/// Runs a script in the guest root, where the capture's directory is /mnt and the checks' is /srv.
pub(super) fn in_guest_root(file: &Path, script: &str, what: &str) -> Result<String> {
    // The log is read: it is one check's at a time, also where two pairs of VMs are up.
    static LOG: Mutex<()> = Mutex::new(());
    let _one = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = file.parent().context("a file lies in a directory")?;
    let checks = paths::workspace().join("testing/conformance/checks");
    let command = proc::in_root(&paths::guest_root(), &[(directory, "/mnt"), (&checks, "/srv")], script);
    let log = paths::log(&format!("check-capture-{what}"))?;
    proc::run_logged(what, command, &log, LIMIT)?;
    // What tshark says to a person is no complaint about a packet.
    let said = paths::read(&log)?;
    Ok(said.lines().filter(|line| !line.starts_with("Running as user")).collect::<Vec<_>>().join("\n"))
}

/// A fault that is put into a capture: what it is, how it gets there, and what a check says of it.
pub(super) type Fault = (&'static str, fn(&mut Pcap), &'static str);

/// Puts each fault alone into a capture that is sound; the check has to find it.
pub(super) fn finds_each(
    faults: &[Fault],
    check: fn(&Path) -> Result<Checked>,
    golden: &[u8],
    file: &Path,
) -> Result<()> {
    for (what, corrupt, expected) in faults {
        let mut pcap = Pcap(golden.to_owned());
        corrupt(&mut pcap);
        paths::write(file, &pcap.0)?;
        match check(file) {
            Ok(_) => bail!("{what} was not found"),
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(said.contains(expected), "{what} gave {said:?}, not {expected:?}");
            }
        }
    }
    Ok(())
}

/// A capture's bytes, in the byte order of this machine.
pub(super) struct Pcap(pub(super) Vec<u8>);

impl Pcap {
    /// The file's header; a packet's header, in which the third and fourth words are its lengths.
    pub(super) const FILE: usize = 24;
    const PACKET: usize = 16;

    fn word(&self, at: usize) -> usize {
        self.0.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
    }

    /// Where the header of a packet is.
    pub(super) fn place(&self, index: usize) -> usize {
        (0..index).fold(Self::FILE, |at, _| at + Self::PACKET + self.word(at + 8))
    }

    /// The bytes of a packet.
    pub(super) fn packet(&mut self, index: usize) -> &mut [u8] {
        let at = self.place(index);
        let length = self.word(at + 8);
        &mut self.0[at + Self::PACKET..][..length]
    }

    /// Makes a packet shorter on the wire, without telling its IP and UDP headers.
    pub(super) fn shorten(&mut self, index: usize, length: u32) {
        let at = self.place(index);
        let end = at + Self::PACKET + self.word(at + 8);
        self.0.drain(at + Self::PACKET + length as usize..end);
        self.0[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
        self.0[at + 12..at + 16].copy_from_slice(&length.to_le_bytes());
    }
}
