//! Writes messages to systemd's journal, with fields.
//!
//! The socket is connected once, at the start. A process that gives up its view of the file system
//! later still has it.

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Record};
use rustix::fs::fstat;
use std::fmt::{Display, Write};
use std::io;
use std::os::unix::net::UnixDatagram;

/// Where journald takes messages (systemd, "Native Journal Protocol").
const SOCKET: &str = "/run/systemd/journal/socket";
/// The name under which the journal shows this program.
const IDENTIFIER: &str = "vrdma-backend";

/// A connection to the journal.
#[derive(Debug)]
pub struct Journal(UnixDatagram);

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
    /// Connects to the journal.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect() -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SOCKET)?;
        Ok(Journal(socket))
    }

    /// Sends a message, with its origin and its values as fields.
    ///
    /// # Errors
    /// The journal is gone, or the message is too long for a datagram.
    pub fn send(&self, record: &Record<'_>) -> io::Result<()> {
        let bytes = entry(record);
        let sent = self.0.send(&bytes).or_else(|_| {
            // It may have been started again.
            self.0.connect(SOCKET)?;
            self.0.send(&bytes)
        });
        sent.map(|_| ())
    }
}

/// Returns the fields of a message.
fn entry(record: &Record<'_>) -> Vec<u8> {
    let mut fields = Fields(Vec::with_capacity(512));
    fields.add("PRIORITY", priority(record.level()));
    fields.add("MESSAGE", record.args());
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
        assert_eq!(entry(&record), all.concat());
    }

    #[test]
    fn each_line_of_a_stream_has_its_priority() {
        assert_eq!(lines(Level::Error, "two\nlines"), "<3>two\n<3>lines\n");
        assert_eq!(lines(Level::Info, "one"), "<6>one\n");
    }
}
