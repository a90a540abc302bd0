//! A client of the admin sockets. Nothing that it does, or does not do, makes another one wait.
//!
//! A client speaks varlink, or has one line as its request. Its first byte tells which.

use super::methods::{Answer, ReplyToCome, Turn, answer, answer_line};
use super::service::{Rights, Service};
use crate::session::retry;
use crate::socket::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vrdma_admin::{Call, Fault, Frames, Reply};

/// How long a client may take to send the rest of a request, or to read more of its answer. After
/// that it is dropped.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of a line in bytes.
const MAX_LINE: usize = 256;
/// Maximum length of a varlink message in bytes.
const MAX_MESSAGE: usize = 64 << 10;
/// Bytes that are read at once.
const CHUNK: usize = 4096;
/// Maximum length of a reason that is told and logged, in bytes.
const MAX_REASON: usize = 200;
/// How often to look whether a change is done.
const LOOK: Duration = Duration::from_millis(5);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// A client rests for this many times the time that its last request took.
///
/// So a client that asks without end takes at most a ninth of the thread, and of the workers that
/// it asks about.
const REST: u32 = 8;

/// Why a connection ends.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// The client left, or has all that it asked for.
    Left,
    /// It does something that the daemon does not take.
    Dropped(Offence),
}

/// What the daemon does not take from a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Offence {
    /// The rest of a request did not come.
    #[error("the rest of its request has not come for {} s", PATIENCE.as_secs())]
    Halting,
    /// Nobody reads the answer.
    #[error("it has read nothing of its answer for {} s", PATIENCE.as_secs())]
    Deaf,
    /// It sends on while its call is answered again and again.
    #[error("it sent more than {MAX_MESSAGE} bytes during a call that has several replies")]
    Flooding,
    /// What it sent is no message.
    #[error("{0}")]
    Nonsense(String),
    /// Another client needs its place.
    #[error("others came, and it was silent for the longest time")]
    Silent,
}

/// A connected client.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    rights: Rights,
    frames: Frames,
    /// Whether the client speaks varlink; `None` until its first byte has come.
    is_varlink: Option<bool>,
    /// Whether the client sends nothing more.
    ended: bool,
    /// Whether a whole request may be among the bytes that have come.
    may_have_request: bool,
    /// The part of the answer that is still to be sent.
    answer: Vec<u8>,
    /// A call that is answered again and again.
    subscription: Option<Subscription>,
    /// A change that is being carried out, and whether its reply is wanted.
    pending: Option<(ReplyToCome, bool)>,
    /// Why to close the connection after the answer, if it is to be closed.
    end: Option<ClientEnd>,
    /// When the client is dropped, if nothing moves until then.
    until: Option<Instant>,
    /// When its next request may be served.
    rests_until: Instant,
    /// When it connected, or its last request came.
    active: Instant,
}

/// A call that is answered again and again, until the client leaves.
#[derive(Debug)]
struct Subscription {
    call: Call,
    interval: Duration,
    due: Instant,
}

impl Client {
    /// Takes a connection.
    ///
    /// # Errors
    /// The system refuses to make it non-blocking.
    pub fn new(stream: UnixStream, rights: Rights) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        let now = Instant::now();
        Ok(Client {
            stream,
            rights,
            frames: Frames::new(MAX_MESSAGE),
            is_varlink: None,
            ended: false,
            may_have_request: false,
            answer: Vec::new(),
            subscription: None,
            pending: None,
            end: None,
            until: None,
            rests_until: now,
            active: now,
        })
    }

    /// Returns a value that is the least for the client that matters least.
    ///
    /// That is the one that has been silent for the longest time. Clients that are about to get an
    /// answer matter more.
    ///
    /// Those whose call is answered again and again matter most, if `with_subscriptions`.
    pub fn weight(&self, with_subscriptions: bool) -> (bool, bool, Instant) {
        let waits = !self.answer.is_empty() || self.pending.is_some();
        (with_subscriptions && self.has_subscription(), waits, self.active)
    }

    /// Whether its call is answered again and again.
    pub fn has_subscription(&self) -> bool {
        self.subscription.is_some()
    }

    /// Returns what to wait for; `None` while the client rests.
    pub fn wants(&self, now: Instant) -> Option<PollFd<'_>> {
        if !self.answer.is_empty() {
            return Some(PollFd::new(&self.stream, PollFlags::OUT));
        }
        if self.pending.is_some() {
            // A client that is gone is found out when its reply is sent.
            return None;
        }
        if self.ended && self.subscription.is_some() {
            // It reads on, or it is gone.
            return Some(PollFd::new(&self.stream, PollFlags::empty()));
        }
        let reads = !self.ended && !self.may_have_request && now >= self.rests_until;
        reads.then(|| PollFd::new(&self.stream, PollFlags::IN))
    }

    /// Returns when something is to be done, whether the client does something or not.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let is_free = self.answer.is_empty();
        let due = self.subscription.as_ref().filter(|_| is_free).map(|each| each.due);
        let rests = is_free && (self.may_have_request || now < self.rests_until);
        let looks = self.pending.as_ref().map(|_| now + LOOK);
        let rests = rests.then_some(self.rests_until).filter(|_| self.pending.is_none());
        [self.until, due, rests, looks].into_iter().flatten().min()
    }

    /// Returns the process that connected, as messages name it.
    pub fn shown(&self) -> String {
        Peer::of(&self.stream).map_or("a client".to_owned(), |peer| peer.to_string())
    }

    /// Continues without blocking. Returns why the connection ends, if it does.
    pub fn step(&mut self, service: &Service) -> Option<ClientEnd> {
        // An error of the connection means that the client is gone.
        self.go_on(service).unwrap_or(Some(ClientEnd::Left))
    }

    fn go_on(&mut self, service: &Service) -> io::Result<Option<ClientEnd>> {
        let now = Instant::now();
        let is_late = |until: Option<Instant>| until.is_some_and(|until| now >= until);
        if !self.write(now)? {
            return Ok(is_late(self.until).then_some(ClientEnd::Dropped(Offence::Deaf)));
        }
        if self.end.is_some() {
            return Ok(self.end.take());
        }
        if self.ended && self.subscription.is_some() && self.is_gone()? {
            return Ok(Some(ClientEnd::Left));
        }
        if let Some((pending, _)) = &self.pending
            && let Some(reply) = pending.reply()
        {
            if self.pending.take().is_some_and(|(_, is_wanted)| is_wanted) {
                self.send(&reply.emit());
            }
            self.active = now;
        }
        self.publish(service, now);
        if now >= self.rests_until && self.answer.is_empty() && self.pending.is_none() {
            if !self.may_have_request && !self.ended {
                self.read()?;
            }
            self.serve(service);
        }
        if !self.write(now)? {
            return Ok(None);
        }
        let is_over =
            self.ended && !self.may_have_request && self.subscription.is_none() && self.pending.is_none();
        Ok(match self.end.take() {
            None if is_over => Some(ClientEnd::Left),
            None if is_late(self.until) => Some(ClientEnd::Dropped(Offence::Halting)),
            end => end,
        })
    }

    /// Whether the client has closed its socket.
    fn is_gone(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default()))?;
        Ok(fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
    }

    /// Sends what it can of the answer. Returns whether all of it is sent.
    fn write(&mut self, now: Instant) -> io::Result<bool> {
        let mut sent = 0;
        while sent < self.answer.len() {
            match at_once(|| self.stream.write(&self.answer[sent..]))? {
                Some(count) => sent += count,
                None => break,
            }
        }
        if sent != 0 {
            self.answer.drain(..sent);
            self.until = (!self.answer.is_empty()).then_some(now + PATIENCE);
        }
        Ok(self.answer.is_empty())
    }

    /// Answers a subscription once more, if that is due.
    fn publish(&mut self, service: &Service, now: Instant) {
        let Some(each) = self.subscription.as_mut().filter(|each| now >= each.due) else { return };
        // Answers that were missed meanwhile are left out.
        each.due = (each.due + each.interval).max(now);
        let start = Instant::now();
        self.active = now;
        let reply = match answer(service, &each.call, self.rights, Turn::Next) {
            Ok(Answer::Each(reply, _)) => Reply { continues: true, ..reply },
            Ok(Answer::Once(reply)) => {
                self.end_subscription();
                reply
            }
            Ok(Answer::Later(_)) => unreachable!("calls that change guests have one reply"),
            Err(fault) => {
                self.end_subscription();
                Reply::fault(&fault)
            }
        };
        // An answer that takes long is not given so often.
        if let Some(each) = &mut self.subscription {
            each.due = each.due.max(start + rest_after(start.elapsed()));
        }
        self.send(&reply.emit());
    }

    fn end_subscription(&mut self) {
        self.subscription = None;
        // What came meanwhile was not looked at.
        self.may_have_request = true;
    }

    fn send(&mut self, answer: &[u8]) {
        self.answer.extend_from_slice(answer);
        self.until = Some(Instant::now() + PATIENCE);
    }

    /// Reads what has come.
    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; CHUNK];
        let Some(count) = at_once(|| self.stream.read(&mut bytes))? else { return Ok(()) };
        self.ended = count == 0;
        self.may_have_request = true;
        self.frames.add(&bytes[..count]);
        if self.is_varlink.is_none() {
            self.is_varlink = bytes[..count].first().map(|byte| *byte == b'{');
        }
        Ok(())
    }

    /// Serves the next request, if it is there as a whole.
    fn serve(&mut self, service: &Service) {
        if !self.may_have_request {
            return;
        }
        let start = Instant::now();
        let served = match self.is_varlink {
            Some(true) => self.serve_message(service),
            Some(false) => self.serve_line(service),
            None => false,
        };
        if served {
            self.active = start;
            self.rests_until = start + rest_after(start.elapsed());
        } else {
            self.may_have_request = false;
            let is_within = self.frames.waiting() != 0 && self.subscription.is_none();
            self.until = is_within.then(|| self.until.unwrap_or(start + PATIENCE));
        }
    }

    fn serve_line(&mut self, service: &Service) -> bool {
        let bytes = self.frames.bytes();
        let is_whole = bytes.contains(&b'\n') || bytes.len() >= MAX_LINE || self.ended;
        if is_whole {
            let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let answer = answer_line(service, &line[..line.len().min(MAX_LINE)]);
            self.end = Some(ClientEnd::Left);
            self.send(answer.as_bytes());
        }
        is_whole
    }

    fn serve_message(&mut self, service: &Service) -> bool {
        if self.subscription.is_some() {
            // What follows is served after the last answer, and that is never. It may not grow.
            if self.frames.waiting() > MAX_MESSAGE {
                self.end = Some(ClientEnd::Dropped(Offence::Flooding));
            }
            return false;
        }
        let message = match self.frames.next_message() {
            Ok(None) => return false,
            Ok(Some(message)) => message,
            Err(error) => {
                self.refuse(error.to_string());
                return true;
            }
        };
        self.until = None;
        match Call::parse(&message) {
            Ok(call) => self.call(service, call),
            Err(error) => self.refuse(format!("no call of varlink: {error}")),
        }
        true
    }

    /// Refuses bytes after which nothing can be read any more.
    fn refuse(&mut self, mut reason: String) {
        if let Some((end, _)) = reason.char_indices().find(|(at, _)| *at >= MAX_REASON) {
            reason.truncate(end);
        }
        self.end = Some(ClientEnd::Dropped(Offence::Nonsense(reason.clone())));
        self.send(&Reply::fault(&Fault::BadMessage { reason }).emit());
    }

    fn call(&mut self, service: &Service, call: Call) {
        let reply = match answer(service, &call, self.rights, Turn::First) {
            Ok(Answer::Each(reply, interval)) if call.more && !call.oneway => {
                let due = Instant::now() + interval;
                self.subscription = Some(Subscription { call, interval, due });
                self.send(&Reply { continues: true, ..reply }.emit());
                return;
            }
            Ok(Answer::Later(pending)) => {
                self.pending = Some((pending, !call.oneway));
                return;
            }
            Ok(Answer::Once(reply) | Answer::Each(reply, _)) => reply,
            Err(fault) => Reply::fault(&fault),
        };
        if !call.oneway {
            self.send(&reply.emit());
        }
    }
}

/// Returns the time from the begin of a request to the end of the rest after it.
fn rest_after(took: Duration) -> Duration {
    took + (took * REST).min(LONGEST_REST)
}

/// Calls a non-blocking function. Returns `None` if it would have to wait.
fn at_once<T>(call: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
    match retry(call) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}
