//! Sockets that listen already, and that the daemon inherits as descriptors.

#![allow(unsafe_code, reason = "a descriptor that is a number has no owner to borrow it from")]

use crate::config::Descriptor;
use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

/// What open(2) and fdinfo (proc_pid_fdinfo(5)) call a descriptor that a new program does not get.
const CLOEXEC: u32 = libc::O_CLOEXEC as u32;

/// The descriptors that the daemon inherits.
#[derive(Debug)]
pub struct Inherited {
    /// Those that the service manager passed (LISTEN_FDS), with their names.
    passed: Vec<(RawFd, String)>,
    /// All that listened before this process opened any socket of its own.
    listeners: BTreeSet<RawFd>,
    /// The sockets that are in use.
    used: Vec<Used>,
}

/// A socket that a function or the admin socket has.
#[derive(Debug)]
struct Used {
    number: RawFd,
    /// Device and inode. Descriptors of one socket have the same.
    socket: (u64, u64),
    /// The key that named it.
    key: String,
}

impl Inherited {
    /// Finds the descriptors that the service manager passed (sd_listen_fds(3)), and others that
    /// were inherited and listen.
    ///
    /// It has to be called before this process opens sockets that listen.
    ///
    /// # Errors
    /// What it says of them makes no sense.
    pub fn find() -> Result<Inherited> {
        let passed = sd_notify::listen_fds_with_names().context("LISTEN_FDS, LISTEN_FDNAMES")?;
        let passed: Vec<_> = passed.collect();
        // A socket of LISTEN_FDS may be closed at the start of another program by now.
        let mut listeners: BTreeSet<RawFd> = passed.iter().map(|(number, _)| *number).collect();
        listeners.extend(inherited_listeners());
        Ok(Inherited { passed, listeners, used: Vec::new() })
    }

    /// Returns no descriptors: those of a daemon that runs already.
    pub fn nothing() -> Inherited {
        Inherited { passed: Vec::new(), listeners: BTreeSet::new(), used: Vec::new() }
    }

    /// Returns a socket of its own for an inherited descriptor, which stays open. `key` is what
    /// named the descriptor.
    ///
    /// Both share one open file description, which does not block from here on. A parent process
    /// that keeps its descriptor sees that too (O_NONBLOCK, fcntl(2)).
    ///
    /// # Errors
    /// There is no such descriptor, it is no Unix socket that listens, it was opened by this
    /// process, or its socket is in use.
    pub fn take(&mut self, descriptor: &Descriptor, key: &str) -> Result<UnixListener> {
        let number = match descriptor {
            Descriptor::Number(number) => RawFd::from(*number),
            Descriptor::Name(name) => {
                let mut of_name = self.passed.iter().filter(|(_, passed)| passed == name);
                let Some((number, _)) = of_name.next() else {
                    bail!("no descriptor has the name {name} in LISTEN_FDNAMES: {}", self.overview())
                };
                ensure!(
                    of_name.next().is_none(),
                    "several descriptors have the name {name}: give each a name of its own (FileDescriptorName=), or its number"
                );
                *number
            }
        };
        let Ok(own) = duplicate(number) else {
            bail!("descriptor {number} is not open: {}", self.overview());
        };
        let listens = is_listener(&own);
        ensure!(listens, "descriptor {number} is no Unix stream socket that listens: {}", self.overview());
        ensure!(
            self.listeners.contains(&number),
            "descriptor {number} was not passed to this process: {}",
            self.overview()
        );
        let found = rustix::fs::fstat(&own).with_context(|| format!("descriptor {number}"))?;
        let socket = (found.st_dev, found.st_ino);
        if let Some(other) = self.used.iter().find(|used| used.socket == socket) {
            let same =
                if other.number == number { String::new() } else { format!(" descriptor {},", other.number) };
            bail!("descriptor {number} is in use already, as{same} {}: each function has its own", other.key);
        }
        self.used.push(Used { number, socket, key: key.to_owned() });
        let own = UnixListener::from(own);
        own.set_nonblocking(true).with_context(|| format!("descriptor {number}"))?;
        Ok(own)
    }

    /// Returns the names or numbers of those that the service manager passed and that nobody took.
    pub fn left(&self) -> Vec<String> {
        let left =
            self.passed.iter().filter(|(number, _)| self.used.iter().all(|used| used.number != *number));
        left.map(|(number, name)| format!("{number} ({name})")).collect()
    }

    /// Returns a sentence about the descriptors that there are.
    fn overview(&self) -> String {
        if !self.passed.is_empty() {
            let all = self.passed.iter().map(|(number, name)| format!("{number} ({name})"));
            return format!("the service manager passed {}", all.collect::<Vec<_>>().join(", "));
        }
        let open = self.listeners.iter().map(RawFd::to_string).collect::<Vec<_>>();
        match &open[..] {
            [] => "no socket that listens was passed to this process (LISTEN_FDS is not set)".into(),
            _ => format!("those that were passed and listen are {}", open.join(", ")),
        }
    }
}

/// Returns the descriptors of sockets that listen and that this process did not open itself.
///
/// Those that it opened are closed at a start of another program. Those that it inherited are not.
fn inherited_listeners() -> impl Iterator<Item = RawFd> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number| is_inherited(*number).unwrap_or(false))
        .filter(|number| duplicate(*number).is_ok_and(|own| is_listener(&own)))
}

fn is_inherited(number: RawFd) -> Option<bool> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(u32::from_str_radix(flags.trim(), 8).ok()? & CLOEXEC == 0)
}

/// Whether this is a Unix stream socket that listens.
fn is_listener(socket: &OwnedFd) -> bool {
    socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM)
        && socket_acceptconn(socket).unwrap_or(false)
}

/// Duplicates a descriptor.
fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call, which fails for a number that is no descriptor. The new
    // descriptor is ours alone.
    unsafe {
        match libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) {
            own @ 0.. => Ok(OwnedFd::from_raw_fd(own)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn a_socket_that_listens_is_taken_once_and_nothing_else_is() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let datagrams = UnixDatagram::unbound().unwrap();
        let (stream, _other) = UnixStream::pair().unwrap();
        let file = fs::File::open("/dev/null").unwrap();
        let number = listener.as_raw_fd();
        let passed = vec![
            (number, "a".to_owned()),
            (file.as_raw_fd(), "b".to_owned()),
            (stream.as_raw_fd(), "b".to_owned()),
        ];
        let listeners = passed.iter().map(|(number, _)| *number).collect();
        let mut inherited = Inherited { passed, listeners, used: Vec::new() };
        let mut take = |descriptor: Descriptor| {
            inherited.take(&descriptor, "guest a: fd").map_err(|error| error.to_string())
        };
        let of = |number: RawFd| Descriptor::Number(number.try_into().unwrap());
        let name = |name: &str| Descriptor::Name(name.into());
        let own = take(name("a")).unwrap();
        UnixStream::connect(&path).unwrap();
        own.accept().unwrap();
        assert_eq!(own.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let said = take(of(number)).unwrap_err();
        assert!(said.contains("is in use already, as guest a: fd"), "{said}");
        for other in [datagrams.as_raw_fd(), stream.as_raw_fd(), file.as_raw_fd()] {
            let said = take(of(other)).unwrap_err();
            assert!(
                said.contains("is no Unix stream socket that listens: the service manager passed"),
                "{said}"
            );
        }
        let said = take(of(65000)).unwrap_err();
        assert!(said.contains("descriptor 65000 is not open: "), "{said}");
        let said = take(name("c")).unwrap_err();
        let all = format!(
            "no descriptor has the name c in LISTEN_FDNAMES: the service manager passed {number} (a), "
        );
        assert!(said.starts_with(&all), "{said}");
        assert!(take(name("b")).unwrap_err().contains("several descriptors have the name b"));
        assert_eq!(inherited.left().len(), 2);
        drop(own);
        assert!(path.exists());
    }

    #[test]
    fn without_any_it_says_so() {
        let mut none = Inherited { passed: Vec::new(), listeners: BTreeSet::new(), used: Vec::new() };
        let said = none.take(&Descriptor::Name("a".into()), "admin_fd").unwrap_err().to_string();
        assert!(said.contains("LISTEN_FDS is not set"), "{said}");
    }

    #[test]
    fn a_socket_that_this_process_opened_is_refused() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut inherited = Inherited::find().unwrap();
        let own = UnixListener::bind(dir.path().join("s")).unwrap();
        let number = Descriptor::Number(own.as_raw_fd().try_into().unwrap());
        let said = inherited.take(&number, "guest a: fd").unwrap_err().to_string();
        assert!(said.contains("was not passed to this process: "), "{said}");
    }

    #[test]
    fn a_socket_with_two_numbers_is_taken_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let second = listener.try_clone().unwrap();
        let numbers = [listener.as_raw_fd(), second.as_raw_fd()];
        let mut inherited =
            Inherited { passed: Vec::new(), listeners: BTreeSet::from(numbers), used: Vec::new() };
        let [first, second] = numbers.map(|number| Descriptor::Number(number.try_into().unwrap()));
        inherited.take(&first, "guest a: fd").unwrap();
        let said = inherited.take(&second, "guest b: fd").unwrap_err().to_string();
        let text = format!("is in use already, as descriptor {}, guest a: fd", numbers[0]);
        assert!(said.contains(&text), "{said}");
    }
}
