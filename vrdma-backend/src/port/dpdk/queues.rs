//! Chooses how many queue pairs a device gets, and sets them up.

use super::attached::check;
use super::eal::{Eal, expecting_failure, take_said};
use super::mbuf::MbufPool;
use super::quirks::Quirks;
use crate::port::{BURST, UplinkDevice};
use anyhow::{Result, ensure};
use dpdk_sys as dpdk;
use std::mem::zeroed;
use std::ptr::null;

/// The lengths of the receive and the send queue in descriptors, unless the device wants others.
const DESCRIPTORS: u16 = 1024;
/// The number of buffers that the driver of XDP sockets keeps for itself.
///
/// It needs them for its receive rings and for copies of frames to send.
const XDP_BUFFERS: u32 = 6144;
/// The offloads that are used where the device has them.
const OFFLOADS: u64 = dpdk::SHIM_TX_OFFLOAD_MULTI_SEGS
    | dpdk::SHIM_TX_OFFLOAD_IPV4_CKSUM
    | dpdk::SHIM_TX_OFFLOAD_UDP_CKSUM
    | dpdk::SHIM_TX_OFFLOAD_TCP_CKSUM;
/// The room of mbufs that carry external memory or the end of a frame.
const TAIL_ROOM: u16 = 64;

/// The settings with which a device is set up.
pub(super) struct QueueSetup<'a> {
    pub port: u16,
    pub info: &'a dpdk::rte_eth_dev_info,
    pub mtu: u16,
    /// The room of the buffers for its frames, in bytes.
    pub room: u16,
    /// Whether to ask for receive interrupts.
    pub interrupt: bool,
}

/// A started device.
pub(super) struct Running {
    /// The buffer pools of each queue pair.
    pub pools: Vec<Pools>,
    /// Whether receive interrupts are available.
    pub interrupt: bool,
}

/// The buffer pools of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pools {
    /// The pool of receive buffers. `tx` has the buffers for frames to send.
    pub rx: MbufPool,
    pub tx: MbufPool,
    /// The pool of further segments of frames to send.
    pub piece: MbufPool,
}

impl QueueSetup<'_> {
    /// Starts the device with a queue pair for each worker, or with one, which is logged.
    pub fn run_for(&self, eal: Eal, device: &UplinkDevice, workers: u16) -> Result<Running> {
        let has = self.info.max_rx_queues.min(self.info.max_tx_queues);
        if device.is_af_packet() {
            ensure!(
                has == 1 || has == workers,
                "qpairs={has}: frames come to all of these queues, and nobody reads some: write qpairs={workers}, a queue for each worker, or leave it out"
            );
        }
        let lengths = queue_lengths(self.port, device.is_pci())?;
        // Pools are never freed. So if starting several queue pairs fails, the first one's pools
        // are reused.
        let first = pools(eal, device, lengths, self.room)?;
        let why_not = if workers == 1 {
            return self.run(device, lengths, vec![first]);
        } else if !device.takes_queues() {
            "of its driver we use one queue pair".to_owned()
        } else if has < workers {
            format!("it has {has} of {workers} queue pairs")
        } else {
            let others = || (1..workers).map(|_| pools(eal, device, lengths, self.room));
            let all = || [Ok(first)].into_iter().chain(others()).collect::<Result<Vec<_>>>();
            match expecting_failure(|| self.run(device, lengths, all()?)) {
                Ok(running) => return Ok(running),
                Err(error) => format!("it does not start with {workers} queue pairs ({error:#})"),
            }
        };
        log::info!("uplink {}: {why_not}: the first worker sends and receives for all", device.name);
        self.run(device, lengths, vec![first])
    }

    /// Starts the device as it was started the first time, with the same buffers.
    pub fn run_again(&self, device: &UplinkDevice, pools: Vec<Pools>) -> Result<Running> {
        let lengths = queue_lengths(self.port, device.is_pci())?;
        self.run(device, lengths, pools)
    }

    fn run(&self, device: &UplinkDevice, (rx, tx): (u16, u16), pools: Vec<Pools>) -> Result<Running> {
        let interrupt = self.configure(u16::try_from(pools.len())?)?;
        for (queue, pools) in (0..).zip(&pools) {
            setup(self.port, queue, rx, tx, &pools.rx)?;
        }
        start(self.port, device)?;
        Ok(Running { pools, interrupt })
    }

    /// Configures the device. Returns whether receive interrupts are available.
    fn configure(&self, queues: u16) -> Result<bool> {
        let (port, info) = (self.port, self.info);
        // SAFETY: zero is a valid value of this structure, and means the driver's defaults. There
        // is no RSS, so that what no rule steers comes to the first queue.
        let mut conf: dpdk::rte_eth_conf = unsafe { zeroed() };
        conf.rxmode.mtu = self.mtu.into();
        conf.txmode.offloads = info.tx_offload_capa & OFFLOADS;
        // SAFETY: drivers point this to flags of their own, or set it to null.
        let flags = unsafe { info.dev_flags.as_ref() }.copied().unwrap_or(0);
        let tells_of_link = flags & dpdk::SHIM_DEV_INTR_LSC != 0 && !Quirks::of(info).deaf_to_link;
        conf.intr_conf.set_lsc(tells_of_link.into());
        conf.intr_conf.set_rxq(self.interrupt.into());
        // SAFETY: the port is ours. The configuration is copied.
        let call = || unsafe { dpdk::rte_eth_dev_configure(port, queues, queues, &conf) };
        // The only way to find out whether there are interrupts is to ask for them.
        let mut result = if self.interrupt { expecting_failure(call) } else { call() };
        if result < 0 && self.interrupt {
            take_said();
            conf.intr_conf.set_rxq(0);
            // SAFETY: as above.
            result = unsafe { dpdk::rte_eth_dev_configure(port, queues, queues, &conf) };
        }
        check(result, "its configuration")?;
        Ok(conf.intr_conf.rxq() != 0)
    }
}

/// Creates the pools of a queue pair. `room` is the room of buffers for frames.
fn pools(eal: Eal, device: &UplinkDevice, (rx, tx): (u16, u16), room: u16) -> Result<Pools> {
    let spare = match device.is_af_xdp() {
        true => XDP_BUFFERS,
        false => 4 * BURST as u32,
    };
    Ok(Pools {
        rx: match device.is_af_xdp() {
            true => MbufPool::packed(eal, u32::from(rx) + spare, room)?,
            false => MbufPool::new(eal, u32::from(rx) + spare, room)?,
        },
        tx: MbufPool::new(eal, u32::from(tx) + 2 * spare, room)?,
        piece: MbufPool::new(eal, 2 * (u32::from(tx) + 2 * spare), TAIL_ROOM)?,
    })
}

/// Returns the lengths of the receive and the send queue.
fn queue_lengths(port: u16, pci: bool) -> Result<(u16, u16)> {
    let (mut rx, mut tx) = (DESCRIPTORS, DESCRIPTORS);
    // SAFETY: the port is ours. Both numbers are written within their bounds.
    let result = unsafe { dpdk::rte_eth_dev_adjust_nb_rx_tx_desc(port, &mut rx, &mut tx) };
    if pci {
        check(result, "lengths of queues")?;
    }
    Ok((rx, tx))
}

fn setup(port: u16, queue: u16, rx: u16, tx: u16, pool: &MbufPool) -> Result<()> {
    // SAFETY: the port is ours and configured with this queue. Null settings mean the driver's
    // defaults, which include all offloads of the port. Pools are never freed.
    unsafe {
        let socket = u32::MAX; // SOCKET_ID_ANY
        check(
            dpdk::rte_eth_rx_queue_setup(port, queue, rx, socket, null(), pool.as_ptr()),
            "its receive queue",
        )?;
        check(dpdk::rte_eth_tx_queue_setup(port, queue, tx, socket, null()), "its send queue")
    }
}

fn start(port: u16, device: &UplinkDevice) -> Result<()> {
    // SAFETY: the port is ours and set up.
    check(unsafe { dpdk::rte_eth_dev_start(port) }, "its start").map_err(|error| {
        match device.is_memif_client() {
            true => error.context("the server of net_memif has to be there first: start that, then this"),
            false => error,
        }
    })
}
