//! A way from the host's network namespace to the machine's mirror of Debian.
//!
//! apt uses it as its HTTP proxy. The namespace has no other network, so nothing of the machine is
//! changed.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns};
use vrdma_lab::apt;

/// The port of the proxy, in the namespace.
pub const PORT: u16 = 3142;

/// Listens in the network namespace of a process, as long as that exists.
pub fn start(process: u32, mirror: &apt::Mirror) -> Result<()> {
    let target = target(&mirror.uri, &apt::options()?)?;
    let namespace = File::open(format!("/proc/{process}/ns/net")).context("the host has no network")?;
    // Only this thread enters the namespace. The socket stays there.
    let listen = move || -> Result<TcpListener> {
        setns(namespace, CloneFlags::CLONE_NEWNET).context("cannot enter the host's network")?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).context("no port for the host's apt")
    };
    let listener = thread::spawn(listen).join().expect("the thread does not panic")?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let target = target.clone();
            // A failure is a closed connection, of which apt tells.
            thread::spawn(move || TcpStream::connect(&target).map(|server| join(client, server)));
        }
    });
    Ok(())
}

/// Returns host and port of the mirror, or of the machine's own proxy.
fn target(uri: &str, options: &[String]) -> Result<String> {
    let proxy = options.iter().find_map(|option| option.strip_prefix("Acquire::http::Proxy "));
    let address = proxy.map_or(uri, |proxy| proxy.trim_matches(['"', ' ']));
    let place = address.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let place = place.with_context(|| format!("only a mirror with http:// can be reached, not {address}"))?;
    ensure!(!place.contains('@'), "the proxy wants a password");
    Ok(if place.contains(':') { place.to_owned() } else { format!("{place}:80") })
}

/// Copies both directions until both end.
fn join(client: TcpStream, server: TcpStream) {
    let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
    let back = thread::spawn(move || copy(server, client));
    copy(from, to);
    let _ = back.join();
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other side is gone if this fails.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_the_mirror_or_the_machines_proxy() {
        let none = ["Acquire::Retries \"3\"".to_owned()];
        assert_eq!(target("http://mirror.test/debian", &none).unwrap(), "mirror.test:80");
        assert_eq!(target("http://mirror.test:8080/debian", &none).unwrap(), "mirror.test:8080");
        let proxy = ["Acquire::http::Proxy \"http://proxy.test:3128/\"".to_owned()];
        assert_eq!(target("http://mirror.test/debian", &proxy).unwrap(), "proxy.test:3128");
        assert!(target("https://mirror.test/debian", &none).is_err());
    }
}
