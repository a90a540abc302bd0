//! WRITEs between two engines over DPDK ports, compared with what the ports do at best.
//!
//! A separate process measures it. EAL stays in a process until the end, and a veth needs a network
//! namespace.

pub mod account;
mod engines;
mod forward;
mod host;
mod iwarp;
mod memory;
mod model;
mod parts;
pub mod peer;
mod ports;

use crate::args::{Figure, PortKind, Wire};
use crate::helper::Helper;
use crate::line;
use crate::lines::{self, Unit};
use crate::load::Load;
use crate::missing::{LACKS, missing};
use crate::table;
use crate::turns::{self, Turns, Until};
use crate::windows::{Kind, Windows, histogram};
use anyhow::{Result, bail, ensure};
use engines::Engines;
use forward::{AROUND, Passes};
use hdrhistogram::Histogram;
use iwarp::{Apart, Gap, Iwarp, gap};
use parts::Parts;
use ports::frames;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vrdma_backend::port::Port;
use vrdma_guest::threads::pin;

/// Size in bytes from which messages measure bandwidth. Shorter ones measure packets.
const LONG: u32 = 4096;

/// The result of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WireFigure {
    /// What was measured.
    pub what: String,
    /// Size of a message in bytes.
    pub size: u32,
    /// Largest payload of a packet in bytes. For iWARP, the MTU of the link.
    pub mtu: u32,
    /// Name of the reference.
    pub limit: String,
    /// The unit of both: bytes per second, microseconds, or packets per second. Packets include
    /// ACKs and retransmitted ones.
    pub figure: Figure,
    /// How often the sender went back to a lost packet, and sent everything from there again.
    pub retries: u64,
    /// The measurement and its reference.
    pub turns: Turns,
}

/// Measures in this process.
///
/// # Errors
/// The port cannot be made on this machine, or loses everything.
pub fn measure(args: &Wire) -> Result<WireFigure> {
    let dir = tempfile::tempdir()?;
    let ports = RefCell::new(ports::open(args.port, args.mtu, dir.path())?);
    pin(0, args.cpus.1);
    let helper = Helper::start(args.cpus.0);
    match args.gap {
        Some(beyond) => gap(args, beyond, &ports, &helper),
        None if args.apart => apart_hosts(args, &ports, &helper),
        None if args.iwarp => iwarp(args, &ports, &helper),
        None => roce(args, &ports, &helper),
    }
}

/// Accounts for the time of a packet, in this process.
///
/// # Errors
/// The errors of [`measure`].
pub fn parts(args: &Wire) -> Result<Parts> {
    let dir = tempfile::tempdir()?;
    let ports = RefCell::new(ports::open(args.port, args.mtu, dir.path())?);
    pin(0, args.cpus.1);
    Parts::measure(&ports, args.duration)
}

/// Formats tables for people: the measurements, and if one was over a memory port, the model of a
/// NIC.
pub fn tables(all: &[(PortKind, Parts)]) -> String {
    let model = all.iter().find(|(port, _)| port.is_memory()).map(|(_, parts)| model::table(parts));
    [Some(parts::table(all)), model].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

/// Measures RoCE, compared with the frame rate of the ports.
fn roce(args: &Wire, ports: &RefCell<Vec<Port>>, helper: &Helper) -> Result<WireFigure> {
    let mtu = ports::path_mtu(&ports.borrow());
    let bytes = args.size >= LONG;
    let payload = (args.size as usize).min(mtu.bytes() as usize);
    let mut times = histogram();
    let engines = Engines::<false>::new(ports, (args.size, args.tx_depth), mtu);
    let mut windows = windows(engines, args, &mut times)?;
    // A memory driver does not compute the CRC and copy the payload, as a host with a NIC has to.
    let mut passes = (bytes && args.port.is_memory()).then(|| Passes::new(payload));
    let own = || {
        let before = frames(&ports.borrow());
        let start = Instant::now();
        let rate = windows.window()?;
        let packets = (frames(&ports.borrow()) - before) as f64 / start.elapsed().as_secs_f64();
        Ok(if bytes { rate * f64::from(args.size) } else { packets })
    };
    let limit = || {
        let rate = forward::window(&mut ports.borrow_mut(), payload + AROUND)?;
        let seconds = 1. / rate + passes.as_mut().map_or(0., Passes::window);
        Ok(if bytes { payload as f64 / seconds } else { 1. / seconds })
    };
    let until = Until::Time(Duration::from_secs_f64(args.duration));
    let turns = turns::take(until, || line::round_trip(helper), own, limit)?;
    let limit = if bytes && args.port.is_memory() { "frames + ICRC + copy" } else { "frames" };
    let (size, mtu, limit) = (args.size, mtu.bytes(), limit.to_owned());
    let figure = if bytes { Figure::Bw } else { Figure::Rate };
    Ok(WireFigure { what: "WRITEs".into(), size, mtu, limit, figure, retries: windows.load.retries(), turns })
}

/// Measures iWARP. The reference depends on the arguments:
///
/// * One connection is compared with RoCE, or over a veth with the frame rate of its ports.
/// * Many connections are compared with one.
/// * Connections beside stalled peers are compared with the connections alone.
fn iwarp(args: &Wire, ports: &RefCell<Vec<Port>>, helper: &Helper) -> Result<WireFigure> {
    let (shape, link) = ((args.size, args.tx_depth), ports::link_mtu(&ports.borrow()));
    let (mut times, mut other_times) = (histogram(), histogram());
    let connections = (args.qp, args.stalled);
    let mut own = windows(Iwarp::new(ports, shape, connections, link, 1)?, args, &mut times)?;
    let until = Until::Time(Duration::from_secs_f64(args.duration));
    let bytes = |rate| rate * f64::from(args.size);
    let line = || line::round_trip(helper);
    let (turns, limit) = if args.stalled > 0 {
        let others = Iwarp::new(ports, shape, (args.qp, 0), link, 3)?;
        let mut others = windows(others, args, &mut other_times)?;
        let turns = turns::take(until, line, || own.window().map(bytes), || others.window().map(bytes))?;
        (turns, "no stalled peers".to_owned())
    } else if args.qp == 1 && !args.port.is_memory() {
        let payload = iwarp::payload(link);
        let limit = || {
            let rate = forward::window(&mut ports.borrow_mut(), usize::from(link) + ETHERNET)?;
            Ok(rate * f64::from(payload))
        };
        let turns = turns::take(until, line, || own.window().map(bytes), limit)?;
        (turns, "frames of that MTU".to_owned())
    } else if args.qp == 1 {
        let mtu = ports::path_mtu(&ports.borrow());
        let mut roce = windows(Engines::<false>::new(ports, shape, mtu), args, &mut other_times)?;
        let turns = turns::take(until, line, || own.window().map(bytes), || roce.window().map(bytes))?;
        (turns, format!("RoCE, packets of {}", mtu.bytes()))
    } else {
        let mut one = windows(Iwarp::new(ports, shape, (1, 0), link, 3)?, args, &mut other_times)?;
        let turns = turns::take(until, line, || own.window().map(bytes), || one.window().map(bytes))?;
        (turns, "one connection".to_owned())
    };
    let mut what = format!("iWARP WRITEs, {} outstanding on each of {} connections", args.tx_depth, args.qp);
    if args.stalled > 0 {
        what += &format!(", with {} stalled peers", args.stalled);
    }
    let (size, retries) = (args.size, own.load.retries());
    Ok(WireFigure { what, size, mtu: link.into(), limit, figure: Figure::Bw, retries, turns })
}

/// Measures iWARP between hosts with a processor each, compared with the ports' frame rate in that
/// arrangement.
fn apart_hosts(args: &Wire, ports: &RefCell<Vec<Port>>, helper: &Helper) -> Result<WireFigure> {
    let link = ports::link_mtu(&ports.borrow());
    let mut times = histogram();
    let hosts = Apart::new(Iwarp::new(ports, (args.size, args.tx_depth), (args.qp, 0), link, 1)?)?;
    hosts.begin(helper);
    let mut own = windows(hosts, args, &mut times)?;
    own.load.end(helper);
    let payload = iwarp::payload(link);
    let until = Until::Time(Duration::from_secs_f64(args.duration));
    let window = || {
        own.load.begin(helper);
        let rate = own.window();
        own.load.end(helper);
        Ok(rate? * f64::from(args.size))
    };
    let limit = || {
        let rate = forward::apart(&mut ports.borrow_mut(), usize::from(link) + ETHERNET, helper)?;
        Ok(rate * f64::from(payload))
    };
    let turns = turns::take(until, || line::round_trip(helper), window, limit)?;
    let what = format!(
        "iWARP WRITEs by a processor a host, {} outstanding on each of {} connections",
        args.tx_depth, args.qp
    );
    let (size, retries, limit) = (args.size, own.load.retries(), "frames of that MTU".to_owned());
    Ok(WireFigure { what, size, mtu: link.into(), limit, figure: Figure::Bw, retries, turns })
}

/// Measures the time from the repair of a gap to the last WRITE that waited for it. FPDUs placed
/// out of order are compared with bytes that wait.
fn gap(args: &Wire, beyond: u32, ports: &RefCell<Vec<Port>>, helper: &Helper) -> Result<WireFigure> {
    ensure!(args.port == PortKind::Ring, "--gap wants net_ring, which has each frame at once");
    let link = ports::link_mtu(&ports.borrow());
    let mut placed = Gap::new(ports, (beyond, true), link, 1)?;
    let mut kept = Gap::new(ports, (beyond, false), link, 3)?;
    let until = Until::Time(Duration::from_secs_f64(args.duration));
    let turns = turns::take(until, || line::round_trip(helper), || placed.window(), || kept.window())?;
    let what = format!("iWARP WRITEs, from the repair of a gap with {beyond} frames beyond it to the last");
    let (size, mtu, limit) = (gap::LENGTH, link.into(), "nothing placed beyond it".to_owned());
    Ok(WireFigure { what, size, mtu, limit, figure: Figure::Lat, retries: 0, turns })
}

/// Size of an Ethernet header in bytes.
const ETHERNET: usize = 14;
/// Least ratio of a window's operations to the outstanding ones.
///
/// A window begins with no operation outstanding, and those in flight at its end do not count.
const FILLS: u32 = 16;
/// Largest number of bytes of a RoCE connection in flight.
const ON_THE_WAY: u32 = 2 << 20;

/// Returns windows that give operations per second.
fn windows<'t, L: Load>(load: L, args: &Wire, times: &'t mut Histogram<u64>) -> Result<Windows<'t, L>> {
    let kind = Kind { figure: Figure::Rate, size: args.size, pause: Duration::ZERO };
    let mut windows = Windows::new(load, kind, u32::MAX, times)?;
    let outstanding = if args.qp > 1 { args.qp * args.tx_depth } else { ON_THE_WAY / args.size.max(LONG) };
    windows.count = windows.count.max(FILLS * outstanding);
    Ok(windows)
}

/// Measures in a separate process.
///
/// # Errors
/// The last message of that process.
pub fn measure_apart(args: &Wire) -> Result<WireFigure> {
    apart(&words(args))
}

/// Accounts for the time of a packet like [`parts()`], in a separate process.
///
/// # Errors
/// The last message of that process.
pub fn parts_apart(args: &Wire) -> Result<Parts> {
    apart(&words(&Wire { account: true, ..args.clone() }))
}

/// Returns the arguments of this program for this measurement.
///
/// Options with default values are left out, because other options may exclude them.
pub fn words(args: &Wire) -> Vec<String> {
    let Wire { port, size, iwarp, qp, stalled, gap, apart, tx_depth, mtu, duration, cpus, account, json } =
        args;
    let gap = gap.map(|beyond| ("--gap", beyond.to_string()));
    let of_shape = gap.is_none() && !account;
    let options = [
        gap,
        of_shape.then(|| ("-s", size.to_string())),
        of_shape.then(|| ("-t", tx_depth.to_string())),
        (*qp > 1).then(|| ("-q", qp.to_string())),
        (*stalled > 0).then(|| ("--stalled", stalled.to_string())),
        mtu.map(|mtu| ("--mtu", mtu.to_string())),
        Some(("-D", duration.to_string())),
        Some(("--cpus", format!("{},{}", cpus.0, cpus.1))),
    ];
    let switches = [("--iwarp", iwarp), ("--apart", apart), ("--account", account), ("--json", json)];
    let mut words = vec!["wire".to_owned(), port.name().to_owned()];
    words.extend(switches.into_iter().filter(|(_, is_on)| **is_on).map(|(name, _)| name.to_owned()));
    words.extend(options.into_iter().flatten().flat_map(|(name, value)| [name.to_owned(), value]));
    words
}

/// Returns the output of a measuring process.
fn apart<T: DeserializeOwned>(words: &[String]) -> Result<T> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(words).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        // clap writes the second prefix.
        let strip = |line: &'_ str| {
            ["vrdma-perf: ", "error: "].iter().find_map(|begin| Some(line.strip_prefix(begin)?.to_owned()))
        };
        let said = text.lines().rev().find_map(strip);
        let said = said.unwrap_or_else(|| "its process ended without a word".to_owned());
        if output.status.code() == Some(LACKS.into()) {
            return Err(missing(&said));
        }
        bail!("{said}");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns its rows of the report's table.
pub fn lines(name: &str, measured: &WireFigure, target: &str) -> Vec<String> {
    let WireFigure { mtu, limit, turns, figure, retries, .. } = measured;
    let unit = Unit::of(*figure);
    let losses = if *retries > 0 { format!(", {retries} losses") } else { String::new() };
    lines::regimes(&format!("{name}, MTU {mtu}{losses}"), turns, limit, unit, target)
}

/// Formats the result as lines for people.
pub fn describe(measured: &WireFigure) -> String {
    let WireFigure { what, size, mtu, limit, figure, retries, turns } = measured;
    let mut text = format!("{size} B {what}, MTU {mtu}, {retries} losses, after which data was sent again");
    for regime in &turns.regimes {
        text += &format!("\n{}", table::beside(regime, limit, *figure));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_beside_what_was_sent_in_spite_of_them() {
        let row = |retries| {
            let turns = Turns::default();
            let measured = WireFigure {
                what: "WRITEs".into(),
                size: 64,
                mtu: 4096,
                limit: "frames".into(),
                figure: Figure::Rate,
                retries,
                turns,
            };
            lines("x", &measured, "").concat()
        };
        assert!(row(3).starts_with("| x, MTU 4096, 3 losses |"), "{}", row(3));
        assert!(row(0).starts_with("| x, MTU 4096 |"), "{}", row(0));
    }
}
