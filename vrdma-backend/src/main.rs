//! `vrdma-backend`: parses the command line, runs the daemon, and stops it on a signal.

use anyhow::{Context, Result};
use clap::Parser;
use crossbeam_channel::RecvTimeoutError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;
use vrdma_backend::allocator::Allocator;
use vrdma_backend::config::{Args, Config};
use vrdma_backend::daemon::{Change, Daemon, Loader, Refusal};
use vrdma_backend::jail::{self, Jail};
use vrdma_backend::{logger, panics, service};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            logger::tell_end(&error);
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<()> {
    let config = Config::load(&args)?;
    if args.check {
        return print(&config.to_toml()?);
    }
    logger::start(config.log);
    panics::end_the_process();
    raise_file_limit();
    survive_file_limit();
    // Before the first thread: threads inherit what this does.
    let jail = Jail::prepare(config.jail()).context("jail")?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    service::start();
    let args = Arc::new(args);
    let again = args.clone();
    let loader: Loader = Box::new(move || Config::load_again(&again));
    let daemon = Daemon::start_program(&config, jail, config.file.as_ref().map(|_| loader))?;
    #[cfg(debug_assertions)]
    if let Some(asked) = &args.jail_probe {
        return print(&jail::probe::run(asked)?);
    }
    jail::confine(jail::Kind::Main);
    log::info!("{}", daemon.ready());
    tell_ready(&daemon);
    let signal = loop {
        match signals.forever().next() {
            Some(SIGHUP) => {
                service::reloading();
                let end = reload(&daemon, &mut signals);
                tell_ready(&daemon);
                if let Some(signal) = end {
                    break signal;
                }
            }
            Some(signal) => break signal,
            None => unreachable!("nobody closes the signals"),
        }
    };
    log::info!("stopping on signal {signal}");
    service::stopping();
    drop(daemon);
    Ok(())
}

/// How often to look for a signal while the configuration is read again.
const LOOK: Duration = Duration::from_millis(50);

/// Acts on a SIGHUP. The service manager has been told that the configuration is read again.
///
/// Returns the signal that ends the daemon, if one comes before all is done.
fn reload(daemon: &Daemon, signals: &mut Signals) -> Option<i32> {
    loop {
        let answer = daemon.change(Change::Reload);
        let mut is_asked_again = false;
        let answer = loop {
            match answer.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                answer => break answer,
            }
            for signal in signals.pending() {
                if signal != SIGHUP {
                    return Some(signal);
                }
                is_asked_again = true;
            }
        };
        match answer {
            // What was changed is logged by who changed it.
            Ok(Ok(_)) => {}
            Ok(Err(Refusal::NothingToRead)) => {
                log::warn!("SIGHUP is ignored: {}", Refusal::NothingToRead);
            }
            Ok(Err(refusal)) => {
                log::error!("the configuration was read again, and is refused: {refusal}");
            }
            Err(_) => log::error!("the configuration is not read again: {}", Refusal::Stopping),
        }
        // The file may have been read before it was changed for the second time.
        if !is_asked_again {
            return None;
        }
    }
}

/// Tells the service manager that the daemon is ready, and what it serves.
fn tell_ready(daemon: &Daemon) {
    service::ready(daemon.functions(), daemon.uplink().map(str::to_owned));
}

/// Writes to standard output. A reader that closes it early (`--check | head`) is not an error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(()),
    }
}

/// Has a write beyond the limit of files' sizes (`LimitFSIZE=`) fail, and not end the process.
fn survive_file_limit() {
    // The handler is enough. That it ran is told by the error of the write.
    if let Err(error) = signal_hook::flag::register(libc::SIGXFSZ, Arc::default()) {
        log::warn!("a write beyond the limit of files' sizes ends the daemon: {error}");
    }
}

/// Raises the limit of file descriptors to the system's maximum.
///
/// Each region of guest memory and each virtqueue needs some. One guest's use must not keep another
/// guest's front-end from connecting.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!("the limit of file descriptors cannot be raised: {error}");
    }
}
