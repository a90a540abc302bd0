//! `vrdma-exporter`: shows the counters of a running vrdma daemon to Prometheus.
//!
//! It is a process of its own. It asks the daemon at its socket `observe`, and answers scrapes by
//! HTTP. `docs/metrics.md` lists the series.
//!
//! * `args.rs` is the command line.
//! * `family.rs` defines what a family of series is: its name, and where its numbers come from.
//!   `families/` has the families: `daemon.rs` those of exporter, daemon and workers, `guest.rs`
//!   those of guests, `port.rs` those of ports.
//! * `snapshot.rs` orders what the daemon said by what it is about. `daemon.rs` asks the daemon.
//!   `collector.rs` has one thread do that for all scrapes.
//! * `exposition.rs` writes the text that Prometheus reads. `page.rs` writes the table of the
//!   documentation.
//! * `http/` is the server: `request.rs` reads requests, `preference.rs` chooses the format,
//!   `response.rs` has the answers, `crowd.rs` limits the connections, `server.rs` serves them.
#![forbid(unsafe_code)]

pub mod args;
pub mod collector;
mod daemon;
pub mod exposition;
pub mod families;
pub mod family;
pub mod http;
pub mod page;
pub mod snapshot;
