//! Finds, sets up and starts a device.

use super::attached::{Attached, check, info};
use super::claim::ClaimedInterface;
use super::device::DpdkDevice;
use super::dma::DeviceDma;
use super::eal::{Eal, error_text, expecting_failure, take_said};
use super::ethdev::{Ethdev, EthdevCounters};
use super::interface::driver_sockets;
use super::queues::{Pools, QueueSetup, Running};
use super::quirks::Quirks;
use super::removal::Removal;
use super::wake::Wake;
use crate::port::{Capabilities, Checksums, ETHERNET, UplinkDevice};
use anyhow::{Context, Result};
use dpdk_sys as dpdk;
use std::ffi::CString;
use std::sync::{Arc, Mutex};
use vrdma_wire::num::Mac;

/// The MTU that every device supports.
const DEFAULT_MTU: u16 = 1500;

/// The settings with which a device is opened.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The device with all parameters.
    pub device: UplinkDevice,
    /// The MTU that was configured. `mtu` is the MTU that the port gets.
    pub asked: Option<u16>,
    pub mtu: u16,
    pub zero_copy: bool,
    pub workers: u16,
}

/// Starts a device. The caller holds [`lock`](super::attached::lock).
///
/// A device that comes back gets its earlier buffers as `pools`.
pub(super) fn start(
    eal: Eal,
    wanted: &Wanted,
    claimed: Option<ClaimedInterface>,
    pools: Option<Vec<Pools>>,
) -> Result<Ethdev> {
    let Wanted { device, mut mtu, zero_copy, workers, .. } = wanted.clone();
    // If anything fails from here on, dropping these values undoes what was done.
    let sockets = driver_sockets();
    let attached = Attached::new(probe(eal, &device)?)?;
    let port = attached.0.expect("just attached");

    let info = info(port)?;
    if !device.is_modest() {
        mtu = mtu.min(longest(&info));
    }
    let frame = usize::from(mtu) + ETHERNET;
    // NICs round the room of buffers down to whole KiB.
    let mut room = (frame + 1).next_multiple_of(1024);
    if device.is_af_packet() {
        // The driver insists on room for as much as a frame of its ring can hold.
        room = device.get("framesz").and_then(|size| size.parse().ok()).unwrap_or(2048).max(room);
    }
    let room = u16::try_from(room).context("framesz is too long")?;
    let setup =
        QueueSetup { port, info: &info, mtu: mtu.min(longest(&info)), room, interrupt: claimed.is_none() };
    let Running { pools, interrupt } = match pools {
        Some(pools) => setup.run_again(&device, pools)?,
        None => setup.run_for(eal, &device, workers)?,
    };
    promiscuous(port, &device);

    let multi_segs = info.tx_offload_capa & dpdk::SHIM_TX_OFFLOAD_MULTI_SEGS != 0;
    let dma = if zero_copy && device.is_pci() { dma(port, &device, &info, multi_segs)? } else { None };
    let external = zero_copy && multi_segs && (device.takes_in_place() || dma.is_some());
    let capabilities =
        Capabilities { mtu, max_frame: frame, external, checksums: checksums(info.tx_offload_capa) };
    let (mac, removal) = (mac(port)?, Some(Removal::watch(port)?));
    let interrupts = Mutex::default();
    let interface = claimed.as_ref().map(|claimed| claimed.interface().clone());
    let has_rules = false.into();
    // Dropping `DpdkDevice` takes the lock that the caller holds. So nothing may fail from here on.
    let shared = DpdkDevice {
        port,
        claimed,
        lost: false.into(),
        dma: dma.clone(),
        interrupts,
        removal,
        attached,
        has_rules,
    };
    let shared = Arc::new(shared);
    let mut queues = (0..).zip(pools).map(|(queue, Pools { rx, tx, piece })| Ethdev {
        eal,
        shared: Some(shared.clone()),
        port,
        queue,
        others: Vec::new(),
        mac,
        capabilities,
        rx_pool: rx,
        tx_pool: tx,
        piece_pool: piece,
        wake: Wake::find(port, queue, &device, interface.as_ref(), interrupt, &sockets),
        dma: dma.clone(),
        max_segments: most_segments(&info),
        counters: EthdevCounters::default(),
        comeback: None,
        device: device.clone(),
    });
    let mut first = queues.next().expect("a device has a queue pair at least");
    first.others.extend(queues);
    Ok(first)
}

/// Returns which checksum offloads a device offers.
fn checksums(offered: u64) -> Checksums {
    let has = |bit: u64| offered & bit != 0;
    Checksums {
        ipv4: has(dpdk::SHIM_TX_OFFLOAD_IPV4_CKSUM),
        udp: has(dpdk::SHIM_TX_OFFLOAD_UDP_CKSUM),
        tcp: has(dpdk::SHIM_TX_OFFLOAD_TCP_CKSUM),
    }
}

/// Returns the most segments that a frame may have. A limit of 0 means no limit.
///
/// `nb_seg_max` applies to frames that the device segments (TSO). `nb_mtu_seg_max` applies to all
/// others, and so to the frames of this program. It is often lower (XL710: 255 and 8), and drivers
/// do not check it when they send.
fn most_segments(info: &dpdk::rte_eth_dev_info) -> u16 {
    let limits = info.tx_desc_lim;
    let given = [limits.nb_seg_max, limits.nb_mtu_seg_max].into_iter().filter(|most| *most != 0);
    given.min().unwrap_or(u16::MAX)
}

/// Returns how guests' memory is mapped for a PCI device.
///
/// `None` if its frames cannot carry external memory. The reason is logged.
fn dma(
    port: u16,
    device: &UplinkDevice,
    info: &dpdk::rte_eth_dev_info,
    multi_segs: bool,
) -> Result<Option<Arc<DeviceDma>>> {
    // SAFETY: EAL runs.
    let virtual_addresses = unsafe { dpdk::rte_eal_iova_mode() } == dpdk::RTE_IOVA_VA;
    let quirks = Quirks::of(info);
    // SAFETY: the port is ours and started. It has sent nothing yet.
    let can_clean = || expecting_failure(|| unsafe { dpdk::rte_eth_tx_done_cleanup(port, 0, 0) }) >= 0;
    let cleans = !quirks.broken_by_cleaning && can_clean();
    let why_not = if !multi_segs {
        "its driver takes no frames in several pieces"
    } else if !virtual_addresses {
        "its IOMMU is off, or has too few bits for our addresses"
    } else if !cleans && !quirks.cleans_with_a_burst {
        "its driver does not give back at once what was sent"
    } else {
        log::info!(
            "uplink {}: it reads payload where it lies: guests' memory is mapped for its DMA",
            device.name
        );
        return Ok(Some(Arc::new(DeviceDma::new(&device.name, port)?)));
    };
    take_said();
    log::info!("uplink {}: payload is copied once: {why_not}", device.name);
    Ok(None)
}

/// Finds the device's port, and probes the device if EAL does not know it yet.
fn probe(eal: Eal, device: &UplinkDevice) -> Result<u16> {
    let find = || {
        let name = CString::new(device.name.as_str())?;
        let mut port = 0;
        // SAFETY: EAL runs. The name is a string, and the port is written only on success.
        let result = unsafe { dpdk::rte_eth_dev_get_port_by_name(name.as_ptr(), &mut port) };
        anyhow::Ok((result == 0).then_some(port))
    };
    // EAL has already found the devices that its arguments name.
    if let Some(port) = find()? {
        return Ok(port);
    }
    let known = next_port(0);
    eal.probe(device)?;
    // A PCI address may have been given without its domain.
    find()?
        .or_else(|| known.map_or_else(|| next_port(0), |known| next_port(known + 1)))
        .context("it is no Ethernet device")
}

fn next_port(from: u16) -> Option<u16> {
    // SAFETY: EAL runs.
    let port = unsafe { dpdk::rte_eth_find_next(from) };
    (u32::from(port) < dpdk::RTE_MAX_ETHPORTS).then_some(port)
}

/// Returns the largest MTU that the device admits to.
fn longest(info: &dpdk::rte_eth_dev_info) -> u16 {
    // The Ethernet header and FCS, which ethdev assumes if the driver does not say.
    let by_frame = u16::try_from(info.max_rx_pktlen.saturating_sub(18)).unwrap_or(u16::MAX);
    by_frame.min(info.max_mtu).max(DEFAULT_MTU)
}

/// Makes the port promiscuous, because guests have their own MAC addresses.
fn promiscuous(port: u16, device: &UplinkDevice) {
    // SAFETY: the port is ours.
    let result = unsafe { dpdk::rte_eth_promiscuous_enable(port) };
    if result < 0 && result != -libc::ENOTSUP {
        log::warn!("{}: not promiscuous ({}): it may hide guests' frames", device.name, error_text(-result));
    }
}

fn mac(port: u16) -> Result<Mac> {
    let mut address = dpdk::rte_ether_addr { addr_bytes: [0; 6] };
    // SAFETY: the port is ours. The address is written.
    check(unsafe { dpdk::rte_eth_macaddr_get(port, &mut address) }, "its MAC address")?;
    Ok(Mac(address.addr_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::zeroed;

    #[test]
    fn a_frame_has_no_more_pieces_than_the_device_takes_without_cutting_it() {
        let most = |of_all, of_mtu| {
            // SAFETY: zero is a valid value of this structure.
            let mut info: dpdk::rte_eth_dev_info = unsafe { zeroed() };
            (info.tx_desc_lim.nb_seg_max, info.tx_desc_lim.nb_mtu_seg_max) = (of_all, of_mtu);
            most_segments(&info)
        };
        assert_eq!(most(255, 8), 8, "as of XL710");
        assert_eq!((most(40, 0), most(0, 16), most(16, 40)), (40, 16, 16));
        assert_eq!(most(0, 0), u16::MAX, "virtual devices have no limit");
    }
}
