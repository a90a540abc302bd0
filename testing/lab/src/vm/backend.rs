//! The backend daemon of a host.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::wire::Namespace;
use crate::proc::{Proc, describe, indent};
use crate::{ui, wait};

/// How a backend is started.
pub struct BackendConfig {
    /// The name of its log and its admin socket.
    pub name: String,
    /// The guests that it waits for.
    pub guests: Vec<GuestSockets>,
    /// Channels of each guest.
    pub channels: u16,
    /// Additional arguments.
    pub arguments: Vec<String>,
}

/// A guest of a backend.
pub struct GuestSockets {
    /// Its name.
    pub name: String,
    /// MAC address of both its functions.
    pub mac: String,
    /// Another MAC address that its netdev may have.
    pub extra_mac: String,
    /// The RDMA function's socket.
    pub rdma: PathBuf,
    /// The Ethernet function's socket. `None` if the guest's Ethernet device is not the backend's.
    pub net: Option<PathBuf>,
    /// Addresses that it may use. If the list is empty, it may use any.
    pub gids: Vec<String>,
    /// VLANs that it may use besides untagged frames.
    pub vlans: &'static [u16],
    /// Whether its RDMA function is an iWARP device.
    pub iwarp: bool,
    /// The socket of a second function, if it has both a RoCE and an iWARP function.
    pub second: Option<PathBuf>,
    /// The host's addresses that it uses for iWARP.
    pub host_addresses: Vec<&'static str>,
}

impl GuestSockets {
    fn argument(&self) -> String {
        let Self { name, mac, extra_mac, rdma, net, gids, vlans, iwarp, second, host_addresses } = self;
        let net = net.as_ref().map_or(String::new(), |net| format!(",net={}", net.display()));
        let gids = match gids.as_slice() {
            [] => ",any-gid=true".to_owned(),
            gids => gids.iter().map(|gid| format!(",gid={gid}")).collect(),
        };
        let vlans: String = vlans.iter().map(|vlan| format!(",vlan={vlan}")).collect();
        let kind = match second {
            Some(second) => format!(",transport=both,iwarp={}", second.display()),
            None if *iwarp => ",transport=iwarp".to_owned(),
            None => String::new(),
        };
        let own: String = host_addresses.iter().map(|address| format!(",host-address={address}")).collect();
        format!(
            "name={name},socket={}{net},mac={mac},extra-mac={extra_mac}{gids}{vlans}{kind}{own}",
            rdma.display()
        )
    }
}

/// A running backend. Dropping it kills it.
pub struct Backend {
    proc: Proc,
    admin: PathBuf,
    log: PathBuf,
}

impl Backend {
    /// Starts a backend, in a namespace if one is given, and waits until it listens for its guests.
    pub fn start(
        program: &Path,
        config: &BackendConfig,
        sockets: &Path,
        directory: &Path,
        namespace: Option<&Namespace>,
    ) -> Result<Self> {
        let name = &config.name;
        let log = directory.join(format!("{name}.log"));
        let admin = sockets.join(format!("{name}.admin"));
        let mut command = Command::new(program);
        let mut awaited = vec![admin.clone()];
        for guest in &config.guests {
            command.args(["--guest", &guest.argument()]);
            let sockets = [Some(&guest.rdma), guest.second.as_ref(), guest.net.as_ref()];
            awaited.extend(sockets.into_iter().flatten().cloned());
        }
        command.arg("--admin").arg(&admin).args(["--channels", &config.channels.to_string()]);
        command.args(&config.arguments);
        if let Some(namespace) = namespace {
            command = namespace.enter(&command);
        }
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut proc = Proc::spawn("the backend", command)?;
        let said = || indent(&ui::tail(&log, 15));
        wait::until("the backend's sockets", wait::PATIENCE, || {
            if let Some(status) = proc.try_wait()? {
                bail!("the backend: {}\n{}", describe(status), said());
            }
            Ok(if awaited.iter().all(|socket| socket.exists()) { Ok(()) } else { Err(said()) })
        })?;
        Ok(Self { proc, admin, log })
    }

    /// The backend's process id.
    pub fn pid(&self) -> u32 {
        self.proc.id()
    }

    /// Returns the path of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.proc.try_wait()?.is_none())
    }

    /// Returns the backend's counters.
    pub fn stats(&self) -> Result<serde_json::Value> {
        let mut stream = UnixStream::connect(&self.admin).context("cannot connect to the admin socket")?;
        stream.set_read_timeout(Some(wait::PATIENCE))?;
        stream.write_all(b"stats\n")?;
        // This reads up to the end of the stream. After that the backend has closed the
        // connection's descriptor, which tests count.
        let mut text = String::new();
        stream.read_to_string(&mut text).context("cannot read from the admin socket")?;
        serde_json::from_str(&text).context("the admin socket gave no JSON")
    }
}
