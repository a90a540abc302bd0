//! Methods of the guest that execute control commands.

use crate::control::Answer;
use crate::guest::Guest;
use vrdma_abi::control::*;
use vrdma_abi::zerocopy::{FromBytes, Immutable, IntoBytes};

impl Guest {
    /// Returns whether the device accepts lists of requests.
    pub fn has_lists(&self) -> bool {
        let known = self.functions.get().copied();
        let functions = known.or_else(|| {
            let told = self.query_device_ex().ok()?.device_cap.get();
            Some(*self.functions.get_or_init(|| told))
        });
        functions.is_some_and(|functions| functions & device_cap::WQE_LIST != 0)
    }

    /// Registers the guest's address as GID 0.
    pub fn set_gid(&self) {
        self.add_gid_in(self.options.vlan, 0, self.gid())
            .expect("the daemon lets the guest have its address");
    }
}

/// The control commands. [`vrdma_abi::control`] specifies each of them.
#[allow(missing_docs, reason = "each is the command of that name")]
impl Guest {
    /// Executes any well-formed command.
    pub fn command<T: FromBytes>(
        &self,
        opcode: Opcode,
        body: &(impl IntoBytes + Immutable),
        runs: &[Run],
    ) -> Answer<T> {
        let reply = self.control().command(opcode, body.as_bytes(), runs, size_of::<T>())?;
        Ok(T::read_from_bytes(&reply).expect("the right length"))
    }

    pub fn set_port_mtu(&self, mtu: u32) -> Answer<()> {
        self.command::<[u8; 0]>(
            Opcode::SET_PORT_MTU,
            &SetPortMtuReq { mtu: mtu.into(), reserved: 0.into() },
            &[],
        )
        .map(|_| ())
    }

    fn on_object<T: FromBytes>(&self, opcode: Opcode, object: u32) -> Answer<T> {
        self.command(opcode, &ObjectReq { object: object.into(), reserved: 0.into() }, &[])
    }

    pub fn query_device(&self) -> Answer<QueryDeviceResp> {
        self.query_device_ex().map(|resp| resp.base)
    }

    pub fn query_device_ex(&self) -> Answer<QueryDeviceExResp> {
        self.command(Opcode::QUERY_DEVICE, &[0u8; 0], &[])
    }

    pub fn query_port(&self) -> Answer<QueryPortResp> {
        self.command(Opcode::QUERY_PORT, &[0u8; 0], &[])
    }

    pub fn query_counters(&self) -> Answer<CountersResp> {
        self.command(Opcode::QUERY_COUNTERS, &[0u8; 0], &[])
    }

    pub fn query_gid(&self, index: u32) -> Answer<QueryGidResp> {
        self.on_object(Opcode::QUERY_GID, index)
    }

    pub fn add_gid(&self, index: u32, gid: [u8; 16]) -> Answer<()> {
        self.add_gid_in(None, index, gid)
    }

    pub fn add_gid_in(&self, vlan: Option<u16>, index: u32, gid: [u8; 16]) -> Answer<()> {
        let req = AddGidReq {
            index: index.into(),
            gid_type: gid_type::ROCE_V2,
            reserved0: 0,
            vlan: vlan.unwrap_or(0xffff).into(),
            gid,
        };
        self.command(Opcode::ADD_GID, &req, &[])
    }

    pub fn del_gid(&self, index: u32) -> Answer<()> {
        self.on_object(Opcode::DEL_GID, index)
    }

    pub fn alloc_context(&self) -> Answer<u32> {
        self.command(Opcode::ALLOC_CONTEXT, &[0u8; 0], &[]).map(object)
    }

    pub fn dealloc_context(&self, context: u32) -> Answer<()> {
        self.on_object(Opcode::DEALLOC_CONTEXT, context)
    }

    pub fn bind_channel(&self, context: u32, queue: u16, window: &[Run]) -> Answer<()> {
        let req = BindChannelReq { context: context.into(), queue: queue.into(), reserved: 0.into() };
        self.command(Opcode::BIND_CHANNEL, &req, window)
    }

    pub fn unbind_channel(&self, queue: u16) -> Answer<()> {
        self.on_object(Opcode::UNBIND_CHANNEL, queue.into())
    }

    pub fn alloc_pd(&self, context: u32) -> Answer<u32> {
        self.on_object(Opcode::ALLOC_PD, context).map(object)
    }

    pub fn dealloc_pd(&self, pdn: u32) -> Answer<()> {
        self.on_object(Opcode::DEALLOC_PD, pdn)
    }

    pub fn alloc_xrcd(&self) -> Answer<u32> {
        self.command(Opcode::ALLOC_XRCD, &[0u8; 0], &[]).map(object)
    }

    pub fn dealloc_xrcd(&self, xrcdn: u32) -> Answer<()> {
        self.on_object(Opcode::DEALLOC_XRCD, xrcdn)
    }

    pub fn create_cq(&self, context: u32, entries: u32, vector: u16, runs: &[Run]) -> Answer<u32> {
        self.create_cq_with(context, entries, vector, 0, runs)
    }

    pub fn create_cq_with(
        &self,
        context: u32,
        entries: u32,
        vector: u16,
        flags: u32,
        runs: &[Run],
    ) -> Answer<u32> {
        let (vector, flags) = (u32::from(vector).into(), flags.into());
        let req = CreateCqReq { context: context.into(), entries: entries.into(), vector, flags };
        self.command(Opcode::CREATE_CQ, &req, runs).map(|resp: CreateCqResp| resp.cqn.get())
    }

    pub fn resize_cq(&self, req: &ResizeCqReq, runs: &[Run]) -> Answer<()> {
        self.command::<[u8; 0]>(Opcode::RESIZE_CQ, req, runs).map(|_| ())
    }

    pub fn query_clock(&self) -> Answer<u64> {
        self.command(Opcode::QUERY_CLOCK, &[0u8; 0], &[]).map(|resp: ClockResp| resp.clock.get())
    }

    pub fn modify_cq(&self, cqn: u32, count: u16, period: u16) -> Answer<()> {
        let req = ModifyCqReq { cqn: cqn.into(), count: count.into(), period: period.into() };
        self.command::<[u8; 0]>(Opcode::MODIFY_CQ, &req, &[]).map(|_| ())
    }

    pub fn destroy_cq(&self, cqn: u32) -> Answer<()> {
        self.on_object(Opcode::DESTROY_CQ, cqn)
    }

    pub fn reg_mr(&self, pdn: u32, access: u32, iova: u64, length: u64, runs: &[Run]) -> Answer<RegMrResp> {
        let (iova, length) = (iova.into(), length.into());
        let req = RegMrReq { pdn: pdn.into(), access: access.into(), iova, length };
        self.command(Opcode::REG_MR, &req, runs)
    }

    pub fn dereg_mr(&self, lkey: u32) -> Answer<()> {
        self.on_object(Opcode::DEREG_MR, lkey)
    }

    pub fn rereg_mr(&self, req: &ReregMrReq, runs: &[Run]) -> Answer<RegMrResp> {
        self.command(Opcode::REREG_MR, req, runs)
    }

    pub fn alloc_fast_mr(&self, pdn: u32, max_pages: u32) -> Answer<RegMrResp> {
        let req = AllocFastMrReq { pdn: pdn.into(), max_pages: max_pages.into() };
        self.command(Opcode::ALLOC_FAST_MR, &req, &[])
    }

    pub fn alloc_mw(&self, pdn: u32, mw_type: u32) -> Answer<u32> {
        let req = AllocMwReq { pdn: pdn.into(), mw_type: mw_type.into() };
        self.command(Opcode::ALLOC_MW, &req, &[]).map(object)
    }

    pub fn dealloc_mw(&self, rkey: u32) -> Answer<()> {
        self.on_object(Opcode::DEALLOC_MW, rkey)
    }

    pub fn get_dma_mr(&self, pdn: u32, access: u32) -> Answer<RegMrResp> {
        self.command(Opcode::GET_DMA_MR, &DmaMrReq { pdn: pdn.into(), access: access.into() }, &[])
    }

    pub fn create_qp(&self, req: &CreateQpReq) -> Answer<u32> {
        self.command(Opcode::CREATE_QP, req, &[]).map(|resp: CreateQpResp| resp.qpn.get())
    }

    pub fn modify_qp(&self, qpn: u32, mask: u32, attr: QpAttr) -> Answer<()> {
        let req = ModifyQpReq { qpn: qpn.into(), mask: mask.into(), attr };
        self.command(Opcode::MODIFY_QP, &req, &[])
    }

    pub fn create_srq(&self, req: &CreateSrqReq) -> Answer<u32> {
        self.command(Opcode::CREATE_SRQ, req, &[]).map(|resp: CreateSrqResp| resp.srqn.get())
    }

    pub fn modify_srq(&self, req: &ModifySrqReq) -> Answer<()> {
        self.command(Opcode::MODIFY_SRQ, req, &[])
    }

    pub fn query_srq(&self, srqn: u32) -> Answer<QuerySrqResp> {
        self.on_object(Opcode::QUERY_SRQ, srqn)
    }

    pub fn destroy_srq(&self, srqn: u32) -> Answer<()> {
        self.on_object(Opcode::DESTROY_SRQ, srqn)
    }

    pub fn query_qp(&self, qpn: u32) -> Answer<QpAttr> {
        self.on_object(Opcode::QUERY_QP, qpn)
    }

    pub fn destroy_qp(&self, qpn: u32) -> Answer<()> {
        self.on_object(Opcode::DESTROY_QP, qpn)
    }

    pub fn attach_mcast(&self, qpn: u32, mgid: [u8; 16]) -> Answer<()> {
        self.command(Opcode::ATTACH_MCAST, &McastReq { qpn: qpn.into(), reserved: 0.into(), mgid }, &[])
    }

    pub fn detach_mcast(&self, qpn: u32, mgid: [u8; 16]) -> Answer<()> {
        self.command(Opcode::DETACH_MCAST, &McastReq { qpn: qpn.into(), reserved: 0.into(), mgid }, &[])
    }

    pub fn set_ah_table(&self, entries: u32, runs: &[Run]) -> Answer<()> {
        let req = AhTableReq { entries: entries.into(), reserved: 0.into() };
        self.command(Opcode::SET_AH_TABLE, &req, runs)
    }
}

fn object(resp: ObjectResp) -> u32 {
    resp.object.get()
}
