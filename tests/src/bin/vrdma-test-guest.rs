//! A guest without a VM, of a daemon on another machine than the test's: what `cargo xtask demo pci-nic` runs beside the daemon.
//!
//! It is 10.0.0.1, and its peer, a VM with `rdma_rxe`, 10.0.0.2.

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use vrdma_tests::abi::control::QpType;
use vrdma_tests::net::{NetGuest, NetOptions};
use vrdma_tests::packets::Packet;
use vrdma_tests::stock_peer::{self, Plan};
use vrdma_tests::{Rng, guest, vm_peer};

#[derive(Parser)]
enum Args {
    /// Plays ping-pong with a `vr-pingpong -` on standard input and output.
    Turns {
        /// The socket of the RDMA function.
        socket: PathBuf,
    },
    /// Plays with a server of `ibv_*_pingpong`, whose TCP connection is standard input and output.
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

/// Packets of [`Args::Packets`], and how long their payload is at most.
const PACKETS: usize = 50;
const LONGEST: u64 = 1400;

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
            eprintln!("{messages} messages of {size} bytes are back as they were");
        }
        Args::Packets { socket, protocol } => packets(&socket, matches!(protocol, Protocol::Tcp))?,
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

fn packets(socket: &Path, tcp: bool) -> Result<()> {
    let mut guest = NetGuest::connect(socket, NetOptions::default())?;
    let packet = Packet { hosts: (1, 2), v6: false, tcp, vlan: None };
    let mut rng = Rng::new(5);
    for _ in 0..PACKETS {
        let len = rng.below(LONGEST) as usize;
        let (header, frame) = packet.unfinished(&rng.bytes(len));
        guest.send_with(header, &frame, &[]);
    }
    Ok(())
}
