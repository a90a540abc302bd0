//! The clients that are connected at one time.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What clients may do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections at one time.
    pub connections: usize,
    /// Longest time until a request is whole, and until its answer is taken.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 64, patience: Duration::from_secs(10) }
    }
}

/// How long a client may take its answer before it makes room for others.
const SLOW: Duration = Duration::from_secs(1);

/// The clients that are connected.
///
/// If there are too many, the one that has been silent for longest makes room. Next are those that
/// take their answer slowly. One that waits for the daemon never does.
#[derive(Debug)]
pub struct Crowd {
    state: Mutex<State>,
    left: Condvar,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    /// From the first that came to the last.
    members: VecDeque<Member>,
    /// Number of the next one.
    next: u64,
}

#[derive(Debug)]
struct Member {
    number: u64,
    stream: TcpStream,
    stage: Stage,
    /// Whether it has to make room.
    is_evicted: bool,
}

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Its request is not whole.
    Silent,
    /// It waits for its answer.
    Waits,
    /// It takes its answer, from this time on.
    Takes(Instant),
}

/// A place in the crowd. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    crowd: Arc<Crowd>,
    number: u64,
}

impl Crowd {
    /// Returns a crowd without a member, for this number of them.
    pub fn new(most: usize) -> Arc<Crowd> {
        Arc::new(Crowd { state: Mutex::default(), left: Condvar::new(), most })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Lets a client in. If another one has to make room for it, waits until that one has left.
    ///
    /// That does not take long: its thread is woken, and then waits for nobody. `None`: no client
    /// can make room.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn enter(self: &Arc<Crowd>, stream: &TcpStream) -> io::Result<Option<Place>> {
        let stream = stream.try_clone()?;
        let mut state = self.lock();
        while state.members.len() >= self.most {
            // One that leaves for another one is enough.
            if !state.members.iter().any(|member| member.is_evicted) && !state.evict() {
                return Ok(None);
            }
            state = self.left.wait(state).expect("no thread panics with it");
        }
        let number = state.next;
        state.next += 1;
        state.members.push_back(Member { number, stream, stage: Stage::Silent, is_evicted: false });
        Ok(Some(Place { crowd: Arc::clone(self), number }))
    }

    /// Waits until all have left who have asked, but no longer than this.
    pub fn wait_for_answers(&self, patience: Duration) {
        let state = self.lock();
        let is_served = |state: &mut State| state.members.iter().any(|member| member.stage != Stage::Silent);
        drop(self.left.wait_timeout_while(state, patience, is_served).expect("no thread panics with it"));
    }
}

impl State {
    /// Has a member make room. Returns false if none can.
    fn evict(&mut self) -> bool {
        let now = Instant::now();
        let is_slow = |member: &Member| match member.stage {
            Stage::Takes(since) => now.saturating_duration_since(since) > SLOW,
            Stage::Silent | Stage::Waits => false,
        };
        let silent = self.members.iter().position(|member| member.stage == Stage::Silent);
        let Some(at) = silent.or_else(|| self.members.iter().position(is_slow)) else { return false };
        let member = &mut self.members[at];
        member.is_evicted = true;
        // Who has not asked can be told. Who does not take the answer cannot.
        let how = if member.stage == Stage::Silent { Shutdown::Read } else { Shutdown::Both };
        // It may have left just now.
        let _ = member.stream.shutdown(how);
        true
    }
}

impl Place {
    /// Notes that the client's request has come, or cannot come. Returns whether the client has to
    /// make room.
    pub fn has_asked(&self) -> bool {
        self.with(|member| {
            member.stage = Stage::Waits;
            member.is_evicted
        })
    }

    /// Notes that the client is sent its answer.
    pub fn takes(&self) {
        self.with(|member| member.stage = Stage::Takes(Instant::now()));
    }

    fn with<R>(&self, f: impl FnOnce(&mut Member) -> R) -> R {
        let mut state = self.crowd.lock();
        let member = state.members.iter_mut().find(|member| member.number == self.number);
        f(member.expect("a member stays until its place is dropped"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.lock().members.retain(|member| member.number != self.number);
        self.crowd.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn connections<const COUNT: usize>() -> [(TcpStream, TcpStream); COUNT] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        std::array::from_fn(|_| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, client)
        })
    }

    #[test]
    fn the_silent_make_room_from_the_oldest_on() {
        let crowd = Crowd::new(2);
        let [(first, _a), (mut second, _b), (third, _c)] = connections();
        let (asks, silent) = (crowd.enter(&first).unwrap().unwrap(), crowd.enter(&second).unwrap().unwrap());
        assert!(!asks.has_asked());
        let thread = std::thread::spawn(move || {
            // Nothing more can come from a client that has to leave.
            assert_eq!(second.read(&mut [0]).unwrap(), 0);
            assert!(silent.has_asked(), "it has to make room");
        });
        let _third = crowd.enter(&third).unwrap().unwrap();
        thread.join().unwrap();
        drop(asks);
        crowd.wait_for_answers(Duration::MAX);
        assert_eq!(crowd.lock().members.len(), 1);
    }

    #[test]
    fn who_waits_for_the_daemon_keeps_its_place() {
        let crowd = Crowd::new(2);
        let [(first, _a), (second, _b), (third, _c)] = connections();
        let places = [&first, &second].map(|stream| crowd.enter(stream).unwrap().unwrap());
        assert!(places.iter().all(|place| !place.has_asked()));
        assert!(crowd.enter(&third).unwrap().is_none());
        assert!(crowd.lock().members.iter().all(|member| !member.is_evicted));
        let [place, _] = places;
        drop(place);
        assert!(crowd.enter(&third).unwrap().is_some());
    }
}
