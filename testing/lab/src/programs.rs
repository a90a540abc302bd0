//! Stock verbs programs run between the two VMs of a pair: a server in VM a, a client in VM b.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::device::Device;
use crate::proc::indent;
use crate::ui;
use crate::vm::addresses::IP;
use crate::vm::{Job, Pair, Vm};

/// Runs a program of perftest that connects by rdma_cm, up to three times where it loses a race
/// with itself.
///
/// Its client connects a second time as soon as it has what it asked the server for by the first
/// connection. The server listens again a little later. In between the client is refused: by TCP,
/// or by the connection manager. `run` is told which attempt it is, from 0 on, and takes another
/// port for each.
///
/// # Errors
///
/// The program fails for another reason, or three times.
pub fn perftest_by_cm<T>(mut run: impl FnMut(u16) -> Result<T>) -> Result<T> {
    const LAST: u16 = 2;
    for attempt in 0..LAST {
        match run(attempt) {
            // It is said: were it our device that refuses, it would be seen to happen often.
            Err(error) if lost_race(&format!("{error:#}")) => {
                ui::say("again: perftest's server did not listen when its client connected a second time");
            }
            result => return result,
        }
    }
    run(LAST)
}

/// Whether this is the end of a client of perftest whose server did not listen.
fn lost_race(error: &str) -> bool {
    // An event is followed by a crash of librdmacm, in what perftest asks of a connection that
    // failed.
    let event = |event: &str| {
        error.contains(&format!("Event: RDMA_CM_EVENT_{event}.\n"))
            && error.contains("Failed to connect RDMA CM events.\n")
    };
    error.contains("Failed to connect through RDMA CM.\n") && error.contains("ERRNO: Connection refused.")
        || event("REJECTED; error: -111")
        // IB_CM_REJ_INVALID_SERVICE_ID: nobody listens for connections.
        || event("REJECTED; error: 8")
        // IB_SIDR_UNSUPPORTED: nobody listens for datagrams.
        || event("UNREACHABLE; error: 1")
}

/// A program that runs as a server without and as a client with the server's address at the end of
/// its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// Program and arguments, without those that say device, GID and port.
    pub command: String,
    /// The option that takes the GID's index.
    pub gid_option: &'static str,
    /// Seconds that it may take under KVM.
    pub seconds: u64,
}

impl Program {
    /// One of perftest's programs.
    pub fn perftest(command: &str) -> Self {
        // -F: do not mind a CPU clock that cannot be read.
        Self { command: format!("{command} -F"), gid_option: "-x", seconds: 12 }
    }

    /// One of libibverbs' `ibv_*_pingpong`.
    pub fn pingpong(command: &str) -> Self {
        Self { command: command.to_owned(), gid_option: "-g", seconds: 6 }
    }
}

/// A server and a client that run.
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

/// Starts a program in VM a, and as soon as it listens its client in VM b.
pub fn start(pair: &Pair, device: Device, program: &Program, port: u16) -> Result<Running> {
    start_between(pair, &pair.a, &pair.b, device, program, port)
}

/// Starts a program in one VM of the pair (either), and as soon as it listens its client in the
/// other.
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
    /// The client, e.g. to echo what it writes.
    pub fn client(&mut self) -> &mut Job {
        &mut self.client
    }

    /// The server.
    pub fn server(&mut self) -> &mut Job {
        &mut self.server
    }

    /// Waits for both; both must end with status 0.
    pub fn wait(self) -> Result<Printed> {
        let client = self.client.wait(self.patience);
        let mut server = self.server;
        let client = match client {
            Ok(output) => output,
            Err(error) => {
                // What the server says may tell why.
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
