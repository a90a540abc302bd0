//! Memory regions: REG_MR, REREG_MR, DEREG_MR, ALLOC_FAST_MR and GET_DMA_MR.

use super::base::{Command, ExtentList, Nothing, StatusResult, keys, nothing, object};
use super::body::check_total;
use super::caller::Caller;
use crate::device::{self, NewMemory, NewRegion};
use crate::memory::{Extent, MrMemory};
use crate::worker::{Order, Worker};
use vrdma_abi::control::{
    AllocFastMrReq, DmaMrReq, ObjectReq, Opcode, RegMrReq, RegMrResp, ReregMrReq, Status, access, limit,
    rereg,
};
use vrdma_transport::{Access, DeviceId, MAX_PAGES, PdId};
use vrdma_wire::num::Lkey;

/// REG_MR.
#[derive(Debug)]
pub struct RegMr {
    /// The region to create.
    pub region: NewRegion,
}

impl Command for RegMr {
    const OPCODE: Opcode = Opcode::REG_MR;
    type Request = RegMrReq;
    const EXTENTS: ExtentList = ExtentList::Perhaps;
    type Reply = RegMrResp;

    fn parse(request: &RegMrReq, extents: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let access = access(request.access.get())?;
        let memory = region_memory((request.iova.get(), request.length.get()), extents, caller)?;
        Ok(Self { region: NewRegion { pd: PdId(request.pdn.get()), access, memory } })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<RegMrResp> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).reg_mr(engine, self.region).map(keys)
    }
}

/// REREG_MR.
#[derive(Debug)]
pub struct ReregMr {
    /// The present key of the region.
    pub key: Lkey,
    /// Its new PD, if that changes.
    pub pd: Option<PdId>,
    /// Its new rights, if they change.
    pub access: Option<Access>,
    /// Its new memory, if that changes.
    pub memory: Option<NewMemory>,
}

impl Command for ReregMr {
    const OPCODE: Opcode = Opcode::REREG_MR;
    type Request = ReregMrReq;
    const EXTENTS: ExtentList = ExtentList::Perhaps;
    type Reply = RegMrResp;

    fn parse(request: &ReregMrReq, extents: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let changes = Changes::of(request)?;
        if !changes.memory && !extents.is_empty() {
            return Err(Status::INVALID);
        }
        let range = (request.iova.get(), request.length.get());
        let memory = changes.memory.then(|| region_memory(range, extents, caller)).transpose()?;
        Ok(Self { key: Lkey(request.lkey.get()), pd: changes.pd, access: changes.access, memory })
    }

    fn order(&self) -> Order {
        if self.memory.is_some() { Order::Region(self.key) } else { Order::Now }
    }

    fn revokes_pins(&self) -> bool {
        true
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<RegMrResp> {
        let Worker { engine, outputs, .. } = worker;
        let changes = (self.pd, self.access);
        outputs.device(id).rereg_mr(engine, self.key, changes, self.memory).map(keys)
    }
}

/// DEREG_MR.
#[derive(Debug)]
pub struct DeregMr {
    /// The key of the region to destroy.
    pub key: Lkey,
}

impl Command for DeregMr {
    const OPCODE: Opcode = Opcode::DEREG_MR;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { key: Lkey(object(request)?) })
    }

    fn order(&self) -> Order {
        Order::Region(self.key)
    }

    fn revokes_pins(&self) -> bool {
        true
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).dereg_mr(engine, self.key).map(nothing)
    }
}

/// ALLOC_FAST_MR: allocates a region whose memory is named later, by REG_MR work requests.
#[derive(Debug)]
pub struct AllocFastMr {
    /// Its PD.
    pub pd: PdId,
    /// Largest number of pages of the region.
    pub max_pages: u32,
}

impl Command for AllocFastMr {
    const OPCODE: Opcode = Opcode::ALLOC_FAST_MR;
    type Request = AllocFastMrReq;
    type Reply = RegMrResp;

    fn parse(request: &AllocFastMrReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        let max_pages = request.max_pages.get();
        if !(1..=MAX_PAGES).contains(&max_pages) {
            return Err(Status::INVALID);
        }
        Ok(Self { pd: PdId(request.pdn.get()), max_pages })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<RegMrResp> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).alloc_fast_mr(engine, self.pd, self.max_pages).map(keys)
    }
}

/// GET_DMA_MR: creates a region of all guest memory, for the guest's kernel.
#[derive(Debug)]
pub struct GetDmaMr {
    /// Its PD.
    pub pd: PdId,
    /// Its rights.
    pub access: Access,
}

impl Command for GetDmaMr {
    const OPCODE: Opcode = Opcode::GET_DMA_MR;
    type Request = DmaMrReq;
    type Reply = RegMrResp;

    fn parse(request: &DmaMrReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { pd: PdId(request.pdn.get()), access: access(request.access.get())? })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<RegMrResp> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).dma_mr(engine, self.pd, self.access).map(keys)
    }
}

/// Checks and resolves the memory of a region of `length` bytes. Requests address its first byte as
/// `iova`.
fn region_memory(
    (iova, length): (u64, u64),
    extents: &[Extent],
    caller: &Caller<'_>,
) -> StatusResult<NewMemory> {
    // The last byte of a region may be the last address.
    if length != 0 && iova.checked_add(length - 1).is_none() {
        return Err(Status::INVALID);
    }
    check_total(extents, length)?;
    if length > caller.limits.memory_bytes() {
        return Err(Status::INVALID);
    }
    // The minimum length of inner extents makes the cost of a message independent of their number.
    if let [_, inner @ .., _] = extents
        && inner.iter().any(|extent| extent.len < u64::from(limit::MIN_RUN))
    {
        return Err(Status::INVALID);
    }
    let memory = MrMemory::new(caller.memory, extents).ok_or(Status::FAULT)?;
    caller.populate(extents)?;
    Ok(NewMemory { iova, length, memory, extents: extents.len() as u64 })
}

/// The changes of a REREG_MR.
#[derive(Debug)]
struct Changes {
    pd: Option<PdId>,
    access: Option<Access>,
    /// Whether the memory changes.
    memory: bool,
}

impl Changes {
    /// Reads the changes from a request.
    ///
    /// # Errors
    /// `INVALID`: no flag or an unknown flag is set, or a field without its flag is not zero. Also
    /// if no region may have the [rights](fn@access).
    fn of(request: &ReregMrReq) -> StatusResult<Changes> {
        let flags = request.flags.get();
        let has = |flag| flags & flag != 0;
        let unused = !has(rereg::PD) && request.pdn.get() != 0
            || !has(rereg::ACCESS) && request.access.get() != 0
            || !has(rereg::TRANSLATION) && (request.iova.get(), request.length.get()) != (0, 0);
        if flags == 0 || flags & !rereg::ALL != 0 || unused {
            return Err(Status::INVALID);
        }
        let pd = has(rereg::PD).then(|| PdId(request.pdn.get()));
        let access = has(rereg::ACCESS).then(|| access(request.access.get())).transpose()?;
        Ok(Changes { pd, access, memory: has(rereg::TRANSLATION) })
    }
}

// Both use the same bits.
const _: () = assert!(
    access::LOCAL_WRITE == Access::LOCAL_WRITE.0
        && access::REMOTE_WRITE == Access::REMOTE_WRITE.0
        && access::REMOTE_READ == Access::REMOTE_READ.0
        && access::REMOTE_ATOMIC == Access::REMOTE_ATOMIC.0
        && access::MW_BIND == Access::MW_BIND.0
        && access::ZERO_BASED == Access::ZERO_BASED.0
        && access::FLUSH_GLOBAL == Access::FLUSH_GLOBAL.0
        && access::FLUSH_PERSISTENT == Access::FLUSH_PERSISTENT.0
        && access::ALL == Access::ALL.0
        && access::QP == Access::QP.0
        && access::REGION == Access::REGION.0
        && access::WINDOW == Access::WINDOW.0
);

/// Returns the access rights of a registration.
///
/// # Errors
/// `INVALID`: an unknown bit, or a remote right to write without the local right to write
/// (`ibv_reg_mr(3)`). `UNSUPPORTED`: persistence, which no memory has here.
fn access(bits: u32) -> Result<Access, Status> {
    let known = access::REGION | access::FLUSH_PERSISTENT;
    let writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
    if bits & !known != 0 || (bits & writes != 0 && bits & access::LOCAL_WRITE == 0) {
        return Err(Status::INVALID);
    }
    if bits & access::FLUSH_PERSISTENT != 0 {
        return Err(Status::UNSUPPORTED);
    }
    Ok(Access(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_flag_names_is_zero() {
        let all = ReregMrReq {
            lkey: 1.into(),
            flags: rereg::ALL.into(),
            pdn: 2.into(),
            access: 5.into(),
            iova: 3.into(),
            length: 4.into(),
        };
        let found = Changes::of(&all).unwrap();
        assert_eq!((found.pd, found.access, found.memory), (Some(PdId(2)), Some(Access(5)), true));
        for (flag, rest) in [
            (rereg::PD, ReregMrReq { pdn: 0.into(), ..all }),
            (rereg::ACCESS, ReregMrReq { access: 0.into(), ..all }),
            (rereg::TRANSLATION, ReregMrReq { iova: 0.into(), length: 0.into(), ..all }),
        ] {
            let flags = rereg::ALL & !flag;
            assert!(Changes::of(&ReregMrReq { flags: flags.into(), ..rest }).is_ok());
            assert_eq!(Changes::of(&ReregMrReq { flags: flags.into(), ..all }).unwrap_err(), Status::INVALID);
        }
        for flags in [0, rereg::ALL + 1] {
            assert_eq!(Changes::of(&ReregMrReq { flags: flags.into(), ..all }).unwrap_err(), Status::INVALID);
        }
    }
}
