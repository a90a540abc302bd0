//! What commands say of channels.

use zerocopy::little_endian::{U16, U32};

layout! {
    /// Gives a channel to a context.
    ///
    /// The runs are the *window*: where the slots lie. Before the command the driver sets the
    /// channel's virtqueue: descriptor *i* is `{addr of slot i, len 64, flags 0, next 0}`, slot *i*
    /// aligned to 64 bytes and wholly inside one run; `avail.idx`, `avail.flags`, `used.idx`,
    /// `used.flags` and `used_event` are 0. The device reads the descriptors now and never again,
    /// and starts with entry 0. `FAULT` if a descriptor is anything else.
    pub struct BindChannelReq = "vrdma_bind_channel_req" {
        /// Context that the channel will belong to. Requests in it may name objects of that context
        /// alone; those in a channel of the kernel's context any.
        context: U32,
        /// Virtqueue number.
        queue: U16,
        /// Written as zero; refused otherwise.
        reserved: U16,
    }
}
