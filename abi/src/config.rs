//! Virtio configuration space and the order of the virtqueues.
//!
//! # Initialisation
//!
//! As for each virtio device (virtio 1.2, 3.1); there are no feature bits of this type of device.
//! Then, in this order:
//!
//! 1. The driver reads [`Config`], checks `magic` and `version_major`, and negotiates features.
//! 2. It enables the control virtqueue, the event virtqueues and the channels, and sets DRIVER_OK.
//! 3. It makes buffers available in each event virtqueue (see [`crate::event`]).
//! 4. It asks QUERY_DEVICE and QUERY_PORT, binds the kernel's channel to the kernel's context
//!    (BIND_CHANNEL), and gives the AH table.
//! 5. It sets GIDs as the addresses of its netdev come and go: the one whose MAC address is
//!    [`Config::mac`]. (Not with [`transport::IWARP`], which has none; nor an AH table.)
//!
//! # Driver requirements
//!
//! * It MUST NOT use a device whose `magic` or `version_major` is another than here, or whose
//!   `transport` it does not know. It MUST take any `version_minor`.
//! * It MUST negotiate VIRTIO_F_VERSION_1, and MUST NOT negotiate VIRTIO_F_RING_PACKED,
//!   VIRTIO_F_INDIRECT_DESC, VIRTIO_F_NOTIFICATION_DATA or VIRTIO_F_ORDER_PLATFORM, whoever offers
//!   them. It SHOULD negotiate VIRTIO_F_EVENT_IDX.
//! * It MUST name memory by the addresses by which the device finds it: guest-physical ones, unless
//!   VIRTIO_F_ACCESS_PLATFORM says otherwise.
//! * It SHOULD read [`Config::link`] again at each change of the configuration.
//! * Before it frees memory that the device may use, it MUST have destroyed the object, or have
//!   reset the device.
//!
//! # Device requirements
//!
//! * It MUST NOT change [`Config`] after DRIVER_OK, but for `link`, of which it MUST notify the
//!   driver.
//! * Once a reset has ended it MUST have no object of that driver any more, and MUST NOT touch the
//!   guest's memory.
//! * It MUST serve each virtqueue by itself: one that is broken or without buffers MUST NOT keep
//!   another from being served.

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
        /// Stand-in id for VMMs that refuse 42; has no driver in Linux. A driver that binds it must
        /// check [`MAGIC`] and [`VERSION_MAJOR`] before anything else.
        VIRTIO_ID_STANDIN = 38,
        /// First word of the configuration space of a function whose transport is RoCE: the bytes
        /// "vrdm".
        MAGIC = 0x6d64_7276,
        /// The same of a function of another transport, which [`super::Config::transport`] names:
        /// the bytes "vrdt". Drivers of version 1.0 know [`MAGIC`] alone, and leave it alone.
        MAGIC_TRANSPORT = 0x7464_7276,
        /// Major version of this ABI: drivers refuse any other.
        VERSION_MAJOR = 1,
        /// Minor version: grows when something is added that an older driver may ignore.
        VERSION_MINOR = 3,
        /// Size of the configuration space that the device answers for; what lies beyond
        /// [`super::Config`] reads as zero.
        CONFIG_SIZE = 256,
    }
}

consts! {
    /// Virtqueue numbers. After the async event queue come [`Config::num_comp_vectors`] completion
    /// event queues, then [`Config::num_channels`] channels, of which the first belongs to the
    /// kernel for good.
    pub mod queue: u16 = "VRDMA_QUEUE" {
        /// Control commands.
        CONTROL = 0,
        /// Asynchronous events.
        ASYNC_EVENTS = 1,
        /// First of the completion event queues, one per completion vector.
        FIRST_COMP_EVENTS = 2,
    }
}

consts! {
    /// Values of [`Config::transport`].
    pub mod transport: u8 = "VRDMA_TRANSPORT" {
        /// RoCE version 2.
        ROCE = 0,
        /// iWARP. QPs are reliable connections; what needs GIDs, address handles or another type of
        /// QP is UNSUPPORTED.
        IWARP = 1,
    }
}

consts! {
    /// Values of [`Config::link`].
    pub mod link: u8 = "VRDMA_LINK" {
        /// No carrier.
        DOWN = 0,
        /// Carrier.
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
        /// MAC address, which is also that of the guest's netdev the device belongs to.
        mac: [u8; 6],
        /// Number of completion vectors, each with an event virtqueue; at least 1.
        num_comp_vectors: U16,
        /// Number of channel virtqueues, the kernel's included; at least 1.
        num_channels: U16,
        /// Largest request in a channel, in 64-byte units.
        max_wqe_units: u8,
        /// `VRDMA_LINK_*`. Down here is down; up here, QUERY_PORT and the events
        /// `VRDMA_EVENT_PORT_*` tell how the link is now.
        link: u8,
        /// Largest path MTU in bytes: 256, 512, 1024, 2048 or 4096.
        max_mtu: U32,
        /// `VRDMA_TRANSPORT_*`: another than RoCE only with `VRDMA_MAGIC_TRANSPORT`.
        transport: u8,
        /// Written as zero.
        reserved: [u8; 39],
    }
}
