//! Serves connections: a thread for each, as many as [`Limits`] allow.

use super::crowd::{Crowd, Limits, Place};
use super::request::{self, Page, Refusal};
use super::response::Response;
use crate::collector::Collector;
use crate::exposition;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client that was refused may go on to send, so that it can read why.
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
        let place = self.crowd.enter(&stream)?;
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
    let (response, is_head) = match request {
        Ok(request) => (page(request.page, collector), request.is_head),
        Err(Refusal::Gone) if is_evicted => (Response::crowded(), false),
        Err(refusal) => match Response::refusal(refusal) {
            Some(response) => (response, false),
            None => return Ok(()),
        },
    };
    timed().write_all(&response.emit(is_head))?;
    stream.shutdown(Shutdown::Write)?;
    if request.is_err() && !is_evicted {
        drain(stream);
    }
    Ok(())
}

fn page(page: Page, collector: &Collector) -> Response {
    match page {
        Page::Home => Response::home(),
        Page::Metrics(format) => {
            Response::metrics(format.content_type(), exposition::text(collector.scrape(), format))
        }
    }
}

/// Takes what a client still sends. The kernel would otherwise discard the answer with it.
fn drain(stream: &TcpStream) {
    let mut timed = Timed { stream, end: Instant::now() + LINGER };
    let mut bytes = [0; 4096];
    while matches!(timed.read(&mut bytes), Ok(1..)) {}
}
