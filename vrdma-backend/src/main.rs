//! `vrdma-backend`: from the command line to a running daemon, and to its end by a signal.

use anyhow::Result;
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vrdma_backend::config::{Args, Config};
use vrdma_backend::daemon::Daemon;

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    start_log(args.verbose);
    match run(&args) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrdma-backend: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let config = Config::load(args)?;
    if args.check {
        println!("{config:#?}");
        return Ok(());
    }
    // A broken invariant of ours ends the process: guests see a device that is gone, instead of one that never answers.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
    raise_file_limit();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let daemon = Daemon::start(config)?;
    log::info!("ready");
    if let Some(signal) = signals.forever().next() {
        log::info!("stopping on signal {signal}");
    }
    drop(daemon);
    Ok(())
}

/// As many file descriptors as the system lets us have: each region of guest memory and each virtqueue has some, and one guest's
/// shall not be the reason that another's front-end cannot connect.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!("the limit of file descriptors cannot be raised: {error}");
    }
}

fn start_log(verbose: u8) {
    let level = ["info", "debug", "trace"][usize::from(verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
}
