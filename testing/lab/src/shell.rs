//! Connects a person's terminal to a VM's serial port.

use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::ui;

/// Ctrl-], the escape key of telnet.
const LEAVE: u8 = 0x1d;

/// Connects standard input and output to the socket until Ctrl-] is typed or the VM ends.
pub fn attach(socket: &Path) -> Result<()> {
    let mut serial =
        UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
    ui::say("press Enter for a prompt, Ctrl-] to leave");
    let _raw = Raw::enter()?;
    let stdin = std::io::stdin();
    let mut buffer = [0; 4096];
    let mut typing = true;
    loop {
        let mut events =
            [PollFd::new(serial.as_fd(), PollFlags::POLLIN), PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        // After its end, input is not polled any more: poll would report the hang-up forever.
        let asked = if typing { &mut events[..] } else { &mut events[..1] };
        poll(asked, PollTimeout::NONE)?;
        let ready = |event: &PollFd| event.revents().is_some_and(|flags| !flags.is_empty());
        let (from_serial, from_person) = (ready(&events[0]), typing && ready(&events[1]));
        if from_serial {
            let length = serial.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&buffer[..length])?;
            stdout.flush()?;
        }
        if from_person {
            // Reads past `Stdin`'s buffer, because poll does not see buffered bytes.
            let length = nix::unistd::read(stdin.as_fd(), &mut buffer)?;
            let typed = &buffer[..length];
            if typed.contains(&LEAVE) {
                return Ok(());
            }
            typing = length > 0;
            serial.write_all(typed)?;
        }
    }
}

/// The terminal in raw mode until dropped. Holds nothing if standard input is not a terminal.
struct Raw(Option<Termios>);

impl Raw {
    fn enter() -> Result<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self(None));
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // An error is ignored: nothing can be done about it.
            let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

/// Returns the shell socket of a VM that another `cargo xtask vm` keeps running.
///
/// If there are several, returns the newest.
pub fn find(vm: &str) -> Result<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(std::env::temp_dir())?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("vrdma-vm-") {
            let socket = entry.path().join(format!("{vm}.shell"));
            if let Ok(meta) = std::fs::metadata(&socket) {
                found.push((meta.modified()?, socket));
            }
        }
    }
    found.sort();
    match found.pop() {
        Some((_, socket)) => Ok(socket),
        None => bail!("no VM {vm} is running: start the pair with `cargo xtask vm`"),
    }
}
