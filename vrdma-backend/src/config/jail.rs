//! What the jail has to know of a configuration.

use super::{Config, Tcp, Transport};
use crate::jail::{Plan, UplinkKind};
use crate::port::UplinkDevice;
use std::path::{Path, PathBuf};
use vrdma_admin::{ADMIN, OBSERVE};

/// Where DPDK's memif meets if no socket is named.
const MEMIF_SOCKET: &str = "/run/memif.sock";

impl Config {
    /// Returns what the jail of a daemon with this configuration has to allow.
    pub fn jail(&self) -> Plan {
        let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let of_guests = self.guests.iter().flat_map(|guest| [&guest.socket, &guest.iwarp, &guest.net]);
        let sockets = of_guests.flatten().map(PathBuf::as_path).chain(self.admin_paths());
        let peer = self.uplink.as_ref().and_then(peer_socket);
        let directories_of = |paths: &mut dyn Iterator<Item = &Path>| {
            let directories = paths.map(|path| {
                let absolute = current.join(path);
                absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
            });
            let mut directories: Vec<PathBuf> = directories.collect();
            directories.sort();
            directories.dedup();
            directories
        };
        let connected =
            self.guests.iter().flat_map(|guest| [&guest.connect, &guest.iwarp_connect, &guest.net_connect]);
        let is_kernel = |guest| self.tcp_of(guest) == Tcp::Kernel;
        Plan {
            user: self.user.as_ref().map(|user| user.id),
            sandbox: self.sandbox,
            seccomp: self.seccomp,
            uplink: self.uplink.as_ref().map_or(UplinkKind::None, kind_of),
            kernel_tcp: self
                .guests
                .iter()
                .any(|guest| guest.transport != Transport::Roce && is_kernel(guest)),
            gives_sockets: self.socket_owner.is_some() || self.socket_group.is_some(),
            directories: directories_of(&mut sockets.chain(peer)),
            peers: directories_of(&mut connected.flatten().map(PathBuf::as_path)),
        }
    }
}

impl Config {
    /// Returns the paths of the admin sockets. Those that are not named are at their usual places.
    fn admin_paths(&self) -> impl Iterator<Item = &Path> {
        let admin = self.admin.as_deref().unwrap_or(Path::new(ADMIN));
        let observe = self.observe.as_deref().unwrap_or(Path::new(OBSERVE));
        let admin = Some(admin).filter(|_| self.admin_fd.is_none());
        admin.into_iter().chain([observe]).filter(|path| path.as_os_str() != Config::NO_SOCKET)
    }
}

/// Returns the socket by which a device meets its peer, if it has one that is a file.
fn peer_socket(device: &UplinkDevice) -> Option<&Path> {
    let path = match device.driver() {
        "net_memif" => Some(device.get("socket").unwrap_or(MEMIF_SOCKET)),
        "net_virtio_user" => device.get("path"),
        "net_vhost" => device.get("iface"),
        _ => None,
    };
    path.map(Path::new)
}

fn kind_of(device: &UplinkDevice) -> UplinkKind {
    match device.driver() {
        _ if device.is_pci() => UplinkKind::Pci { vfio: is_vfio(&device.name) },
        _ if device.is_packet() => UplinkKind::NetPacket,
        _ if device.is_af_packet() => UplinkKind::AfPacket,
        _ if device.is_af_xdp() => UplinkKind::AfXdp,
        "net_ring" | "net_null" => UplinkKind::Memory,
        "net_memif" => UplinkKind::Memif {
            abstract_socket: device.get("socket-abstract").is_none_or(|said| said != "no"),
        },
        _ => UplinkKind::Virtual,
    }
}

/// Whether a PCI device is bound to vfio-pci, or to a driver like it.
fn is_vfio(address: &str) -> bool {
    // The kernel writes the domain, which a user may leave out.
    let full = if address.matches(':').count() == 1 { format!("0000:{address}") } else { address.to_owned() };
    let driver = std::fs::read_link(format!("/sys/bus/pci/devices/{full}/driver"));
    driver.is_ok_and(|driver| driver.file_name().is_some_and(|name| name.to_string_lossy().contains("vfio")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        toml::from_str::<Config>(text).unwrap().jail()
    }

    #[test]
    fn uplinks_are_told_apart() {
        for (device, kind) in [
            ("net_packet0,iface=a", UplinkKind::NetPacket),
            ("net_af_packet0,iface=a", UplinkKind::AfPacket),
            ("net_af_xdp0,iface=a", UplinkKind::AfXdp),
            ("net_ring0", UplinkKind::Memory),
            ("net_memif0,role=client", UplinkKind::Memif { abstract_socket: true }),
            ("net_memif0,role=client,socket-abstract=no", UplinkKind::Memif { abstract_socket: false }),
            ("net_tap0,iface=a", UplinkKind::Virtual),
            ("ffff:ff:1f.7", UplinkKind::Pci { vfio: false }),
        ] {
            assert_eq!(plan(&format!("uplink = '{device}'")).uplink, kind, "{device}");
        }
        assert_eq!(plan("").uplink, UplinkKind::None);
    }

    #[test]
    fn directories_of_all_sockets_are_shown() {
        let text = "admin = '/run/x/admin'\nobserve = 'none'\n[[guest]]\nname = 'a'\nmac = '02:00:00:00:00:01'\n\
            socket = '/run/y/a'\nnet = '/run/x/n'\niwarp = 'i'\ntransport = 'both'\ntcp = 'kernel'";
        let plan_of = plan(text);
        assert_eq!(plan("admin_fd = 3").directories, [PathBuf::from("/run/vrdma")]);
        assert_eq!(plan("admin_fd = 3\nobserve = 'none'").directories, [PathBuf::new(); 0]);
        let here = std::env::current_dir().unwrap();
        let mut expected = vec![here, "/run/x".into(), "/run/y".into()];
        expected.sort();
        assert_eq!(plan_of.directories, expected);
        assert!(plan_of.kernel_tcp && !plan_of.gives_sockets);
        let memif = plan("uplink = 'net_memif0,socket=/run/m/s'\nsocket_group = '0'");
        assert_eq!(memif.directories, [PathBuf::from("/run/m"), PathBuf::from("/run/vrdma")]);
        assert!(memif.gives_sockets && !memif.kernel_tcp);
    }

    #[test]
    fn directories_of_front_ends_that_listen_are_told_apart() {
        let text = "admin = 'none'\nobserve = 'none'\n[[guest]]\nname = 'a'\nmac = '02:00:00:00:00:01'\n\
            connect = '/run/v/a'\nnet_connect = '/run/v/n'";
        let plan = plan(text);
        assert_eq!(plan.peers, [PathBuf::from("/run/v")]);
        assert!(plan.directories.is_empty());
    }
}
