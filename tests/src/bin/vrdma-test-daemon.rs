//! The daemon as a process of its own, for tests that count its memory and descriptors.
//!
//! It ends when its standard input ends.

use clap::Parser;
use std::io::Read;
use vrdma_backend::config::{Args, Config};
use vrdma_backend::daemon::Daemon;
use vrdma_backend::logger;

fn main() -> anyhow::Result<()> {
    logger::start(None);
    let daemon = Daemon::start(Config::load(&Args::parse())?)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(daemon);
    Ok(())
}
