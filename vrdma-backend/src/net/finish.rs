//! Does the offloads that a sender requested. After that, a frame is as it goes on a wire.

use super::frame::FrameView;
use crate::frames::{VirtioOffload, complete};

/// A function that writes a frame into a buffer of the frame's length.
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Does the requested offload.
///
/// For each resulting frame it calls `place` with the frame's length and a function. `place` calls
/// that function with a buffer of this length.
pub fn finish(frame: &FrameView<'_>, place: &mut dyn FnMut(usize, Fill<'_>)) {
    match frame.offload {
        VirtioOffload::None => place(frame.len(), &mut |out| frame.read(0, out)),
        VirtioOffload::Checksum { start, offset } => place(frame.len(), &mut |out| {
            frame.read(0, out);
            complete(&mut out[start.into()..], offset.into(), 0);
        }),
        VirtioOffload::Segments { tcp, size } => {
            let (total, size) = (frame.len() - tcp.payload(), usize::from(size));
            for (index, done) in (0..total).step_by(size).enumerate() {
                let payload = size.min(total - done);
                let last = done + payload == total;
                place(tcp.payload() + payload, &mut |out| {
                    let (headers, data) = out.split_at_mut(tcp.payload());
                    headers.copy_from_slice(&frame.head()[..tcp.payload()]);
                    frame.read(tcp.payload() + done, data);
                    tcp.adapt(out, index as u16, done as u32, last);
                });
            }
        }
    }
}

/// Returns the number of frames that the offload produces.
pub fn frames(frame: &FrameView<'_>) -> usize {
    match frame.offload {
        VirtioOffload::Segments { tcp, size } => (frame.len() - tcp.payload()).div_ceil(size.into()),
        _ => 1,
    }
}
