//! Serves connections: a thread for each, as many as [`Limits`] allow.

use super::crowd::{Crowd, Limits, Place};
use super::request::{self, Page, Refusal, Request};
use super::response::Response;
use crate::collector::Collector;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may go on to send after its answer, so that it can read that.
const LINGER: Duration = Duration::from_secs(1);
/// How long to wait when the system has no descriptor or thread left.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    crowd: Arc<Crowd>,
    limits: Limits,
    collector: Collector,
}

impl Server {
    /// Listens at an address.
    ///
    /// # Errors
    /// Another program listens there, or the address is not this host's.
    pub fn listen(address: SocketAddr, limits: Limits, collector: Collector) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        Ok(Server { listener, crowd: Crowd::new(limits.connections), limits, collector })
    }

    /// Returns the address at which it listens.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns its clients.
    pub fn crowd(&self) -> Arc<Crowd> {
        Arc::clone(&self.crowd)
    }

    /// Serves for ever.
    pub fn serve(self) {
        loop {
            if let Err(error) = self.admit() {
                // A client that left before it was accepted is no trouble.
                if !matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) {
                    log::warn!("a client cannot be served: {error}");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Lets the next client in.
    fn admit(&self) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        let Some(place) = self.crowd.enter(&stream)? else {
            // It may have left.
            let _ = turn_away(&stream);
            return Ok(());
        };
        let (limits, collector) = (self.limits, self.collector.clone());
        let client = std::thread::Builder::new().name("client".into());
        client.spawn(move || {
            // A client that left is no trouble of ours.
            let _ = answer(&stream, &place, limits, &collector);
        })?;
        Ok(())
    }
}

/// A stream whose use ends at one time, however little comes at once.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn answer(stream: &TcpStream, place: &Place, limits: Limits, collector: &Collector) -> io::Result<()> {
    let timed = || Timed { stream, end: Instant::now() + limits.patience };
    let request = request::read(&mut timed());
    let is_evicted = place.has_asked();
    let show = |page| match page {
        Page::Home => Response::home(),
        Page::Metrics(format) => Response::metrics(format.content_type(), collector.scrape().text(format)),
    };
    let Some(response) = respond(request, is_evicted, show) else { return Ok(()) };
    place.takes();
    let mut writer = timed();
    writer.write_all(response.head().as_bytes())?;
    if !request.is_ok_and(|request| request.is_head) {
        writer.write_all(response.body().as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)?;
    if !is_evicted {
        drain(stream);
    }
    Ok(())
}

/// Chooses the answer. `None`: nobody is there to be told.
fn respond(
    request: Result<Request, Refusal>,
    is_evicted: bool,
    show: impl FnOnce(Page) -> Response,
) -> Option<Response> {
    match request {
        // Somebody waits for its place.
        _ if is_evicted => Some(Response::crowded()),
        Ok(request) => Some(show(request.page)),
        Err(refusal) => Response::refusal(refusal),
    }
}

/// Tells a client that there is no place for it, without waiting for it.
fn turn_away(mut stream: &TcpStream) -> io::Result<()> {
    let response = Response::crowded();
    stream.set_nonblocking(true)?;
    // So little always has room in a new connection.
    stream.write_all([response.head().as_bytes(), response.body().as_bytes()].concat().as_slice())?;
    stream.shutdown(Shutdown::Write)?;
    // The kernel discards the answer with what was not read.
    let _ = stream.read(&mut [0; request::LONGEST])?;
    Ok(())
}

/// Takes what a client still sends. The kernel would otherwise discard the answer with it.
fn drain(stream: &TcpStream) {
    let mut timed = Timed { stream, end: Instant::now() + LINGER };
    let mut bytes = [0; 4096];
    while matches!(timed.read(&mut bytes), Ok(1..)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Format;

    #[test]
    fn who_has_to_make_room_is_not_served() {
        let asked = [
            Ok(Request { page: Page::Metrics(Format::Plain), is_head: false }),
            Err(Refusal::Gone),
            Err(Refusal::TooSlow),
        ];
        for request in asked {
            let response = respond(request, true, |_| panic!("the daemon is not asked")).unwrap();
            assert!(response.head().starts_with("HTTP/1.1 503 "), "{request:?}");
        }
    }

    #[test]
    fn others_get_what_they_asked_for() {
        let request = Ok(Request { page: Page::Home, is_head: false });
        let response = respond(request, false, |_| Response::home()).unwrap();
        assert!(response.head().starts_with("HTTP/1.1 200 "));
        let response = respond(Err(Refusal::TooSlow), false, |_| Response::home()).unwrap();
        assert!(response.head().starts_with("HTTP/1.1 408 "));
        assert!(respond(Err(Refusal::Gone), false, |_| Response::home()).is_none());
    }
}
