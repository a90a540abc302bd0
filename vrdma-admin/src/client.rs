//! A client that blocks.

use crate::{Call, Fault, Frames, Method, Reply, TooLong};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes of a reply. The counters of ten thousand guests have fewer.
const LONGEST_REPLY: usize = 64 << 20;
/// Most descriptors that go with a call. The kernel takes no more at once.
const MOST_DESCRIPTORS: usize = 253;

/// A connection to the daemon.
///
/// A call that fails before its last reply has come, or whose [`Replies`] are dropped before their
/// end, leaves the connection useless. Its replies would be taken for those of the next call. All
/// later calls fail with [`ClientError::Spoilt`].
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    frames: Frames,
    /// Whether replies may come that belong to an earlier call.
    is_spoilt: bool,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens at the socket, or this process may not connect.
    #[error("{}: {}", path.display(), connect_advice(error))]
    Connect {
        /// The path of the socket.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the daemon broke")]
    Broken(#[from] io::Error),
    /// The daemon closed the connection.
    #[error("the daemon closed the connection without an answer")]
    Closed,
    /// An earlier call failed before its last reply had come, or was given up.
    #[error("an earlier call has replies that were not read: connect again")]
    Spoilt,
    /// The daemon did not answer in time.
    #[error("the daemon has not answered within {} s", .0.as_secs())]
    Late(Duration),
    /// What came is not a reply of this method.
    #[error("the daemon's answer makes no sense")]
    Nonsense(#[from] serde_json::Error),
    /// The reply is too long.
    #[error("the daemon's answer makes no sense")]
    TooLong(#[from] TooLong),
    /// The daemon refused the call.
    #[error(transparent)]
    Refused(#[from] Fault),
}

fn connect_advice(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            "there is no such socket: no daemon runs, or its socket is at another path".into()
        }
        ErrorKind::ConnectionRefused => "no daemon listens there".into(),
        ErrorKind::PermissionDenied => {
            "this user may not connect: be root, or in the group vrdma to look".into()
        }
        _ => format!("cannot connect: {error}"),
    }
}

impl Client {
    /// Connects to the daemon's socket at a path.
    ///
    /// # Errors
    /// Nothing listens there, or this process may not connect.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path);
        let stream = stream.map_err(|error| ClientError::Connect { path: path.to_owned(), error })?;
        Ok(Client { stream, frames: Frames::new(LONGEST_REPLY), is_spoilt: false })
    }

    /// Connects to the daemon's socket at a path, and waits no longer than this for the daemon.
    ///
    /// A daemon that takes no connections has others wait at its socket. [`Client::connect`] then
    /// waits for ever. The calls' limit is [`Client::set_timeout`].
    ///
    /// # Errors
    /// Nothing listens there, this process may not connect, or the time is over or zero
    /// ([`ClientError::Late`]).
    pub fn connect_within(path: &Path, time: Duration) -> Result<Client, ClientError> {
        if time.is_zero() {
            return Err(ClientError::Late(time));
        }
        let connected = || {
            let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // The kernel applies the limit of sending to connecting, too (unix_stream_connect).
            set_socket_timeout(&stream, Timeout::Send, Some(time))?;
            connect(&stream, &SocketAddrUnix::new(path)?)?;
            Ok(stream)
        };
        let stream = connected().map_err(|error: rustix::io::Errno| match io::Error::from(error) {
            error if error.kind() == ErrorKind::WouldBlock => ClientError::Late(time),
            error => ClientError::Connect { path: path.to_owned(), error },
        })?;
        Ok(Client { stream: stream.into(), frames: Frames::new(LONGEST_REPLY), is_spoilt: false })
    }

    /// Limits how long a call waits for each part of its reply. `None`: for ever.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(time)?;
        self.stream.set_write_timeout(time)
    }

    /// Calls a method, and waits for its result.
    ///
    /// # Errors
    /// The daemon refuses the call, or the connection ends.
    pub fn call<M: Method>(&mut self, method: &M) -> Result<M::Output, ClientError> {
        self.call_with(method, &[])
    }

    /// Calls a method with descriptors, and waits for its result.
    ///
    /// # Errors
    /// Those of [`Client::call`]. There are too many descriptors (`Broken`).
    pub fn call_with<M: Method>(
        &mut self,
        method: &M,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<M::Output, ClientError> {
        self.send(&Call::of(method)?, descriptors)?;
        let reply = self.receive()?;
        // Nobody asked for more. If more comes, it belongs to this call.
        self.is_spoilt |= reply.continues;
        Ok(reply.result::<M::Output>()??)
    }

    /// Calls a method without waiting. The daemon sends no reply, and no error either.
    ///
    /// # Errors
    /// The connection ended.
    pub fn tell<M: Method>(&mut self, method: &M) -> Result<(), ClientError> {
        self.send(&Call { oneway: true, ..Call::of(method)? }, &[])
    }

    /// Calls a method that has several replies.
    ///
    /// # Errors
    /// The connection ended.
    pub fn follow<M: Method>(&mut self, method: &M) -> Result<Replies<'_, M>, ClientError> {
        self.follow_with(method, &[])
    }

    /// Calls a method that has several replies, with descriptors.
    ///
    /// # Errors
    /// The connection ended. There are too many descriptors (`Broken`).
    pub fn follow_with<M: Method>(
        &mut self,
        method: &M,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Replies<'_, M>, ClientError> {
        self.send(&Call { more: true, ..Call::of(method)? }, descriptors)?;
        Ok(Replies { client: self, ended: false, method: PhantomData })
    }

    /// Returns what tells the daemon that this client sends nothing more.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn closer(&self) -> io::Result<Closer> {
        Ok(Closer(self.stream.try_clone()?))
    }

    /// Sends a call with descriptors.
    ///
    /// # Errors
    /// The connection ended or is spoilt, there are too many descriptors, or the socket takes none
    /// (`Refused`).
    pub fn send(&mut self, call: &Call, descriptors: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        if self.is_spoilt {
            return Err(ClientError::Spoilt);
        }
        let message = call.emit();
        let mut sent = 0;
        if !descriptors.is_empty() {
            if descriptors.len() > MOST_DESCRIPTORS {
                return Err(io::Error::from(ErrorKind::InvalidInput).into());
            }
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(fits, "there is room for as many");
            let parts = [IoSlice::new(&message)];
            let done = rustix::net::sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL);
            sent = done.map_err(|error| match error {
                // The daemon's socket takes no descriptors, because it is for those who look.
                rustix::io::Errno::PERM => ClientError::Refused(Fault::PermissionDenied {}),
                error => self.failed(error.into()),
            })?;
        }
        // After a part of a message the daemon reads no other one.
        let written = self.stream.write_all(&message[sent..]);
        self.is_spoilt |= written.is_err();
        written.map_err(|error| self.failed(error))
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// The connection ended, or what came is no reply.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        self.next_reply().inspect_err(|_| self.is_spoilt = true)
    }

    fn next_reply(&mut self) -> Result<Reply, ClientError> {
        let mut bytes = [0; 16 << 10];
        loop {
            if let Some(message) = self.frames.next_message()? {
                return Ok(Reply::parse(&message)?);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => self.frames.add(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn failed(&self, error: io::Error) -> ClientError {
        match (error.kind(), self.stream.read_timeout()) {
            (ErrorKind::WouldBlock | ErrorKind::TimedOut, Ok(Some(time))) => ClientError::Late(time),
            (ErrorKind::BrokenPipe | ErrorKind::ConnectionReset, _) => ClientError::Closed,
            _ => ClientError::Broken(error),
        }
    }
}

/// Tells the daemon that a client sends nothing more. Replies still come.
///
/// It may be used while another thread waits for replies. A capture ends by it.
#[derive(Debug)]
pub struct Closer(UnixStream);

impl Closer {
    /// Tells it.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn close(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}

/// The replies to a call, one after the other.
///
/// If it is dropped before its end, the client makes no more calls.
#[derive(Debug)]
pub struct Replies<'a, M> {
    client: &'a mut Client,
    ended: bool,
    method: PhantomData<M>,
}

impl<M: Method> Iterator for Replies<'_, M> {
    type Item = Result<M::Output, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let reply = self.client.receive().inspect(|reply| self.ended = !reply.continues);
        let result = reply.and_then(|reply| Ok(reply.result::<M::Output>()??));
        if result.is_err() {
            self.client.is_spoilt |= !self.ended;
            self.ended = true;
        }
        Some(result)
    }
}

impl<M> Drop for Replies<'_, M> {
    fn drop(&mut self) {
        self.client.is_spoilt |= !self.ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::{AllCounters, GetStats};
    use crate::log::{Level, LogBefore, SetLog};
    use serde_json::Map;
    use std::os::fd::AsFd;

    fn pair() -> (Client, UnixStream) {
        let (stream, other) = UnixStream::pair().unwrap();
        (Client { stream, frames: Frames::new(LONGEST_REPLY), is_spoilt: false }, other)
    }

    fn set() -> SetLog {
        SetLog { level: Level::Debug }
    }

    #[test]
    fn a_call_has_its_result_or_its_error() {
        let (mut client, mut daemon) = pair();
        let before = LogBefore { before: Some(Level::Info) };
        daemon.write_all(&Reply::of(&before).emit()).unwrap();
        assert_eq!(client.call(&set()).unwrap(), before);
        daemon.write_all(&Reply::fault(&Fault::PermissionDenied {}).emit()).unwrap();
        assert!(matches!(client.call(&set()), Err(ClientError::Refused(Fault::PermissionDenied {}))));
        // This is a reply, and another method's. The next one is a reply to the next call.
        daemon.write_all(b"{\"parameters\":{\"before\":7}}\0").unwrap();
        assert!(matches!(client.call(&set()), Err(ClientError::Nonsense(_))));
        daemon.write_all(&Reply::of(&before).emit()).unwrap();
        assert_eq!(client.call(&set()).unwrap(), before);
        daemon.write_all(b"{\"parameters\":{}}").unwrap();
        drop(daemon);
        assert!(matches!(client.call(&set()), Err(ClientError::Closed)));
    }

    #[test]
    fn after_nonsense_there_are_no_more_calls() {
        let (mut client, mut daemon) = pair();
        daemon.write_all(b"colour\0").unwrap();
        assert!(matches!(client.call(&set()), Err(ClientError::Nonsense(_))));
        daemon.write_all(&Reply::of(&LogBefore { before: None }).emit()).unwrap();
        assert!(matches!(client.call(&set()), Err(ClientError::Spoilt)));
    }

    #[test]
    fn replies_that_nobody_took_are_not_those_of_the_next_call() {
        let more = Reply { continues: true, ..Reply::of(&AllCounters { stats: Map::new() }) };
        // A stream that is given up.
        let (mut client, mut daemon) = pair();
        daemon.write_all(&more.emit().repeat(2)).unwrap();
        let mut replies = client.follow(&GetStats::default()).unwrap();
        assert!(replies.next().unwrap().is_ok());
        drop(replies);
        assert!(matches!(client.call(&GetStats::default()), Err(ClientError::Spoilt)));
        // More replies than were asked for.
        let (mut client, mut daemon) = pair();
        daemon.write_all(&more.emit().repeat(2)).unwrap();
        assert!(client.call(&GetStats::default()).is_ok());
        assert!(matches!(client.call(&GetStats::default()), Err(ClientError::Spoilt)));
        // A reply of a stream that makes no sense.
        let (mut client, mut daemon) = pair();
        let odd = Reply { continues: true, ..Reply::of(&LogBefore { before: None }) };
        daemon.write_all(&[odd.emit(), more.emit()].concat()).unwrap();
        let mut replies = client.follow(&GetStats::default()).unwrap();
        assert!(matches!(replies.next(), Some(Err(ClientError::Nonsense(_)))));
        assert!(replies.next().is_none());
        drop(replies);
        assert!(matches!(client.call(&GetStats::default()), Err(ClientError::Spoilt)));
    }

    #[test]
    fn replies_end_with_the_last_one() {
        let (mut client, mut daemon) = pair();
        for continues in [true, true, false] {
            let reply = Reply { continues, ..Reply::of(&AllCounters { stats: Map::new() }) };
            daemon.write_all(&reply.emit()).unwrap();
        }
        let replies: Result<Vec<_>, _> = client.follow(&GetStats { interval: Some(100) }).unwrap().collect();
        assert_eq!(replies.unwrap().len(), 3);
        daemon.write_all(&Reply::fault(&Fault::Stopping {}).emit()).unwrap();
        let mut replies = client.follow(&GetStats::default()).unwrap();
        assert!(matches!(replies.next(), Some(Err(ClientError::Refused(Fault::Stopping {})))));
        assert!(replies.next().is_none());
        drop(replies);
        // A stream that ended leaves nothing behind.
        daemon.write_all(&Reply::of(&LogBefore { before: None }).emit()).unwrap();
        assert!(client.call(&set()).is_ok());
    }

    #[test]
    fn a_call_that_nobody_answers_ends_in_time() {
        let (mut client, mut daemon) = pair();
        client.set_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(matches!(client.call(&set()), Err(ClientError::Late(_))));
        // What comes late is not taken for the reply to the next call.
        daemon.write_all(&Reply::of(&LogBefore { before: None }).emit()).unwrap();
        assert!(matches!(client.call(&set()), Err(ClientError::Spoilt)));
    }

    #[test]
    fn a_daemon_that_takes_no_connections_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("observe");
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let listener = listener.unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match Client::connect_within(&path, Duration::from_millis(1)) {
                Ok(client) => waiting.push(client),
                Err(error) => break error,
            }
            assert!(waiting.len() < 10, "the queue has no end");
        };
        assert!(matches!(error, ClientError::Late(_)) && !waiting.is_empty(), "{error}");
        assert!(matches!(Client::connect_within(&path, Duration::ZERO), Err(ClientError::Late(_))));
        let error = Client::connect_within(Path::new("/nonexistent"), Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("there is no such socket"), "{error}");
    }

    #[test]
    fn descriptors_go_with_their_call() {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
        let (mut client, daemon) = pair();
        let (reader, mut writer) = io::pipe().unwrap();
        let call = Call::of(&set()).unwrap();
        client.send(&call, &[reader.as_fd()]).unwrap();
        drop(reader);
        let mut bytes = [0; 4096];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&daemon, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let mut descriptors = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let mut reader = std::fs::File::from(descriptors.next().unwrap());
        writer.write_all(b"x").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert_eq!(bytes[..got.bytes], call.emit()[..]);
        let many = vec![reader.as_fd(); MOST_DESCRIPTORS + 1];
        assert!(matches!(client.send(&call, &many), Err(ClientError::Broken(_))));
    }

    #[test]
    fn a_socket_that_is_not_there_is_named() {
        let error = Client::connect(Path::new("/nonexistent/admin")).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/admin: there is no such socket"), "{error}");
    }
}
