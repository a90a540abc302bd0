//! How a device is opened, and opened again: one whose interface goes comes back with the interface
//! that next has its name.
//!
//! Each queue lets go when it next looks at its link; who does so last closes the device. The first
//! queue then watches for the interface, opens the device again, and leaves the other queues here
//! for their users.

use super::attached::lock;
use super::device::Device;
use super::eal::{Eal, held_back};
use super::ethdev::{Comeback, Ethdev};
use super::held::{Held, Presence, port_mtu};
use super::queues::Pools;
use super::setup::{Wanted, start};
use crate::port::{ETHERNET, UplinkDevice};
use anyhow::{Context, Result};
use std::sync::{Arc, Mutex, Weak};

impl Ethdev {
    /// Opens and starts a device. Without `mtu` its network interface's MTU stays, and others get
    /// 1500. An interface whose MTU this changes gets its own back when this is dropped.
    ///
    /// # Errors
    /// The device cannot be had; the message says why and what helps.
    pub fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>) -> Result<Ethdev> {
        Ethdev::open_with(eal, device, mtu, true, 1)
    }

    /// The same; `zero_copy` says whether frames may take memory of others with them where the
    /// device can, and `workers` for how many it shall have queue pairs
    /// ([`Driver::split`](crate::port::Driver::split)): it has so many, or one, which is said.
    ///
    /// # Errors
    /// As of [`Ethdev::open`].
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

/// See [`Ethdev::open`]; under [`lock`].
fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>, zero_copy: bool, workers: u16) -> Result<Ethdev> {
    device.check_host()?;
    let asked = mtu;
    let (held, mtu) = match device.interface() {
        Some(name) => Held::take(name, asked).map(|(held, mtu)| (Some(held), mtu))?,
        None => (None, port_mtu(asked)?),
    };
    if let Some(held) = &held {
        held.interface().warn();
    }
    let device = device.with_rings_for(usize::from(mtu) + ETHERNET);
    let wanted = Wanted { device, asked, mtu, zero_copy, workers };
    let pools = None;
    let mut first = start(eal, &wanted, held, pools)?;
    share(&mut first, eal, wanted);
    Ok(first)
}

/// Has all queues of a device with an interface come back with that.
fn share(first: &mut Ethdev, eal: Eal, wanted: Wanted) {
    let Some(device) = first.shared.as_ref() else { return };
    let Some(held) = &device.held else { return };
    let pools_of = |queue: &Ethdev| Pools { rx: queue.rx_pool, tx: queue.tx_pool, piece: queue.piece_pool };
    let pools = [&*first].into_iter().chain(&first.others).map(pools_of).collect();
    let presence = Presence::of(held.interface(), wanted.asked, wanted.mtu);
    let before = Arc::downgrade(device);
    let reopened = Reopened { eal, wanted, presence, before, pools, queues: Vec::new() };
    let comeback = Arc::new(Mutex::new(reopened));
    first.comeback = Some(comeback.clone());
    first.others.iter_mut().for_each(|queue| queue.comeback = Some(comeback.clone()));
}

/// See the module.
#[derive(Debug)]
struct Reopened {
    eal: Eal,
    wanted: Wanted,
    presence: Presence,
    /// The device of before; nobody has it once its port can be opened again.
    before: Weak<Device>,
    /// Of each queue. They are used again, as they are never freed.
    pools: Vec<Pools>,
    /// Queues that were opened again, until they are taken.
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
        // Somebody has not let go yet.
        if self.before.strong_count() != 0 {
            return None;
        }
        let held = self.presence.retake()?;
        let interface = held.interface().clone();
        let _one = lock();
        if self.wanted.device.is_af_xdp() {
            // Its driver forgets what it had ready for frames to come. This thread used it, and
            // alone took any.
            self.pools.iter().for_each(|pools| pools.rx.recover());
        }
        let pools = Some(self.pools.clone());
        match held_back(|| start(self.eal, &self.wanted, Some(held), pools)) {
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
