//! `vrdma-exporter`: shows the counters of a running vrdma daemon to Prometheus.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use clap::Parser;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;
use vrdma_exporter::args::Args;
use vrdma_exporter::collector::Collector;
use vrdma_exporter::http::{Limits, Server};

/// How long answers that have begun may take after SIGTERM.
const LAST: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args = Args::parse();
    let mut log = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"));
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        // The journal has stamps of its own.
        log.format_timestamp(None);
    }
    log.init();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let collector = Collector::start(args.socket.clone(), args.timeout)?;
    let server = Server::listen(args.listen, Limits::default(), collector);
    let server = server.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => "another program listens there: give another port, --listen ADDRESS:PORT",
            ErrorKind::AddrNotAvailable => {
                "no interface of this host has the address: `ip address` shows them"
            }
            ErrorKind::PermissionDenied => "ports below 1024 need a right: give a higher one",
            _ => "cannot listen",
        };
        anyhow::Error::new(error).context(format!("--listen {}: {advice}", args.listen))
    })?;
    let (address, crowd) = (server.address()?, server.crowd());
    std::thread::Builder::new()
        .name("server".into())
        .spawn(move || server.serve())
        .context("the system has no thread left")?;
    log::info!("ready: http://{address}/metrics shows the daemon at {}", args.socket.display());
    // Without a service manager, nobody hears this.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    if let Some(signal) = signals.forever().next() {
        log::info!("signal {signal}: the end");
        crowd.wait_for_answers(LAST);
    }
    Ok(())
}
