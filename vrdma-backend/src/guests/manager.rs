//! The thread that adds, changes and removes guests, one after another.

use super::change::{Change, ChangeAnswer, Changed, Refusal};
use super::roster::Roster;
use crate::jail;
use anyhow::Result;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::thread::JoinHandle;

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    Change(Change, Sender<Result<Changed, Refusal>>),
    End,
}

/// The thread that has the guests. Dropping this ends their sessions.
#[derive(Debug)]
pub struct Manager {
    handle: GuestsHandle,
    thread: Option<JoinHandle<()>>,
}

/// Asks for changes of the guests.
#[derive(Clone, Debug)]
pub struct GuestsHandle(Sender<Order>);

impl GuestsHandle {
    /// Asks for a change. The answer arrives when it is done.
    pub fn ask(&self, change: Change) -> ChangeAnswer {
        let (reply, answer) = bounded(1);
        // If the thread has ended, there is no answer, and the channel of answers says so.
        let _ = self.0.send(Order::Change(change, reply));
        answer
    }
}

impl Manager {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(roster: Roster) -> Result<Manager> {
        let (handle, orders) = unbounded();
        let thread = std::thread::Builder::new().name("guests".into()).spawn(move || {
            jail::confine(jail::Kind::Manager);
            run(roster, &orders);
        })?;
        Ok(Manager { handle: GuestsHandle(handle), thread: Some(thread) })
    }

    /// Returns a handle for whoever asks for changes.
    pub fn guests_handle(&self) -> &GuestsHandle {
        &self.handle
    }
}

fn run(mut roster: Roster, orders: &Receiver<Order>) {
    while let Ok(Order::Change(change, reply)) = orders.recv() {
        // Who asked may have left meanwhile.
        let _ = reply.send(roster.carry_out(&change));
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.handle.0.send(Order::End);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread of the guests panicked");
        }
    }
}
