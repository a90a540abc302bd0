//! The programs that the demos show and the tests run between two VMs, as a table.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::paths;
use crate::proc::indent;
use crate::vm::pair::{IP, IP6};
use crate::vm::{Job, Output, Pair, Vm};

/// A script, in the VMs' shared directory.
const ATOMIC_WRITE: &str = "atomic_write.py";

/// Which kind of addresses the programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4, or GIDs that are such addresses.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn address(self, index: usize) -> &'static str {
        match self {
            Self::V4 => IP[index],
            Self::V6 => IP6[index],
        }
    }

    /// A shell pattern of the GIDs of such an address.
    fn gid_pattern(self) -> &'static str {
        match self {
            Self::V4 => "0000:0000:0000:0000:0000:ffff:*",
            Self::V6 => "fd77:*",
        }
    }
}

/// Path MTUs, which follow from the MTU of the netdevs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMtu {
    /// 1024 bytes, as with usual Ethernet frames.
    Usual,
    /// 4096 bytes, with jumbo frames.
    Jumbo,
}

impl PathMtu {
    /// In bytes.
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

/// How one sees that a server waits for its client.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It listens on its TCP port.
    Tcp,
    /// It listens for rdma_cm's connections.
    Cm,
    /// There is no server.
    NoServer,
}

/// A program of the table.
///
/// In command lines `@d` is the RDMA device, `@g` the index of its GID, `@p` a port, `@a` the server's address, `@o` the
/// client's, and `@4` the server's IPv4 address, for what programs say to each other over TCP.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it shows.
    pub what: String,
    server: String,
    client: String,
    ready: Ready,
    /// Whether the server goes on after its client, until it is killed.
    server_stays: bool,
    /// What the client prints if all is well.
    expected: String,
    /// Seconds that it may take under KVM.
    seconds: u64,
}

impl Row {
    /// A program whose server and client have these command lines; `expected` is what the client prints if all is well.
    pub fn new(what: &str, ready: Ready, server: &str, client: &str, expected: &str) -> Self {
        Self {
            what: what.to_owned(),
            server: server.to_owned(),
            client: client.to_owned(),
            ready,
            server_stays: false,
            expected: expected.to_owned(),
            seconds: 8,
        }
    }

    /// The same, with a server that goes on after its client.
    pub fn server_stays(self) -> Self {
        Self { server_stays: true, ..self }
    }

    /// Whether its server is known by its listening for rdma_cm's connections: two such servers at a time are not told apart.
    pub fn uses_cm(&self) -> bool {
        matches!(self.ready, Ready::Cm)
    }

    /// A program whose client is its server's command line and the server's address.
    fn pair(what: &str, command: &str, expected: &str) -> Self {
        Self::new(what, Ready::Tcp, command, &format!("{command} @4"), expected)
    }

    /// One of perftest's, whose last line is that of this size.
    pub fn perftest(what: &str, command: &str, last: u32) -> Self {
        // -F: do not mind a CPU clock that cannot be read.
        Self::pair(what, &format!("{command} -F -d @d -x @g -p @p"), &format!(" {last} "))
    }
}

/// How many sizes perftest's tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All up to 8 MiB.
    All,
    /// 64 KiB alone: of more there is nothing new to learn.
    One,
}

/// The table.
pub fn rows(family: Family, mtu: PathMtu, sizes: Sizes) -> Vec<Row> {
    let mut rows = Vec::new();
    // The largest frame that is not fragmented: its headers are IPv4's or IPv6's and ICMP's.
    let (ping, headers) = match family {
        Family::V4 => ("ping", 28),
        Family::V6 => ("ping -6", 48),
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
        // The UD program has no check of the content.
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

/// Programs that connect by rdma_cm.
fn cm_rows(family: Family) -> [Row; 4] {
    let v6 = if family == Family::V6 { " --ipv6-addr" } else { "" };
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

/// A row that runs.
pub struct Running {
    /// Its server, if it has one.
    pub server: Option<Job>,
    /// Its client.
    pub client: Job,
    /// The client's command line.
    line: String,
}

/// Who runs the programs, and how they reach each other.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    pair: &'a Pair,
    server: &'a Vm,
    client: &'a Vm,
    family: Family,
    gids: [u32; 2],
}

/// The VMs get addresses of both families and this MTU; each gets its device.
pub fn prepare(pair: &Pair, mtu: PathMtu) -> Result<()> {
    let patience = pair.patience(6);
    let script = paths::workspace().join("xtask/checks").join(ATOMIC_WRITE);
    paths::write(&pair.share().join(ATOMIC_WRITE), paths::read(&script)?)?;
    for vm in [&pair.a, &pair.b] {
        let command = format!(
            "ip link set eth0 mtu {} && ip address replace {}/64 dev eth0 nodad",
            mtu.netdev(),
            IP6[pair.index(vm)]
        );
        vm.check(&command, patience)?;
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
    /// Servers run in one VM of the pair, clients in the other.
    pub fn new(pair: &'a Pair, server: &'a Vm, family: Family) -> Result<Self> {
        let client = if pair.index(server) == 0 { &pair.b } else { &pair.a };
        let gid = |vm: &Vm| pair.device(vm).gid_index_of(vm, family.gid_pattern(), pair.patience(6));
        Ok(Self { pair, server, client, family, gids: [gid(&pair.a)?, gid(&pair.b)?] })
    }

    /// `vrdma0 in a <- rxe0 in b, IPv4`: the server stands first.
    pub fn name(&self) -> String {
        let name = |vm: &Vm| format!("{} in {}", self.pair.device(vm).name(), vm.name());
        format!("{} <- {}, {}", name(self.server), name(self.client), self.family.name())
    }

    /// Runs one row to its end; says how long it took. What was printed goes to files.
    pub fn run(&self, row: &Row, port: u16) -> Result<Duration> {
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
        result.map(|_| start.elapsed())
    }

    fn run_row(&self, row: &Row, port: u16) -> Result<String> {
        let running = self.start(row, port)?;
        self.finish(row, running)
    }

    /// Starts a row: its server, and as soon as that listens its client.
    pub fn start(&self, row: &Row, port: u16) -> Result<Running> {
        let line = self.line(&row.client, self.client, port);
        let server = match row.ready {
            Ready::NoServer => None,
            Ready::Tcp => Some(self.serve(
                row,
                port,
                &format!("grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"),
            )?),
            Ready::Cm => Some(self.serve(row, port, "rdma resource show cm_id | grep -q LISTEN")?),
        };
        let client = self.client.spawn(&line)?;
        Ok(Running { server, client, line })
    }

    /// Waits until a row has ended as it should; what its client printed.
    pub fn finish(&self, row: &Row, running: Running) -> Result<String> {
        let Running { server, client, line: client_line } = running;
        let client = client.wait(self.pair.patience(row.seconds));
        let (client, server) = match (client, server) {
            (Ok(client), None) => (client, None),
            // It is killed.
            (Ok(client), Some(_)) if client.success() && row.server_stays => (client, None),
            (Ok(client), Some(server)) if client.success() => {
                (client, Some(server.wait(self.pair.patience(3)).context("the server")?))
            }
            (client, server) => {
                // What the server says may tell why.
                let said = server.map_or_else(String::new, |mut server| {
                    std::thread::sleep(Duration::from_millis(200));
                    let _ = server.has_ended();
                    format!("\nthe server said:\n{}", indent(&text_of(server.so_far())))
                });
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
        Ok(text)
    }

    /// Starts the row's server and waits until the condition says that it listens.
    fn serve(&self, row: &Row, port: u16, condition: &str) -> Result<Job> {
        let line = self.line(&row.server, self.server, port);
        let mut server = self.server.spawn(&line)?;
        let listens =
            self.server.exec(&format!("until {condition}; do sleep 0.05; done"), self.pair.patience(4));
        if server.has_ended()? || listens.is_err() {
            bail!("the server `{line}` does not listen\n{}", indent(&text_of(server.so_far())));
        }
        Ok(server)
    }

    fn line(&self, template: &str, vm: &Vm, port: u16) -> String {
        let index = self.pair.index(self.server);
        // A row that stands on its own line has all its numbers: no replacement contains a placeholder.
        template
            .replace("@d", self.pair.device(vm).name())
            .replace("@g", &self.gids[self.pair.index(vm)].to_string())
            .replace("@p", &port.to_string())
            .replace("@a", self.family.address(index))
            .replace("@o", self.family.address(1 - index))
            .replace("@4", IP[index])
    }
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}
