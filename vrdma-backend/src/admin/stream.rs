//! The stream of a client. The admin thread closes no descriptor that comes by it.
//!
//! Closing may wait: for a server of files, or for a peer of TCP (`SO_LINGER`). The kernel closes a
//! descriptor in the thread that reads its message without room for it. It does so, too, in the
//! thread that closes a stream with messages that nobody has read.

use crate::capture::{DescriptorKeeper, SentDescriptor};
use crate::session::retry;
use rustix::net::sockopt::set_socket_oobinline;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most descriptors of a message. The kernel takes no more (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;
/// How often to look whether there is room for descriptors again.
pub const ROOM_LOOK: Duration = Duration::from_millis(50);

/// The stream of a client, which never blocks.
#[derive(Debug)]
pub struct ClientStream {
    /// `None` while it is being dropped.
    stream: Option<UnixStream>,
    /// Has what comes closed.
    keeper: DescriptorKeeper,
}

/// What was read at once.
#[derive(Debug)]
pub struct ReadPart {
    /// How many bytes. 0: the client sends nothing more.
    pub count: usize,
    /// The descriptors that came with them.
    pub descriptors: Vec<SentDescriptor>,
}

impl ClientStream {
    /// Takes a stream.
    ///
    /// # Errors
    /// The system refuses to make it non-blocking, or to give urgent bytes like all others.
    pub fn new(stream: UnixStream, keeper: DescriptorKeeper) -> io::Result<ClientStream> {
        let stream = ClientStream { stream: Some(stream), keeper };
        stream.get().set_nonblocking(true)?;
        // Else the kernel drops urgent bytes in the thread that reads behind them, and closes what
        // came with them.
        set_socket_oobinline(stream.get(), true)?;
        Ok(stream)
    }

    /// Returns the stream itself.
    pub fn get(&self) -> &UnixStream {
        self.stream.as_ref().expect("it is not being dropped")
    }

    /// Whether descriptors can be taken. If not, nothing may be read.
    pub fn has_room(&self) -> bool {
        self.keeper.has_room()
    }

    /// Writes what can be written of these bytes. Returns `None` if that is nothing.
    ///
    /// # Errors
    /// The client is gone.
    pub fn write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let mut stream = self.get();
        at_once(|| stream.write(bytes))
    }

    /// Reads what has come. Returns `None` if that is nothing.
    ///
    /// # Errors
    /// The client is gone.
    pub fn read(&self, bytes: &mut [u8]) -> io::Result<Option<ReadPart>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = at_once(|| {
            let parts = &mut [IoSliceMut::new(&mut *bytes)];
            Ok(recvmsg(self, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?)
        })?;
        let Some(count) = got.map(|got| got.bytes) else { return Ok(None) };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights.map(|descriptor| self.keeper.keep(descriptor)));
            }
        }
        Ok(Some(ReadPart { count, descriptors }))
    }

    /// Whether all is read that has come.
    fn is_read(&self) -> bool {
        match self.read(&mut [0; 1]) {
            Ok(found) => found.is_some_and(|part| part.count == 0),
            // The client left before it had read all. That is told after all that it sent.
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get().as_fd()
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        // The client sees the end at once, and can send nothing more.
        let _ = self.get().shutdown(Shutdown::Both);
        let is_read = self.has_room() && self.is_read();
        if let Some(stream) = self.stream.take()
            && !is_read
        {
            drop(self.keeper.keep(stream.into()));
        }
    }
}

/// Calls a non-blocking function. Returns `None` if it would have to wait.
fn at_once<T>(call: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
    match retry(call) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::{IoSlice, PipeReader, PipeWriter, Read};

    /// Sends a byte with as many descriptors as can go with it, all of one pipe.
    pub fn send(to: &UnixStream, pipe: &PipeWriter, flags: SendFlags) {
        let pipes = [pipe.as_fd(); MOST_DESCRIPTORS];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&pipes)));
        assert_eq!(sendmsg(to, &[IoSlice::new(b"x")], &mut control, flags), Ok(1));
    }

    fn is_closed(pipe: &mut PipeReader) -> bool {
        rustix::io::ioctl_fionbio(&*pipe, true).unwrap();
        matches!(pipe.read(&mut [0; 1]), Ok(0))
    }

    #[test]
    fn what_comes_is_closed_elsewhere_whether_it_is_read_or_not() {
        let urgent = SendFlags::OOB;
        let cases =
            [(true, SendFlags::empty()), (false, SendFlags::empty()), (true, urgent), (false, urgent)];
        for (reads, flags) in cases {
            let (keeper, closed) = DescriptorKeeper::new();
            let count = keeper.count();
            let (mut client, stream) = UnixStream::pair().unwrap();
            let stream = ClientStream::new(stream, keeper).unwrap();
            assert!(stream.read(&mut [0; 9]).unwrap().is_none(), "nothing has come");
            let (mut reader, writer) = io::pipe().unwrap();
            send(&client, &writer, flags);
            drop(writer);
            if reads {
                let part = stream.read(&mut [0; 9]).unwrap().unwrap();
                assert_eq!((part.count, part.descriptors.len()), (1, MOST_DESCRIPTORS));
                assert!(!stream.has_room());
            }
            drop(stream);
            assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "the client sees the end at once");
            assert!(!is_closed(&mut reader), "nothing is closed here");
            crate::capture::close_all(&closed, &count);
            assert!(is_closed(&mut reader));
        }
    }

    #[test]
    fn a_stream_that_is_read_is_closed_at_once() {
        let (keeper, closed) = DescriptorKeeper::new();
        let (mut client, stream) = UnixStream::pair().unwrap();
        let stream = ClientStream::new(stream, keeper).unwrap();
        client.write_all(b"call").unwrap();
        assert_eq!(stream.read(&mut [0; 9]).unwrap().unwrap().count, 4);
        assert_eq!(stream.write(b"answer").unwrap(), Some(6));
        drop(stream);
        assert!(closed.is_empty());
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        // One that is gone leaves nothing, also if it has not read its answer.
        let (keeper, closed) = DescriptorKeeper::new();
        let (client, stream) = UnixStream::pair().unwrap();
        let stream = ClientStream::new(stream, keeper).unwrap();
        stream.write(b"answer").unwrap();
        drop(client);
        drop(stream);
        assert!(closed.is_empty());
    }
}
