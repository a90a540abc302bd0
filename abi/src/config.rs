//! Virtio configuration space and the order of the virtqueues.
//!
//! # Initialisation
//!
//! The driver initialises the device as any virtio device (virtio 1.2, 3.1). This type of device
//! has no feature bits of its own. Then, in this order:
//!
//! 1. The driver reads [`Config`], checks `magic` and `version_major`, and negotiates features.
//! 2. It enables the control virtqueue, the event virtqueues and the channels, and sets DRIVER_OK.
//! 3. It makes buffers available in each event virtqueue (see [`crate::event`]).
//! 4. It gives the commands QUERY_DEVICE and QUERY_PORT, binds the kernel's channel to the kernel's
//!    context (BIND_CHANNEL), and gives the AH table.
//! 5. It adds and deletes GIDs as the addresses of its netdev come and go. Its netdev is the one
//!    whose MAC address is [`Config::mac`].
//!
//! A device of transport [`transport::IWARP`] has neither GIDs nor an AH table.
//!
//! # Driver requirements
//!
//! * The driver MUST NOT use a device whose `magic` or `version_major` differs from the values
//!   here, or whose `transport` it does not know. It MUST accept any `version_minor`.
//! * It MUST negotiate VIRTIO_F_VERSION_1. It MUST NOT negotiate VIRTIO_F_RING_PACKED,
//!   VIRTIO_F_INDIRECT_DESC, VIRTIO_F_NOTIFICATION_DATA or VIRTIO_F_ORDER_PLATFORM, even if they
//!   are offered. It SHOULD negotiate VIRTIO_F_EVENT_IDX.
//! * It MUST name memory by the addresses by which the device finds it. These are guest-physical,
//!   unless VIRTIO_F_ACCESS_PLATFORM says otherwise.
//! * It SHOULD read [`Config::link`] again at each change of the configuration.
//! * Before it frees memory that the device may use, it MUST have destroyed the object, or have
//!   reset the device.
//!
//! # Device requirements
//!
//! * The device MUST NOT change [`Config`] after DRIVER_OK, except for `link`. It MUST notify the
//!   driver of each change of `link`.
//! * Once a reset has ended, the device MUST have no object of that driver any more, and MUST NOT
//!   touch the guest's memory.
//! * It MUST serve each virtqueue independently: a virtqueue that is broken or without buffers MUST
//!   NOT keep another from being served.

use crate::layout::Item;
use zerocopy::little_endian::{U16, U32};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[
    Item::Consts(device::INFO),
    Item::Consts(queue::INFO),
    Item::Struct(Config::INFO),
    Item::Consts(link::INFO),
    Item::Consts(transport::INFO),
];

consts! {
    /// How a driver recognises the device.
    pub mod device: u32 = "VRDMA" {
        /// Virtio device id "RDMA" (virtio specification, section 5).
        VIRTIO_ID = 42,
        /// Stand-in id for VMMs that refuse 42. Linux has no driver for it. A driver that binds it
        /// must check [`MAGIC`] and [`VERSION_MAJOR`] before anything else.
        VIRTIO_ID_STANDIN = 38,
        /// First word of the configuration space of a function of transport RoCE: the bytes "vrdm".
        MAGIC = 0x6d64_7276,
        /// First word of the configuration space of a function of another transport than RoCE: the
        /// bytes "vrdt". [`super::Config::transport`] names the transport. Drivers of version 1.0
        /// know only [`MAGIC`], so they do not use such a function.
        MAGIC_TRANSPORT = 0x7464_7276,
        /// Major version of this ABI. Drivers refuse any other.
        VERSION_MAJOR = 1,
        /// Minor version. It grows with each addition that an older driver may ignore.
        VERSION_MINOR = 3,
        /// Size in bytes of the configuration space that the device answers for. Bytes beyond
        /// [`super::Config`] read as zero.
        CONFIG_SIZE = 256,
    }
}

consts! {
    /// Virtqueue numbers.
    ///
    /// [`Config::num_comp_vectors`] completion event queues follow the async event queue. Then
    /// follow [`Config::num_channels`] channels. The first channel always belongs to the kernel.
    pub mod queue: u16 = "VRDMA_QUEUE" {
        /// Control commands.
        CONTROL = 0,
        /// Asynchronous events.
        ASYNC_EVENTS = 1,
        /// First of the completion event queues; there is one for each completion vector.
        FIRST_COMP_EVENTS = 2,
    }
}

consts! {
    /// Values of [`Config::transport`].
    pub mod transport: u8 = "VRDMA_TRANSPORT" {
        /// RoCE version 2.
        ROCE = 0,
        /// iWARP. All QPs are reliable connections. Commands that need GIDs, address handles or
        /// another type of QP are UNSUPPORTED.
        IWARP = 1,
    }
}

consts! {
    /// Values of [`Config::link`].
    pub mod link: u8 = "VRDMA_LINK" {
        /// No link.
        DOWN = 0,
        /// The link is up.
        UP = 1,
    }
}

layout! {
    /// Configuration space of the RDMA function. Read-only.
    pub struct Config = "vrdma_config" {
        /// `VRDMA_MAGIC` or `VRDMA_MAGIC_TRANSPORT`.
        magic: U32,
        /// `VRDMA_VERSION_MAJOR`.
        version_major: U16,
        /// `VRDMA_VERSION_MINOR`.
        version_minor: U16,
        /// MAC address. The guest's netdev to which the device belongs has it too.
        mac: [u8; 6],
        /// Number of completion vectors, at least 1. Each has an event virtqueue.
        num_comp_vectors: U16,
        /// Number of channel virtqueues, at least 1. The kernel's channel is included.
        num_channels: U16,
        /// Largest request in a channel, in 64-byte units.
        max_wqe_units: u8,
        /// `VRDMA_LINK_*`. If it is down, the link is down. If it is up, QUERY_PORT and the events
        /// `VRDMA_EVENT_PORT_*` tell the link's current state.
        link: u8,
        /// Largest path MTU in bytes: 256, 512, 1024, 2048 or 4096.
        max_mtu: U32,
        /// `VRDMA_TRANSPORT_*`. Other transports than RoCE come with `VRDMA_MAGIC_TRANSPORT`.
        transport: u8,
        /// Written as zero.
        reserved: [u8; 39],
    }
}
