//! Writes messages to systemd's journal, with fields.
//!
//! The socket is connected at the start, so that a process that gives up its view of the file
//! system later still has it. It is connected again when the journal was not there.
//!
//! Workers and sessions log, and none of them waits for the journal. What it has no room for is
//! lost, and the next message says how many were.

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Record};
use rustix::fs::fstat;
use std::fmt::{Display, Write};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where journald takes messages (systemd, "Native Journal Protocol").
const SOCKET: &str = "/run/systemd/journal/socket";
/// The name under which the journal shows this program.
const IDENTIFIER: &str = "vrdma-backend";

/// A connection to the journal.
#[derive(Debug)]
pub struct Journal {
    /// It never blocks. It is connected, except before the journal first listens.
    socket: UnixDatagram,
    path: PathBuf,
    /// Messages that were lost and not told of.
    lost: AtomicU64,
}

/// Whether standard error is a stream of the journal.
///
/// The service manager says so by the variable JOURNAL_STREAM (systemd.exec(5)): device and inode
/// of the stream. A program that inherits the variable may write elsewhere.
pub fn has_stderr() -> bool {
    let (Ok(stream), Ok(stderr)) = (std::env::var("JOURNAL_STREAM"), fstat(rustix::stdio::stderr())) else {
        return false;
    };
    stream == format!("{}:{}", stderr.st_dev, stderr.st_ino)
}

/// Returns the priority of a level, as of syslog(3).
pub fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// Returns a text as a stream of the journal takes it: each line begins with its priority.
pub fn lines(level: Level, text: &str) -> String {
    let priority = priority(level);
    text.lines().fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "<{priority}>{line}");
        all
    })
}

impl Journal {
    /// Opens a socket to the journal. If nobody listens there yet, [`Journal::send`] connects it.
    ///
    /// # Errors
    /// The system is out of a resource.
    pub fn open() -> io::Result<Journal> {
        Journal::at(Path::new(SOCKET))
    }

    fn at(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(path);
        Ok(Journal { socket, path: path.to_owned(), lost: AtomicU64::new(0) })
    }

    /// Sends a message, with its origin and its values as fields. It does not wait.
    ///
    /// If the journal has no room, the message is lost and counted, and this succeeds. A stream to
    /// the same journal would wait.
    ///
    /// # Errors
    /// The journal is gone, or the message is too long for a datagram.
    pub fn send(&self, record: &Record<'_>) -> io::Result<()> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let bytes = entry(record, lost);
        let sent = self.socket.send(&bytes).or_else(|error| {
            if !is_absent(&error) {
                return Err(error);
            }
            // It may have been started, or started again.
            self.socket.connect(&self.path)?;
            self.socket.send(&bytes)
        });
        match sent {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.lost.fetch_add(lost + 1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.lost.fetch_add(lost, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

/// Whether an error says that the journal is not there, or is another process than before.
fn is_absent(error: &io::Error) -> bool {
    let absent = [libc::ECONNREFUSED, libc::ENOTCONN, libc::ENOENT];
    error.raw_os_error().is_some_and(|number| absent.contains(&number))
}

/// Returns the fields of a message, before which others were lost.
fn entry(record: &Record<'_>, lost: u64) -> Vec<u8> {
    let mut fields = Fields(Vec::with_capacity(512));
    fields.add("PRIORITY", priority(record.level()));
    match lost {
        0 => fields.add("MESSAGE", record.args()),
        _ => fields.add("MESSAGE", format_args!("{} ({lost} messages were lost)", record.args())),
    }
    fields.add("SYSLOG_IDENTIFIER", IDENTIFIER);
    fields.add("CODE_MODULE", record.target());
    if let Some(file) = record.file() {
        fields.add("CODE_FILE", file);
    }
    if let Some(line) = record.line() {
        fields.add("CODE_LINE", line);
    }
    record.key_values().visit(&mut fields).expect("a field is never refused");
    fields.0
}

/// Fields in the form of the journal's protocol.
struct Fields(Vec<u8>);

impl Fields {
    /// Adds a field: its name, the length of its value, and the value.
    fn add(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        self.add(&key.as_str().to_uppercase(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_message_origin_and_values() {
        let values = [("guest", "a"), ("qpn", "17")];
        let record = Record::builder()
            .args(format_args!("two\nlines"))
            .level(Level::Warn)
            .target("vrdma_backend::net")
            .line(Some(7))
            .key_values(&values)
            .build();
        let field = |name: &str, value: &str| {
            let length = (value.len() as u64).to_le_bytes();
            [name.as_bytes(), b"\n", &length, value.as_bytes(), b"\n"].concat()
        };
        let all = [
            field("PRIORITY", "4"),
            field("MESSAGE", "two\nlines"),
            field("SYSLOG_IDENTIFIER", "vrdma-backend"),
            field("CODE_MODULE", "vrdma_backend::net"),
            field("CODE_LINE", "7"),
            field("GUEST", "a"),
            field("QPN", "17"),
        ];
        assert_eq!(entry(&record, 0), all.concat());
    }

    fn send(journal: &Journal, text: &str) -> io::Result<()> {
        journal.send(&Record::builder().args(format_args!("{text}")).level(Level::Warn).build())
    }

    fn take(receiver: &UnixDatagram) -> Option<String> {
        let mut bytes = vec![0; 1 << 16];
        let length = receiver.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn receiver(path: &Path) -> UnixDatagram {
        let receiver = UnixDatagram::bind(path).unwrap();
        receiver.set_nonblocking(true).unwrap();
        receiver
    }

    #[test]
    fn a_journal_that_is_full_loses_messages_and_hears_how_many() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("s");
        let full = receiver(&path);
        let journal = Journal::at(&path).unwrap();
        while journal.lost.load(Ordering::Relaxed) < 3 {
            send(&journal, "one of many").unwrap();
        }
        while let Some(text) = take(&full) {
            assert!(text.contains("one of many") && !text.contains("lost"), "{text}");
        }
        send(&journal, "there is room").unwrap();
        let text = take(&full).unwrap();
        assert!(text.contains("there is room (3 messages were lost)\n"), "{text}");
        send(&journal, "and more").unwrap();
        let text = take(&full).unwrap();
        assert!(text.contains("and more\n"), "{text}");
    }

    #[test]
    fn a_journal_may_come_later_and_come_again() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("s");
        let journal = Journal::at(&path).unwrap();
        for _ in 0..2 {
            send(&journal, "nobody hears").unwrap_err();
            let receiver = receiver(&path);
            send(&journal, "somebody hears").unwrap();
            assert!(take(&receiver).unwrap().contains("somebody hears\n"));
            assert_eq!(take(&receiver), None);
            drop(receiver);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn each_line_of_a_stream_has_its_priority() {
        assert_eq!(lines(Level::Error, "two\nlines"), "<3>two\n<3>lines\n");
        assert_eq!(lines(Level::Info, "one"), "<6>one\n");
    }
}
