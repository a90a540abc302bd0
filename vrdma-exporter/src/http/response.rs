//! Answers to clients.

use super::request::{LONGEST, Refusal};

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    status: &'static str,
    content_type: &'static str,
    /// A field that this status wants.
    more: &'static str,
    body: String,
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
    pub fn metrics(content_type: &'static str, body: String) -> Response {
        Response { status: "200 OK", content_type, more: "", body }
    }

    /// Returns the page that says where the series are.
    pub fn home() -> Response {
        Response {
            status: "200 OK",
            content_type: "text/html; charset=utf-8",
            more: "",
            body: HOME.to_owned(),
        }
    }

    /// Says why there is no page. `None`: nobody is there to be told.
    pub fn refusal(refusal: Refusal) -> Option<Response> {
        let (status, more, body) = match refusal {
            Refusal::Gone => return None,
            Refusal::Nonsense => ("400 Bad Request", "", "this is no request of HTTP/1.1\n".to_owned()),
            Refusal::NotFound => ("404 Not Found", "", "there are / and /metrics\n".to_owned()),
            Refusal::Method => (
                "405 Method Not Allowed",
                "Allow: GET, HEAD\r\n",
                "pages are read by GET or HEAD\n".to_owned(),
            ),
            Refusal::TooSlow => ("408 Request Timeout", "", "the request was not whole in time\n".to_owned()),
            Refusal::TooLong => (
                "431 Request Header Fields Too Large",
                "",
                format!("a request has at most {LONGEST} bytes and 64 fields\n"),
            ),
        };
        Some(Response { status, content_type: TEXT, more, body })
    }

    /// Says that too many clients are connected.
    pub fn crowded() -> Response {
        let body = "too many clients are connected: ask again\n".to_owned();
        Response { status: "503 Service Unavailable", content_type: TEXT, more: "Retry-After: 1\r\n", body }
    }

    /// Returns the bytes of the answer, or those before its body.
    pub fn emit(&self, is_head: bool) -> Vec<u8> {
        let Response { status, content_type, more, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        );
        let body: &[u8] = if is_head { &[] } else { body.as_bytes() };
        [head.as_bytes(), body].concat()
    }
}
