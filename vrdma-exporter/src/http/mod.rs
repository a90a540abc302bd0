//! A small HTTP server: one request a connection, and limits for all that a client may do.

mod crowd;
mod preference;
mod request;
mod response;
mod server;

pub use crowd::Limits;
pub use server::Server;
