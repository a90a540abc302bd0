//! `capture`: what guests send and receive, as a file for Wireshark. [`target`] is that file.

mod target;

use crate::args::CaptureArgs;
use crate::connection::Connection;
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;
use target::CaptureTarget;
use vrdma_admin::capture::{CaptureEnd, CaptureProgress, StartCapture};
use vrdma_admin::{Client, Closer};

/// Names of a file that stand for standard output.
const STDOUT: [&str; 2] = ["-", "/dev/stdout"];

/// Captures until it is interrupted, or until the limits are reached.
///
/// # Errors
/// The file cannot be written, the daemon refuses the capture, or writing fails.
pub fn capture(connection: &Connection, json: bool, args: &CaptureArgs) -> Result<()> {
    let path = args.write.as_deref().filter(|path| !STDOUT.iter().any(|name| *path == Path::new(name)));
    if path.is_none() && io::stdout().is_terminal() {
        bail!(
            "a terminal shows no packets: name a file (-w FILE), or give them to a program (| wireshark -k -i -, or | tshark -r -)"
        );
    }
    let mut client = connection.to_administer()?;
    let start = StartCapture {
        guest: args.guest.clone(),
        qpn: args.qpn,
        peer: args.peer.clone(),
        snap: args.snap,
        count: args.count,
    };
    end_at_signal(client.closer()?)?;
    let timer = client.closer()?;
    let target = path.map_or_else(|| Ok(CaptureTarget::Stdout(io::stdout())), CaptureTarget::open)?;
    // The daemon may be busy before.
    let last = follow(&mut client, &start, target, || end_in_time(timer, args.time))?;
    tell(json, &last)?;
    match last.end {
        Some(CaptureEnd::Failed) => bail!("the capture has ended: {}", last.reason.unwrap_or_default()),
        Some(CaptureEnd::GuestRemoved) => {
            bail!("the capture has ended: guest {} was removed", args.guest.as_deref().unwrap_or_default())
        }
        Some(CaptureEnd::Stopping) => bail!("the capture has ended with the daemon"),
        _ => Ok(()),
    }
}

/// Begins the capture, and waits for its end.
///
/// `begun` is called when the capture has begun.
fn follow(
    client: &mut Client,
    start: &StartCapture,
    target: CaptureTarget,
    begun: impl FnOnce(),
) -> Result<CaptureProgress> {
    let mut replies = client.follow_with(start, &[target.descriptor()])?;
    let mut last = replies.next().context("the daemon has not answered")??;
    begun();
    target.settle()?;
    for progress in replies {
        last = progress?;
    }
    Ok(last)
}

/// Ends the capture at a signal. The second one ends this program.
fn end_at_signal(closer: Closer) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        for (number, signal) in signals.forever().enumerate() {
            match number {
                0 => close(&closer),
                _ => _ = emulate_default_handler(signal),
            }
        }
    });
    Ok(())
}

/// Ends the capture when the time is over, if there is one.
fn end_in_time(closer: Closer, time: Option<Duration>) {
    if let Some(time) = time {
        thread::spawn(move || {
            thread::sleep(time);
            close(&closer);
        });
    }
}

fn close(closer: &Closer) {
    // If the connection has ended, so has the capture.
    let _ = closer.close();
}

/// Tells how much was captured. Standard output may have the packets.
fn tell(json: bool, last: &CaptureProgress) -> Result<()> {
    let line = match json {
        true => serde_json::to_string(last)?,
        false => format!("{} packets, {} bytes, {} packets missed", last.packets, last.bytes, last.missed),
    };
    writeln!(io::stderr(), "{line}")?;
    Ok(())
}
