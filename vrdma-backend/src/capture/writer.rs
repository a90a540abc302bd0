//! The thread of a capture: writes what was taken, until the capture is over.

use super::descriptor::SentDescriptor;
use super::output::CaptureOutput;
use super::queue::{CaptureEnd, CaptureQueue, Found};
use super::registry::Registration;
use std::sync::Arc;
use std::time::Duration;

/// How often to look whether the reader of an idle capture is still there.
const IDLE_LOOK: Duration = Duration::from_millis(200);
/// How often to look whether a capture is over whose reader is too slow.
const SLOW_LOOK: Duration = Duration::from_millis(50);
/// Pause after a write that wrote nothing.
const PAUSE: Duration = Duration::from_millis(1);

/// A capture that is to be written.
pub struct CaptureJob {
    /// Where it is written.
    pub descriptor: SentDescriptor,
    /// Most bytes of a packet.
    pub snap: Option<u32>,
    /// What it takes.
    pub queue: Arc<CaptureQueue>,
    /// Its place among the captures that run.
    pub registration: Registration,
}

impl CaptureJob {
    /// Writes the capture to its end, and closes the descriptor.
    ///
    /// Nobody waits for that: a write may take as long as a file needs.
    pub fn run(self) {
        let CaptureJob { descriptor, snap, queue, registration } = self;
        match CaptureOutput::new(descriptor.into_owned(), snap) {
            Ok(mut output) => {
                let end = write(&mut output, &queue);
                queue.end(end);
                drop(output);
            }
            Err(end) => queue.end(end),
        }
        // Closing has ended, too. Only now may another capture have the thread.
        drop(registration);
    }
}

/// Writes until the end, and returns why that is.
fn write(output: &mut CaptureOutput, queue: &CaptureQueue) -> CaptureEnd {
    loop {
        match output.write() {
            Err(end) => return end,
            Ok(None) => match queue.take(output.next_batch(), IDLE_LOOK) {
                Found::Packets => {}
                Found::Nothing if output.is_left() => return CaptureEnd::Closed,
                Found::Nothing => {}
                Found::Over(end) => return end,
            },
            Ok(Some(wrote)) => {
                queue.wrote(wrote.packets, wrote.bytes);
                if let Some(end) = queue.is_late() {
                    return end;
                }
                if wrote.bytes == 0 {
                    std::thread::sleep(PAUSE);
                    output.wait(SLOW_LOOK);
                }
            }
        }
    }
}
