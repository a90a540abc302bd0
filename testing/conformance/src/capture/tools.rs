//! Helpers of all checks of captures: how they run, and faults that they have to find.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::paths;
use vrdma_lab::proc;

/// The result of a check that found no fault.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Number of RoCE packets, or of iWARP's FPDUs.
    pub packets: u64,
    /// A line for each opcode: its count and its name.
    pub opcodes: String,
}

/// Time limit of a check. Both programs process some thousand packets a second.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// How many findings are shown.
pub(super) const SHOWN: usize = 10;

/// Runs a script in the guest root. It finds the capture's directory at `/mnt`, the checks' at
/// `/srv`.
pub(super) fn in_guest_root(file: &Path, script: &str, what: &str) -> Result<String> {
    // The log is read back, so only one check at a time may write it, even with two pairs of VMs.
    static LOG: Mutex<()> = Mutex::new(());
    let _one = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = file.parent().context("a file lies in a directory")?;
    let checks = paths::workspace().join("testing/conformance/checks");
    let command = proc::in_root(&paths::guest_root(), &[(directory, "/mnt"), (&checks, "/srv")], script);
    let log = paths::log(&format!("check-capture-{what}"))?;
    proc::run_logged(what, command, &log, LIMIT)?;
    // tshark's message to its user is no finding.
    let said = paths::read(&log)?;
    Ok(said.lines().filter(|line| !line.starts_with("Running as user")).collect::<Vec<_>>().join("\n"))
}

/// A deliberate fault: its name, a function that puts it into a capture, and the expected finding.
pub(super) type Fault = (&'static str, fn(&mut Pcap), &'static str);

/// Puts each fault by itself into a capture without faults, and checks that it is found.
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

/// The bytes of a pcap file, in the byte order of this machine.
pub(super) struct Pcap(pub(super) Vec<u8>);

impl Pcap {
    /// Length of the file header. `PACKET` is that of a packet header, whose words 3 and 4 are
    /// lengths.
    pub(super) const FILE: usize = 24;
    const PACKET: usize = 16;

    fn word(&self, at: usize) -> usize {
        self.0.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
    }

    /// Returns the offset of a packet's header.
    pub(super) fn place(&self, index: usize) -> usize {
        (0..index).fold(Self::FILE, |at, _| at + Self::PACKET + self.word(at + 8))
    }

    /// Returns the bytes of a packet.
    pub(super) fn packet(&mut self, index: usize) -> &mut [u8] {
        let at = self.place(index);
        let length = self.word(at + 8);
        &mut self.0[at + Self::PACKET..][..length]
    }

    /// Truncates a packet, without a change of its IP and UDP headers.
    pub(super) fn shorten(&mut self, index: usize, length: u32) {
        let at = self.place(index);
        let end = at + Self::PACKET + self.word(at + 8);
        self.0.drain(at + Self::PACKET + length as usize..end);
        self.0[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
        self.0[at + 12..at + 16].copy_from_slice(&length.to_le_bytes());
    }
}
