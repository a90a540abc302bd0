//! The clients that are connected at one time.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

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

/// The clients that are connected. If there are too many, the one that has been silent for longest
/// makes room.
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
    /// Whether its request is whole.
    has_asked: bool,
    /// Whether it has to make room.
    is_evicted: bool,
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

    /// Lets a client in. Waits for a place until another one has left.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn enter(self: &Arc<Crowd>, stream: &TcpStream) -> io::Result<Place> {
        let stream = stream.try_clone()?;
        let mut state = self.lock();
        while state.members.len() >= self.most {
            // One that leaves for another one is enough.
            if !state.members.iter().any(|member| member.is_evicted) {
                let silent = state.members.iter().position(|member| !member.has_asked);
                let member = &mut state.members[silent.unwrap_or(0)];
                member.is_evicted = true;
                // Who has not asked can be told. Who does not take the answer cannot.
                let how = if member.has_asked { Shutdown::Both } else { Shutdown::Read };
                // It may have left just now.
                let _ = member.stream.shutdown(how);
            }
            state = self.left.wait(state).expect("no thread panics with it");
        }
        let number = state.next;
        state.next += 1;
        state.members.push_back(Member { number, stream, has_asked: false, is_evicted: false });
        Ok(Place { crowd: Arc::clone(self), number })
    }

    /// Waits until all have left who have asked, but no longer than this.
    pub fn wait_for_answers(&self, patience: Duration) {
        let state = self.lock();
        let is_served = |state: &mut State| state.members.iter().any(|member| member.has_asked);
        drop(self.left.wait_timeout_while(state, patience, is_served).expect("no thread panics with it"));
    }
}

impl Place {
    /// Notes that the client's request is whole. Returns whether the client has to make room.
    pub fn has_asked(&self) -> bool {
        self.with(|member| {
            member.has_asked = true;
            member.is_evicted
        })
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

    #[test]
    fn the_silent_make_room_from_the_oldest_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, client)
        };
        let crowd = Crowd::new(2);
        let ((first, _a), (mut second, _b), (third, _c)) = (connect(), connect(), connect());
        let (asks, silent) = (crowd.enter(&first).unwrap(), crowd.enter(&second).unwrap());
        assert!(!asks.has_asked());
        let thread = std::thread::spawn(move || {
            // Nothing more can come from a client that has to leave.
            assert_eq!(second.read(&mut [0]).unwrap(), 0);
            assert!(silent.has_asked(), "it has to make room");
        });
        let _third = crowd.enter(&third).unwrap();
        thread.join().unwrap();
        drop(asks);
        crowd.wait_for_answers(Duration::MAX);
        assert_eq!(crowd.lock().members.len(), 1);
    }
}
