//! Opens a device, and opens it again after its network interface was removed and came back.
//!
//! The device comes back with the next interface of that name. Each queue releases the device when
//! it next polls the link. The last queue to do so closes the device. The first queue then watches
//! for the interface and opens the device again. It leaves the other queues here for their users.

use super::attached::lock;
use super::claim::{ClaimedInterface, InterfacePresence, port_mtu};
use super::device::DpdkDevice;
use super::eal::{Eal, held_back};
use super::ethdev::{Comeback, Ethdev};
use super::queues::Pools;
use super::setup::{Wanted, start};
use crate::port::{ETHERNET, UplinkDevice};
use anyhow::{Context, Result};
use std::sync::{Arc, Mutex, Weak};

impl Ethdev {
    /// Opens and starts a device.
    ///
    /// Without `mtu`, a network interface keeps its MTU, and other devices get 1500. If this
    /// changes an interface's MTU, dropping the device restores it.
    ///
    /// # Errors
    /// The device cannot be opened. The message says why and what helps.
    pub fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>) -> Result<Ethdev> {
        Ethdev::open_with(eal, device, mtu, true, 1)
    }

    /// Opens and starts a device, for zero copy and several workers if it can.
    ///
    /// `zero_copy` says whether frames may carry external memory if the device can do that.
    /// `workers` is the number of queue pairs wanted
    /// ([`Queues::split`](crate::port::Queues::split)). The device gets this many or one, which is
    /// logged.
    ///
    /// # Errors
    /// The device cannot be opened, as for [`Ethdev::open`].
    pub fn open_with(
        eal: Eal,
        device: &UplinkDevice,
        mtu: Option<u16>,
        zero_copy: bool,
        workers: u16,
    ) -> Result<Ethdev> {
        let _one = lock();
        held_back(|| open(eal, device, mtu, zero_copy, workers))
            .with_context(|| format!("uplink {}", device.name))
    }
}

/// Opens a device as [`Ethdev::open_with`] does. The caller holds [`lock`].
fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>, zero_copy: bool, workers: u16) -> Result<Ethdev> {
    device.check_host()?;
    let asked = mtu;
    let (claimed, mtu) = match device.interface() {
        Some(name) => ClaimedInterface::take(name, asked).map(|(claimed, mtu)| (Some(claimed), mtu))?,
        None => (None, port_mtu(asked)?),
    };
    if let Some(claimed) = &claimed {
        claimed.interface().warn();
    }
    let device = device.with_rings_for(usize::from(mtu) + ETHERNET);
    let wanted = Wanted { device, asked, mtu, zero_copy, workers };
    let pools = None;
    let mut first = start(eal, &wanted, claimed, pools)?;
    share(&mut first, eal, wanted);
    Ok(first)
}

/// Sets up all queues of a device to come back together with its interface.
fn share(first: &mut Ethdev, eal: Eal, wanted: Wanted) {
    let Some(device) = first.shared.as_ref() else { return };
    let Some(claimed) = &device.claimed else { return };
    let pools_of = |queue: &Ethdev| Pools { rx: queue.rx_pool, tx: queue.tx_pool, piece: queue.piece_pool };
    let pools = [&*first].into_iter().chain(&first.others).map(pools_of).collect();
    let presence = InterfacePresence::of(claimed.interface(), wanted.asked, wanted.mtu);
    let before = Arc::downgrade(device);
    let reopened = Reopened { eal, wanted, presence, before, pools, queues: Vec::new() };
    let comeback = Arc::new(Mutex::new(reopened));
    first.comeback = Some(comeback.clone());
    first.others.iter_mut().for_each(|queue| queue.comeback = Some(comeback.clone()));
}

/// What is needed to open a device again after its interface came back.
#[derive(Debug)]
struct Reopened {
    eal: Eal,
    wanted: Wanted,
    presence: InterfacePresence,
    /// The previous device. Its port can be opened again once nobody has it any more.
    before: Weak<DpdkDevice>,
    /// The buffer pools of each queue. They are used again, because pools are never freed.
    pools: Vec<Pools>,
    /// Queues that were opened again, until their users take them.
    queues: Vec<Option<Ethdev>>,
}

impl Comeback for Reopened {
    fn look(&mut self) {
        self.presence.look();
    }

    fn lost(&mut self) {
        self.presence.lost();
        self.queues.clear();
    }

    fn retake(&mut self, queue: u16) -> Option<Ethdev> {
        if queue != 0 {
            return self.queues.get_mut(usize::from(queue))?.take();
        }
        // Another queue has not released the previous device yet.
        if self.before.strong_count() != 0 {
            return None;
        }
        let claimed = self.presence.retake()?;
        let interface = claimed.interface().clone();
        let _one = lock();
        if self.wanted.device.is_af_xdp() {
            // The AF_XDP driver forgets which buffers it had posted for receiving. This thread used
            // the driver, and it alone allocates from this pool.
            self.pools.iter().for_each(|pools| pools.rx.recover());
        }
        let pools = Some(self.pools.clone());
        match held_back(|| start(self.eal, &self.wanted, Some(claimed), pools)) {
            Ok(mut first) => {
                self.before = first.shared.as_ref().map(Arc::downgrade).unwrap_or_default();
                self.queues = [None]
                    .into_iter()
                    .chain(std::mem::take(&mut first.others).into_iter().map(Some))
                    .collect();
                self.presence.has(&interface);
                Some(first)
            }
            Err(error) => {
                self.presence.failed(&error);
                None
            }
        }
    }
}
