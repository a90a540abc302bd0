//! The daemon as a process of its own, for tests that count its memory and descriptors. Ends with its standard input.

use clap::Parser;
use std::io::Read;
use vrdma_backend::config::{Args, Config};
use vrdma_backend::daemon::Daemon;

fn main() -> anyhow::Result<()> {
    let messages = env_logger::Env::default().default_filter_or("info");
    env_logger::Builder::from_env(messages).init();
    let daemon = Daemon::start(Config::load(&Args::parse())?)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(daemon);
    Ok(())
}
