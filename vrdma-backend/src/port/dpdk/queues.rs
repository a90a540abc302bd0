//! How many queue pairs a device gets, and how they are set up.

use super::attached::check;
use super::eal::{Eal, expecting_failure, take_said};
use super::mbuf::Pool;
use super::quirks::Quirks;
use crate::port::{BURST, UplinkDevice};
use anyhow::{Result, ensure};
use dpdk_sys as dpdk;
use std::mem::zeroed;
use std::ptr::null;

/// Descriptors of the receive and of the send queue, where the device has no other wish.
const DESCRIPTORS: u16 = 1024;
/// Buffers that the driver of XDP sockets keeps for itself: for its rings to receive, and copies of
/// frames to send.
const XDP_BUFFERS: u32 = 6144;
/// What we have use for.
const OFFLOADS: u64 = dpdk::SHIM_TX_OFFLOAD_MULTI_SEGS
    | dpdk::SHIM_TX_OFFLOAD_IPV4_CKSUM
    | dpdk::SHIM_TX_OFFLOAD_UDP_CKSUM
    | dpdk::SHIM_TX_OFFLOAD_TCP_CKSUM;
/// Room of the mbufs that carry memory of others, or the end of a frame.
const TAIL_ROOM: u16 = 64;

/// What a device is set up with.
pub(super) struct Setup<'a> {
    pub port: u16,
    pub info: &'a dpdk::rte_eth_dev_info,
    pub mtu: u16,
    /// Room of the buffers for its frames.
    pub room: u16,
    /// Interrupts are asked for.
    pub interrupt: bool,
}

/// A device that was started.
pub(super) struct Running {
    /// Of each queue pair.
    pub pools: Vec<Pools>,
    /// Whether it may be asked to interrupt us.
    pub interrupt: bool,
}

/// The buffers of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pools {
    /// Frames to receive, and to send.
    pub rx: Pool,
    pub tx: Pool,
    /// Further pieces of frames to send.
    pub piece: Pool,
}

impl Setup<'_> {
    /// Starts the device with a queue pair for each worker, or with one, which is said.
    pub fn run_for(&self, eal: Eal, device: &UplinkDevice, workers: u16) -> Result<Running> {
        let has = self.info.max_rx_queues.min(self.info.max_tx_queues);
        if device.is_af_packet() {
            ensure!(
                has == 1 || has == workers,
                "qpairs={has}: frames come to all of these queues, and nobody reads some: write qpairs={workers}, a queue for each worker, or leave it out"
            );
        }
        let lengths = queue_lengths(self.port, device.is_pci())?;
        // Pools are never freed: so what fails for several has the first one's made already.
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

    /// Starts the device as it was before, with the buffers that it had.
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

    /// Sets the device up; whether it may be asked to interrupt us.
    fn configure(&self, queues: u16) -> Result<bool> {
        let (port, info) = (self.port, self.info);
        // SAFETY: zero is a value of this structure: everything as the driver likes it. What no
        // rule steers shall come to the first queue: without RSS.
        let mut conf: dpdk::rte_eth_conf = unsafe { zeroed() };
        conf.rxmode.mtu = self.mtu.into();
        conf.txmode.offloads = info.tx_offload_capa & OFFLOADS;
        // SAFETY: drivers point it to flags of their own, or nowhere.
        let flags = unsafe { info.dev_flags.as_ref() }.copied().unwrap_or(0);
        let tells_of_link = flags & dpdk::SHIM_DEV_INTR_LSC != 0 && !Quirks::of(info).deaf_to_link;
        conf.intr_conf.set_lsc(tells_of_link.into());
        conf.intr_conf.set_rxq(self.interrupt.into());
        // SAFETY: the port is ours; the configuration is copied.
        let call = || unsafe { dpdk::rte_eth_dev_configure(port, queues, queues, &conf) };
        // Whether there are interrupts is found out by asking for them.
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

/// The buffers of a queue pair of these lengths, with room for frames.
fn pools(eal: Eal, device: &UplinkDevice, (rx, tx): (u16, u16), room: u16) -> Result<Pools> {
    let spare = match device.is_af_xdp() {
        true => XDP_BUFFERS,
        false => 4 * BURST as u32,
    };
    Ok(Pools {
        rx: match device.is_af_xdp() {
            true => Pool::packed(eal, u32::from(rx) + spare, room)?,
            false => Pool::new(eal, u32::from(rx) + spare, room)?,
        },
        tx: Pool::new(eal, u32::from(tx) + 2 * spare, room)?,
        piece: Pool::new(eal, 2 * (u32::from(tx) + 2 * spare), TAIL_ROOM)?,
    })
}

/// Lengths of the receive and of the send queue.
fn queue_lengths(port: u16, pci: bool) -> Result<(u16, u16)> {
    let (mut rx, mut tx) = (DESCRIPTORS, DESCRIPTORS);
    // SAFETY: the port is ours; both are written within their bounds.
    let result = unsafe { dpdk::rte_eth_dev_adjust_nb_rx_tx_desc(port, &mut rx, &mut tx) };
    if pci {
        check(result, "lengths of queues")?;
    }
    Ok((rx, tx))
}

fn setup(port: u16, queue: u16, rx: u16, tx: u16, pool: &Pool) -> Result<()> {
    // SAFETY: the port is ours and configured with this queue; without further wishes (null) the
    // driver's defaults are taken, among them all offloads of the port. Pools live to the end.
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
