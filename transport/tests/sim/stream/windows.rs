//! Memory windows of type 2B onto the memory that a stream's requests access.
//!
//! The QP that owns the memory binds them, in the stream of the other direction. Requests name them
//! instead of the region. Either side invalidates them: the owner by a request of its own when they
//! have no users, the peer by a SEND.

use super::Stream;
use crate::area::Area;
use crate::rng::Rng;
use crate::world::{Guest, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use vrdma_transport::*;
use vrdma_wire::num::{Lkey, Rkey};

/// The number of windows of each QP.
const WINDOWS: usize = 3;

/// All windows onto an area, shared by the streams of both directions.
pub type Shared = Rc<RefCell<Windows>>;

pub struct Windows {
    area: Area,
    all: Vec<Window>,
}

struct Window {
    key: Rkey,
    /// Its key before the last bind, which is no longer valid.
    before: Option<Rkey>,
    state: State,
    /// The number of requests that name it and have not ended.
    users: u32,
}

enum State {
    Unbound,
    /// A bind was posted.
    Binding(Shown),
    Bound(Shown),
    /// It is being invalidated.
    Going,
}

#[derive(Clone)]
struct Shown {
    /// The part of the area.
    range: Range<u64>,
    access: Access,
    /// The address of the first byte.
    start: u64,
}

/// What a request does with a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Binds(usize),
    Invalidates(usize),
    /// The window belongs to the peer.
    Uses(usize),
}

/// Where a request accesses the peer's memory.
pub struct Reach {
    pub range: Range<u64>,
    pub remote: Remote,
    /// The window that it names, if it does not name the region.
    pub role: Option<Role>,
}

impl Windows {
    fn new(world: &mut World, guest: usize, area: Area) -> Shared {
        let Guest { device, pd, .. } = world.guests[guest];
        let mut alloc = || world.engine(guest).0.alloc_mw(device, pd, MwType::Type2B).unwrap();
        let all = (0..WINDOWS)
            .map(|_| Window { key: alloc(), before: None, state: State::Unbound, users: 0 })
            .collect();
        Rc::new(RefCell::new(Windows { area, all }))
    }

    /// Returns a random window for which `wanted` holds.
    fn pick(&self, rng: &mut Rng, wanted: impl Fn(&Window) -> bool) -> Option<usize> {
        let found: Vec<usize> = (0..self.all.len()).filter(|at| wanted(&self.all[*at])).collect();
        (!found.is_empty()).then(|| rng.pick(&found))
    }

    /// Returns a bind of a window to some part of the area.
    fn bind(&mut self, rng: &mut Rng, at: usize) -> Bind {
        let size = self.area.memory.len() as u64;
        let first = rng.range(0..=size / 8 - 1) * 8;
        let range = first..first + rng.range(1..=size - first);
        let zero = if rng.one_in(2) { Access::ZERO_BASED } else { Access::NONE };
        let rights = rng.pick(&[
            Access::REMOTE_READ,
            Access::REMOTE_WRITE,
            Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
        ]);
        let addr = self.area.iova + range.start;
        let start = if zero == Access::NONE { addr } else { 0 };
        let window = &mut self.all[at];
        let rkey = window.key;
        let new_rkey = Rkey(rkey.0 & !0xff | rkey.0.wrapping_add(1) & 0xff);
        let length = range.end - range.start;
        window.state = State::Binding(Shown { range, access: rights, start });
        Bind { rkey, new_rkey, lkey: Lkey(self.area.key), access: rights | zero, addr, length }
    }

    /// Notes that a request with this role has succeeded.
    pub fn ended(&mut self, role: Role) {
        let (Role::Binds(at) | Role::Invalidates(at) | Role::Uses(at)) = role;
        let window = &mut self.all[at];
        match (role, std::mem::replace(&mut window.state, State::Unbound)) {
            (Role::Binds(_), State::Binding(shown)) => {
                window.before = Some(window.key);
                window.key = Rkey(window.key.0 & !0xff | window.key.0.wrapping_add(1) & 0xff);
                window.state = State::Bound(shown);
            }
            (Role::Invalidates(_), State::Going) => {}
            (Role::Uses(_), state) => {
                window.users -= 1;
                window.state = state;
            }
            _ => panic!("a window is bound, and invalidated, once"),
        }
    }

    /// Notes that a receive reported the invalidation of the window with this key.
    pub fn invalidated(&mut self, key: Rkey) {
        let at = self.all.iter().position(|window| window.key == key).expect("the peer named one of them");
        self.ended(Role::Invalidates(at));
    }
}

impl Window {
    fn shown(&self) -> Option<&Shown> {
        match &self.state {
            State::Bound(shown) => Some(shown),
            _ => None,
        }
    }

    /// Returns whether it grants a right for this number of bytes.
    fn gives(&self, right: Access, length: u64) -> bool {
        self.shown().is_some_and(|shown| {
            shown.access.contains(right) && shown.range.end - shown.range.start >= length
        })
    }
}

impl Stream {
    /// Lets both directions of a connection use windows of the peer.
    pub fn with_windows(world: &mut World, ways: [&mut Stream; 2]) {
        let [there, back] = ways;
        let [of_there, of_back] =
            [&*there, &*back].map(|way| Windows::new(world, way.to, way.target.clone()));
        (there.peers, there.own) = (Some(of_there.clone()), Some(of_back.clone()));
        (back.peers, back.own) = (Some(of_back), Some(of_there));
    }

    /// Returns where up to `length` bytes are accessed with a right, at times by a window.
    ///
    /// The offset from the start is a multiple of `step`.
    pub(super) fn reach(&mut self, right: Access, length: u64, step: u64) -> Reach {
        let by_window = self.rng.one_in(2);
        let found = self.peers.as_ref().filter(|_| by_window).and_then(|windows| {
            let mut windows = windows.borrow_mut();
            let at = windows.pick(&mut self.rng, |window| window.gives(right, step))?;
            let window = &mut windows.all[at];
            window.users += 1;
            Some((at, window.key, window.shown().cloned()?))
        });
        let within = found.as_ref().map_or(0..self.shape.window, |(_, _, shown)| shown.range.clone());
        let length = length.min(within.end - within.start);
        let first = within.start + self.rng.range(0..=(within.end - within.start - length) / step) * step;
        let range = first..first + length;
        match found {
            Some((at, rkey, shown)) => {
                let remote = Remote { rkey, addr: shown.start + (first - shown.range.start) };
                Reach { range, remote, role: Some(Role::Uses(at)) }
            }
            None => Reach { remote: self.target.remote(first), range, role: None },
        }
    }

    /// Returns a bind or an invalidation of an own window, if one is available.
    pub(super) fn change_own_window(&mut self) -> Option<(SendOp, WcOpcode, Role)> {
        let own = self.own.clone()?;
        let mut own = own.borrow_mut();
        let goes = |window: &Window| window.shown().is_some() && window.users == 0;
        if self.rng.one_in(3)
            && let Some(at) = own.pick(&mut self.rng, goes)
        {
            let window = &mut own.all[at];
            window.state = State::Going;
            let op = SendOp::LocalInvalidate { key: window.key };
            return Some((op, WcOpcode::LocalInvalidate, Role::Invalidates(at)));
        }
        let at = own.pick(&mut self.rng, |window| matches!(window.state, State::Unbound))?;
        let op = SendOp::BindMw(own.bind(&mut self.rng, at));
        Some((op, WcOpcode::BindMw, Role::Binds(at)))
    }

    /// Returns a window of the peer that a SEND invalidates.
    ///
    /// It may have users: earlier requests are executed before.
    pub(super) fn give_up_window(&mut self) -> Option<Rkey> {
        let mut windows = self.peers.as_ref()?.borrow_mut();
        let at = windows.pick(&mut self.rng, |window| window.shown().is_some())?;
        let window = &mut windows.all[at];
        window.state = State::Going;
        Some(window.key)
    }

    /// Returns a request that must fail because of a window of the peer.
    ///
    /// The window has another key by then, is shorter, or does not grant the right.
    pub(super) fn beside_window(&mut self) -> Option<(SendOp, WcOpcode)> {
        let windows = self.peers.as_ref()?.borrow();
        let at = windows.pick(&mut self.rng, |window| window.shown().is_some())?;
        let window = &windows.all[at];
        let (shown, key) = (window.shown()?, window.key);
        let length = shown.range.end - shown.range.start;
        let write =
            |addr, rkey| (SendOp::Write { remote: Remote { addr, rkey }, imm: None }, WcOpcode::Write);
        Some(match self.rng.range(0..=2) {
            0 if shown.access.contains(Access::REMOTE_WRITE) => write(shown.start + length - 1, key),
            1 if !shown.access.contains(Access::REMOTE_WRITE) => write(shown.start, key),
            _ => write(shown.start, window.before?),
        })
    }
}
