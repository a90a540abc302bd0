//! The lists of system calls: `calls/*.calls`.
//!
//! A line is `NAME [when CONDITION [and CONDITION]] # REASON`, where a condition is `argN = VALUE`,
//! or `argN & MASK = VALUE`. Several lines with one name mean any of them. A line `[KIND KIND]`
//! says for which kinds of threads the following lines hold. Lines before any such line hold for
//! all.

use super::numbers::{call, value};
use super::plan::{Plan, UplinkKind};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

/// Kinds of threads, each with a list of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The main thread between the jail and the end of the start. It starts all others.
    Start,
    /// The main thread, which waits for signals and ends the others.
    Main,
    /// A worker.
    Worker,
    /// A session of a function.
    Session,
    /// The thread that adds guests while the daemon runs. It starts their threads.
    Manager,
    /// The thread of the admin socket.
    Admin,
    /// A thread that writes a capture of an administrator, or closes descriptors of clients.
    Capture,
    /// The thread that binds sockets again.
    Sockets,
    /// Threads that need little: ringers, the reaper, the watch on the workers.
    Helper,
    /// Threads that the uplink started before the jail: DPDK's, and the writer of `--capture`.
    Uplink,
}

impl Kind {
    /// Returns the kinds whose lists a thread of this kind has: its own, and those of the threads
    /// that it starts, because a thread never gets a call that its starter lacks.
    pub fn lists(self) -> &'static [Kind] {
        match self {
            Kind::Start => &[Kind::Start],
            Kind::Main => &[Kind::Main],
            Kind::Worker => &[Kind::Worker],
            Kind::Session => &[Kind::Session],
            Kind::Manager => &[Kind::Manager, Kind::Session, Kind::Helper],
            Kind::Admin => &[Kind::Admin],
            Kind::Capture => &[Kind::Capture],
            Kind::Sockets => &[Kind::Sockets],
            Kind::Helper => &[Kind::Helper],
            Kind::Uplink => &[Kind::Uplink],
        }
    }
}

/// All kinds, with their names in lists.
pub const KINDS: [(&str, Kind); 10] = [
    ("start", Kind::Start),
    ("main", Kind::Main),
    ("worker", Kind::Worker),
    ("session", Kind::Session),
    ("manager", Kind::Manager),
    ("admin", Kind::Admin),
    ("capture", Kind::Capture),
    ("sockets", Kind::Sockets),
    ("helper", Kind::Helper),
    ("uplink", Kind::Uplink),
];

const BASE: &str = include_str!("calls/base.calls");
const DPDK: &str = include_str!("calls/dpdk.calls");
const CONNECT: &str = include_str!("calls/connect.calls");
const KERNEL_TCP: &str = include_str!("calls/kernel_tcp.calls");
const NET_PACKET: &str = include_str!("calls/net_packet.calls");
const NET_AF_PACKET: &str = include_str!("calls/net_af_packet.calls");
const NET_AF_XDP: &str = include_str!("calls/net_af_xdp.calls");
const MEMIF: &str = include_str!("calls/memif.calls");
const MLX5: &str = include_str!("calls/mlx5.calls");
const VIRTUAL: &str = include_str!("calls/virtual.calls");
const VFIO: &str = include_str!("calls/vfio.calls");

/// All lists, with their names.
pub const ALL: [(&str, &str); 11] = [
    ("mlx5", MLX5),
    ("connect", CONNECT),
    ("virtual", VIRTUAL),
    ("base", BASE),
    ("dpdk", DPDK),
    ("kernel_tcp", KERNEL_TCP),
    ("net_packet", NET_PACKET),
    ("net_af_packet", NET_AF_PACKET),
    ("net_af_xdp", NET_AF_XDP),
    ("memif", MEMIF),
    ("vfio", VFIO),
];

/// A condition on an argument: `argument & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The number of the argument, from 0 on.
    pub argument: u8,
    /// The bits that count. `None`: all.
    pub mask: Option<u64>,
    /// What they have to be.
    pub value: u64,
}

/// Conditions of which all have to hold. None: the call is allowed whatever its arguments are.
pub type Conditions = Vec<Condition>;

/// Calls that a thread may make, by number. One of the alternatives has to hold.
pub type Allowed = BTreeMap<i64, Vec<Conditions>>;

/// Returns the lists of a configuration.
pub fn lists(plan: &Plan) -> Vec<(&'static str, &'static str)> {
    let uplink = plan.uplink;
    let mut all = vec![("base", BASE)];
    if plan.connects {
        all.push(("connect", CONNECT));
    }
    if plan.kernel_tcp {
        all.push(("kernel_tcp", KERNEL_TCP));
    }
    if uplink != UplinkKind::None {
        all.push(("dpdk", DPDK));
    }
    match uplink {
        UplinkKind::None | UplinkKind::Memory => {}
        UplinkKind::NetPacket => all.push(("net_packet", NET_PACKET)),
        UplinkKind::AfPacket => all.push(("net_af_packet", NET_AF_PACKET)),
        UplinkKind::AfXdp => all.extend([("net_af_packet", NET_AF_PACKET), ("net_af_xdp", NET_AF_XDP)]),
        UplinkKind::Memif { .. } => all.push(("memif", MEMIF)),
        UplinkKind::Pci { vfio: true } => all.push(("vfio", VFIO)),
        UplinkKind::Pci { vfio: false } => {
            all.extend([("net_af_packet", NET_AF_PACKET), ("vfio", VFIO), ("mlx5", MLX5)]);
        }
        UplinkKind::Virtual => {
            all.extend([("net_af_packet", NET_AF_PACKET), ("memif", MEMIF), ("virtual", VIRTUAL)]);
        }
    }
    all
}

/// Adds what a list allows to one kind of thread.
///
/// # Errors
/// The list is malformed. The error names the line.
pub fn add(allowed: &mut Allowed, list: &str, kind: Kind) -> Result<()> {
    let mut kinds: Option<Vec<Kind>> = None;
    for (number, line) in list.lines().enumerate() {
        let at = || format!("line {}: {line}", number + 1);
        let (text, reason) = line.split_once('#').unwrap_or((line, ""));
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        if let Some(names) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let named = names.split_whitespace().map(|name| {
                let known = KINDS.iter().find(|(known, _)| *known == name);
                known.map(|(_, kind)| *kind).with_context(at)
            });
            kinds = Some(named.collect::<Result<_>>()?);
            continue;
        }
        ensure!(!reason.trim().is_empty(), "no reason: {}", at());
        let (name, conditions) = parse(text).with_context(at)?;
        let Some(number) = call(name).with_context(at)? else { continue };
        if kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind)) {
            allowed.entry(number).or_default().push(conditions);
        }
    }
    Ok(())
}

/// Parses `NAME [when CONDITION [and CONDITION]]`.
fn parse(text: &str) -> Result<(&str, Conditions)> {
    let Some((name, conditions)) = text.split_once(" when ") else {
        ensure!(!text.contains(char::is_whitespace), "a name is one word");
        return Ok((text, Vec::new()));
    };
    let conditions = conditions.split(" and ").map(|condition| {
        let words: Vec<&str> = condition.split_whitespace().collect();
        let (argument, mask, wanted) = match words[..] {
            [argument, "=", wanted] => (argument, None, wanted),
            [argument, "&", mask, "=", wanted] => (argument, Some(value(mask)?), wanted),
            _ => bail!("'{condition}' is no condition"),
        };
        let argument = argument.strip_prefix("arg").and_then(|number| number.parse().ok());
        let argument = argument.filter(|number| *number < 6).context("a call has arg0 to arg5")?;
        Ok(Condition { argument, mask, value: value(wanted)? })
    });
    Ok((name.trim(), conditions.collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_well_formed_and_give_reasons() {
        for (name, list) in ALL {
            for (_, kind) in KINDS {
                let mut allowed = Allowed::new();
                add(&mut allowed, list, kind).unwrap_or_else(|error| panic!("{name}.calls: {error:#}"));
            }
        }
    }

    #[test]
    fn no_list_allows_what_the_jail_is_for() {
        let forbidden = [
            "execve",
            "execveat",
            "ptrace",
            "mount",
            "umount2",
            "pivot_root",
            "setuid",
            "setresuid",
            "setns",
            "unshare",
            "process_vm_readv",
            "process_vm_writev",
            "kill",
            "fork",
            "vfork",
            "chroot",
            "init_module",
            "finit_module",
            "kexec_load",
            "keyctl",
            "add_key",
            "userfaultfd",
            "open_by_handle_at",
            "pidfd_getfd",
            "io_uring_setup",
            "capset",
        ];
        for (name, list) in ALL {
            for (_, kind) in KINDS {
                let mut allowed = Allowed::new();
                add(&mut allowed, list, kind).unwrap();
                for call_name in forbidden {
                    let number = call(call_name).unwrap();
                    assert!(
                        number.is_none_or(|number| !allowed.contains_key(&number)),
                        "{name}: {call_name}"
                    );
                }
                // These depend on their arguments in each list.
                for call_name in
                    ["mmap", "mprotect", "clone", "socket", "tgkill", "prctl", "ioctl", "seccomp", "fcntl"]
                {
                    let Some(number) = call(call_name).unwrap() else { continue };
                    let bare = allowed.get(&number).is_some_and(|any| any.iter().any(Vec::is_empty));
                    assert!(!bare, "{name}: {call_name}");
                }
            }
        }
    }

    #[test]
    fn lines_are_parsed_or_refused() {
        let parsed = |list: &str| {
            let mut allowed = Allowed::new();
            add(&mut allowed, list, Kind::Worker).map(|()| allowed).map_err(|error| format!("{error:#}"))
        };
        let read = call("read").unwrap().unwrap();
        assert_eq!(parsed("read # it reads").unwrap(), Allowed::from([(read, vec![vec![]])]));
        assert_eq!(parsed("[session]\nread # it reads").unwrap(), Allowed::new());
        assert_eq!(parsed("[session worker]\nread # it reads").unwrap().len(), 1);
        let socket = parsed("socket when arg0 = AF_UNIX and arg1 & 0xf = 1 # both").unwrap();
        let conditions = [(0, None, 1), (1, Some(15), 1)];
        let conditions = conditions.map(|(argument, mask, value)| Condition { argument, mask, value });
        assert_eq!(socket.into_values().next().unwrap(), [conditions.to_vec()]);
        for (wrong, said) in [
            ("read", "no reason: line 1: read"),
            ("raed # it reads", "line 1"),
            ("read write # both", "one word"),
            ("[wroker]\nread # x", "line 1: [wroker]"),
            ("\nsocket when arg0 # x", "line 2"),
            ("socket when arg6 = 1 # x", "arg0 to arg5"),
            ("socket when arg0 = AF_NONSENSE # x", "AF_NONSENSE"),
        ] {
            let error = parsed(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
