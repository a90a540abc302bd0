//! The references that operations are compared with, measured alternately with them.

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

/// Time without work after which the worker sleeps, and leaves its processor to the limit.
pub const ASLEEP: Duration = Duration::from_millis(3);
/// Size in bytes from which messages are limited by their copy. Shorter ones are limited by their
/// rings.
const LONG: u32 = 4096;

/// The kind of reference that operations are compared with.
#[derive(Clone, Copy, Debug)]
pub enum Beside<'a> {
    /// No reference.
    Nothing,
    /// The best that the machine can do.
    Reference,
    /// Other operations between the same guests.
    Plan(&'a Plan),
    /// Other operations, between guests of another daemon of the same kind.
    Apart(&'a Plan),
    /// These operations through another daemon.
    Daemon(&'a DaemonArgs),
    /// For latencies: the 99.9th percentile of each window, compared with its median.
    Median,
    /// For latencies: the 99.9th percentile, compared with that of the ring floor.
    FloorTail,
    /// UCX's put operations over shared memory.
    Ucx,
}

/// A reference that is ready to be measured.
pub enum Reference<'a> {
    /// A ring without checks.
    Floor(Windows<'a, Floor>),
    /// An eventfd in each direction.
    Bells(Windows<'a, Bells>),
    /// The best copy.
    Copy(Copying),
    /// Other operations, or another daemon, with a name.
    Operations(Windows<'a, Flows>, String),
    /// UCX's benchmark program.
    Ucx(Ucx),
}

impl<'a> Reference<'a> {
    /// Makes the limit of the machine.
    ///
    /// This is a copy between the buffers that the messages use, the ring floor, or two eventfds.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(
        helper: &Helper,
        flows: &Flows,
        plan: &Plan,
        figure: Figure,
        times: &'a mut Histogram<u64>,
    ) -> Result<Self> {
        if figure == Figure::Bw && plan.size >= LONG {
            let copying = Copying::new(helper, flows.buffers(), plan.size, plan.stride, plan.span, WINDOW_MS);
            return Ok(Reference::Copy(copying));
        }
        let kind = Kind::of(plan, figure);
        // Both sides sleep: this thread for an event, and the worker between operations.
        if figure == Figure::Lat && plan.events && !plan.pause.is_zero() {
            let bells = Bells::new()?;
            bells.begin(helper);
            let windows = Windows::new(bells, kind, u32::MAX, times)?;
            windows.load.end(helper);
            return Ok(Reference::Bells(windows));
        }
        let memory = memory((1 << 20) + 4 * plan.span)?;
        let floor = Floor::new(&memory, ENTRIES, plan.size, plan.depth);
        floor.begin(helper);
        let windows = Windows::new(floor, kind, u32::MAX, times)?;
        windows.load.end(helper);
        Ok(Reference::Floor(windows))
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        match self {
            Reference::Floor(_) => "ring floor".to_owned(),
            Reference::Bells(_) => "eventfd there, eventfd back".to_owned(),
            Reference::Operations(_, name) => name.clone(),
            Reference::Copy(copying) => format!("copy by {}", copying.name),
            Reference::Ucx(ucx) => ucx.name().to_owned(),
        }
    }

    /// Measures one window.
    ///
    /// # Errors
    /// The measurement fails.
    pub fn window(&mut self, helper: &Helper) -> Result<f64> {
        match self {
            Reference::Floor(windows) => {
                windows.load.begin(helper);
                let value = windows.window();
                windows.load.end(helper);
                value
            }
            Reference::Bells(windows) => {
                windows.load.begin(helper);
                let value = windows.window();
                windows.load.end(helper);
                value
            }
            Reference::Copy(copying) => Ok(copying.window(helper)),
            Reference::Operations(windows, _) => alone(windows),
            Reference::Ucx(ucx) => ucx.window(),
        }
    }
}

/// Measures a window, and then gives the worker time to go to sleep.
///
/// # Errors
/// An operation fails.
pub fn alone(windows: &mut Windows<'_, Flows>) -> Result<f64> {
    let value = windows.window();
    std::thread::sleep(ASLEEP);
    value
}
