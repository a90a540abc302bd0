//! Memory of requests that came ahead of a gap: each change of a QP's buffer is accounted.

use crate::base::memory::Region;
use crate::base::time::NEVER;
use crate::base::transport_kind::TransportKind;
use crate::message::ctx::QpCtx;
use crate::objects::roce::reorder::ReorderBuffer;
use crate::objects::service::ConnState;
use crate::verbs::completion::Sink;

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Calls `change` with the QP's reorder buffer, and accounts what it holds then. Returns `None`
    /// if the QP has no buffer.
    pub(crate) fn with_reorder<U>(&mut self, change: impl FnOnce(&mut ReorderBuffer) -> U) -> Option<U> {
        let buffer = self.conn.reorder()?;
        let before = buffer.held();
        let result = change(buffer);
        let after = buffer.held();
        self.schedule.reorder.changed(self.place, &mut buffer.place, before, after);
        Some(result)
    }

    /// Sets the time of a NAK for a gap, if no earlier one is set for the QP.
    pub(crate) fn arm_nak(&mut self) {
        let nak_at = self.conn.reorder().map_or(NEVER, |buffer| buffer.nak_at());
        if nak_at < self.qp.timer {
            self.arm(nak_at);
        } else if nak_at != NEVER {
            self.note_idle_timer(false);
        }
    }

    /// Drops what the QP holds ahead of a gap, and forgets the gap.
    #[cold]
    pub(crate) fn drop_early(&mut self) {
        self.with_reorder(ReorderBuffer::clear);
    }
}

impl<R: Region, S: Sink> QpCtx<'_, R, S> {
    /// Whether the QP holds requests that came ahead of a gap.
    #[inline]
    pub(crate) fn holds_early(&self) -> bool {
        self.qp.transport == TransportKind::Roce
            && self.conn.held_early().is_some_and(|buffer| buffer.held().packets > 0)
    }
}
