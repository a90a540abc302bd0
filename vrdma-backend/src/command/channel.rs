//! Channels: BIND_CHANNEL and UNBIND_CHANNEL.

use super::base::{Command, ExtentList, Nothing, StatusResult, nothing, object};
use super::caller::Caller;
use crate::device;
use crate::memory::Extent;
use crate::queue::channel::Channel;
use crate::worker::{Order, Worker};
use vrdma_abi::control::{BindChannelReq, ObjectReq, Opcode, Status};
use vrdma_transport::{DeviceId, OwnerId};

/// BIND_CHANNEL.
#[derive(Debug)]
pub struct BindChannel {
    /// The context whose requests the channel carries.
    pub context: OwnerId,
    /// The virtqueue, and the window of memory with its requests.
    pub channel: Channel,
}

impl Command for BindChannel {
    const OPCODE: Opcode = Opcode::BIND_CHANNEL;
    type Request = BindChannelReq;
    const EXTENTS: ExtentList = ExtentList::Always;
    type Reply = Nothing;

    fn parse(request: &BindChannelReq, window: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        if request.reserved.get() != 0 {
            return Err(Status::INVALID);
        }
        let queue = request.queue.get();
        let virtqueue = (caller.virtqueue)(queue).ok_or(Status::INVALID)?;
        if !window.iter().all(|extent| caller.memory.resolve(*extent, &mut Vec::new()).is_some()) {
            return Err(Status::FAULT);
        }
        let channel = Channel::bind(caller.memory, virtqueue, window).map_err(|error| {
            log::debug!("channel {queue}: {error}");
            Status::FAULT
        })?;
        caller.populate(window)?;
        Ok(Self { context: OwnerId(request.context.get()), channel })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.bind_channel(id, self.context, self.channel).map(nothing)
    }
}

/// UNBIND_CHANNEL.
#[derive(Debug)]
pub struct UnbindChannel {
    /// Number of the virtqueue.
    pub queue: u16,
}

impl Command for UnbindChannel {
    const OPCODE: Opcode = Opcode::UNBIND_CHANNEL;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        let queue = u16::try_from(object(request)?).map_err(|_| Status::NOT_FOUND)?;
        Ok(Self { queue })
    }

    fn order(&self) -> Order {
        Order::Channel(self.queue)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.unbind_channel(id, self.queue).map(nothing)
    }
}
