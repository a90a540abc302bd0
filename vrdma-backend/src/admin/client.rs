//! A client of the admin sockets. Nothing that it does, or does not do, makes another one wait.
//!
//! A client speaks varlink, or has one line as its request. Its first byte tells which.

use super::capture::{self, ClientCapture};
use super::methods::{Answer, ReplyToCome, Turn, answer, answer_capture, answer_line};
use super::service::{Rights, Service};
use super::stream::{ClientStream, ROOM_LOOK, ReadPart};
use crate::capture::{DescriptorKeeper, SentDescriptor};
use crate::socket::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vrdma_admin::capture::StartCapture;
use vrdma_admin::{Call, Fault, Frames, Method, Reply};

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
    stream: ClientStream,
    rights: Rights,
    frames: Frames,
    /// The last descriptor that came with the bytes that are still to be served.
    descriptor: Option<SentDescriptor>,
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
    topic: Topic,
    interval: Duration,
    due: Instant,
}

/// What a subscription is about.
#[derive(Debug)]
enum Topic {
    /// A call that is carried out again for each answer.
    Call(Call),
    /// A capture, of which the client is told.
    Capture(Box<ClientCapture>),
}

impl Client {
    /// Takes a connection. `keeper` has the descriptors closed that come by it.
    ///
    /// # Errors
    /// The system refuses to make it non-blocking.
    pub fn new(stream: UnixStream, rights: Rights, keeper: DescriptorKeeper) -> io::Result<Client> {
        let now = Instant::now();
        Ok(Client {
            stream: ClientStream::new(stream, keeper)?,
            rights,
            frames: Frames::new(MAX_MESSAGE),
            descriptor: None,
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
        Peer::of(self.stream.get()).map_or("a client".to_owned(), |peer| peer.to_string())
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
                self.read(now)?;
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

    /// Sends the last reply of a capture, if there is one. The daemon is about to end.
    pub fn part(&mut self) {
        let now = Instant::now();
        let Some(Subscription { topic: Topic::Capture(capture), .. }) = &mut self.subscription else {
            return;
        };
        if let Some((reply, true)) = capture.next_reply(now) {
            self.send(&reply.emit());
            // A client that does not read it has no time left.
            let _ = self.write(now);
        }
    }

    /// Whether the client has closed its socket.
    fn is_gone(&self) -> io::Result<bool> {
        Ok(self.polled(PollFlags::empty())?.intersects(PollFlags::HUP | PollFlags::ERR))
    }

    /// Returns what is so at present, of these flags and those of the end.
    fn polled(&self, flags: PollFlags) -> io::Result<PollFlags> {
        let mut fds = [PollFd::new(&self.stream, flags)];
        poll(&mut fds, Some(&Timespec::default()))?;
        Ok(fds[0].revents())
    }

    /// Sends what it can of the answer. Returns whether all of it is sent.
    fn write(&mut self, now: Instant) -> io::Result<bool> {
        let mut sent = 0;
        while sent < self.answer.len() {
            match self.stream.write(&self.answer[sent..])? {
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
        let call = match &mut each.topic {
            Topic::Call(call) => call,
            Topic::Capture(capture) => {
                if self.ended {
                    capture.stop();
                }
                let Some((reply, is_last)) = capture.next_reply(now) else { return };
                self.active = now;
                if is_last {
                    self.end_subscription();
                }
                return self.send(&Reply { continues: !is_last, ..reply }.emit());
            }
        };
        self.active = now;
        let reply = match answer(service, call, self.rights, Turn::Next) {
            Ok(Answer::Each(reply, _)) => Reply { continues: true, ..reply },
            Ok(Answer::Once(reply)) => {
                self.end_subscription();
                reply
            }
            Ok(Answer::Later(_) | Answer::Capture(_)) => unreachable!("such calls are made once"),
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

    /// Reads what has come, if the descriptors that come with it can be taken.
    fn read(&mut self, now: Instant) -> io::Result<()> {
        if !self.stream.has_room() {
            self.rests_until = now + ROOM_LOOK;
            // The rest of a request may have come.
            self.until = self.until.map(|_| now + PATIENCE);
            let sends_no_more = self.polled(PollFlags::RDHUP)?.contains(PollFlags::RDHUP);
            if let Some(Subscription { topic: Topic::Capture(capture), .. }) = &mut self.subscription
                && sends_no_more
            {
                capture.stop();
            }
            return Ok(());
        }
        let mut bytes = [0; CHUNK];
        let Some(ReadPart { count, descriptors }) = self.stream.read(&mut bytes)? else { return Ok(()) };
        // Only an administrator has captures. A call that is answered again and again has what it
        // needs.
        if self.rights == Rights::Administer
            && self.subscription.is_none()
            && let Some(last) = descriptors.into_iter().next_back()
        {
            self.descriptor = Some(last);
        }
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
            if self.frames.waiting() == 0 {
                // It came with a call that needs none. No later one has it.
                self.descriptor = None;
            }
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

    /// Sends the first answer of several.
    fn subscribe(&mut self, topic: Topic, interval: Duration, first: Reply) {
        let due = Instant::now() + interval;
        self.subscription = Some(Subscription { topic, interval, due });
        self.send(&Reply { continues: true, ..first }.emit());
    }

    fn call(&mut self, service: &Service, call: Call) {
        let answer = match call.method == StartCapture::NAME {
            true => answer_capture(service, &call, self.rights, self.descriptor.take()),
            false => answer(service, &call, self.rights, Turn::First),
        };
        let reply = match answer {
            Ok(Answer::Each(reply, interval)) if call.more && !call.oneway => {
                return self.subscribe(Topic::Call(call), interval, reply);
            }
            Ok(Answer::Capture(capture)) => {
                let reply = capture.first_reply();
                return self.subscribe(Topic::Capture(capture), capture::LOOK, reply);
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

#[cfg(test)]
mod tests {
    use super::super::stream::tests::send;
    use super::*;
    use rustix::net::SendFlags;

    #[test]
    fn those_who_look_have_no_descriptors_for_their_calls() {
        for (rights, has_one) in [(Rights::Observe, false), (Rights::Administer, true)] {
            let (keeper, closed) = DescriptorKeeper::new();
            let (peer, stream) = UnixStream::pair().unwrap();
            let mut client = Client::new(stream, rights, keeper).unwrap();
            let (_reader, writer) = io::pipe().unwrap();
            send(&peer, &writer, SendFlags::empty());
            client.read(Instant::now()).unwrap();
            assert_eq!(client.descriptor.is_some(), has_one, "{rights:?}");
            assert!(!closed.is_empty(), "another thread closes the others");
        }
    }
}
