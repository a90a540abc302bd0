//! What callers name things by. (QPNs and keys are numbers of the wire: see [`vrdma_wire::num`].)

/// One guest's RDMA function. Reused after [`Engine::remove_device`](crate::Engine::remove_device).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u32);

/// A user context of a guest: owns QPs and PDs.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(pub u32);

impl OwnerId {
    /// The guest's kernel, which may post to any QP.
    pub const KERNEL: OwnerId = OwnerId(0);
}

/// A protection domain. Numbers of deallocated PDs are not valid soon again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub u32);

impl PdId {
    /// No PD has this number, so nothing is in it.
    pub(crate) const NOWHERE: PdId = PdId(u32::MAX);
}

/// A shared receive queue. Numbers of destroyed ones are not valid soon again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub u32);

/// An XRC domain: which shared receive queues the requests may name that come to its QPs. Numbers
/// of deallocated ones are not valid soon again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XrcdId(pub u32);

/// A completion queue: the caller's, of no meaning here.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);
