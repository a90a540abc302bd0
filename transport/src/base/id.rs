//! Identifiers that callers use. (QPNs and keys are numbers on the wire: see [`vrdma_wire::num`].)

/// One guest's RDMA function. A number is reused after
/// [`Engine::remove_device`](crate::Engine::remove_device).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u32);

/// A user context of a guest, which owns QPs and PDs.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(pub u32);

impl OwnerId {
    /// The guest's kernel, which may post to any QP.
    pub const KERNEL: OwnerId = OwnerId(0);
}

/// A protection domain. The number of a deallocated PD is not soon valid again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub u32);

impl PdId {
    /// A number that no PD has, so nothing belongs to it.
    pub(crate) const NOWHERE: PdId = PdId(u32::MAX);
}

/// A shared receive queue. The number of a destroyed queue is not soon valid again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub u32);

/// An XRC domain: the set of shared receive queues that requests to its QPs may name.
///
/// The number of a deallocated domain is not soon valid again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XrcdId(pub u32);

/// A completion queue of the caller. The engine only passes its number on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);
