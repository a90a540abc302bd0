//! The account of the wire: what the time of a packet goes to, of short messages and of long ones,
//! and what passes over its payload take by themselves.

use super::account::{self, Account, STAGES, Stage};
use super::engines::Engines;
use super::forward::{self, Passes};
use super::peer::DEPTH;
use super::ports;
use crate::args::PortKind;
use crate::load;
use crate::stats::Quartiles;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::time::{Duration, Instant};
use vrdma_backend::port::Port;
use vrdma_wire::num::Mtu;

/// Bytes of short messages,
pub const SHORT: u32 = 64;
/// and of long ones.
pub const LONG: u32 = 64 << 10;
/// Payloads over which passes are measured.
const PAYLOADS: [u32; 3] = [SHORT, 1024, 4096];
/// Operations before those that count.
const WARM_UP: u32 = 2000;
/// Operations of a window of short messages, and of long ones.
const WINDOW: [u32; 2] = [20_000, 500];
/// Of each there are so many, in turns; medians count.
const WINDOWS: usize = 15;

/// What takes how long, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parts {
    /// Of packets: of messages that are one packet of 64 bytes,
    pub short: Account,
    /// and of the longest packets, of messages of 64 KiB.
    pub long: Account,
    /// Without an account, a packet of each.
    pub whole: [f64; 2],
    /// What the ports alone take for frames as long.
    pub frames: [f64; 2],
    /// By bytes of payload: its ICRC, with that of the headers, and a copy of it.
    pub passes: Vec<(u32, f64, f64)>,
    /// The longest packets.
    pub mtu: u32,
}

impl Parts {
    /// Measures them in this thread, for about so many seconds, over the two ends of a port.
    ///
    /// # Errors
    /// A WRITE fails, or the port loses everything.
    pub fn measure(ports: &RefCell<Vec<Port>>, seconds: f64) -> Result<Parts> {
        let mtu = ports::path_mtu(&ports.borrow());
        let mut of = [SHORT, LONG].map(|size| Windows::new(ports, size, mtu));
        let mut passes = PAYLOADS.map(|len| (Passes::new(len as usize), Vec::new(), Vec::new()));
        let (start, limit) = (Instant::now(), Duration::from_secs_f64(seconds));
        for count in 0.. {
            if count >= WINDOWS && start.elapsed() >= limit {
                break;
            }
            for (windows, count) in of.iter_mut().zip(WINDOW) {
                windows.take(count)?;
            }
            for (pass, icrcs, copies) in &mut passes {
                let (icrc, copy) = pass.each();
                icrcs.push(icrc * 1e9);
                copies.push(copy * 1e9);
            }
        }
        let [short, long] = of;
        let passes = PAYLOADS.into_iter().zip(passes);
        Ok(Parts {
            whole: [&short, &long].map(|windows| median(&windows.whole)),
            frames: [&short, &long].map(|windows| median(&windows.frames)),
            short: middle(&short.accounts),
            long: middle(&long.accounts),
            passes: passes.map(|(len, (_, icrc, copy))| (len, median(&icrc), median(&copy))).collect(),
            mtu: mtu.bytes(),
        })
    }

    /// What a stage takes of packets of short messages, and of the others of long messages.
    pub fn stage(&self, stage: Stage) -> [f64; 2] {
        [self.short.of(stage), self.long.of(stage)]
    }
}

/// A table for people.
pub fn table(all: &[(PortKind, Parts)]) -> String {
    let mut text = String::from("| ns a packet, both ends |");
    STAGES.iter().for_each(|(_, name)| text += &format!(" {name} |"));
    text += " all | the account besides | without an account | limit |\n|---|";
    text += &"---|".repeat(STAGES.len() + 4);
    for (port, parts) in all {
        let name = port.name();
        let rows = [
            (format!("{SHORT} B WRITEs, {name}"), &parts.short, 0),
            (format!("64 KiB WRITE, {name}, MTU {}", parts.mtu), &parts.long, 1),
        ];
        for (name, account, row) in rows {
            text += &format!("\n| {name} |");
            account.stages.iter().for_each(|ns| text += &format!(" {ns:.0} |"));
            text += &format!(
                " {:.0} | {:.0} | {:.0} | frames {:.0} |",
                account.sum(),
                account.marks,
                parts.whole[row],
                parts.frames[row]
            );
        }
    }
    text
}

/// Windows of one size.
struct Windows<'p> {
    plain: Engines<'p, false>,
    accounted: Engines<'p, true>,
    ports: &'p RefCell<Vec<Port>>,
    /// Bytes of a frame.
    frame: usize,
    whole: Vec<f64>,
    frames: Vec<f64>,
    accounts: Vec<Account>,
}

impl<'p> Windows<'p> {
    fn new(ports: &'p RefCell<Vec<Port>>, size: u32, mtu: Mtu) -> Windows<'p> {
        Windows {
            plain: Engines::new(ports, (size, DEPTH), mtu),
            accounted: Engines::new(ports, (size, DEPTH), mtu),
            ports,
            frame: size.min(mtu.bytes()) as usize + forward::AROUND,
            whole: Vec::new(),
            frames: Vec::new(),
            accounts: Vec::new(),
        }
    }

    /// One window of each.
    fn take(&mut self, count: u32) -> Result<()> {
        let sent = || ports::frames(&self.ports.borrow());
        let warm_up = WARM_UP.min(count);
        load::rate(&mut self.plain, warm_up)?;
        let (before, start) = (sent(), Instant::now());
        load::rate(&mut self.plain, count)?;
        self.whole.push(start.elapsed().as_nanos() as f64 / (sent() - before).max(1) as f64);
        load::rate(&mut self.accounted, warm_up)?;
        let (before, begun) = (sent(), account::begin());
        load::rate(&mut self.accounted, count)?;
        self.accounts.push(begun.end(sent() - before));
        self.frames.push(1e9 / forward::window(&mut self.ports.borrow_mut(), self.frame)?);
        Ok(())
    }
}

fn median(values: &[f64]) -> f64 {
    Quartiles::of(values.iter().copied()).median
}

/// Of each stage the median.
fn middle(accounts: &[Account]) -> Account {
    let of = |value: &dyn Fn(&Account) -> f64| Quartiles::of(accounts.iter().map(value)).median;
    Account {
        stages: (0..STAGES.len()).map(|stage| of(&|account| account.stages[stage])).collect(),
        marks: of(&|account| account.marks),
    }
}
