//! The account of the wire: the time of a packet by stage, for short and for long messages. It also
//! has the times of passes over the payload alone.

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

/// Size of short messages in bytes.
pub const SHORT: u32 = 64;
/// Size of long messages in bytes.
pub const LONG: u32 = 64 << 10;
/// Sizes in bytes of the payloads for the passes.
const PAYLOADS: [u32; 3] = [SHORT, 1024, 4096];
/// Number of operations before those that count.
const WARM_UP: u32 = 2000;
/// Number of operations in a window of short messages, and of long ones.
const WINDOW: [u32; 2] = [20_000, 500];
/// Number of windows of each kind, measured alternately. Their medians count.
const WINDOWS: usize = 15;

/// The measured times, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parts {
    /// The account of packets of short messages, which have one packet of 64 bytes.
    pub short: Account,
    /// The account of the longest packets, of messages of 64 KiB.
    pub long: Account,
    /// Time of a packet without an account, for short and long messages.
    pub whole: [f64; 2],
    /// Time of the ports alone for a frame of this length.
    pub frames: [f64; 2],
    /// Bytes of payload, the time of its ICRC with that of the headers, and the time of a copy.
    pub passes: Vec<(u32, f64, f64)>,
    /// Largest payload of a packet in bytes.
    pub mtu: u32,
}

impl Parts {
    /// Measures in this thread, for about `seconds`, over the two ends of a port.
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

    /// Returns the time of a stage for packets of short messages, and for packets of long messages.
    pub fn stage(&self, stage: Stage) -> [f64; 2] {
        [self.short.of(stage), self.long.of(stage)]
    }
}

/// Formats the accounts as a table.
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

/// Windows of one message size.
struct Windows<'p> {
    plain: Engines<'p, false>,
    accounted: Engines<'p, true>,
    ports: &'p RefCell<Vec<Port>>,
    /// Size of a frame in bytes.
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

    /// Measures one window of each kind.
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

/// Returns the median of each stage.
fn middle(accounts: &[Account]) -> Account {
    let of = |value: &dyn Fn(&Account) -> f64| Quartiles::of(accounts.iter().map(value)).median;
    Account {
        stages: (0..STAGES.len()).map(|stage| of(&|account| account.stages[stage])).collect(),
        marks: of(&|account| account.marks),
    }
}
