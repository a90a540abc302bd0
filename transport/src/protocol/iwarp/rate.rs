//! The rate at which a device receives data in streams.

use crate::agenda::rates::Flow;
use crate::protocol::iwarp::data::ends_request;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::attr::QpState;
use vrdma_wire::iwarp::Segment;

impl<R, S> StreamQp<'_, R, S> {
    /// Whether the device has received as much as its rate allows. What comes stays in the stream.
    #[inline]
    pub(super) fn waits_for_rate(&self) -> bool {
        let rates = &self.schedule.rates;
        rates.any() && self.qp.state != QpState::Err && rates.wait(self.place.device, Flow::Rx).is_some()
    }

    /// Counts a segment that came.
    #[inline]
    pub(super) fn count_for_rate(&mut self, segment: &Segment, payload: usize) {
        if self.schedule.rates.any() {
            let messages = ends_request(segment).into();
            self.schedule.came_in_stream(self.place.device, payload as u64, messages);
        }
    }
}
