//! The daemon as a process of its own, for tests that count its memory and descriptors.
//!
//! It ends when its standard input ends.

use clap::Parser;
use std::io::Read;
use vrdma_backend::config::{Args, Config};
use vrdma_backend::daemon::Daemon;
use vrdma_backend::jail::{self, Jail};
use vrdma_backend::logger;

fn main() -> anyhow::Result<()> {
    logger::start(None);
    let config = Config::load(&Args::parse())?;
    let jail = Jail::prepare(config.jail())?;
    let daemon = Daemon::start_in(config, Some(jail))?;
    jail::confine(jail::Kind::Main);
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(daemon);
    Ok(())
}
