//! Answers to clients.

use super::request::{LONGEST, Refusal};
use std::sync::Arc;

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    status: &'static str,
    content_type: &'static str,
    /// A field that this status wants.
    more: &'static str,
    body: Arc<str>,
}

/// The type of a text for people.
const TEXT: &str = "text/plain; charset=utf-8";

const HOME: &str = concat!(
    "<!DOCTYPE html>\n<html lang=\"en\"><head><title>vrdma-exporter</title></head>\n",
    "<body><h1>vrdma-exporter ",
    env!("CARGO_PKG_VERSION"),
    "</h1>\n<p>The counters of the vrdma daemon of this host are at ",
    "<a href=\"/metrics\">/metrics</a>.</p></body></html>\n"
);

impl Response {
    /// Returns the series.
    pub fn metrics(content_type: &'static str, body: Arc<str>) -> Response {
        Response { status: "200 OK", content_type, more: "", body }
    }

    /// Returns the page that says where the series are.
    pub fn home() -> Response {
        Response { status: "200 OK", content_type: "text/html; charset=utf-8", more: "", body: HOME.into() }
    }

    /// Says why there is no page. `None`: nobody is there to be told.
    pub fn refusal(refusal: Refusal) -> Option<Response> {
        let (status, more, body) = match refusal {
            Refusal::Gone => return None,
            Refusal::Nonsense => ("400 Bad Request", "", "this is no request of HTTP/1.1\n".into()),
            Refusal::NotFound => ("404 Not Found", "", "there are / and /metrics\n".into()),
            Refusal::Method => {
                ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "pages are read by GET or HEAD\n".into())
            }
            Refusal::TooSlow => ("408 Request Timeout", "", "the request was not whole in time\n".into()),
            Refusal::TooLong => (
                "431 Request Header Fields Too Large",
                "",
                format!("a request has at most {LONGEST} bytes and 64 fields\n").into(),
            ),
        };
        Some(Response { status, content_type: TEXT, more, body })
    }

    /// Says that too many clients are connected.
    pub fn crowded() -> Response {
        let body = "too many clients are connected: ask again\n".into();
        Response { status: "503 Service Unavailable", content_type: TEXT, more: "Retry-After: 1\r\n", body }
    }

    /// Returns the bytes before the body.
    pub fn head(&self) -> String {
        let Response { status, content_type, more, body } = self;
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
    }

    /// Returns the body.
    pub fn body(&self) -> &str {
        &self.body
    }
}
