//! Captures what a port sends and receives to a file that Wireshark opens.

use super::{BURST, Capabilities, Dma, Driver, External, Frame, Frames, Offload, Wakeup};
use anyhow::{Result, anyhow, ensure};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use vrdma_wire::num::Mac;

/// The most bursts that may wait to be written. Further bursts are not captured.
const BACKLOG: usize = 4096;
/// The file is flushed after this time without frames.
const QUIET: Duration = Duration::from_millis(100);

/// A driver that captures the frames of another driver to a file, in both directions.
///
/// The file has the pcap format, with time stamps in nanoseconds. Frames are captured as they are
/// on the wire. The port's user copies them, and a thread of the capture writes them. Frames that
/// come faster than they can be written are not captured, and are counted.
#[derive(Debug)]
pub struct Capture {
    driver: Box<dyn Driver>,
    writer: Option<Sender<Taken>>,
    thread: Option<JoinHandle<()>>,
    captured: u64,
    missed: u64,
}

/// A file for a capture. Its contents are kept until the capture begins.
#[derive(Debug)]
pub struct CaptureFile(File);

impl CaptureFile {
    /// Opens a file that only the user of this process may read. It holds traffic of guests.
    ///
    /// # Errors
    /// The file cannot be written, is a symbolic link, or belongs to another user.
    pub fn open(path: &Path) -> Result<CaptureFile> {
        let mut options = File::options();
        options.write(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => anyhow!("it is a symbolic link, which is not followed: name the file"),
            _ => error.into(),
        })?;
        let found = file.metadata()?;
        if found.is_file() {
            let user = rustix::process::geteuid().as_raw();
            ensure!(found.uid() == user, "it belongs to user {}: remove it, or name another", found.uid());
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(CaptureFile(file))
    }

    fn empty(self) -> Result<File> {
        // Only a regular file has a length. A pipe to a program that shows the frames has none.
        if self.0.metadata()?.is_file() {
            self.0.set_len(0)?;
        }
        Ok(self.0)
    }
}

#[derive(Debug)]
struct Taken {
    at: Duration,
    frames: Vec<Vec<u8>>,
}

impl Capture {
    /// Captures what `driver` sends and receives, until the capture is dropped.
    ///
    /// # Errors
    /// The file cannot be written, or no thread can be started.
    pub fn new(driver: Box<dyn Driver>, file: CaptureFile) -> Result<Capture> {
        let file = file.empty()?;
        let (writer, taken) = crossbeam_channel::bounded(BACKLOG);
        let thread = std::thread::Builder::new().name("capture".into()).spawn(move || {
            if let Err(error) = write(file, &taken) {
                log::error!("the capture ends here: {error}");
            }
        })?;
        Ok(Capture { driver, writer: Some(writer), thread: Some(thread), captured: 0, missed: 0 })
    }

    fn take(&mut self, frames: Vec<Vec<u8>>) {
        let count = frames.len() as u64;
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let writer = self.writer.as_ref().expect("there until the end");
        match writer.try_send(Taken { at, frames }) {
            Ok(()) => self.captured += count,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.missed += count,
        }
    }
}

/// Writes bursts of frames until all senders are gone.
fn write(file: File, taken: &Receiver<Taken>) -> Result<()> {
    let file = Shared(Rc::new(RefCell::new(BufWriter::new(file))));
    let header = PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    };
    let mut pcap = PcapWriter::with_header(file.clone(), header)?;
    file.clone().flush()?;
    let mut dirty = false;
    loop {
        match taken.recv_timeout(QUIET) {
            Ok(Taken { at, frames }) => {
                for frame in frames {
                    pcap.write_packet(&PcapPacket::new(at, frame.len() as u32, &frame))?;
                }
                dirty = true;
            }
            Err(RecvTimeoutError::Timeout) if dirty => {
                file.clone().flush()?;
                dirty = false;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(file.clone().flush()?),
        }
    }
}

/// A writer that the pcap library can own while this module still flushes it.
#[derive(Clone)]
struct Shared(Rc<RefCell<BufWriter<File>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

fn copy(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame.total_len());
    frame.copy_to(&mut bytes);
    bytes
}

impl Driver for Capture {
    fn capabilities(&self) -> Capabilities {
        // The NIC would complete these frames only after they were captured. The file would show
        // wrong checksums.
        Capabilities { checksums: Default::default(), ..self.driver.capabilities() }
    }

    fn dma(&self) -> Option<Dma> {
        self.driver.dma()
    }

    fn mac(&self) -> Mac {
        self.driver.mac()
    }

    fn adopt(&mut self) {
        self.driver.adopt();
    }

    fn link(&mut self) -> bool {
        self.driver.link()
    }

    fn speed(&mut self) -> Option<u32> {
        self.driver.speed()
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.driver.counters(count);
        count("captured", self.captured);
        count("capture_missed", self.missed);
    }
}

impl Frames for Capture {
    fn receive(&mut self, frames: &mut Vec<Frame>) {
        let before = frames.len();
        self.driver.receive(frames);
        if frames.len() > before {
            self.take(frames[before..].iter().map(copy).collect());
        }
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        self.driver.allocate(frames);
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        let before = frames.len();
        let mut copies: Vec<_> = frames.iter().take(BURST).map(copy).collect();
        self.driver.send(frames);
        copies.truncate(before - frames.len());
        if !copies.is_empty() {
            self.take(copies);
        }
    }

    fn attach(&mut self, frame: &mut Frame, external: External) -> bool {
        self.driver.attach(frame, external)
    }

    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        self.driver.append(frame, bytes)
    }

    fn reclaim(&mut self) {
        self.driver.reclaim();
    }

    fn offload(&mut self, frame: &mut Frame, offload: Offload) {
        self.driver.offload(frame, offload);
    }
}

impl Wakeup for Capture {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.driver.readiness()
    }

    fn arm(&mut self) -> bool {
        self.driver.arm()
    }

    fn disarm(&mut self) {
        self.driver.disarm();
    }

    fn held(&self) -> Option<Duration> {
        self.driver.held()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.writer = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the capture's thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Burst, Port, pair};
    use pcap_file::pcap::PcapReader;
    use std::process::Command;

    #[test]
    fn a_file_is_private_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (file, link) = (dir.join("file"), dir.join("link"));
        std::fs::write(&file, "precious").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let error = CaptureFile::open(&link).unwrap_err().to_string();
        assert!(error.contains("it is a symbolic link"), "{error}");
        // The file keeps its contents until the capture begins.
        let opened = CaptureFile::open(&file).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(opened.empty().unwrap().metadata().unwrap().len(), 0);
        drop(CaptureFile::open(&dir.join("new")).unwrap());
        assert_eq!(std::fs::metadata(dir.join("new")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn both_directions_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capture.pcap");
        let (left, right, cable) = pair(1500).unwrap();
        let mut port =
            Port::new(Box::new(Capture::new(Box::new(left), CaptureFile::open(&path).unwrap()).unwrap()));
        let mut peer = Port::new(Box::new(right));
        let send = |port: &mut Port, byte: u8| {
            let mut token = port.transmit(60).unwrap();
            token.buf()[..60].fill(byte);
            token.commit(60);
            port.flush();
        };
        let mut burst = Burst::default();
        for byte in 0..100 {
            send(&mut port, byte);
            assert_eq!(peer.receive(&mut burst), 1);
            send(&mut peer, !byte);
            assert_eq!(port.receive(&mut burst), 1);
        }
        // A frame that is not sent is not captured.
        cable.plug(false);
        assert_eq!(port.poll_link(), Some(false));
        assert!(port.transmit(60).is_none());
        let stats = port.stats();
        assert_eq!((stats["captured"], stats["capture_missed"]), (200, 0));
        drop(port);

        let mut reader = PcapReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.header().ts_resolution, TsResolution::NanoSecond);
        let (mut bytes, mut last) = (Vec::new(), Duration::ZERO);
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            assert!(packet.timestamp >= last && packet.data.len() == 60 && packet.orig_len == 60);
            last = packet.timestamp;
            bytes.push(packet.data[0]);
        }
        assert!(bytes == (0..100).flat_map(|byte| [byte, !byte]).collect::<Vec<u8>>());
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&path).args(["-T", "fields", "-e", "frame.len"]);
        match tshark.output() {
            Ok(output) => assert_eq!(output.stdout, "60\n".repeat(200).as_bytes()),
            Err(error) => eprintln!("not read by tshark: {error}"),
        }
    }
}
