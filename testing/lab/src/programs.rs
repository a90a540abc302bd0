//! Runs stock verbs programs between a pair's two VMs: the server in VM a, the client in VM b.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::device::Device;
use crate::proc::indent;
use crate::ui;
use crate::vm::addresses::IP;
use crate::vm::{Job, Pair, Vm};

/// Runs a program of perftest that connects by rdma_cm, up to three times if it loses its own race.
///
/// Its client connects a second time as soon as it has the server's reply from the first
/// connection. The server listens again only a little later. In between, TCP or the connection
/// manager refuses the client. `run` is given the attempt's number, from 0 on, and uses another
/// port for each attempt.
///
/// # Errors
///
/// The program fails for another reason, or three times.
pub fn perftest_by_cm<T>(mut run: impl FnMut(u16) -> Result<T>) -> Result<T> {
    const LAST: u16 = 2;
    for attempt in 0..LAST {
        match run(attempt) {
            // Each retry is printed. If the device itself refused connections, many retries would
            // show it.
            Err(error) if lost_race(&format!("{error:#}")) => {
                ui::say("again: perftest's server did not listen when its client connected a second time");
            }
            result => return result,
        }
    }
    run(LAST)
}

/// Whether the error is that of a perftest client whose server did not listen.
fn lost_race(error: &str) -> bool {
    // After such an event librdmacm crashes, in a call by which perftest queries the failed
    // connection.
    let event = |event: &str| {
        error.contains(&format!("Event: RDMA_CM_EVENT_{event}.\n"))
            && error.contains("Failed to connect RDMA CM events.\n")
    };
    error.contains("Failed to connect through RDMA CM.\n") && error.contains("ERRNO: Connection refused.")
        || event("REJECTED; error: -111")
        // `IB_CM_REJ_INVALID_SERVICE_ID`: nobody listens for connections.
        || event("REJECTED; error: 8")
        // `IB_SIDR_UNSUPPORTED`: nobody listens for datagrams.
        || event("UNREACHABLE; error: 1")
}

/// A program that is a server, or a client if a server's address is its last argument.
#[derive(Clone, Debug)]
pub struct Program {
    /// Program and arguments, without device, GID index and port.
    pub command: String,
    /// The option for the GID index.
    pub gid_option: &'static str,
    /// Seconds that it may take under KVM.
    pub seconds: u64,
}

impl Program {
    /// Returns one of perftest's programs.
    pub fn perftest(command: &str) -> Self {
        // `-F`: ignore a CPU frequency that cannot be read.
        Self { command: format!("{command} -F"), gid_option: "-x", seconds: 12 }
    }

    /// Returns one of libibverbs' `ibv_*_pingpong` programs.
    pub fn pingpong(command: &str) -> Self {
        Self { command: command.to_owned(), gid_option: "-g", seconds: 6 }
    }
}

/// A running server and its client.
pub struct Running {
    name: String,
    server: Job,
    client: Job,
    patience: Duration,
}

/// What a client and its server printed.
pub struct Printed {
    /// The client's standard output.
    pub client: String,
    /// The server's standard output.
    pub server: String,
}

/// Starts a program in VM a, and its client in VM b as soon as the server listens.
pub fn start(pair: &Pair, device: Device, program: &Program, port: u16) -> Result<Running> {
    start_between(pair, &pair.a, &pair.b, device, program, port)
}

/// Starts a program in either VM, and its client in the other VM as soon as the server listens.
pub fn start_between(
    pair: &Pair,
    server_vm: &Vm,
    client_vm: &Vm,
    device: Device,
    program: &Program,
    port: u16,
) -> Result<Running> {
    let Program { command, gid_option, seconds } = program;
    let patience = pair.patience(*seconds);
    let line = |vm: &Vm| -> Result<String> {
        Ok(format!("{command} -d {} {gid_option} {} -p {port}", device.name(), device.gid_index(vm)?))
    };
    let server_line = line(server_vm)?;
    let address = IP[usize::from(server_vm.name() == pair.b.name())];
    let client_line = format!("{} {address}", line(client_vm)?);
    let mut server = server_vm.spawn(&server_line)?;
    let listening =
        format!("until grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done");
    let listens = server_vm.exec(&listening, pair.patience(3));
    if server.has_ended()? || listens.is_err() {
        bail!("the server `{server_line}` does not listen\n{}", indent(&said(&server)));
    }
    let client = client_vm.spawn(&client_line)?;
    Ok(Running { name: client_line, server, client, patience })
}

/// Runs a program between the VMs to its end.
pub fn run(pair: &Pair, device: Device, program: &Program, port: u16) -> Result<Printed> {
    start(pair, device, program, port)?.wait()
}

impl Running {
    /// Returns the client's job, e.g. to echo its output.
    pub fn client(&mut self) -> &mut Job {
        &mut self.client
    }

    /// Returns the server's job.
    pub fn server(&mut self) -> &mut Job {
        &mut self.server
    }

    /// Waits for both. Both must end with status 0.
    pub fn wait(self) -> Result<Printed> {
        let client = self.client.wait(self.patience);
        let mut server = self.server;
        let client = match client {
            Ok(output) => output,
            Err(error) => {
                // The server's output may tell the reason.
                let _ = server.has_ended();
                bail!("{error:#}\nthe server said:\n{}", indent(&said(&server)));
            }
        };
        let server = server.wait(self.patience).context("the server")?;
        for (who, output) in [("client", &client), ("server", &server)] {
            if !output.success() {
                let text = [output.stdout.as_slice(), &output.stderr].concat();
                let text = indent(&String::from_utf8_lossy(&text));
                bail!("{who} of `{}`: {:?}\n{text}", self.name, output.exit);
            }
        }
        Ok(Printed { client: client.text(), server: server.text() })
    }
}

fn said(job: &Job) -> String {
    let output = job.so_far();
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perftest_is_run_again_where_it_lost_a_race_with_itself_alone() {
        let lost = "RDMA CM event error:\nEvent: RDMA_CM_EVENT_UNREACHABLE; error: 1.\n\nFailed to connect RDMA CM events.\n";
        let mut attempts = Vec::new();
        let done = perftest_by_cm(|attempt| {
            attempts.push(attempt);
            if attempt < 2 { Err(anyhow::anyhow!(lost)) } else { Ok(()) }
        });
        assert!(done.is_ok() && attempts == [0, 1, 2]);
        let mut count = 0;
        let other = perftest_by_cm(|_| -> Result<()> {
            count += 1;
            bail!("Event: RDMA_CM_EVENT_UNREACHABLE; error: -110.\nFailed to connect RDMA CM events.\n")
        });
        assert!(other.is_err() && count == 1, "that is another failure");
    }
}
