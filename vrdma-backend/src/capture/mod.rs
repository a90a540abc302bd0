//! Captures that administrators start while the daemon runs (docs/design/capture.md).
//!
//! * [`filter`] decides what is captured, and [`groups`] knows the groups of a filter's guest.
//! * [`tap`] is a worker's end: it copies packets, and never waits for a file.
//! * [`queue`] has what was copied, and what is known of a capture.
//! * [`threads`] starts the threads, [`writer`] is one of them, and [`output`] its file.
//! * [`registry`] knows which captures run, and [`descriptor`] which descriptors clients sent.

mod descriptor;
mod filter;
mod groups;
mod output;
mod queue;
mod registry;
mod tap;
mod threads;
mod writer;

#[cfg(test)]
pub use descriptor::close_all;
pub use descriptor::{DescriptorKeeper, SentDescriptor};
pub use filter::{CapturedGuest, Filter, FrameSource, MessageEnd, QpPeer};
pub use groups::JoinedGroups;
pub use queue::{CaptureCounts, CaptureEnd, CaptureQueue};
pub use registry::Registry;
pub use tap::{CapturePlace, CapturedMessage, Seen, Tap, Tapped};
pub use threads::{Captures, CapturesHandle, MOST, NotBegun};

/// The number of a capture. No other one of this process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureId(u64);

/// Returns a capture's end of a worker for a test, and what it takes. Nobody writes that.
#[cfg(test)]
pub fn tap_of(filter: Filter) -> (Tap, std::sync::Arc<CaptureQueue>) {
    let queue = CaptureQueue::new(None);
    let mut tap = Tap::default();
    tap.begin(Tapped::new(CaptureId(1), filter, None, queue.clone()));
    (tap, queue)
}
