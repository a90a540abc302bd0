//! Requests of clients.

use super::preference;
use crate::exposition::Format;
use std::io::{ErrorKind, Read};

/// Most bytes of a request without its body.
pub const LONGEST: usize = 8 << 10;
/// Most fields of a request.
const FIELDS: usize = 64;

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which page.
    pub page: Page,
    /// Whether the answer is sent without its body.
    pub is_head: bool,
}

/// A page of the exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/`: where the series are.
    Home,
    /// `/metrics`: the series.
    Metrics(Format),
}

/// Why a client does not get a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It sent nothing that HTTP/1 knows.
    Nonsense,
    /// Its request is too long, or has too many fields.
    TooLong,
    /// The request was not whole in time.
    TooSlow,
    /// The client closed the connection before its request was whole.
    Gone,
    /// There is no such page.
    NotFound,
    /// It wants something other than to read.
    Method,
}

/// Reads a request.
///
/// # Errors
/// It is not whole, makes no sense, or asks for what there is not.
pub fn read(stream: &mut impl Read) -> Result<Request, Refusal> {
    let mut bytes = Vec::new();
    let mut part = [0; 2048];
    loop {
        let count = match stream.read(&mut part) {
            Ok(0) => return Err(Refusal::Gone),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Refusal::TooSlow);
            }
            Err(_) => return Err(Refusal::Gone),
        };
        bytes.extend_from_slice(&part[..count]);
        if let Some(request) = parse(&bytes)? {
            return Ok(request);
        }
        if bytes.len() >= LONGEST {
            return Err(Refusal::TooLong);
        }
    }
}

/// Returns the request that these bytes begin with, or `None` if it is not whole.
fn parse(bytes: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLong),
        Err(_) => return Err(Refusal::Nonsense),
    }
    let target = parsed.path.unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let accepts = parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let page = match path {
        "/" => Page::Home,
        "/metrics" => Page::Metrics(preference::format(accepts.map(|field| field.value))),
        _ => return Err(Refusal::NotFound),
    };
    match parsed.method {
        Some("GET") => Ok(Some(Request { page, is_head: false })),
        Some("HEAD") => Ok(Some(Request { page, is_head: true })),
        _ => Err(Refusal::Method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Request, Refusal> {
        read(&mut text.as_bytes())
    }

    #[test]
    fn pages_are_found() {
        let home = Request { page: Page::Home, is_head: false };
        assert_eq!(of("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), Ok(home));
        let metrics = Request { page: Page::Metrics(Format::Plain), is_head: true };
        assert_eq!(of("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), Ok(metrics));
        let open = "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text\r\n\r\n";
        assert_eq!(of(open), Ok(Request { page: Page::Metrics(Format::OpenMetrics), is_head: false }));
    }

    #[test]
    fn what_is_no_request_for_a_page_is_refused() {
        assert_eq!(of("GET /metric HTTP/1.1\r\n\r\n"), Err(Refusal::NotFound));
        assert_eq!(of("GET http://x/metrics HTTP/1.1\r\n\r\n"), Err(Refusal::NotFound));
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), Err(Refusal::Method));
        assert_eq!(of("GET /metrics HTTP/9\r\n\r\n"), Err(Refusal::Nonsense));
        assert_eq!(of("stats\n\n"), Err(Refusal::Nonsense));
        assert_eq!(of("GET /metrics HTTP/1.1\r\n"), Err(Refusal::Gone));
        let fields = "a: b\r\n".repeat(FIELDS + 1);
        assert_eq!(of(&format!("GET / HTTP/1.1\r\n{fields}\r\n")), Err(Refusal::TooLong));
        let long = "b".repeat(LONGEST);
        assert_eq!(of(&format!("GET / HTTP/1.1\r\na: {long}\r\n\r\n")), Err(Refusal::TooLong));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&mut &bytes[..]);
        }

        #[test]
        fn parts_of_a_request_are_no_request(cut in 0..45usize) {
            let whole = "GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n";
            prop_assert_eq!(of(&whole[..cut]), Err(Refusal::Gone));
            prop_assert!(of(whole).is_ok());
        }
    }
}
