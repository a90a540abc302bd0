//! QEMU's monitor, by which a running VM's devices are changed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::wait;

/// A connection to a monitor.
pub struct Qmp {
    stream: BufReader<UnixStream>,
}

/// Returns QEMU's arguments for a monitor at this socket.
pub fn arguments(socket: &Path) -> [String; 2] {
    ["-qmp".to_owned(), format!("unix:{},server=on,wait=off", socket.display())]
}

impl Qmp {
    /// Connects, and ends the negotiation of capabilities.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("cannot connect to QEMU's monitor")?;
        stream.set_read_timeout(Some(wait::PATIENCE))?;
        let mut qmp = Self { stream: BufReader::new(stream) };
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Executes a command and returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{line}")?;
        // The greeting and events are skipped.
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).with_context(|| format!("QEMU does not answer to {command}"))?;
            let answer: Value = serde_json::from_str(&line).context("QEMU's monitor gave no JSON")?;
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU refuses {command}: {error}");
            }
        }
    }
}
