//! Every way in which a request can fail, on one worker, between two workers, and between two
//! hosts.
//!
//! Shows: verbs.
#![allow(clippy::duplicate_mod, reason = "each case runs in each setting, of which the module's name tells")]

#[path = "statuses/cases.rs"]
mod one_worker;
#[path = "statuses/cases.rs"]
mod two_hosts;
#[path = "statuses/cases.rs"]
mod two_workers;
