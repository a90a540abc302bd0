//! Checks of completions and memory against the model.

use super::windows::Role;
use super::{BLANK, Stream};
use crate::flow::Flow;
use crate::journal;
use crate::world::World;
use vrdma_transport::*;

impl Stream {
    pub(super) fn received(&mut self, c: &Completion) {
        let what = format!("{}: {c:?}", self.name);
        assert_eq!(u64::from(c.id), self.receives_ended, "receives end in order: {what}");
        assert!(self.receives_ended < self.receives_posted, "nobody posted this: {what}");
        let at = (self.receives_ended % u64::from(self.shape.receives) * self.slot) as usize;
        self.receives_ended += 1;
        if c.status == WcStatus::Flush {
            self.recv_failed = true;
            return;
        }
        assert!(!self.recv_failed, "after a failure: {what}");
        let expected = self.expected.pop_front().unwrap_or_else(|| panic!("no message was sent: {what}"));
        self.messages += 1;
        if let Some(status) = expected.fails {
            assert_eq!(c.status, status, "{what}");
            self.recv_failed = true;
            return;
        }
        assert_eq!(c.status, WcStatus::Success, "{what}");
        assert_eq!(c.opcode, expected.opcode, "{what}");
        assert_eq!(u64::from(c.byte_len), expected.length, "{what}");
        assert_eq!(c.imm, expected.imm, "{what}");
        assert_eq!(c.solicited, expected.solicited, "{what}");
        assert_eq!(c.src_qpn, self.qpn, "{what}");
        assert_eq!(c.invalidated, expected.invalidates, "{what}");
        if let (Some(key), Some(windows)) = (c.invalidated, &self.peers) {
            windows.borrow_mut().invalidated(key);
        }
        self.slots.memory.with(|slots| {
            let slot = &slots[at..at + self.slot as usize];
            let (message, rest) = slot.split_at(expected.bytes.len());
            assert!(message == expected.bytes, "other bytes than were sent: {what}");
            assert!(rest.iter().all(|b| *b == BLANK), "more bytes than were sent: {what}");
        });
    }

    pub(super) fn sent(&mut self, c: &Completion) {
        let what = format!("{}: {c:?}", self.name);
        let id = c.id as usize;
        assert!((self.ended..self.posted.len()).contains(&id), "ended before, or never posted: {what}");
        let posted = &self.posted[id];
        assert_eq!(c.opcode, posted.opcode, "{what}");
        for between in self.ended..id {
            assert!(
                !self.posted[between].signaled && self.failed.is_none(),
                "{between} was overtaken: {what}"
            );
        }
        if self.failed.is_some() {
            assert_eq!(c.status, WcStatus::Flush, "{what}");
            self.ended = id + 1;
            return;
        }
        for done in self.ended..id {
            self.verify(done);
        }
        let posted = &self.posted[id];
        if c.status == WcStatus::Success {
            assert!(posted.signaled, "{what}");
            assert_eq!(posted.fails, None, "{what}");
            let length = posted.lands.as_ref().map_or(0, |(_, data)| data.len());
            assert_eq!(c.byte_len as usize, length, "{what}");
            assert!(self.messages >= posted.receives, "the receiver has not seen it: {what}");
            self.verify(id);
        } else {
            let may = match c.status {
                WcStatus::RetryExc => self.may_fail.retry,
                WcStatus::RnrRetryExc => self.may_fail.rnr,
                WcStatus::Flush => self.may_fail.flush,
                _ => false,
            };
            assert!(may || posted.fails == Some(c.status), "why? {what}");
            self.failed = Some((id, c.status));
        }
        self.ended = id + 1;
    }

    /// Checks the result of a request that succeeded, and forgets it.
    fn verify(&mut self, request: usize) {
        if let Some(role) = self.posted[request].role.take() {
            let windows = if matches!(role, Role::Uses(_)) { &self.peers } else { &self.own };
            windows.as_ref().expect("it has windows").borrow_mut().ended(role);
        }
        let Some((at, data)) = &self.posted[request].lands.take() else { return };
        self.landing.memory.with(|landing| {
            let found = &landing[*at as usize..*at as usize + data.len()];
            if found != data {
                let from = found.iter().zip(data).position(|(a, b)| a != b);
                panic!("{}: {request} brought other bytes from {from:?} on, of {}", self.name, data.len());
            }
        });
    }

    /// Compares memory with the model, after the stream has ended.
    pub(super) fn check_memory(&mut self, world: &World) {
        assert!(self.is_over(), "{}", self.status(world));
        // Requests from the failed one on may have been executed, also partly.
        let certain = self.failed.map_or(self.posted.len(), |(at, _)| at);
        self.unknown.extend(self.posted[certain..].iter().filter_map(|p| p.changes.clone()));
        let stored = self.posted[..certain].iter().map(|posted| posted.stores.as_ref());
        let further = journal::check(&self.journal.borrow(), stored);
        let is_right = further.is_ok() && (further == Ok(0) || self.failed.is_some());
        assert!(is_right, "{}: stores at the receiver: {further:?}", self.name);
        let messages = certain.checked_sub(1).map_or(0, |last| self.posted[last].receives);
        assert!(self.messages >= messages, "{}: {} of {messages} messages came", self.name, self.messages);
        self.target.memory.with(|target| {
            let differs = |at: &usize| target[*at] != self.shadow[*at];
            let known = |at: &usize| !self.unknown.iter().any(|r| r.contains(&(*at as u64)));
            if let Some(at) = (0..target.len()).filter(differs).find(known) {
                panic!("{}: the peer's memory is wrong from {at:#x} on", self.name);
            }
        });
        self.barred.memory.with(|barred| assert!(barred.iter().all(|b| *b == BLANK), "{}", self.name));
    }
}
