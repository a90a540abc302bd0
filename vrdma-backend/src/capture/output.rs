//! A descriptor of a client, to which a capture is written.

use super::queue::{CaptureBatch, CaptureEnd};
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgWriter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::net::{SendFlags, send};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes that are laid out at once.
const CHUNK: usize = 256 << 10;
/// Bytes that a pipe takes without waiting, if it takes any (`PIPE_BUF`).
const PIPE: usize = 4096;
/// The offset that stands for the one of the file (pwritev2(2)).
const CURRENT: u64 = u64::MAX;
/// Time stamps are in nanoseconds: 10 to the power of minus this.
const NANOSECONDS: u8 = 9;
/// Flags of a packet that came in, and of one that went out (pcapng 4.3.1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A descriptor of a client, and what is to be written there.
pub struct CaptureOutput {
    descriptor: OwnedFd,
    kind: Kind,
    /// Lays packets out in its buffer.
    pcap: PcapNgWriter<Vec<u8>>,
    /// How many bytes of the buffer are written.
    sent: usize,
    /// Where packets in the buffer end that are not written.
    ends: VecDeque<usize>,
    /// Packets, and how many of them and of their bytes are laid out.
    batch: CaptureBatch,
    laid_out: (usize, usize),
    /// Most bytes of a packet; 0: all.
    snap: u32,
}

/// What a descriptor is, by which it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A regular file. Writing waits for the disk.
    File,
    Socket,
    Pipe,
}

/// What was written in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrote {
    /// Packets that are written as a whole.
    pub packets: u64,
    /// Bytes. 0: none can be written at present.
    pub bytes: u64,
}

impl CaptureOutput {
    /// Returns what writes to a descriptor, in the format pcapng.
    ///
    /// # Errors
    /// The descriptor is no file, pipe or socket. Writing to others, like terminals, might wait.
    pub fn new(descriptor: OwnedFd, snap: Option<u32>) -> Result<CaptureOutput, CaptureEnd> {
        let kind = match fstat(&descriptor).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile) => Kind::File,
            Ok(FileType::Socket) => Kind::Socket,
            Ok(FileType::Fifo) => Kind::Pipe,
            Ok(_) => {
                let reason = "a capture goes to a file, a pipe or a socket, and to no device";
                return Err(CaptureEnd::Failed(reason.into()));
            }
            Err(error) => return Err(CaptureEnd::Failed(said(error))),
        };
        Ok(CaptureOutput {
            descriptor,
            kind,
            pcap: PcapNgWriter::new(Vec::new()).expect("memory takes all"),
            sent: 0,
            ends: VecDeque::new(),
            batch: CaptureBatch::with_room(),
            laid_out: (0, 0),
            snap: snap.unwrap_or_default(),
        })
    }

    /// Empties the batch, which is written, and returns it to be exchanged for another one.
    pub fn next_batch(&mut self) -> &mut CaptureBatch {
        self.laid_out = (0, 0);
        self.batch.clear();
        &mut self.batch
    }

    /// Writes a part of what there is. Returns `None` if all is written.
    ///
    /// # Errors
    /// The reader is gone, or writing fails. No part of it is written again.
    pub fn write(&mut self) -> Result<Option<Wrote>, CaptureEnd> {
        if self.sent == self.pcap.get_ref().len() {
            self.sent = 0;
            self.pcap.get_mut().clear();
            self.lay_out();
            if self.pcap.get_ref().is_empty() {
                return Ok(None);
            }
        }
        let count = match self.put() {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(CaptureEnd::Closed),
            Err(error) => return Err(CaptureEnd::Failed(said(error))),
        };
        self.sent += count;
        let done = self.ends.iter().take_while(|end| **end <= self.sent).count();
        self.ends.drain(..done);
        Ok(Some(Wrote { packets: done as u64, bytes: count as u64 }))
    }

    /// Waits until a pipe or socket takes more, at most this long.
    pub fn wait(&self, time: Duration) {
        // An error is told by the next write.
        let _ = self.poll(PollFlags::OUT, time);
    }

    /// Whether the reader of a pipe or socket is gone.
    pub fn is_left(&self) -> bool {
        self.kind != Kind::File
            && self
                .poll(PollFlags::empty(), Duration::ZERO)
                .is_ok_and(|seen| seen.intersects(PollFlags::ERR | PollFlags::HUP))
    }

    fn poll(&self, wanted: PollFlags, time: Duration) -> Result<PollFlags, Errno> {
        let mut fds = [PollFd::new(&self.descriptor, wanted)];
        poll(&mut fds, Timespec::try_from(time).ok().as_ref())?;
        Ok(fds[0].revents())
    }

    /// Writes a part of the buffer. Returns how many bytes were written.
    ///
    /// The client may share the description of the file, so its flags stay.
    fn put(&self) -> Result<usize, Errno> {
        let bytes = &self.pcap.get_ref()[self.sent..];
        match self.kind {
            Kind::File => rustix::io::write(&self.descriptor, bytes),
            Kind::Socket => send(&self.descriptor, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Kind::Pipe => {
                let parts = [IoSlice::new(bytes)];
                match pwritev2(&self.descriptor, &parts, CURRENT, ReadWriteFlags::NOWAIT) {
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.put_into_old_pipe(bytes),
                    done => done,
                }
            }
        }
    }

    /// Writes to a pipe of a kernel that cannot be asked not to wait.
    ///
    /// If another writer fills the pipe in between, this waits for the reader.
    fn put_into_old_pipe(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.poll(PollFlags::OUT, Duration::ZERO)? {
            seen if seen.is_empty() => Err(Errno::AGAIN),
            _ => rustix::io::write(&self.descriptor, &bytes[..bytes.len().min(PIPE)]),
        }
    }

    /// Lays packets out in the buffer.
    fn lay_out(&mut self) {
        for name in self.batch.interfaces.drain(..) {
            let block = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: self.snap,
                options: vec![
                    InterfaceDescriptionOption::IfName(name.as_deref().unwrap_or("uplink").to_owned().into()),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            };
            self.pcap.write_pcapng_block(block).expect("memory takes all");
        }
        let (mut index, mut at) = self.laid_out;
        // Its memory serves all packets.
        let mut options = Vec::new();
        while let Some(taken) = self.batch.packets.get(index)
            && self.pcap.get_ref().len() < CHUNK
        {
            let flags = if taken.is_inbound { INBOUND } else { OUTBOUND };
            options.push(EnhancedPacketOption::Flags(flags));
            options.extend(taken.comment.map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text))));
            let block = Block::EnhancedPacket(EnhancedPacketBlock {
                interface_id: taken.interface,
                timestamp: taken.at,
                original_len: taken.length as u32,
                data: Cow::Borrowed(&self.batch.bytes[at..at + taken.kept]),
                options,
            });
            self.pcap.write_block(&block).expect("memory takes all, and the interface is there");
            let Block::EnhancedPacket(block) = block else { unreachable!("it was made here") };
            options = block.options;
            options.clear();
            self.ends.push_back(self.pcap.get_ref().len());
            (index, at) = (index + 1, at + taken.kept);
        }
        self.laid_out = (index, at);
    }
}

/// Returns an error of the system in words, without its number.
fn said(error: Errno) -> String {
    let text = io::Error::from(error).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::queue::TakenPacket;
    use super::*;
    use pcap_file::pcapng::PcapNgReader;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    const AT: Duration = Duration::from_nanos(1_700_000_000_123_456_789);

    fn output(descriptor: OwnedFd) -> CaptureOutput {
        CaptureOutput::new(descriptor, None).unwrap()
    }

    /// Gives it packets of 60 bytes: the interface, and the byte of which they are.
    fn give(output: &mut CaptureOutput, packets: &[(u32, u8)]) {
        let batch = output.next_batch();
        *batch = CaptureBatch { interfaces: vec![None, Some("vm1".into())], ..CaptureBatch::default() };
        for &(interface, byte) in packets {
            let comment = (interface == 1).then_some("here");
            let (is_inbound, length) = (interface == 0, if interface == 1 { 4000 } else { 60 });
            batch.packets.push(TakenPacket { interface, is_inbound, at: AT, kept: 60, length, comment });
            batch.bytes.extend_from_slice(&[byte; 60]);
        }
    }

    /// Writes what can be written. Returns how much that was, and whether it was all.
    fn write(output: &mut CaptureOutput) -> Result<(Wrote, bool), CaptureEnd> {
        let mut all = Wrote::default();
        while let Some(wrote) = output.write()? {
            if wrote.bytes == 0 {
                return Ok((all, false));
            }
            all = Wrote { packets: all.packets + wrote.packets, bytes: all.bytes + wrote.bytes };
        }
        Ok((all, true))
    }

    #[test]
    fn packets_have_an_interface_a_time_a_direction_and_a_comment() {
        let file = tempfile::tempfile().unwrap();
        let mut output = output(file.try_clone().unwrap().into());
        give(&mut output, &[(0, 1), (1, 2), (0, 3)]);
        let (wrote, is_all) = write(&mut output).unwrap();
        // Nothing is written again while nothing comes.
        output.next_batch();
        assert_eq!(write(&mut output), Ok((Wrote::default(), true)));
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut &file).unwrap();
        (&file).read_to_end(&mut bytes).unwrap();
        assert_eq!((wrote, is_all), (Wrote { packets: 3, bytes: bytes.len() as u64 }, true));
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let (mut names, mut packets) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(block) => {
                    let name = block.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    });
                    names.push(name.unwrap());
                }
                Block::EnhancedPacket(block) => {
                    let block = block.into_owned();
                    assert_eq!(block.timestamp, AT);
                    packets.push((block.interface_id, block.data[0], block.original_len, block.options));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(names, ["uplink", "vm1"]);
        let told = EnhancedPacketOption::Comment("here".into());
        let (inbound, outbound) = (EnhancedPacketOption::Flags(1), EnhancedPacketOption::Flags(2));
        let wanted = [
            (0, 1, 60, vec![inbound.clone()]),
            (1, 2, 4000, vec![outbound, told]),
            (0, 3, 60, vec![inbound]),
        ];
        assert_eq!(packets, wanted);
    }

    #[test]
    fn what_is_no_file_pipe_or_socket_is_refused() {
        let open = |path| OwnedFd::from(File::options().read(true).write(true).open(path).unwrap());
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let directory = OwnedFd::from(File::open("/").unwrap());
        for other in [open("/dev/null"), open("/dev/ptmx"), event, directory] {
            let Err(CaptureEnd::Failed(reason)) = CaptureOutput::new(other, None) else {
                panic!("it is taken")
            };
            assert!(reason.contains("no device"), "{reason}");
        }
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let (_, pipe) = std::io::pipe().unwrap();
        for descriptor in [tempfile::tempfile().unwrap().into(), socket.into(), OwnedFd::from(pipe)] {
            assert!(CaptureOutput::new(descriptor, None).is_ok());
        }
    }

    #[test]
    fn a_file_that_takes_nothing_ends_it_with_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut output = output(File::open(file.path()).unwrap().into());
        assert_eq!(write(&mut output), Err(CaptureEnd::Failed("Bad file descriptor".into())));
    }

    /// Packets are counted one by one, wherever a part of the buffer ends.
    #[test]
    fn a_reader_that_reads_nothing_delays_nobody() {
        let (sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
        let (from, to) = std::io::pipe().unwrap();
        for (descriptor, reader) in [(sender.into(), OwnedFd::from(receiver)), (to.into(), from.into())] {
            let mut output = output(descriptor);
            give(&mut output, &[(0, 7); 10_000]);
            let (first, is_all) = write(&mut output).unwrap();
            assert!(!is_all, "it does not fit");
            // A block of 60 bytes has 32 bytes of header and trailer, and 12 of options.
            let blocks = first.bytes / 104;
            assert!(first.packets + 3 >= blocks && first.packets <= blocks, "{first:?}");
            assert_eq!(write(&mut output), Ok((Wrote::default(), false)));
            assert!(!output.is_left());
            // It goes on where it was when the reader goes on.
            let mut bytes = vec![0; 65536];
            rustix::io::read(&reader, &mut bytes).unwrap();
            assert!(write(&mut output).unwrap().0.bytes > 0);
            drop(reader);
            assert!(output.is_left());
            assert_eq!(write(&mut output), Err(CaptureEnd::Closed));
        }
    }

    /// Its flags say that a write waits.
    #[test]
    fn a_full_pipe_is_not_waited_for() {
        use rustix::fs::{CWD, Mode, mkfifoat};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let fifo = File::options().read(true).write(true).open(path).unwrap();
        let (_reader, pipe) = std::io::pipe().unwrap();
        for to in [OwnedFd::from(pipe), fifo.into()] {
            let mut output = output(to.try_clone().unwrap());
            give(&mut output, &[(0, 7); 10]);
            rustix::io::ioctl_fionbio(to.as_fd(), true).unwrap();
            while rustix::io::write(&to, &[0; PIPE]).is_ok() {}
            rustix::io::ioctl_fionbio(to.as_fd(), false).unwrap();
            assert_eq!(write(&mut output), Ok((Wrote::default(), false)));
        }
    }
}
