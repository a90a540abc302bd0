//! A port of DPDK: a NIC, or a virtual device of one of DPDK's drivers.

use super::eal::{Eal, error_text, take_said};
use super::interface::{DriverSocket, Interface, driver_sockets};
use super::mbuf::{Mbuf, Pool};
use crate::port::{BURST, Capabilities, Checksums, Device, Driver, ETHERNET, External, Frame, Offload};
use anyhow::{Context, Result, bail, ensure};
use dpdk_sys as dpdk;
use std::ffi::CString;
use std::mem::zeroed;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vrdma_wire::num::Mac;

/// Descriptors of the receive and of the send queue, where the device has no other wish.
const DESCRIPTORS: u16 = 1024;
/// MTU where neither the configuration nor the device says one.
const DEFAULT_MTU: u16 = 1500;
/// Buffers that the driver of XDP sockets keeps for itself: for its rings to receive, and copies of frames to send.
const XDP_BUFFERS: u32 = 6144;
/// Largest MTU: jumbo frames as switches have them.
const MAX_MTU: u16 = 9600;
/// Room of the mbufs that carry memory of others, or the end of a frame.
const TAIL_ROOM: u16 = 64;

/// One device with one queue in each direction. All its `unsafe` calls name `port`, which is a started device that is ours alone.
#[derive(Debug)]
pub struct Ethdev {
    eal: Eal,
    device: Device,
    port: u16,
    mac: Mac,
    capabilities: Capabilities,
    /// Frames to receive, and to send.
    rx_pool: Pool,
    tx_pool: Pool,
    /// Further pieces of frames to send.
    piece_pool: Pool,
    interface: Option<Interface>,
    wake: Wake,
    counters: Counters,
}

/// How one learns that frames came.
#[derive(Debug)]
enum Wake {
    /// One does not.
    Blind,
    /// The driver's own socket.
    Socket(DriverSocket),
    /// The device's interrupt, which has to be asked for each time.
    Interrupt(OwnedFd),
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Frames of several mbufs, which were put together.
    rx_linearized: u64,
    /// Looks at the link that found no buffer left for frames to come.
    rx_pool_empty: u64,
    /// Frames of faults, for which there was no buffer.
    tx_no_mbuf: u64,
    /// Frames that found the ring of the packet socket full.
    rx_ring_full: u64,
}

impl Ethdev {
    /// Opens and starts a device. Without `mtu` its network interface's MTU stays, and others get 1500.
    ///
    /// # Errors
    /// The device cannot be had; the message says why and what helps.
    pub fn open(eal: Eal, device: &Device, mtu: Option<u16>) -> Result<Ethdev> {
        let _one = lock();
        open(eal, device, mtu).with_context(|| format!("uplink {}", device.name))
    }
}

/// DPDK lets devices come and go one at a time.
fn lock() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(eal: Eal, device: &Device, mtu: Option<u16>) -> Result<Ethdev> {
    let interface = device.interface().map(Interface::open).transpose()?;
    let mut mtu = wanted_mtu(interface.as_ref(), mtu)?;
    let sockets = driver_sockets();
    let device = device.with_rings_for(usize::from(mtu) + ETHERNET);
    let port = probe(eal, &device)?;

    let info = info(port)?;
    if !device.is_modest() {
        mtu = mtu.min(longest(&info));
    }
    let frame = usize::from(mtu) + ETHERNET;
    // NICs round the room of buffers down to whole KiB.
    let mut room = (frame + 1).next_multiple_of(1024);
    if device.is_af_packet() {
        // The driver insists on room for whatever its ring has room for.
        room = device.get("framesz").and_then(|size| size.parse().ok()).unwrap_or(2048).max(room);
    }
    let room = u16::try_from(room).context("framesz is too long")?;
    let (rx, tx) = queue_lengths(port, device.is_pci())?;
    let spare = match device.is_af_xdp() {
        true => XDP_BUFFERS,
        false => 4 * BURST as u32,
    };
    let rx_pool = Pool::new(eal, u32::from(rx) + spare, room)?;
    let tx_pool = Pool::new(eal, u32::from(tx) + 2 * spare, room)?;
    let piece_pool = Pool::new(eal, 2 * (u32::from(tx) + 2 * spare), TAIL_ROOM)?;

    // What the device offers, and we can use.
    let offered = info.tx_offload_capa;
    let has = |bit: u64| offered & bit != 0;
    let checksums = Checksums {
        ipv4: has(dpdk::SHIM_TX_OFFLOAD_IPV4_CKSUM),
        udp: has(dpdk::SHIM_TX_OFFLOAD_UDP_CKSUM),
        tcp: has(dpdk::SHIM_TX_OFFLOAD_TCP_CKSUM),
    };
    // Memory of guests is known to no IOMMU: only drivers that read it by the processor may have it.
    let external = has(dpdk::SHIM_TX_OFFLOAD_MULTI_SEGS) && !device.is_pci();
    let wanted = dpdk::SHIM_TX_OFFLOAD_MULTI_SEGS
        | dpdk::SHIM_TX_OFFLOAD_IPV4_CKSUM
        | dpdk::SHIM_TX_OFFLOAD_UDP_CKSUM
        | dpdk::SHIM_TX_OFFLOAD_TCP_CKSUM;
    let offloads = offered & wanted;

    let interrupt = configure(port, &info, mtu.min(longest(&info)), offloads, device.is_pci())?;
    setup(port, rx, tx, &rx_pool)?;
    start(port, &device)?;
    let wake = wake(port, &device, interrupt, &sockets);
    Ok(Ethdev {
        eal,
        port,
        mac: mac(port)?,
        capabilities: Capabilities { mtu, max_frame: frame, external, checksums },
        rx_pool,
        tx_pool,
        piece_pool,
        interface,
        wake,
        counters: Counters::default(),
        device,
    })
}

fn wanted_mtu(interface: Option<&Interface>, mtu: Option<u16>) -> Result<u16> {
    let has = interface.map(Interface::mtu).transpose()?;
    let wanted = mtu.or(has).unwrap_or(DEFAULT_MTU).min(MAX_MTU);
    ensure!(wanted >= 576, "MTU {wanted} is too small for IP");
    if let Some(interface) = interface
        && mtu.is_some()
        && has != Some(wanted)
    {
        interface.set_mtu(wanted)?;
    }
    Ok(wanted)
}

/// The device's port, which is none that somebody has already.
fn probe(eal: Eal, device: &Device) -> Result<u16> {
    let find = || {
        let name = CString::new(device.name.as_str())?;
        let mut port = 0;
        // SAFETY: EAL runs; the name is a string, and the port is written only on success.
        let result = unsafe { dpdk::rte_eth_dev_get_port_by_name(name.as_ptr(), &mut port) };
        anyhow::Ok((result == 0).then_some(port))
    };
    // EAL itself has found the devices that its arguments name.
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

fn check(result: i32, what: &str) -> Result<()> {
    if result >= 0 {
        return Ok(());
    }
    let said = take_said();
    bail!("{what}: {}{}{said}", error_text(-result), if said.is_empty() { "" } else { "\nDPDK says:\n" })
}

fn info(port: u16) -> Result<dpdk::rte_eth_dev_info> {
    // SAFETY: zero is a value of this structure; DPDK fills it in.
    unsafe {
        let mut info = zeroed();
        check(dpdk::rte_eth_dev_info_get(port, &mut info), "what the device can do")?;
        Ok(info)
    }
}

/// The largest MTU that the device admits to.
fn longest(info: &dpdk::rte_eth_dev_info) -> u16 {
    // Ethernet header and FCS, as ethdev counts where the driver does not say.
    let by_frame = u16::try_from(info.max_rx_pktlen.saturating_sub(18)).unwrap_or(u16::MAX);
    by_frame.min(info.max_mtu).max(DEFAULT_MTU)
}

fn queue_lengths(port: u16, pci: bool) -> Result<(u16, u16)> {
    let (mut rx, mut tx) = (DESCRIPTORS, DESCRIPTORS);
    // SAFETY: the port is ours; both are written within their bounds.
    let result = unsafe { dpdk::rte_eth_dev_adjust_nb_rx_tx_desc(port, &mut rx, &mut tx) };
    if pci {
        check(result, "lengths of queues")?;
    }
    Ok((rx, tx))
}

/// Sets the device up; whether it can interrupt us.
fn configure(port: u16, info: &dpdk::rte_eth_dev_info, mtu: u16, offloads: u64, pci: bool) -> Result<bool> {
    // SAFETY: zero is a value of this structure: everything as the driver likes it.
    let mut conf: dpdk::rte_eth_conf = unsafe { zeroed() };
    conf.rxmode.mtu = mtu.into();
    conf.txmode.offloads = offloads;
    // SAFETY: drivers point it to flags of their own, or nowhere.
    let flags = unsafe { info.dev_flags.as_ref() }.copied().unwrap_or(0);
    conf.intr_conf.set_lsc((flags & dpdk::SHIM_DEV_INTR_LSC != 0).into());
    conf.intr_conf.set_rxq(pci.into());
    // SAFETY: the port is ours; the configuration is copied.
    let mut result = unsafe { dpdk::rte_eth_dev_configure(port, 1, 1, &conf) };
    if result < 0 && pci {
        conf.intr_conf.set_rxq(0);
        // SAFETY: as above.
        result = unsafe { dpdk::rte_eth_dev_configure(port, 1, 1, &conf) };
    }
    check(result, "its configuration")?;
    Ok(conf.intr_conf.rxq() != 0)
}

fn setup(port: u16, rx: u16, tx: u16, pool: &Pool) -> Result<()> {
    // SAFETY: the port is ours and configured; without further wishes (null) the driver's defaults are taken, among them all offloads
    // of the port. Pools live to the end.
    unsafe {
        let socket = u32::MAX; // SOCKET_ID_ANY
        check(dpdk::rte_eth_rx_queue_setup(port, 0, rx, socket, null(), pool.as_ptr()), "its receive queue")?;
        check(dpdk::rte_eth_tx_queue_setup(port, 0, tx, socket, null()), "its send queue")
    }
}

fn start(port: u16, device: &Device) -> Result<()> {
    // SAFETY: the port is ours and set up.
    check(unsafe { dpdk::rte_eth_dev_start(port) }, "its start")?;
    // Guests have addresses of their own.
    // SAFETY: the port is ours.
    let result = unsafe { dpdk::rte_eth_promiscuous_enable(port) };
    if result < 0 && result != -libc::ENOTSUP {
        log::warn!("{}: not promiscuous ({}): it may hide guests' frames", device.name, error_text(-result));
    }
    Ok(())
}

fn mac(port: u16) -> Result<Mac> {
    let mut address = dpdk::rte_ether_addr { addr_bytes: [0; 6] };
    // SAFETY: the port is ours; the address is written.
    check(unsafe { dpdk::rte_eth_macaddr_get(port, &mut address) }, "its MAC address")?;
    Ok(Mac(address.addr_bytes))
}

fn wake(port: u16, device: &Device, interrupt: bool, sockets_before: &[i32]) -> Wake {
    if device.interface().is_some() {
        let found = driver_sockets().into_iter().find(|fd| !sockets_before.contains(fd));
        if let Some(socket) = found.and_then(|fd| DriverSocket::of(fd).ok()) {
            if device.is_af_packet()
                && let Err(error) = socket.ignore_own_host()
            {
                log::warn!("{}: what this host sends cannot be kept out: {error}", device.name);
            }
            return Wake::Socket(socket);
        }
    }
    if interrupt {
        // SAFETY: the port is ours and started. The descriptor is the driver's, so we make one of our own.
        unsafe {
            let fd = dpdk::rte_eth_dev_rx_intr_ctl_q_get_fd(port, 0);
            let own = if fd >= 0 { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } else { -1 };
            if own >= 0 {
                return Wake::Interrupt(OwnedFd::from_raw_fd(own));
            }
        }
    }
    Wake::Blind
}

impl Driver for Ethdev {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn adopt(&mut self) {
        self.eal.adopt_thread();
    }

    fn receive(&mut self, frames: &mut Vec<Frame>) {
        let mut raws = [null_mut(); BURST];
        let want = BURST - frames.len();
        // SAFETY: the port is started and `self` the only one to receive from it; there is room for `want`.
        let count = unsafe { dpdk::shim_eth_rx_burst(self.port, 0, raws.as_mut_ptr(), want as u16) };
        for raw in raws.into_iter().take(count.into()).filter_map(NonNull::new) {
            // SAFETY: the driver gives us the mbuf, and has written it.
            let mbuf = unsafe { Mbuf::new(raw) };
            let frame = Frame::from_mbuf(mbuf);
            if frame.total_len() == frame.len() {
                frames.push(frame);
            } else {
                self.counters.rx_linearized += 1;
                frames.push(frame.to_heap());
            }
        }
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        let want = BURST - frames.len();
        let pool = self.tx_pool;
        if !pool.allocate_bulk(want, |mbuf| frames.push(Frame::from_mbuf(mbuf))) {
            // Fewer than that, but perhaps some.
            frames.extend(pool.allocate().map(Frame::from_mbuf));
        }
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        let mut raws = [null_mut(); BURST];
        let mut count = 0;
        let want = frames.len().min(BURST);
        // What is lost for want of a buffer counts as taken.
        let mut kept = frames.drain(..want).filter_map(|frame| self.own(frame));
        for (raw, mbuf) in raws.iter_mut().zip(&mut kept) {
            *raw = mbuf.into_raw();
            count += 1;
        }
        drop(kept);
        // SAFETY: the port is started and `self` the only one to send by it. The mbufs are ours; the driver owns those that it takes.
        let taken = unsafe { dpdk::shim_eth_tx_burst(self.port, 0, raws.as_mut_ptr(), count as u16) };
        let left = raws[usize::from(taken)..count].iter().filter_map(|raw| NonNull::new(*raw));
        // SAFETY: the driver did not take these, so they are ours again.
        let left = left.map(|raw| Frame::from_mbuf(unsafe { Mbuf::new(raw) }));
        frames.splice(0..0, left);
    }

    fn attach(&mut self, frame: &mut Frame, external: External) -> bool {
        let (Some(head), Some(mut piece)) = (frame.as_mbuf(), self.piece_pool.allocate()) else {
            return false;
        };
        piece.attach(external);
        head.chain(piece)
    }

    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        let (Some(head), Some(mut piece)) = (frame.as_mbuf(), self.piece_pool.allocate()) else {
            return false;
        };
        piece.room()[..bytes.len()].copy_from_slice(bytes);
        piece.set_len(bytes.len());
        head.chain(piece)
    }

    fn offload(&mut self, frame: &mut Frame, offload: Offload) {
        let Some(mbuf) = frame.as_mbuf() else { return };
        let bit = |on: bool, bit| if on { bit } else { 0 };
        let fill = offload.fill;
        let what = bit(fill.ipv4, dpdk::SHIM_FILL_IPV4)
            | bit(fill.udp, dpdk::SHIM_FILL_UDP)
            | bit(fill.tcp, dpdk::SHIM_FILL_TCP);
        // SAFETY: the mbuf is ours.
        unsafe {
            dpdk::shim_pktmbuf_offload(mbuf.as_ptr(), what, offload.ipv6, offload.l2_len, offload.l3_len)
        };
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match &self.wake {
            Wake::Blind => None,
            Wake::Socket(socket) => Some(socket.fd().as_fd()),
            Wake::Interrupt(fd) => Some(fd.as_fd()),
        }
    }

    fn arm(&mut self) -> bool {
        match &self.wake {
            Wake::Blind => false,
            Wake::Socket(socket) => {
                socket.clear_error();
                true
            }
            // SAFETY: the port is ours.
            Wake::Interrupt(_) => unsafe { dpdk::rte_eth_dev_rx_intr_enable(self.port, 0) >= 0 },
        }
    }

    fn disarm(&mut self) {
        if let Wake::Interrupt(fd) = &self.wake {
            // SAFETY: the port is ours.
            unsafe { dpdk::rte_eth_dev_rx_intr_disable(self.port, 0) };
            // Eventfds count until they are read; others give nothing.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }

    fn link(&mut self) -> bool {
        if let Wake::Socket(socket) = &self.wake
            && self.device.is_af_packet()
        {
            self.counters.rx_ring_full += u64::from(socket.drops());
        }
        if self.rx_pool.available() == 0 {
            self.counters.rx_pool_empty += 1;
        }
        if let Some(interface) = &self.interface {
            return interface.carrier();
        }
        let mut mbps = 0;
        // SAFETY: the port is ours. A device that cannot say (negative) counts as up.
        unsafe { dpdk::shim_eth_link(self.port, &mut mbps) != 0 }
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.counters;
        count("rx_linearized", c.rx_linearized);
        count("rx_pool_empty", c.rx_pool_empty);
        count("rx_ring_full", c.rx_ring_full);
        count("tx_no_mbuf", c.tx_no_mbuf);
        // SAFETY: zero is a value of this structure; DPDK fills it in. The port is ours.
        let stats = unsafe {
            let mut stats: dpdk::rte_eth_stats = zeroed();
            (dpdk::rte_eth_stats_get(self.port, &mut stats) == 0).then_some(stats)
        };
        if let Some(stats) = stats {
            count("driver_rx_missed", stats.imissed);
            count("driver_rx_errors", stats.ierrors);
            count("driver_rx_no_mbuf", stats.rx_nombuf);
            count("driver_tx_errors", stats.oerrors);
        }
    }
}

impl Ethdev {
    /// The frame as an mbuf of ours. None, and it is lost, if there is no buffer for it.
    fn own(&mut self, frame: Frame) -> Option<Mbuf> {
        let frame = match frame.into_mbuf() {
            Ok(mbuf) => return Some(mbuf),
            Err(frame) => frame,
        };
        let Some(mut mbuf) = self.tx_pool.allocate().filter(|_| frame.len() <= self.tx_pool.room()) else {
            self.counters.tx_no_mbuf += 1;
            return None;
        };
        mbuf.room()[..frame.len()].copy_from_slice(&frame);
        mbuf.set_len(frame.len());
        Some(mbuf)
    }
}

impl Drop for Ethdev {
    fn drop(&mut self) {
        let _one = lock();
        // Our descriptor of its socket would keep it open.
        self.wake = Wake::Blind;
        let device = info(self.port).map(|info| info.device);
        // SAFETY: the port is ours, and nobody uses it after this. Frames that are still about belong to pools, which stay. The device
        // was the port's, and goes with it.
        unsafe {
            dpdk::rte_eth_dev_stop(self.port);
            dpdk::rte_eth_dev_close(self.port);
            if let Ok(device) = device {
                dpdk::rte_dev_remove(device);
            }
        }
    }
}
