//! A guest without a VM that plays ping-pong with a process of a VM (`vrdma_tests::vm_peer`).

use clap::Parser;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Plays ping-pong with a `vr-pingpong -` on standard input and output.
#[derive(Parser)]
struct Args {
    /// The daemon's socket for this guest.
    socket: PathBuf,
    /// The guest's IPv4 address, which is its GID.
    address: Ipv4Addr,
}

fn main() -> anyhow::Result<()> {
    let Args { socket, address } = Args::parse();
    let turns = vrdma_tests::vm_peer::serve(&socket, address.to_ipv6_mapped().octets())?;
    eprintln!("turns {turns}");
    Ok(())
}
