//! What a sender left to be done, done: after that a frame is as it goes on a wire.

use super::frame::FrameView;
use crate::frames::{VirtioOffload, complete};

/// Writes a frame into a buffer of its length.
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Does what is left to be done. `place` gives a buffer of the length that it is told to what fills
/// it, for each frame that comes of it.
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

/// Frames that come of it.
pub fn frames(frame: &FrameView<'_>) -> usize {
    match frame.offload {
        VirtioOffload::Segments { tcp, size } => (frame.len() - tcp.payload()).div_ceil(size.into()),
        _ => 1,
    }
}
