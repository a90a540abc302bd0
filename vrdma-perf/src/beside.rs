//! What operations are held against, ready to be measured in turns with them.

use crate::args::{DaemonArgs, Figure};
use crate::bells::Bells;
use crate::copying::Copying;
use crate::floor::Floor;
use crate::flow::Flows;
use crate::helper::Helper;
use crate::host::{ENTRIES, memory};
use crate::plan::Plan;
use crate::ucx::Ucx;
use crate::windows::{Kind, WINDOW_MS, Windows};
use anyhow::Result;
use hdrhistogram::Histogram;
use std::time::Duration;

/// After so long without work the worker is asleep, and leaves its processor to the limit.
pub const ASLEEP: Duration = Duration::from_millis(3);
/// Messages of so many bytes are limited by their copy, shorter ones by their way.
const LONG: u32 = 4096;

/// What operations are to be held against.
#[derive(Clone, Copy, Debug)]
pub enum Beside<'a> {
    /// Nothing.
    Nothing,
    /// What the machine can do at best.
    Limit,
    /// Other operations between the same guests.
    Plan(&'a Plan),
    /// Other operations, between guests of another daemon of the same kind.
    Apart(&'a Plan),
    /// The same operations through another daemon.
    Daemon(&'a DaemonArgs),
    /// Latencies: the 99.9th percentile of each window against its own median.
    Median,
    /// Latencies: their 99.9th percentile against that of the ring floor.
    FloorTail,
    /// UCX's puts over shared memory.
    Ucx,
}

/// The same, ready to be measured.
pub enum Limit<'a> {
    /// A ring without checks.
    Floor(Windows<'a, Floor>),
    /// An eventfd there, and one back.
    Bells(Windows<'a, Bells>),
    /// The best copy.
    Copy(Copying),
    /// Other operations, or another daemon's, with their name.
    Operations(Windows<'a, Flows>, String),
    /// Another program.
    Ucx(Ucx),
}

impl<'a> Limit<'a> {
    /// What the machine can do: copies between the same buffers that the messages go through, the
    /// ring floor, or two eventfds.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(
        helper: &Helper,
        flows: &Flows,
        plan: &Plan,
        figure: Figure,
        times: &'a mut Histogram<u64>,
    ) -> Result<Self> {
        if figure == Figure::Bw && plan.size >= LONG {
            let copying = Copying::new(helper, flows.buffers(), plan.size, plan.stride, plan.span, WINDOW_MS);
            return Ok(Limit::Copy(copying));
        }
        let kind = Kind::of(plan, figure);
        // Both sleep: we for an event, the worker between operations.
        if figure == Figure::Lat && plan.events && !plan.pause.is_zero() {
            let bells = Bells::new()?;
            bells.begin(helper);
            let windows = Windows::new(bells, kind, u32::MAX, times)?;
            windows.load.end(helper);
            return Ok(Limit::Bells(windows));
        }
        let memory = memory((1 << 20) + 4 * plan.span)?;
        let floor = Floor::new(&memory, ENTRIES, plan.size, plan.depth);
        floor.begin(helper);
        let windows = Windows::new(floor, kind, u32::MAX, times)?;
        windows.load.end(helper);
        Ok(Limit::Floor(windows))
    }

    /// What it is called.
    pub fn name(&self) -> String {
        match self {
            Limit::Floor(_) => "ring floor".to_owned(),
            Limit::Bells(_) => "eventfd there, eventfd back".to_owned(),
            Limit::Operations(_, name) => name.clone(),
            Limit::Copy(copying) => format!("copy by {}", copying.name),
            Limit::Ucx(ucx) => ucx.name().to_owned(),
        }
    }

    /// A window of it.
    ///
    /// # Errors
    /// What is measured fails.
    pub fn window(&mut self, helper: &Helper) -> Result<f64> {
        match self {
            Limit::Floor(windows) => {
                windows.load.begin(helper);
                let value = windows.window();
                windows.load.end(helper);
                value
            }
            Limit::Bells(windows) => {
                windows.load.begin(helper);
                let value = windows.window();
                windows.load.end(helper);
                value
            }
            Limit::Copy(copying) => Ok(copying.window(helper)),
            Limit::Operations(windows, _) => alone(windows),
            Limit::Ucx(ucx) => ucx.window(),
        }
    }
}

/// A window, after which the worker gets time to go to sleep.
///
/// # Errors
/// An operation fails.
pub fn alone(windows: &mut Windows<'_, Flows>) -> Result<f64> {
    let value = windows.window();
    std::thread::sleep(ASLEEP);
    value
}
