//! The admin sockets: one for those who look, and one for those who change something.
//!
//! One thread serves all clients side by side. [`client`] is one of them. [`methods`] finds the
//! method of a call, and [`parameters`] parses what comes with it. [`overview`] and [`objects`]
//! answer it, by what [`service`] knows of the daemon. [`capture`] has the captures of clients, and
//! [`stream`] what they send.

mod capture;
mod client;
mod methods;
mod objects;
mod overview;
mod parameters;
mod service;
mod stream;

pub use service::{Rights, Service};

use crate::capture::DescriptorKeeper;
use crate::jail;
use crate::ratelimit::{RateLimit, limited};
use crate::session::PAUSE;
use crate::socket::{Arrival, Listener};
use anyhow::Result;
use client::{Client, ClientEnd, Offence};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stream::{ClientStream, ROOM_LOOK};

/// Maximum number of clients of a socket at the same time.
///
/// If one more connects, the client that has been silent for the longest time is dropped.
const MAX_CLIENTS: usize = 32;
/// How long the thread works for the clients of a socket before it looks at the other socket.
const TURN: Duration = Duration::from_millis(10);
/// How long closing descriptors may take before a message tells of it.
const LONG: Duration = Duration::from_secs(1);
/// Most connections that are taken from a socket at the end.
const LAST: usize = 1024;
/// Work of less than this needs no rest.
const SHORT: Duration = Duration::from_micros(200);

/// The running admin sockets.
#[derive(Debug)]
pub struct Admin {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// A socket, and its clients in the order in which they came.
#[derive(Debug)]
struct Door {
    listener: Arc<Listener>,
    rights: Rights,
    clients: Vec<Client>,
    /// Until when nothing is done for the clients.
    rests_until: Instant,
    /// Limits messages about clients that were dropped.
    drops: RateLimit,
    /// Has descriptors closed that clients send.
    keeper: DescriptorKeeper,
    /// Since when it can take none.
    full_since: Option<Instant>,
    /// Limits messages about that.
    waits: RateLimit,
}

impl Admin {
    /// Starts the thread that answers calls.
    ///
    /// # Errors
    /// The system is out of a resource.
    pub fn start(sockets: Vec<(Arc<Listener>, Rights)>, service: Service) -> Result<Admin> {
        let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let doors = sockets.into_iter().map(|(listener, rights)| Door::new(listener, rights, &service));
        let mut doors: Vec<Door> = doors.collect();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            jail::confine(jail::Kind::Admin);
            if let Err(error) = serve(&mut doors, &stopped, &service) {
                log::error!("the admin sockets end here: {error:#}");
            }
        })?;
        Ok(Admin { stop, thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(doors: &mut [Door], stopped: &OwnedFd, service: &Service) -> Result<()> {
    loop {
        if wait(doors, stopped)? {
            doors.iter_mut().flat_map(|door| &mut door.clients).for_each(Client::part);
            doors.iter().for_each(Door::turn_away);
            return Ok(());
        }
        let now = Instant::now();
        for door in doors.iter_mut().filter(|door| now >= door.rests_until) {
            door.step(service);
        }
        // Accept only after the clients' steps: mostly, what had come of a request is read before
        // its client may be dropped.
        for door in &mut *doors {
            if !door.look_for_room() {
                continue;
            }
            match door.accept() {
                Ok(Some(client)) => {
                    door.make_room();
                    door.clients.push(client);
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Most likely out of file descriptors. `poll` reports the waiting client again at
                // once, so pause.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Door {
    fn new(listener: Arc<Listener>, rights: Rights, service: &Service) -> Door {
        Door {
            listener,
            rights,
            clients: Vec::new(),
            rests_until: Instant::now(),
            drops: RateLimit::default(),
            keeper: service.keeper(rights).clone(),
            full_since: None,
            waits: RateLimit::default(),
        }
    }

    /// Returns whether descriptors of clients can be taken. If not, nobody is let in, and nothing
    /// is read.
    fn look_for_room(&mut self) -> bool {
        if self.keeper.has_room() {
            self.full_since = None;
        } else if self.full_since.get_or_insert_with(Instant::now).elapsed() >= LONG {
            limited!(self.waits, Warn;
                "{}: descriptors that clients sent take long to be closed, and the socket waits for that",
                self.listener.name());
        }
        self.full_since.is_none()
    }

    /// Accepts the next client. Returns `None` if it may not connect.
    fn accept(&self) -> io::Result<Option<Client>> {
        match self.listener.accept_any()? {
            Arrival::Welcome(stream) => Client::new(stream, self.rights, self.keeper.clone()).map(Some),
            Arrival::Refused(stream) => {
                // It may have sent descriptors already.
                ClientStream::new(stream, self.keeper.clone()).map(|_| None)
            }
        }
    }

    /// Takes all who wait, and lets them go: closing the socket would close what they sent.
    fn turn_away(&self) {
        for _ in 0..LAST {
            if self.accept().is_err() {
                return;
            }
        }
    }

    /// Continues with the clients, in turns: with some of them if that takes long.
    ///
    /// Those who look then rest together, however many they are. So half of the thread's time is
    /// for those who administer.
    fn step(&mut self, service: &Service) {
        let start = Instant::now();
        let Door { listener, clients, drops, .. } = self;
        let mut at = 0;
        for _ in 0..clients.len() {
            match clients[at].step(service) {
                None => at += 1,
                Some(ClientEnd::Left) => _ = clients.remove(at),
                Some(ClientEnd::Dropped(offence)) => {
                    tell(drops, listener, &clients[at], &offence);
                    clients.remove(at);
                }
            }
            if start.elapsed() >= TURN {
                break;
            }
        }
        clients.rotate_left(at);
        let took = start.elapsed();
        if self.rights == Rights::Observe && took >= SHORT {
            self.rests_until = start + 2 * took;
        }
    }

    fn make_room(&mut self) {
        if self.clients.len() == MAX_CLIENTS {
            // They may have half of the places.
            let subscriptions = self.clients.iter().filter(|client| client.has_subscription()).count();
            let are_few = subscriptions <= MAX_CLIENTS / 2;
            let least = self.clients.iter().enumerate().min_by_key(|(_, client)| client.weight(are_few));
            let (at, _) = least.expect("there are many");
            let client = self.clients.remove(at);
            tell(&mut self.drops, &self.listener, &client, &Offence::Silent);
        }
    }
}

fn tell(drops: &mut RateLimit, listener: &Listener, client: &Client, offence: &Offence) {
    limited!(drops, Warn; "{}: {} is disconnected: {offence}", listener.name(), client.shown());
}

/// Waits until there is something to do. Returns true if the thread is to stop.
fn wait(doors: &[Door], stopped: &OwnedFd) -> Result<bool> {
    let now = Instant::now();
    let (resting, awake): (Vec<&Door>, Vec<&Door>) = doors.iter().partition(|door| now < door.rests_until);
    let clients = || awake.iter().flat_map(|door| &door.clients);
    let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
    let open = doors.iter().filter(|door| door.full_since.is_none());
    fds.extend(open.map(|door| PollFd::new(&*door.listener, PollFlags::IN)));
    fds.extend(clients().filter_map(|client| client.wants(now)));
    let rested = resting.iter().filter(|door| !door.clients.is_empty()).map(|door| door.rests_until);
    let room = doors.iter().any(|door| door.full_since.is_some()).then(|| now + ROOM_LOOK);
    let until = clients().filter_map(|client| client.deadline(now)).chain(rested).chain(room).min();
    let time = until.map(|until| until.saturating_duration_since(now));
    let time = time.map(Timespec::try_from).transpose()?;
    match poll(&mut fds, time.as_ref()) {
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(!fds[0].revents().is_empty()),
    }
}
