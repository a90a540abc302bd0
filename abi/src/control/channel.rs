//! Commands about channels.

use zerocopy::little_endian::{U16, U32};

layout! {
    /// Gives a channel to a context.
    ///
    /// The extents are the *window*: the memory of the slots. Before the command, the driver sets
    /// up the channel's virtqueue:
    ///
    /// * Descriptor *i* is `{addr of slot i, len 64, flags 0, next 0}`.
    /// * Slot *i* is aligned to 64 bytes and wholly inside one extent.
    /// * `avail.idx`, `avail.flags`, `used.idx`, `used.flags` and `used_event` are 0.
    ///
    /// The device reads the descriptors when it executes this command, and never again. It starts
    /// with entry 0. `FAULT` if a descriptor is anything else.
    pub struct BindChannelReq = "vrdma_bind_channel_req" {
        /// Context that the channel will belong to. Its requests may name only objects of that
        /// context. Requests in a channel of the kernel's context may name any object.
        context: U32,
        /// Virtqueue number.
        queue: U16,
        /// Written as zero; refused otherwise.
        reserved: U16,
    }
}
