//! Every way in which a request can end other than well, on one host and between two.

#[path = "statuses/cases.rs"]
mod one_host;
#[path = "statuses/cases.rs"]
mod two_hosts;
