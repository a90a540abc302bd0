//! The checks of the configuration as a whole.
//!
//! Each message names the key and its value, and says what to write instead.

use super::congestion::MEGABIT;
use super::place::PlaceKey;
use super::{Config, Congestion, Descriptor, GuestConfig, GuestLimits, MeetingPlace, Tcp, Transport};
use crate::allowed::{AllowedGid, FrameVlan};
use crate::processors;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::Path;
use vrdma_transport::{DCQCN_UNIT, Dcqcn};
use vrdma_wire::num::VlanId;

/// Most bytes of a socket's path in the kernel (`sun_path` without its final zero).
const MAX_SOCKET_PATH: usize = 107;
/// Highest processor number in a thread's set of processors (`CPU_SETSIZE`).
const MAX_CPU: u64 = 1023;

impl Config {
    /// Checks that the configuration makes sense.
    ///
    /// # Errors
    /// It does not. The message says what is wrong.
    pub fn check(&self) -> Result<()> {
        self.check_with(self.uplink.is_some())
    }

    /// Checks the configuration for a daemon with or without an uplink.
    ///
    /// `has_uplink` counts for iWARP, whatever this configuration says of an uplink.
    ///
    /// # Errors
    /// The configuration makes no sense. The message says what is wrong.
    pub fn check_with(&self, has_uplink: bool) -> Result<()> {
        self.check_queues()?;
        within("mtu", self.mtu, 1280..=9600)?;
        self.limits.check()?;
        self.congestion.check()?;
        self.check_uplink()?;
        self.check_workers()?;
        self.check_guests()?;
        self.check_streams(has_uplink)?;
        self.guests.iter().try_for_each(GuestConfig::check_host_addresses)
    }

    /// Checks what may change while the daemon runs: the guests.
    ///
    /// It makes no system calls. So [`GuestConfig::check_host_addresses`] is to be called for new
    /// guests, too. There may be no guest.
    ///
    /// # Errors
    /// The guests make no sense. The message says what is wrong.
    pub fn check_running(&self, has_uplink: bool) -> Result<()> {
        self.limits.check()?;
        self.check_places_at_workers()?;
        self.check_each_guest()?;
        self.check_streams(has_uplink)
    }

    fn check_queues(&self) -> Result<()> {
        within("comp_vectors", self.comp_vectors, 1..=253)?;
        within("channels", self.channels, 1..=253)?;
        let (queues, max) = (self.num_queues(), Self::MAX_QUEUES);
        ensure!(
            queues <= max,
            "comp_vectors = {} and channels = {}: with 2 more these are {queues} virtqueues, at most {max} can be",
            self.comp_vectors,
            self.channels
        );
        Ok(())
    }

    fn check_workers(&self) -> Result<()> {
        let workers = self.workers;
        within("workers", workers, 1..=Self::MAX_WORKERS.into())?;
        ensure!(
            self.cpus.is_empty() || self.cpus.len() == usize::from(workers),
            "cpus = {:?}: give one processor for each of the {workers} workers, or none",
            self.cpus
        );
        let mut cpus = HashSet::new();
        for cpu in &self.cpus {
            within("cpus", *cpu, 0..=MAX_CPU)?;
            ensure!(cpus.insert(cpu), "cpus = {:?}: {cpu} is there twice", self.cpus);
        }
        for cpu in &self.cpus {
            if let Err(error) = processors::may_run_on(*cpu) {
                bail!(
                    "cpus = {:?}: no thread of ours may run on {cpu} ({error}); this host has {}",
                    self.cpus,
                    processors::online()
                );
            }
        }
        self.check_places_at_workers()
    }

    fn check_places_at_workers(&self) -> Result<()> {
        let workers = self.workers;
        for guest in &self.guests {
            let name = &guest.name;
            if let Some(worker) = guest.worker {
                ensure!(
                    worker < workers,
                    "guest {name}: worker = {worker}: workers = {workers}, so give a number from 0 to {}",
                    workers - 1
                );
            }
            ensure!(
                !guest.any_mac || workers == 1,
                "guest {name}: any_mac = true: workers = {workers}, and where several are no guest may have addresses that the configuration does not name; give extra_macs, or workers = 1"
            );
        }
        Ok(())
    }

    fn check_uplink(&self) -> Result<()> {
        let needs = [
            (self.eal.is_some(), "eal"),
            (self.uplink_mtu.is_some(), "uplink_mtu"),
            (self.capture.is_some(), "capture"),
            (self.faults.is_some(), "faults"),
        ];
        for (given, name) in needs {
            ensure!(self.uplink.is_some() || !given, "{name} is of an uplink, and there is none: add uplink");
        }
        if let Some(mtu) = self.uplink_mtu {
            within("uplink_mtu", mtu, 576..=9600)?;
        }
        self.uplink.iter().try_for_each(|device| device.check())?;
        self.faults.iter().try_for_each(|faults| faults.check())
    }

    fn check_guests(&self) -> Result<()> {
        ensure!(
            !self.guests.is_empty(),
            "no guest: give --guest name=NAME,socket=PATH,mac=MAC, or [[guest]] in a file"
        );
        self.check_each_guest()
    }

    fn check_each_guest(&self) -> Result<()> {
        let (mut names, mut places, mut macs) = (HashSet::new(), Places::default(), HashMap::new());
        places.add("", &self.admin_keys())?;
        places.add("", &self.observe_keys())?;
        for guest in &self.guests {
            let name = &guest.name;
            guest.check()?;
            // Limits of all guests were checked before. What is wrong here is a key of this guest.
            self.limits_of(guest).check().with_context(|| format!("guest {name}"))?;
            let second = (guest.transport == Transport::Both).then(|| guest.iwarp_name());
            for name in second.into_iter().chain([name.clone()]) {
                ensure!(!names.contains(&name), "guest {name}: two guests have this name");
                names.insert(name);
            }
            for keys in [guest.rdma_keys(), guest.iwarp_keys(), guest.net_keys()] {
                places.add(&format!("guest {name}: "), &keys)?;
            }
            for mac in guest.extra_macs.iter().chain([&guest.mac]) {
                if let Some(other) = macs.insert(*mac, name) {
                    bail!("guest {name}: the MAC address {mac} is there twice, also at guest {other}");
                }
            }
        }
        self.check_gids()
    }

    /// Checks whose TCP each guest's iWARP uses, and with which addresses.
    fn check_streams(&self, has_uplink: bool) -> Result<()> {
        ensure!(
            self.tcp_keepalive <= Self::MAX_KEEPALIVE,
            "tcp_keepalive = {}: give seconds up to {}, or 0 for never",
            self.tcp_keepalive,
            Self::MAX_KEEPALIVE
        );
        let mut owners = HashMap::new();
        for guest in &self.guests {
            let name = &guest.name;
            if guest.transport == Transport::Roce {
                ensure!(
                    guest.host_addresses.is_empty(),
                    "guest {name}: host_addresses is of iWARP: give transport = \"iwarp\" or \"both\", or take it away"
                );
                ensure!(
                    guest.tcp.is_none(),
                    "guest {name}: tcp is of iWARP: give transport = \"iwarp\" or \"both\", or take it away"
                );
                continue;
            }
            if self.tcp_of(guest) == Tcp::Own {
                ensure!(
                    has_uplink,
                    "guest {name}: transport = \"iwarp\": tcp = \"own\" goes by an uplink, and there is none: add uplink, or give tcp = \"kernel\" and host_address"
                );
                ensure!(
                    guest.host_addresses.is_empty(),
                    "guest {name}: host_addresses is of tcp = \"kernel\": give that, or take it away; with tcp = \"own\" the addresses are those of the guest's netdev (gids)"
                );
                continue;
            }
            ensure!(
                !guest.host_addresses.is_empty(),
                "guest {name}: transport = \"iwarp\": with tcp = \"kernel\" give host_address, an address of this host that the guest's netdev has too"
            );
            for address in &guest.host_addresses {
                ensure!(
                    !address.0.is_unspecified() && !address.0.is_multicast(),
                    "guest {name}: host_addresses = {address}: this is no address of a host"
                );
                if let Some(other) = owners.insert(*address, name) {
                    bail!(
                        "guest {name}: host_addresses = {address}: guest {other} has this address too; take it from one of them"
                    );
                }
            }
        }
        Ok(())
    }

    /// Checks that guests of the host have different addresses.
    fn check_gids(&self) -> Result<()> {
        for (index, guest) in self.guests.iter().enumerate() {
            let name = &guest.name;
            ensure!(
                self.guests.len() == 1 || guest.any_gid || !guest.gids.is_empty(),
                "guest {name}: gids is missing: with more than one guest give the addresses that each may use (gids = [\"10.0.0.1\"], or gid=10.0.0.1 in a flag), or any_gid = true"
            );
            for other in &self.guests[..index] {
                if let Some((gid, vlan)) = guest.common_gid(other) {
                    let other = &other.name;
                    bail!(
                        "guest {name}: gids = {gid}: guest {other} has this address too, {vlan}; take it from one of them"
                    );
                }
            }
        }
        Ok(())
    }
}

impl GuestConfig {
    /// Checks that the host has the addresses of this guest's iWARP over the host's TCP.
    ///
    /// It opens sockets of TCP, which the jail may forbid.
    ///
    /// # Errors
    /// The host lacks one. The message names it.
    pub fn check_host_addresses(&self) -> Result<()> {
        let name = &self.name;
        for address in &self.host_addresses {
            if let Err(error) = std::net::TcpListener::bind((address.0, 0)) {
                bail!(
                    "guest {name}: host_addresses = {address}: no interface of this host has it ({error}); add it: ip address add {address} dev INTERFACE"
                );
            }
        }
        Ok(())
    }

    /// Checks what depends on this guest alone.
    fn check(&self) -> Result<()> {
        let name = &self.name;
        ensure!(!name.is_empty(), "guest: its name is empty");
        ensure!(
            self.rdma_place().is_some() || self.net_place().is_some(),
            "guest {name}: neither socket nor net is given; socket=PATH is for its RDMA function, net=PATH for its Ethernet function"
        );
        if self.transport == Transport::Both {
            ensure!(
                self.rdma_place().is_some() && self.iwarp_place().is_some(),
                "guest {name}: transport = \"both\": give socket=PATH for its function of RoCE, and iwarp=PATH for that of iWARP"
            );
        } else {
            ensure!(
                self.iwarp_place().is_none(),
                "guest {name}: iwarp is the socket of a second function: give transport = \"both\", or take it away"
            );
        }
        for mac in self.extra_macs.iter().chain([&self.mac]) {
            ensure!(
                mac.0[0] & 1 == 0,
                "guest {name}: mac = {mac}: this is a multicast address; the first byte of a NIC's is even"
            );
            ensure!(mac.is_unicast(), "guest {name}: mac = {mac}: this is no address of a NIC");
        }
        for gid in &self.gids {
            ensure!(!gid.address.is_multicast(), "guest {name}: gids = {gid}: this is a multicast address");
            ensure!(
                !gid.address.is_unspecified(),
                "guest {name}: gids = {gid}: this is no address of a guest"
            );
        }
        ensure!(
            !self.any_gid || self.gids.is_empty(),
            "guest {name}: any_gid = true: it may use any; take gids away"
        );
        self.qos().check().with_context(|| format!("guest {name}"))?;
        for (key, mark) in [("dscp", self.dscp), ("pcp", self.pcp)] {
            ensure!(
                mark.is_none() || self.rdma_place().is_some() && self.transport != Transport::Iwarp,
                "guest {name}: {key} is of RoCE: give socket and transport = \"roce\" or \"both\", or take it away"
            );
        }
        self.check_vlans()
    }

    /// Returns an address that both guests have in the same VLAN.
    fn common_gid(&self, other: &GuestConfig) -> Option<(AllowedGid, FrameVlan)> {
        let (own, others) = (self.member_of(), other.member_of());
        let in_both = |vlan: VlanId| own.contains(vlan) && others.contains(vlan);
        let common = |one: &AllowedGid, two: &AllowedGid| match (one.vlan, two.vlan) {
            _ if one.gid() != two.gid() => None,
            (Some(one), Some(two)) => Some(one).filter(|_| one == two),
            (Some(vlan), None) | (None, Some(vlan)) => Some(vlan).filter(|&vlan| in_both(vlan)),
            (None, None) => own.common(&others),
        };
        let theirs = other.allowed_gids();
        self.allowed_gids().iter().find_map(|one| {
            let vlan = theirs.iter().find_map(|two| common(one, two))?;
            Some((*one, FrameVlan::One(vlan)))
        })
    }

    fn check_vlans(&self) -> Result<()> {
        let name = &self.name;
        self.vlans.iter().try_for_each(|&vlan| within(&format!("guest {name}: vlans"), vlan, 1..=4094))?;
        ensure!(
            !self.any_vlan || self.vlans.is_empty() && self.untagged,
            "guest {name}: any_vlan = true: it has all; take vlans and untagged away"
        );
        ensure!(
            self.any_vlan || self.untagged || !self.vlans.is_empty(),
            "guest {name}: untagged = false: it is in no VLAN; give vlans"
        );
        let member_of = self.member_of();
        for gid in &self.gids {
            ensure!(
                gid.vlan.is_none_or(|vlan| member_of.contains(vlan)),
                "guest {name}: gids = {gid}: it is not in that VLAN; add that to vlans"
            );
        }
        Ok(())
    }
}

impl Congestion {
    /// Checks each value.
    ///
    /// # Errors
    /// A value makes no sense. The message names its key, and what is allowed.
    fn check(&self) -> Result<()> {
        let rates = Dcqcn::LOWEST_RATE / MEGABIT..=Dcqcn::HIGHEST_RATE / MEGABIT;
        let times = Dcqcn::SHORTEST.as_micros() as u64..=Dcqcn::LONGEST.as_micros() as u64;
        within("congestion.rp_max_rate", self.rp_max_rate, 0..=*rates.end())?;
        for (key, rate) in [
            ("congestion.rp_min_rate", self.rp_min_rate),
            ("congestion.rp_ai_rate", self.rp_ai_rate),
            ("congestion.rp_hai_rate", self.rp_hai_rate),
        ] {
            within(key, rate, rates.clone())?;
        }
        for (key, time) in [
            ("congestion.rp_time_reset", self.rp_time_reset),
            ("congestion.rp_dce_tcp_rtt", self.rp_dce_tcp_rtt),
            ("congestion.rp_rate_reduce_monitor_period", self.rp_rate_reduce_monitor_period),
            ("congestion.rp_delay_target", self.rp_delay_target),
        ] {
            within(key, time, times.clone())?;
        }
        within("congestion.np_min_time_between_cnps", self.np_min_time_between_cnps, 0..=*times.end())?;
        within("congestion.rp_byte_reset", self.rp_byte_reset, 1000..=1 << 40)?;
        within("congestion.rp_threshold", self.rp_threshold, 1..=1000)?;
        within("congestion.rp_dce_tcp_g", self.rp_dce_tcp_g, 0..=u64::from(DCQCN_UNIT) - 1)?;
        within("congestion.rp_initial_alpha_value", self.rp_initial_alpha_value, 0..=DCQCN_UNIT.into())?;
        within("congestion.np_cnp_dscp", self.np_cnp_dscp, 0..=63_u64)?;
        let (lowest, highest) = (self.rp_min_rate, self.rp_max_rate);
        ensure!(
            highest == 0 || lowest <= highest,
            "congestion.rp_min_rate = {lowest}: it is higher than rp_max_rate, {highest}"
        );
        Ok(())
    }
}

impl GuestLimits {
    fn check(&self) -> Result<()> {
        within("limits.qps", self.qps, 1..=1 << 16)?;
        power_of_two("limits.qps", self.qps)?;
        within("limits.srqs", self.srqs, 0..=1 << 16)?;
        within("limits.cq_entries", self.cq_entries, 1..=1 << 24)?;
        power_of_two("limits.cq_entries", self.cq_entries)?;
        within("limits.qp_requests", self.qp_requests, 1..=1 << 15)?;
        within("limits.mrs", self.mrs, 1..=1 << 24)?;
        within("limits.flood_rate", self.flood_rate, 1..=u32::MAX.into())?;
        // Without user contexts the guest's kernel still works. Without address handles everything
        // but UD works. Without any of the following, nothing works.
        for (key, value) in [
            ("pds", self.pds.into()),
            ("cqs", self.cqs.into()),
            ("mr_runs", self.mr_runs.into()),
            ("total_runs", self.total_runs),
            ("total_requests", self.total_requests),
            ("request_memory", self.request_memory),
            ("all_request_memory", self.all_request_memory),
            ("stream_memory", self.stream_memory),
            ("all_stream_memory", self.all_stream_memory),
            ("memory_max", self.memory_max),
            ("pages_max", self.pages_max),
            ("all_pages_max", self.all_pages_max),
        ] {
            ensure!(value != 0, "limits.{key} = 0: no guest works without any; give 1 or more");
        }
        Ok(())
    }
}

fn within(key: &str, value: impl Into<u64>, range: RangeInclusive<u64>) -> Result<()> {
    let value = value.into();
    ensure!(
        range.contains(&value),
        "{key} = {value}: give a number from {} to {}",
        range.start(),
        range.end()
    );
    Ok(())
}

fn power_of_two(key: &str, value: u32) -> Result<()> {
    ensure!(
        value.is_power_of_two(),
        "{key} = {value}: give a power of two, like {}",
        value.next_power_of_two()
    );
    Ok(())
}

/// The places where the daemon meets front-ends and clients, each with its key.
#[derive(Default)]
struct Places<'a> {
    paths: HashMap<&'a Path, String>,
    descriptors: HashMap<&'a Descriptor, String>,
}

impl<'a> Places<'a> {
    /// Adds the place of a function, which at most one of the keys gives.
    fn add(&mut self, owner: &str, keys: &[PlaceKey<'a>]) -> Result<()> {
        let mut first = None;
        for (key, place) in keys {
            let key = format!("{owner}{key}");
            let other = match *place {
                None => continue,
                Some(MeetingPlace::Descriptor(descriptor)) => {
                    let other = self.descriptors.insert(descriptor, key.clone());
                    other.map(|other| (descriptor.to_string(), other))
                }
                Some(MeetingPlace::Socket(path) | MeetingPlace::Connect(path)) => {
                    check_socket(&key, path)?;
                    self.paths.insert(path, key.clone()).map(|other| (path.display().to_string(), other))
                }
            };
            if let Some((value, other)) = other {
                bail!("{key} = {value}: it is there twice, also as {other}");
            }
            if let Some(first) = first {
                bail!("{key} is given instead of {first}: take one of them away");
            }
            first = Some(key);
        }
        Ok(())
    }
}

fn check_socket(key: &str, path: &Path) -> Result<()> {
    let length = path.as_os_str().len();
    ensure!(length != 0, "{key}: its path is empty");
    ensure!(
        length <= MAX_SOCKET_PATH,
        "{key} = {}: {length} bytes are too long for a socket's path, {MAX_SOCKET_PATH} is the most",
        path.display()
    );
    Ok(())
}
