//! Every way in which a request can end other than well, on one host and between two.
#![allow(clippy::duplicate_mod, reason = "each case runs in both settings, of which the module's name tells")]

#[path = "statuses/cases.rs"]
mod one_host;
#[path = "statuses/cases.rs"]
mod two_hosts;
