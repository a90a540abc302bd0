//! A guest without a VM, for a daemon on another machine than the test.
//!
//! `cargo xtask demo pci-nic` runs it beside the daemon. The guest is 10.0.0.1, and its peer, a VM
//! with `rdma_rxe`, is 10.0.0.2.

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use vrdma_tests::abi::control::QpType;
use vrdma_tests::net::{NetGuest, NetOptions};
use vrdma_tests::packets::Packet;
use vrdma_tests::side::Side;
use vrdma_tests::stock_peer::{self, Plan};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Guest, GuestOptions, Rng, guest, queues, vm_peer};

#[derive(Parser)]
enum Args {
    /// Plays ping-pong with a `vr-pingpong -` on standard input and output.
    Turns {
        /// The socket of the RDMA function.
        socket: PathBuf,
    },
    /// Plays with a server of `ibv_*_pingpong`, whose TCP connection is standard input and output.
    /// The input ends when the server has ended.
    Echo {
        socket: PathBuf,
        service: Service,
        #[arg(long, default_value_t = 100)]
        messages: u32,
        #[arg(long, default_value_t = 10_000)]
        size: u32,
        /// Path MTU, as `enum ibv_mtu`.
        #[arg(long, default_value_t = 5)]
        mtu: u8,
    },
    /// Sends packets from 10.0.0.1:5001 to 10.0.0.2:5002 whose checksums are left to the device.
    Packets {
        /// The socket of the Ethernet function.
        socket: PathBuf,
        #[command(subcommand)]
        protocol: Protocol,
    },
    /// Plays guest 10.0.0.3, which sends messages to itself. It sends one for each line of standard
    /// input, and prints an answer.
    Alone {
        /// The socket of the RDMA function.
        socket: PathBuf,
    },
    /// Plays no guest: starts two daemons of its own over a tap. Flow rules steer frames to the
    /// queues of their workers.
    Rules,
    /// Prints the daemon's counters.
    Stats {
        /// The admin socket.
        socket: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Service {
    Rc,
    Uc,
    Ud,
}

#[derive(Subcommand)]
enum Protocol {
    Udp,
    Tcp,
}

/// Packets of [`Args::Packets`].
///
/// The first [`SHORT`] have payloads of 0, 1, ... bytes, so that some are padded to the shortest
/// frame. The others have random lengths below [`LONGEST`].
const PACKETS: usize = 50;
const SHORT: usize = 20;
const LONGEST: u64 = 1400;

/// Bytes of a message of [`Args::Alone`].
const ALONE: u32 = 10_000;

fn main() -> Result<()> {
    match Args::parse() {
        Args::Turns { socket } => {
            let turns = vm_peer::serve(&socket, guest::gid(1))?;
            eprintln!("turns {turns}");
        }
        Args::Echo { socket, service, messages, size, mtu } => {
            let service = match service {
                Service::Rc => QpType::RC,
                Service::Uc => QpType::UC,
                Service::Ud => QpType::UD,
            };
            stock_peer::play(&socket, Plan { service, messages, size, mtu })?;
        }
        Args::Packets { socket, protocol } => packets(&socket, matches!(protocol, Protocol::Tcp))?,
        Args::Alone { socket } => alone(&socket)?,
        Args::Rules => println!("{:?}", queues::steered()?),
        Args::Stats { socket } => {
            let mut stream = UnixStream::connect(&socket)?;
            stream.write_all(b"stats\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            ensure!(!text.is_empty(), "the daemon says nothing");
            print!("{text}");
        }
    }
    Ok(())
}

fn alone(socket: &Path) -> Result<()> {
    let guest = Guest::connect(socket, GuestOptions { host: 3, ..GuestOptions::default() })?;
    guest.set_gid();
    let mut side = Side::looped(&guest, 2 * u64::from(ALONE));
    let mut rng = Rng::new(9);
    println!("ready");
    for (round, line) in (0..).zip(std::io::stdin().lines()) {
        line?;
        let sent = rng.bytes(ALONE as usize);
        side.mr.put(0, &sent);
        side.recv(2 * round, &[side.mr.sge(ALONE.into(), ALONE)]);
        let data = [side.mr.sge(0, ALONE)];
        side.post(&Request::send(side.qp.tag(2 * round + 1), Data::Sges(&data)).signaled(true));
        for _ in 0..2 {
            side.cq.expect_success();
        }
        ensure!(side.mr.get(ALONE.into(), ALONE.into()) == sent, "message {round} is another");
        println!("message {round} came");
    }
    side.close();
    Ok(())
}

fn packets(socket: &Path, tcp: bool) -> Result<()> {
    let mut guest = NetGuest::connect(socket, NetOptions::default())?;
    let packet = Packet { hosts: (1, 2), v6: false, tcp, vlan: None };
    let mut rng = Rng::new(5);
    for index in 0..PACKETS {
        let len = if index < SHORT { index } else { rng.below(LONGEST) as usize };
        let (header, frame) = packet.unfinished(&rng.bytes(len));
        guest.send_with(header, &frame, &[]);
    }
    Ok(())
}
