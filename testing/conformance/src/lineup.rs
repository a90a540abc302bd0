//! The test matrix: programs that demos and tests run between two VMs.

pub mod iwarp;
mod row;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::paths;
use vrdma_lab::proc::indent;
use vrdma_lab::programs;
use vrdma_lab::vm::addresses::{IP, IP6};
use vrdma_lab::vm::{Job, Output, Pair, Vm};

pub use row::{IpFamily, Ready, Row};

/// A script in the VMs' shared directory.
const ATOMIC_WRITE: &str = "atomic_write.py";
/// All scripts in the VMs' shared directory.
const SCRIPTS: [&str; 5] = [ATOMIC_WRITE, "fetch.py", "few_by_tcp.py", "forking_http.py", "remote_shell.py"];

/// Path MTUs. They follow from the MTU of the netdevs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMtu {
    /// 1024 bytes, with normal Ethernet frames.
    Usual,
    /// 4096 bytes, with jumbo frames.
    Jumbo,
}

impl PathMtu {
    /// Returns the path MTU in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Usual => 1024,
            Self::Jumbo => 4096,
        }
    }

    fn netdev(self) -> u32 {
        match self {
            Self::Usual => 1500,
            Self::Jumbo => 9000,
        }
    }
}

/// The message sizes of perftest's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All sizes up to 8 MiB.
    All,
    /// Only 64 KiB, if more sizes would show nothing new.
    One,
}

/// Returns the rows of the test matrix.
pub fn rows(family: IpFamily, mtu: PathMtu, sizes: Sizes) -> Vec<Row> {
    let mut rows = Vec::new();
    // The largest packet that is not fragmented has an IPv4 or IPv6 header, and an ICMP header.
    let (ping, headers) = match family {
        IpFamily::V4 => ("ping", 28),
        IpFamily::V6 => ("ping -6", 48),
    };
    let largest = mtu.netdev() - headers;
    rows.push(Row::new(
        "ping with the largest packets",
        Ready::NoServer,
        "",
        &format!("{ping} -c 3 -i 0.2 -W 5 -M do -s {largest} @a"),
        " 0% packet loss",
    ));
    for (what, kind, size) in
        [("RC", "rc", 10_000), ("UC", "uc", 10_000), ("UD", "ud", mtu.bytes()), ("SRQ", "srq", 10_000)]
    {
        let command = format!("ibv_{kind}_pingpong -d @d -g @g -p @p -n 100 -s {size} -c");
        // The UD program cannot check the content.
        let command = if kind == "ud" { command.replace(" -c", "") } else { command };
        rows.push(Row::pair(&format!("{what} ping-pong"), &command, "100 iters"));
    }
    for verb in ["send", "write", "read"] {
        let what = format!("RC {verb}");
        rows.push(match sizes {
            Sizes::All => {
                Row::perftest(&format!("{what}, sizes to 8 MiB"), &format!("ib_{verb}_bw -a -n 5"), 8_388_608)
            }
            Sizes::One => Row::perftest(&what, &format!("ib_{verb}_bw -s 65536 -n 20"), 65_536),
        });
    }
    rows.push(Row::perftest("RC atomics", "ib_atomic_bw -A FETCH_AND_ADD -n 20", 8));
    rows.push(Row::pair(
        "RC atomic write",
        &format!("python3 -B /share/{ATOMIC_WRITE} -d @d -g @g -p @p"),
        "ATOMIC WRITEs are right",
    ));
    if sizes == Sizes::All {
        rows.push(Row::perftest("RC send latency", "ib_send_lat -s 64 -n 50", 64));
        rows.push(Row::perftest("UC write", "ib_write_bw -c UC -s 65536 -n 20", 65_536));
        rows.push(Row::perftest("UD send", "ib_send_bw -c UD -s 1024 -n 50", 1024));
    }
    rows.extend(cm_rows(family));
    rows.push(Row::new(
        "iperf3",
        Ready::Tcp,
        "iperf3 -s -1 -B @a -p @p",
        "iperf3 -c @a -B @o -p @p -t 2",
        "receiver",
    ));
    rows
}

/// Returns programs that connect by rdma_cm.
fn cm_rows(family: IpFamily) -> [Row; 4] {
    let v6 = if family == IpFamily::V6 { " --ipv6-addr" } else { "" };
    let connected = format!("ib_write_bw -R -F -d @d -p @p -s 65536 -n 20{v6}");
    [
        Row::new(
            "RC write, connected by rdma_cm",
            Ready::Cm,
            &connected,
            &format!("{connected} @a"),
            " 65536 ",
        ),
        Row::new(
            "rping",
            Ready::Cm,
            "rping -s -v -C 100 -a @a -p @p",
            "rping -c -v -C 100 -a @a -I @o -p @p",
            "rdma-ping-99:",
        ),
        Row::new(
            "ucmatose",
            Ready::Cm,
            "ucmatose -b @a -p @p",
            "ucmatose -s @a -b @o -p @p",
            "return status 0",
        ),
        Row::new("udaddy", Ready::Cm, "udaddy -b @a", "udaddy -s @a -b @o", "return status 0"),
    ]
}

/// A running row.
pub struct Running {
    /// Its server, if it has one.
    pub server: Option<Job>,
    /// Its client.
    pub client: Job,
    /// The client's command line.
    line: String,
    port: u16,
}

/// A round: the VMs of servers and clients, and their addresses.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    pair: &'a Pair,
    server: &'a Vm,
    client: &'a Vm,
    family: IpFamily,
    gids: [u32; 2],
}

/// Gives the VMs this MTU, addresses of both families, the scripts and their devices.
pub fn prepare(pair: &Pair, mtu: PathMtu) -> Result<()> {
    let patience = pair.patience(6);
    for script in SCRIPTS {
        let file = paths::workspace().join("testing/conformance/checks").join(script);
        paths::write(&pair.share().join(script), paths::read(&file)?)?;
    }
    for vm in [&pair.a, &pair.b] {
        vm.check(&format!("ip link set eth0 mtu {}", mtu.netdev()), patience)?;
        vm.add_ipv6(IP6[pair.index(vm)], patience)?;
        let device = pair.device(vm);
        device.prepare_in(vm, patience)?;
        let active = format!(
            "until ibv_devinfo -d {} | grep -q 'active_mtu:[^0-9]*{} '; do sleep 0.2; done",
            device.name(),
            mtu.bytes()
        );
        vm.check(&active, patience).with_context(|| format!("no path MTU of {} bytes", mtu.bytes()))?;
    }
    Ok(())
}

impl<'a> Round<'a> {
    /// Returns a round with servers in one VM of the pair and clients in the other VM.
    pub fn new(pair: &'a Pair, server: &'a Vm, family: IpFamily) -> Result<Self> {
        let client = if pair.index(server) == 0 { &pair.b } else { &pair.a };
        Self::between(pair, server, client, family)
    }

    /// Returns a round with servers and clients in one VM.
    pub fn within(pair: &'a Pair, vm: &'a Vm, family: IpFamily) -> Result<Self> {
        Self::between(pair, vm, vm, family)
    }

    fn between(pair: &'a Pair, server: &'a Vm, client: &'a Vm, family: IpFamily) -> Result<Self> {
        // An iWARP device has one GID, which no program names.
        let gid = |vm: &Vm| match pair.is_iwarp() {
            true => Ok(0),
            false => pair.device(vm).gid_index_of(vm, family.gid_pattern(), pair.patience(6)),
        };
        Ok(Self { pair, server, client, family, gids: [gid(&pair.a)?, gid(&pair.b)?] })
    }

    /// Returns the round's name, server first: `vrdma0 in a <- rxe0 in b, IPv4`.
    pub fn name(&self) -> String {
        let name = |vm: &Vm| format!("{} in {}", self.pair.device(vm).name(), vm.name());
        format!("{} <- {}, {}", name(self.server), name(self.client), self.family.name())
    }

    /// Runs a row to its end, and writes its output to a file. Returns how long it took.
    pub fn run(&self, row: &Row, port: u16) -> Result<Duration> {
        self.run_and_read(row, port).map(|(time, _)| time)
    }

    /// Runs a row to its end. Returns how long it took, and the client's output.
    ///
    /// A perftest program that loses a race with itself is run again.
    pub fn run_and_read(&self, row: &Row, port: u16) -> Result<(Duration, String)> {
        programs::perftest_by_cm(|attempt| self.run_once(row, port + 1000 * attempt))
    }

    fn run_once(&self, row: &Row, port: u16) -> Result<(Duration, String)> {
        let start = Instant::now();
        let result = self.run_row(row, port);
        let file = format!("{port}-{}-{}", self.server.name(), row.what.replace([' ', ','], "-"));
        let directory = self.pair.directory().join("programs");
        paths::make_dir(&directory)?;
        let text = match &result {
            Ok(text) => text.clone(),
            Err(error) => format!("{error:#}\n"),
        };
        paths::write(&directory.join(file), format!("{}: {}\n{text}", self.name(), row.client))?;
        result.map(|printed| (start.elapsed(), printed))
    }

    fn run_row(&self, row: &Row, port: u16) -> Result<String> {
        let running = self.start(row, port)?;
        self.finish(row, running)
    }

    /// Starts a row: its server, and its client as soon as the server listens.
    pub fn start(&self, row: &Row, port: u16) -> Result<Running> {
        let line = self.line(&row.client, self.client, port);
        let server = match row.ready.condition(port) {
            None => None,
            Some(condition) => Some(self.serve(row, port, &condition)?),
        };
        let client = self.client.spawn(&line)?;
        Ok(Running { server, client, line, port })
    }

    /// Waits until a row has ended, and checks its result. Returns the client's output.
    pub fn finish(&self, row: &Row, running: Running) -> Result<String> {
        let Running { server, client, line: client_line, port } = running;
        let patience = self.pair.patience(row.seconds);
        let client = client.wait(patience);
        let (client, server) = match (client, server) {
            (Ok(client), None) => (client, None),
            // Dropping the server kills it.
            (Ok(client), Some(_)) if client.success() && row.server_stays => (client, None),
            (Ok(client), Some(server)) if client.success() => {
                (client, Some(server.wait(self.pair.patience(3)).context("the server")?))
            }
            (client, server) => {
                // The server's output may tell the reason.
                let said = server.map_or_else(String::new, |mut server| {
                    std::thread::sleep(Duration::from_millis(200));
                    let _ = server.has_ended();
                    text_of(server.so_far())
                });
                let said =
                    if said.is_empty() { said } else { format!("\nthe server said:\n{}", indent(&said)) };
                let client = client.map(|output| {
                    format!("`{client_line}`: {:?}\n{}", output.exit, indent(&text_of(&output)))
                });
                bail!("{}{said}", client?);
            }
        };
        if let Some(server) = &server {
            ensure!(
                server.success(),
                "the server of `{client_line}`: {:?}\n{}",
                server.exit,
                indent(&text_of(server))
            );
        }
        let text = text_of(&client);
        ensure!(client.success(), "`{client_line}`: {:?}\n{}", client.exit, indent(&text));
        ensure!(
            text.contains(&row.expected),
            "`{client_line}` did not print {:?}:\n{}",
            row.expected,
            indent(&text)
        );
        if let Some(check) = &row.check {
            self.server.check(&self.line(check, self.server, port), patience)?;
        }
        Ok(text)
    }

    /// Starts the row's server and waits until the condition holds.
    fn serve(&self, row: &Row, port: u16, condition: &str) -> Result<Job> {
        let line = self.line(&row.server, self.server, port);
        let mut server = self.server.spawn(&line)?;
        let mut listens = self.server.spawn(&format!("until {condition}; do sleep 0.05; done"))?;
        let deadline = Instant::now() + self.pair.patience(row.seconds);
        loop {
            // A server that has ended will never listen.
            if server.has_ended()? || Instant::now() > deadline {
                bail!("the server `{line}` does not listen\n{}", indent(&text_of(server.so_far())));
            }
            if listens.has_ended()? {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn line(&self, template: &str, vm: &Vm, port: u16) -> String {
        let [server, client] = [self.server, self.client].map(|vm| self.pair.index(vm));
        // No replacement contains a placeholder, so the order of the replacements does not matter.
        template
            .replace("@d", self.pair.device(vm).name())
            .replace("@g", &self.gids[self.pair.index(vm)].to_string())
            .replace("@p", &port.to_string())
            .replace("@a", self.family.address(server))
            .replace("@o", self.family.address(client))
            .replace("@4", IP[server])
            .replace("@5", IP[client])
    }
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}
