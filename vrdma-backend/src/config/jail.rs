//! What the jail has to know of a configuration.

use super::{Config, Tcp, Transport};
use crate::jail::{Plan, UplinkKind};
use crate::port::UplinkDevice;
use std::path::{Component, Path, PathBuf};
use vrdma_admin::{ADMIN, OBSERVE};

/// Where DPDK's memif meets if no socket is named.
const MEMIF_SOCKET: &str = "/run/memif.sock";

impl Config {
    /// Returns what the jail of a daemon with this configuration has to allow.
    pub fn jail(&self) -> Plan {
        let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let of_guests = self.guests.iter().flat_map(|guest| [&guest.socket, &guest.iwarp, &guest.net]);
        let sockets = of_guests.flatten().map(PathBuf::as_path).chain(self.admin_paths());
        let meeting = self.uplink.as_ref().and_then(meeting_of);
        let [server, client] = [true, false].map(|is_server| {
            meeting.filter(|meeting| meeting.is_server == is_server).map(|meeting| meeting.path)
        });
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
            directories: directories_of(&mut sockets.chain(server)),
            configuration: self.file.as_deref().and_then(|file| directory_to_show(&current.join(file))),
            connects: connected.clone().flatten().next().is_some(),
            peers: directories_of(&mut connected.flatten().map(PathBuf::as_path).chain(client)),
        }
    }
}

impl Config {
    /// Returns the paths of the admin sockets. Those that are not named are at their usual places.
    fn admin_paths(&self) -> impl Iterator<Item = &Path> {
        let admin = self.admin.as_deref().unwrap_or(Path::new(ADMIN));
        let observe = self.observe.as_deref().unwrap_or(Path::new(OBSERVE));
        let admin = Some(admin).filter(|_| self.admin_fd.is_none());
        let observe = Some(observe).filter(|_| self.observe_fd.is_none());
        admin.into_iter().chain(observe).filter(|path| path.as_os_str() != Config::NO_SOCKET)
    }
}

/// Directories that have too much beside a configuration file to be shown for its sake.
const OF_MANY: [&str; 12] = [
    "/",
    "/etc",
    "/home",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",
    "/usr/local/etc",
    "/var",
    "/var/lib",
    "/var/tmp",
];

/// Directories with nothing that is a configuration file.
const OF_SYSTEM: [&str; 4] = ["/dev", "/proc", "/sys", "/usr/lib"];

/// Returns the directory of the configuration file, unless it has much beside the file.
///
/// The directory, and not the file: an editor makes a new file.
///
/// A path with `..` in it is not followed, because where it leads cannot be told from the path.
/// Devices, like /dev/stdin, cannot be read again.
fn directory_to_show(file: &Path) -> Option<PathBuf> {
    let directory = file.parent()?;
    let is_plain = !file.components().any(|part| part == Component::ParentDir);
    if !is_plain || OF_SYSTEM.iter().any(|known| directory.starts_with(known)) {
        return None;
    }
    let is_of_many = OF_MANY.iter().any(|known| Path::new(known) == directory);
    let is_of_a_user = directory.parent() == Some(Path::new("/home"));
    (!is_of_many && !is_of_a_user).then(|| directory.to_owned())
}

/// The socket by which a device meets its peer.
#[derive(Clone, Copy, Debug)]
struct Meeting<'a> {
    path: &'a Path,
    /// Whether the device makes the socket, and its peer connects.
    is_server: bool,
}

/// Returns the socket by which a device meets its peer, if it has one that is a file.
fn meeting_of(device: &UplinkDevice) -> Option<Meeting<'_>> {
    let (path, is_server) = match device.driver() {
        "net_memif" if !has_abstract_socket(device) => {
            (device.get("socket").unwrap_or(MEMIF_SOCKET), !device.is_memif_client())
        }
        "net_virtio_user" => (device.get("path")?, device.get("server") == Some("1")),
        "net_vhost" => (device.get("iface")?, device.get("client") != Some("1")),
        _ => return None,
    };
    // A device of the kernel, such as /dev/vhost-net, is open by then.
    (!path.starts_with("/dev/")).then_some(Meeting { path: Path::new(path), is_server })
}

/// Whether a memif's socket is a name in the network namespace, and no file.
fn has_abstract_socket(device: &UplinkDevice) -> bool {
    device.get("socket-abstract").is_none_or(|said| said != "no")
}

fn kind_of(device: &UplinkDevice) -> UplinkKind {
    match device.driver() {
        _ if device.is_pci() => UplinkKind::Pci { vfio: is_vfio(&device.name) },
        _ if device.is_packet() => UplinkKind::NetPacket,
        _ if device.is_af_packet() => UplinkKind::AfPacket,
        _ if device.is_af_xdp() => UplinkKind::AfXdp,
        "net_ring" | "net_null" => UplinkKind::Memory,
        "net_memif" => UplinkKind::Memif { abstract_socket: has_abstract_socket(device) },
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

    /// Returns the plan for a file. Admin sockets that it does not name are left out.
    fn plan(text: &str) -> Plan {
        let named = |key: &str| if text.contains(key) { String::new() } else { format!("{key} = 'none'\n") };
        let text = format!("{}{}{text}", named("admin"), named("observe"));
        toml::from_str::<Config>(&text).unwrap().jail()
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
        let text = "admin = '/run/x/admin'\n[[guest]]\nname = 'a'\nmac = '02:00:00:00:00:01'\n\
            socket = '/run/y/a'\nnet = '/run/x/n'\niwarp = 'i'\ntransport = 'both'\ntcp = 'kernel'";
        let plan_of = plan(text);
        let here = std::env::current_dir().unwrap();
        let mut expected = vec![here, "/run/x".into(), "/run/y".into()];
        expected.sort();
        assert_eq!(plan_of.directories, expected);
        assert!(plan_of.kernel_tcp && !plan_of.gives_sockets);
        let group = plan("socket_group = '0'");
        assert!(group.gives_sockets && !group.kernel_tcp);
    }

    #[test]
    fn a_device_shows_the_directory_of_its_socket_if_that_is_a_file() {
        let (none, there): (&[&str], &[&str]) = (&[], &["/run/m"]);
        for (device, directories, peers) in [
            ("net_memif0,role=client,socket=/run/m/s", none, none),
            ("net_memif0,role=client,socket-abstract=no,socket=/run/m/s", none, there),
            ("net_memif0,role=server,socket-abstract=no,socket=/run/m/s", there, none),
            ("net_virtio_user0,path=/run/m/s", none, there),
            ("net_virtio_user0,path=/run/m/s,server=1", there, none),
            ("net_virtio_user0,path=/dev/vhost-net", none, none),
            ("net_vhost0,iface=/run/m/s", there, none),
            ("net_vhost0,iface=/run/m/s,client=1", none, there),
        ] {
            let plan = plan(&format!("uplink = '{device}'"));
            let expected = [directories, peers].map(|all| all.iter().map(PathBuf::from).collect::<Vec<_>>());
            assert_eq!([plan.directories, plan.peers], expected, "{device}");
            assert!(!plan.connects);
        }
    }

    #[test]
    fn the_directory_of_the_file_is_shown_unless_it_has_much_else() {
        for (file, shown) in [
            ("/etc/vrdma/backend.toml", Some("/etc/vrdma")),
            ("/etc/backend.toml", None),
            ("/root/backend.toml", None),
            ("/home/me/backend.toml", None),
            ("/home/me/vrdma/backend.toml", Some("/home/me/vrdma")),
            ("/backend.toml", None),
            ("/etc/vrdma/../backend.toml", None),
            ("/dev/stdin", None),
        ] {
            let config = Config { file: Some(file.into()), ..Config::default() };
            assert_eq!(config.jail().configuration.as_deref(), shown.map(Path::new), "{file}");
        }
    }

    #[test]
    fn usual_places_of_admin_sockets_are_shown() {
        let directories = |text| toml::from_str::<Config>(text).unwrap().jail().directories;
        assert_eq!(directories(""), [PathBuf::from("/run/vrdma")]);
        assert_eq!(directories("admin_fd = 3"), [PathBuf::from("/run/vrdma")], "observers have theirs");
        assert_eq!(directories("admin_fd = 3\nobserve = 'none'"), Vec::<PathBuf>::new());
        assert_eq!(directories("admin_fd = 3\nobserve_fd = 4"), Vec::<PathBuf>::new());
        assert_eq!(directories("admin = '/run/x/a'\nobserve = 'none'"), [PathBuf::from("/run/x")]);
    }

    #[test]
    fn directories_of_front_ends_that_listen_are_told_apart() {
        let text = "[[guest]]\nname = 'a'\nmac = '02:00:00:00:00:01'\n\
            connect = '/run/v/a'\nnet_connect = '/run/v/n'";
        let plan = plan(text);
        assert_eq!(plan.peers, [PathBuf::from("/run/v")]);
        assert!(plan.directories.is_empty() && plan.connects);
    }
}
