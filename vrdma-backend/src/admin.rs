//! The admin sockets: one for those who look, and one for those who change something.
//!
//! One thread serves all clients side by side. [`client`] is one of them. [`methods`] finds the
//! method of a call, and [`parameters`] parses what comes with it. [`overview`] and [`objects`]
//! answer it, by what [`service`] knows of the daemon.

mod client;
mod methods;
mod objects;
mod overview;
mod parameters;
mod service;

pub use service::{Rights, Service};

use crate::jail;
use crate::ratelimit::{RateLimit, limited};
use crate::session::PAUSE;
use crate::socket::Listener;
use anyhow::Result;
use client::{Client, ClientEnd, Offence};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of clients of a socket at the same time.
///
/// If one more connects, the client that has been silent for the longest time is dropped.
const MAX_CLIENTS: usize = 32;
/// How long the thread works for the clients of a socket before it looks at the other socket.
const TURN: Duration = Duration::from_millis(10);
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
}

impl Admin {
    /// Starts the thread that answers calls.
    ///
    /// # Errors
    /// The system is out of a resource.
    pub fn start(sockets: Vec<(Arc<Listener>, Rights)>, service: Service) -> Result<Admin> {
        let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let doors = sockets.into_iter().map(|(listener, rights)| Door::new(listener, rights));
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
            return Ok(());
        }
        let now = Instant::now();
        for door in doors.iter_mut().filter(|door| now >= door.rests_until) {
            door.step(service);
        }
        // Accept only after the clients' steps: what had come of a request is read before its
        // client may be dropped.
        for door in &mut *doors {
            match door.listener.accept().and_then(|stream| Client::new(stream, door.rights)) {
                Ok(client) => {
                    door.make_room();
                    door.clients.push(client);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Most likely out of file descriptors. `poll` reports the waiting client again at
                // once, so pause.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Door {
    fn new(listener: Arc<Listener>, rights: Rights) -> Door {
        let (clients, drops) = (Vec::new(), RateLimit::default());
        Door { listener, rights, clients, rests_until: Instant::now(), drops }
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
    fds.extend(doors.iter().map(|door| PollFd::new(&*door.listener, PollFlags::IN)));
    fds.extend(clients().filter_map(|client| client.wants(now)));
    let rested = resting.iter().filter(|door| !door.clients.is_empty()).map(|door| door.rests_until);
    let until = clients().filter_map(|client| client.deadline(now)).chain(rested).min();
    let time = until.map(|until| until.saturating_duration_since(now));
    let time = time.map(Timespec::try_from).transpose()?;
    match poll(&mut fds, time.as_ref()) {
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(!fds[0].revents().is_empty()),
    }
}
