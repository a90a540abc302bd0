//! The network between our end and Linux hosts. [`Net::turn`] runs it.

use crate::host::Linux;
use crate::link::{Link, Path};
use crate::ours::{OURS, Ours};
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant as Clock};

/// Maximum number of packets that are taken from a host in a turn.
const BURST: usize = 64;

pub struct Net<'a> {
    pub ours: Ours,
    to_ours: Link,
    /// Each host, with the link to it.
    hosts: Vec<(&'a Linux, Link)>,
    pub start: Clock,
    buffer: Vec<u8>,
}

impl<'a> Net<'a> {
    /// Creates a network with the path to our end, and the paths to the hosts.
    pub fn new(ours: Ours, to_ours: Path, hosts: &[(&'a Linux, Path)], seed: u64) -> Net<'a> {
        let links = hosts.iter().zip(1..);
        Net {
            ours,
            to_ours: Link::new(to_ours, seed),
            hosts: links.map(|((host, path), n)| (*host, Link::new(*path, seed + n))).collect(),
            start: Clock::now(),
            buffer: vec![0; 1 << 16],
        }
    }

    pub fn now(&self) -> u64 {
        1_000_000_000 + self.start.elapsed().as_nanos() as u64
    }

    pub fn connect(&mut self) {
        self.ours.connect(self.now());
    }

    pub fn turn(&mut self) {
        let now = self.now();
        for from in 0..self.hosts.len() {
            for _ in 0..BURST {
                let Ok(length) = (&self.hosts[from].0.tun).read(&mut self.buffer) else { break };
                let packet = &self.buffer[..length];
                // IPv4 and TCP.
                if packet[0] >> 4 == 4 && packet[9] == 6 {
                    let to = Ipv4Addr::from([packet[16], packet[17], packet[18], packet[19]]);
                    match self.hosts.iter_mut().find(|(host, _)| host.address == to) {
                        Some((_, link)) => link.push(now, packet),
                        None if to == OURS => self.to_ours.push(now, packet),
                        None => {}
                    }
                }
            }
        }
        while let Some(packet) = self.to_ours.pop(now) {
            self.ours.handle(now, &packet);
        }
        let hosts = &mut self.hosts;
        self.ours.turn(now, |to, packet| {
            let link = hosts.iter_mut().find(|(host, _)| host.address == to).map(|(_, link)| link);
            link.expect("our end sends to a host").push(now, packet);
        });
        for (host, link) in hosts {
            while let Some(packet) = link.pop(now) {
                // A full queue loses packets, as networks do.
                let _ = (&host.tun).write(&packet);
            }
        }
    }

    /// Sleeps until something is due or arrives, at most 20 ms.
    pub fn sleep(&self) {
        let now = self.now();
        let links = self.hosts.iter().map(|(_, link)| link).chain([&self.to_ours]);
        let due = links.filter_map(Link::next).chain(self.ours.next()).min();
        let wait = due.map_or(20_000_000, |due| due.saturating_sub(now).min(20_000_000));
        let wait = Duration::from_nanos(wait);
        let time = libc::timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let poll = |(host, _): &(&Linux, Link)| libc::pollfd {
            fd: host.tun.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polls: Vec<libc::pollfd> = self.hosts.iter().map(poll).collect();
        // SAFETY: `polls` and `time` live across the call, and the length is right; there is no
        // signal mask.
        unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as _, &raw const time, std::ptr::null()) };
    }
}
