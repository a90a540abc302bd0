use super::file::File;
use super::*;
use crate::allowed::AllowedGid;
use crate::port::Direction;
use clap::Parser;
use vrdma_wire::num::{Gid, Mac, VlanId};

const GUEST: &str = "name=a,socket=/tmp/a,mac=52:54:00:00:00:01";
const SECOND: &str = "name=b,net=/b,mac=52:54:00:00:00:02,any-gid=true";
const GUEST_FILE: &str = "[[guest]]\nname='a'\nsocket='/x'\nmac='52:54:00:00:00:01'\n";

fn load(args: &[&str]) -> Result<Config> {
    Config::load(&Args::try_parse_from([&["vrdma-backend"], args].concat())?)
}

/// Returns the configuration in a file with this text, or its error.
fn file(text: &str) -> Result<Config> {
    let file = File::of(text);
    let config: Config = file.keys()?;
    config.check().map_err(|error| file.locate(error, &toml::Table::new()))?;
    Ok(config)
}

#[test]
fn flags_alone_are_enough() {
    let config = load(&["--guest", GUEST, "--channels", "3"]).unwrap();
    assert_eq!((config.channels, config.num_queues()), (3, 7));
    assert_eq!(config.guests[0].mac.0, [0x52, 0x54, 0, 0, 0, 1]);
}

#[test]
fn mistakes_in_flags_are_named() {
    let long = format!("name=a,mac=52:54:00:00:00:01,socket=/{}", "x".repeat(107));
    for (args, message) in [
        (&[][..], "no guest"),
        (&["--guest", "name=a,socket=/x"], "the key mac is missing"),
        (&["--guest", "name=a,mac=52:54:00:00:00:01"], "neither socket nor net"),
        (
            &["--guest", "name=a,socket=/x,net=/x,mac=52:54:00:00:00:01"],
            "guest a: net = /x: it is there twice, also as guest a: socket",
        ),
        (
            &["--guest", &format!("{GUEST},extra-mac=52:54:00:00:00:01")],
            "52:54:00:00:00:01 is there twice, also at guest a",
        ),
        (&["--guest", &format!("{GUEST},any-mac=maybe")], "any_mac: 'maybe' is not true or false"),
        (&["--guest", &format!("{GUEST},name=b")], "name: it is given twice, and takes one value"),
        (&["--guest", &format!("{GUEST},gid=10.0.0.1,gids=10.0.0.2")], "duplicate field `gids`"),
        (&["--guest", &format!("{GUEST},gid=")], "gid: a value is missing"),
        (&["--guest", &format!("{GUEST},gid")], "'gid' is not KEY=VALUE"),
        (&["--guest", &format!("{GUEST},gid=10.0.0")], "gid: '10.0.0' is not an IP address"),
        (
            &["--guest", &format!("{GUEST},gid=10.0.0.1@0")],
            "gid: '10.0.0.1@0' is not an IP address, alone or with @VLAN",
        ),
        (&["--guest", &format!("{GUEST},vlan=4095")], "guest a: vlans = 4095: give a number from 1 to 4094"),
        (&["--guest", &format!("{GUEST},weight=0")], "guest a: weight = 0: give a number from 1 to 100"),
        (&["--guest", &format!("{GUEST},weight=101")], "guest a: weight = 101: give a number from 1 to 100"),
        (&["--guest", &format!("{GUEST},weight=x")], "weight: 'x' is not a number that fits here"),
        (&["--guest", &format!("{GUEST},dscp=64")], "guest a: dscp = 64: give a number from 0 to 63"),
        (&["--guest", &format!("{GUEST},pcp=8")], "guest a: pcp = 8: give a number from 0 to 7"),
        (&["--guest", &format!("{GUEST},pcp=256")], "pcp: '256' is not a number that fits here"),
        (&["--guest", &format!("{SECOND},dscp=1")], "guest b: dscp is of RoCE: give socket and transport"),
        (&["--guest", &format!("{GUEST},limits=7")], "limits: '7' is not a table; give limits.KEY=VALUE"),
        (
            &["--guest", &format!("{GUEST},tx-bytes=7")],
            "guest a: tx_bytes = 7: give a number from 1000000 to 1000000000000, or 0 for no limit",
        ),
        (
            &["--guest", &format!("{GUEST},rx-messages=99")],
            "guest a: rx_messages = 99: give a number from 100",
        ),
        (&["--guest", &format!("{GUEST},burst-ms=0")], "guest a: burst_ms = 0: give a number from 1 to 1000"),
        (&["--guest", &format!("{GUEST},rx-bytes=fast")], "rx_bytes: 'fast' is not a number that fits here"),
        (&["--guest", &format!("{GUEST},limits=7,limits.qps=8")], "limits.qps: it is given as a value and"),
        (&["--guest", &format!("{GUEST},limits.qps=8,limits=7")], "limits: it is given as a value and as"),
        (&["--guest", &format!("{GUEST},limits.qps=8,limits.qps=8")], "duplicate field `qps`"),
        (
            &["--guest", &format!("{GUEST},limits.qps=7")],
            "guest a: limits.qps = 7: give a power of two, like 8",
        ),
        (&["--guest", &format!("{GUEST},limits.qsp=8")], "there is no key qsp: did you mean qps?"),
        (&["--guest", &format!("{GUEST},vlan=0")], "guest a: vlans = 0: give a number from 1 to 4094"),
        (&["--guest", &format!("{GUEST},vlan=eth0.10")], "vlan: 'eth0.10' is not a number"),
        (&["--guest", &format!("{GUEST},untagged=false")], "untagged = false: it is in no VLAN; give vlans"),
        (&["--guest", &format!("{GUEST},any-vlan=true,vlan=10")], "take vlans and untagged away"),
        (
            &["--guest", &format!("{GUEST},vlan=10,gid=10.0.0.1@20")],
            "guest a: gids = 10.0.0.1@20: it is not in that VLAN; add that to vlans",
        ),
        (&["--guest", &format!("{GUEST},vlan=10,untagged=false,gid=10.0.0.1@untagged")], "not in that VLAN"),
        (&["--guest", &format!("{GUEST},gid=224.0.0.1")], "gids = 224.0.0.1: this is a multicast address"),
        (&["--guest", "name=a,socket=/x,mac=1:2"], "mac: '1:2' is not a MAC address, like 52:54"),
        (&["--guest", "name=a,socket=/x,mac=53:54:00:00:00:01"], "this is a multicast address"),
        (&["--guest", "name=a,socket=/x,mac=00:00:00:00:00:00"], "this is no address of a NIC"),
        (&["--guest", "name=a,colour=red"], "there is no key colour: there are name, socket, "),
        (&["--guest", GUEST, "--guest", GUEST], "guest a: two guests have this name"),
        (
            &["--guest", GUEST, "--guest", SECOND],
            "guest a: gids is missing: with more than one guest give the",
        ),
        (
            &["--guest", &format!("{GUEST},gid=10.0.0.1"), "--guest", "name=b,net=/b,mac=52:54:00:00:00:02"],
            "guest b: gids is missing",
        ),
        (
            &["--guest", &format!("{GUEST},gid=10.0.0.1,any-gid=true")],
            "any_gid = true: it may use any; take gids away",
        ),
        (&["--guest", GUEST, "--admin", "/tmp/a"], "socket = /tmp/a: it is there twice, also as admin"),
        (
            &["--guest", GUEST, "--admin", "/tmp/x", "--observe", "/tmp/x"],
            "observe = /tmp/x: it is there twice, also as admin",
        ),
        (&["--guest", &long], "108 bytes are too long for a socket's path, 107 is the most"),
        (&["--guest", GUEST, "--mtu", "100"], "mtu = 100: give a number from 1280 to 9600"),
        (&["--guest", GUEST, "--mtu", "99999"], "mtu = 99999: give a number from 1280 to 9600"),
        (&["--guest", GUEST, "--poll-us", "9223372036854775808"], "'--poll-us <US>'"),
        (&["--guest", GUEST, "--channels", "0"], "channels = 0: give a number from 1 to 253"),
        (&["--guest", GUEST, "--channels", "253"], "257 virtqueues, at most 256"),
        (&["--guest", GUEST, "--uplink", ""], "no device"),
        (&["--guest", GUEST, "--uplink", "net_ring0", "--faults", "loss=2"], "no rate from 0 to 1"),
        (&["--guest", GUEST, "--capture", "/x"], "capture is of an uplink"),
        (
            &["--guest", GUEST, "--uplink", "net_ring0", "--uplink-mtu", "1"],
            "uplink_mtu = 1: give a number from 576 to 9600",
        ),
        (
            &["--guest", GUEST, "--uplink", "net_ring0", "--uplink-mtu", "99999"],
            "uplink_mtu = 99999: give a number from 576 to 9600",
        ),
        (
            &["--guest", &format!("{GUEST},transport=ethernet")],
            "transport: there is no value ethernet: there are roce, iwarp, both",
        ),
        (&["--guest", &format!("{GUEST},host-address=127.0.0.1")], "guest a: host_addresses is of iWARP"),
        (
            &["--guest", &format!("{GUEST},transport=both"), "--uplink", "net_null0"],
            "iwarp=PATH for that of iWARP",
        ),
        (&["--guest", &format!("{GUEST},iwarp=/b")], "give transport = \"both\", or take it away"),
        (&["--guest", &format!("{GUEST},transport=both,iwarp=/a.iwarp")], "or give tcp = \"kernel\""),
        (
            &[
                "--guest",
                &format!("{GUEST},transport=both,iwarp=/tmp/c"),
                "--uplink",
                "net_null0",
                "--guest",
                "name=a-iwarp,socket=/tmp/b,mac=52:54:00:00:00:02,any-gid=true",
            ],
            "guest a-iwarp: two guests have this name",
        ),
        (
            &["--guest", &format!("{GUEST},transport=iwarp,host-address=127.0.0.1")],
            "or give tcp = \"kernel\"",
        ),
        (
            &[
                "--guest",
                &format!("{GUEST},transport=iwarp,host-address=127.0.0.1,tcp=own"),
                "--uplink",
                "net_null0",
            ],
            "the addresses are those of the guest's netdev",
        ),
        (&["--guest", &format!("{GUEST},transport=iwarp,tcp=own"), "--tcp", "kernel"], "goes by an uplink"),
        (&["--guest", &format!("{GUEST},tcp=own")], "tcp is of iWARP"),
        (
            &["--guest", &format!("{GUEST},transport=iwarp"), "--tcp", "kernel"],
            "give host_address, an address of",
        ),
        (
            &["--guest", &format!("{GUEST},transport=iwarp,host-address=192.0.2.77"), "--tcp", "kernel"],
            "guest a: host_addresses = 192.0.2.77: no interface of this host has it",
        ),
        (
            &["--guest", &format!("{GUEST},transport=iwarp,host-address=0.0.0.0"), "--tcp", "kernel"],
            "host_addresses = 0.0.0.0: this is no address of a host",
        ),
        (&["--guest", GUEST, "--workers", "0"], "workers = 0: give a number from 1 to 32"),
        (&["--guest", GUEST, "--workers", "33"], "workers = 33: give a number from 1 to 32"),
        (&["--guest", GUEST, "--cpus", "2,3"], "cpus = [2, 3]: give one processor for each of the 1 workers"),
        (&["--guest", GUEST, "--workers", "2", "--cpus", "7,7"], "cpus = [7, 7]: 7 is there twice"),
        (&["--guest", GUEST, "--cpus", "1024"], "cpus = 1024: give a number from 0 to 1023"),
        (
            &["--guest", GUEST, "--cpus", "1023"],
            "cpus = [1023]: no thread of ours may run on 1023 (Invalid argument",
        ),
        (&["--guest", GUEST, "--user", "nobody-at-all"], "give a user of this host, by name or number"),
        (&["--guest", GUEST, "--sandbox", "chroot"], "[possible values: namespace, none]"),
        (&["--guest", GUEST, "--seccomp", "kil"], "a similar value exists: 'kill'"),
        (&["--guest", GUEST, "--log", "debgu"], "a similar value exists: 'debug'"),
        (&["--guest", GUEST, "--log", "off"], "[possible values: error, warn, info, debug, trace]"),
        (&["--guest", GUEST, "--log", "info", "-v"], "the argument '--log <LEVEL>' cannot be used with"),
        (
            &["--guest", "name=a,soket=/x,mac=52:54:00:00:00:01"],
            "there is no key soket: did you mean socket?",
        ),
        (&["--guest", &format!("{GUEST},any-mca=true")], "there is no key any_mca: did you mean any_mac?"),
        (
            &["--guest", &format!("{GUEST},transport=iwrap")],
            "transport: there is no value iwrap: did you mean iwarp?",
        ),
        (
            &["--guest", GUEST, "--uplink", "net_ring0", "--faults", "los=0.1"],
            "there is no key los: did you mean loss?",
        ),
        (
            &["--guest", GUEST, "--uplink", "net_packet0,ifac=eth0"],
            "has no parameter ifac: did you mean iface?",
        ),
        (
            &["--guest", GUEST, "--uplink", "net_packet0,iface=a,qpairs=2"],
            "has no parameter qpairs: it has iface alone",
        ),
        (
            &["--guest", GUEST, "--uplink", "net_af_packet0,ifac=eth0"],
            "net_af_packet has no parameter ifac: did you mean iface?",
        ),
        (
            &["--guest", GUEST, "--uplink", "net_af_packet0"],
            "the parameter iface is missing: write net_af_packet0,iface=",
        ),
        (&["--guest", GUEST, "--cpus", "3-2"], "give numbers of processors, like 2,3 or 2-5"),
        (&["--guest", GUEST, "--cpus", "x"], "give numbers of processors, like 2,3 or 2-5"),
        (
            &["--guest", &format!("{GUEST},worker=2"), "--workers", "2"],
            "guest a: worker = 2: workers = 2, so give a number from 0 to 1",
        ),
        (
            &["--guest", &format!("{GUEST},any-mac=true"), "--workers", "2"],
            "guest a: any_mac = true: workers = 2, and where several are",
        ),
        (&["--guest", GUEST, "--tcp-keepalive", "32768"], "give seconds up to 32767, or 0 for never"),
        (&["--guest", GUEST, "--tcp", "mine"], "there is own, and kernel"),
        (&["--config", "/nonexistent"], "/nonexistent: No such file"),
        (
            &["--guest", &format!("{GUEST},fd=3")],
            "guest a: fd is given instead of guest a: socket: take one of them away",
        ),
        (
            &["--guest", &format!("{GUEST},net=/b,net-connect=/c")],
            "guest a: net_connect is given instead of guest a: net: take one of them away",
        ),
        (
            &["--guest", "name=a,fd=-1,mac=52:54:00:00:00:01"],
            "fd: '-1' is not a number of a descriptor, or its name in LISTEN_FDNAMES",
        ),
        (&["--guest", "name=a,fd=70000,mac=52:54:00:00:00:01"], "fd: '70000' is not a number of a desc"),
        (
            &["--guest", "name=a,fd=x,net-fd=x,mac=52:54:00:00:00:01"],
            "guest a: net_fd = x: it is there twice, also as guest a: fd",
        ),
        (
            &["--guest", &format!("{GUEST},net-connect=/tmp/a")],
            "guest a: net_connect = /tmp/a: it is there twice, also as guest a: socket",
        ),
        (
            &["--guest", &format!("{GUEST},net-fd=3"), "--admin-fd", "3"],
            "it is there twice, also as admin_fd",
        ),
        (
            &["--guest", GUEST, "--admin", "/b", "--admin-fd", "3"],
            "admin_fd is given instead of admin: take one",
        ),
        (
            &["--guest", GUEST, "--observe", "/b", "--observe-fd", "3"],
            "observe_fd is given instead of observe: take one",
        ),
        (
            &["--guest", GUEST, "--admin-fd", "3", "--observe-fd", "3"],
            "observe_fd = 3: it is there twice, also as admin_fd",
        ),
        (&["--guest", GUEST, "--admin-fd", "a:b"], "give a number of a descriptor, or its name in"),
        (&["--guest", &format!("{GUEST},iwarp-fd=4")], "give transport = \"both\", or take it away"),
    ] {
        let error = format!("{:#}", load(args).unwrap_err());
        assert!(error.contains(message), "{args:?}: {error}");
    }
}

#[test]
fn mistakes_in_the_file_are_named_in_one_line() {
    for (text, message) in [
        ("[guest]\nname='a'", "line 1, '[guest]': write [[guest]], with two brackets, for each guest"),
        ("\npol_us = 7", "file: line 2, 'pol_us = 7': there is no key pol_us: did you mean poll_us?"),
        ("admn = '/x'", "line 1, 'admn = '/x'': there is no key admn: did you mean admin?"),
        ("[limits]\nqsp = 7", "line 2, 'qsp = 7': there is no key qsp: did you mean qps?"),
        ("[limmits]\nqps = 7", "line 1, '[limmits]': there is no key limmits: did you mean limits?"),
        ("[faults]\nlos = 0.1", "line 2, 'los = 0.1': there is no key los: did you mean loss?"),
        (
            &format!("{GUEST_FILE}extra_mcas = []"),
            "line 5, 'extra_mcas = []': there is no key extra_mcas: did you mean extra_macs?",
        ),
        (&format!("{GUEST_FILE}transport = 'rocee'"), "there is no value rocee: did you mean roce?"),
        ("user = 'nobody-at-all'", "a user of this host, by name or number"),
        ("sandbox = 'chroot'", "there is no value chroot: there are namespace, none"),
        ("seccomp = 'kil'", "line 1, 'seccomp = 'kil'': there is no value kil: did you mean kill?"),
        ("log = 'debgu'", "line 1, 'log = 'debgu'': there is no value debgu: did you mean debug?"),
        ("log = 'off'", "there is no value off: there are error, warn, info, debug, trace"),
        (
            "channels = 'x'",
            "line 1, 'channels = 'x'': \"x\" is a text; give a whole number from 0 to 65535, without quotes",
        ),
        (
            "poll_us = \"200\"",
            "line 1, 'poll_us = \"200\"': \"200\" is a text; give a whole number from 0 to",
        ),
        ("poll_us = -1", "-1 is a number; give a whole number from 0 to"),
        ("busy_poll = 1", "1 is a number; give true or false, without quotes"),
        ("admin = 1", "1 is a number; give a text, in quotes"),
        ("admin = ['/x']", "this is a list; give a text, in quotes"),
        ("[mtu]\nx = 1", "this is a table; give a whole number"),
        ("limits = 7", "7 is a number; give a table"),
        ("cpus = 'x'", "\"x\" is a text; give a number, or a list of such"),
        ("# x\n\nmtu = 100", "file: line 3, 'mtu = 100': mtu = 100: give a number from 1280 to 9600"),
        ("channels = 253", "line 1, 'channels = 253': comp_vectors = 2 and channels = 253: with 2 more"),
        (
            &format!("{GUEST_FILE}gid = '224.0.0.1'"),
            "file: line 5, 'gid = '224.0.0.1'': guest a: gids = 224.0.0.1: this",
        ),
        (
            &format!("{GUEST_FILE}transport = 'iwarp'\nhost_address = '0.0.0.0'\n[faults]"),
            "faults is of an uplink",
        ),
        (
            &format!("tcp = 'kernel'\n{GUEST_FILE}transport = 'iwarp'\nhost_address = '0.0.0.0'"),
            "line 7, 'host_address = '0.0.0.0'': guest a: host_addresses = 0.0.0.0: ",
        ),
        (
            &format!("{GUEST_FILE}[[guest]]\nname = 'b'\nnet = '/y'\nmac='52:54:00:00:00:02'"),
            "line 2, 'name='a'': guest a: gids is missing",
        ),
        ("channels = ", "line 1, 'channels =': "),
        (
            "[limits]\nqps = 100\n[[guest]]\nname='a'\nsocket='/x'\nmac='52:54:00:00:00:01'",
            "file: line 2, 'qps = 100': limits.qps = 100: give a power of two, like 128",
        ),
        ("limits = { qps = 100 }", "line 1, 'limits = { qps = 100 }': limits.qps = 100: give"),
        ("limits.qps = 100", "line 1, 'limits.qps = 100': limits.qps = 100: give"),
        (
            "[limits]\nqp_requests = 0",
            "line 2, 'qp_requests = 0': limits.qp_requests = 0: give a number from 1 to 32768",
        ),
        ("uplink = ''", "no device"),
        (
            &format!("{GUEST_FILE}weight = 101"),
            "file: line 5, 'weight = 101': guest a: weight = 101: give a number from 1 to 100",
        ),
        (
            &format!("{GUEST_FILE}\nrx_bytes = 1_000_000_000_001"),
            "file: line 6, 'rx_bytes = 1_000_000_000_001': guest a: rx_bytes = 1000000000001: give",
        ),
        (
            &format!("{GUEST_FILE}tx_messages = 1"),
            "line 5, 'tx_messages = 1': guest a: tx_messages = 1: give",
        ),
        (&format!("{GUEST_FILE}burst_ms = 1001"), "guest a: burst_ms = 1001: give a number from 1 to 1000"),
        (&format!("{GUEST_FILE}tx_byte = 0"), "there is no key tx_byte: did you mean tx_bytes?"),
        (&format!("{GUEST_FILE}weight = 1.5"), "line 5, 'weight = 1.5': 1.5 is a number; give a whole"),
        (
            &format!("{GUEST_FILE}\nlimits = {{ qps = 100 }}"),
            "file: line 6, 'limits = { qps = 100 }': guest a: limits.qps = 100: give a power of two",
        ),
        (
            &format!("{GUEST_FILE}[guest.limits]\npds = 0"),
            "file: line 6, 'pds = 0': guest a: limits.pds = 0: no guest works without any; give 1",
        ),
        (
            &format!("{GUEST_FILE}limits = {{ all_request_memory = 7 }}"),
            "there is no key all_request_memory: ",
        ),
        (&format!("{GUEST_FILE}limits = 7"), "line 5, 'limits = 7': 7 is a number; give a table of limits"),
        (&format!("{GUEST_FILE}limits = {{ qps = 'x' }}"), "\"x\" is a text; give a whole number"),
        ("[[guest]]\nname='a'\nsocket='/x'\nmac='x'", "line 4, 'mac='x'': 'x' is not a MAC address, like"),
        ("[[guest]]\nname='a'\nsocket='/x'", "line 1, '[[guest]]': the key mac is missing"),
        (
            &format!("{GUEST_FILE}gids = [10]"),
            "line 5, 'gids = [10]': 10 is a number; give a text, in quotes",
        ),
        (&format!("{GUEST_FILE}gids = 10"), "10 is a number; give an IP address, alone or with @VLAN"),
        (&format!("{GUEST_FILE}vlans = 70000"), "'70000' is not a number that fits here"),
        (&format!("{GUEST_FILE}vlans = 'x'"), "give a number, or a list of such"),
        (&format!("{GUEST_FILE}name = 'b'"), "line 5, 'name = 'b'': duplicate key"),
    ] {
        let error = format!("{:#}", file(text).unwrap_err());
        assert!(error.contains(message) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn limits_with_which_no_guest_works_are_refused() {
    for key in [
        "pds",
        "cqs",
        "cq_entries",
        "mrs",
        "mr_runs",
        "total_runs",
        "qps",
        "qp_requests",
        "total_requests",
        "request_memory",
        "all_request_memory",
        "stream_memory",
        "all_stream_memory",
        "memory_max",
        "pages_max",
        "all_pages_max",
        "flood_rate",
    ] {
        let error = format!("{:#}", file(&format!("[limits]\n{key} = 0\n{GUEST_FILE}")).unwrap_err());
        let named = error.starts_with(&format!("file: line 2, '{key} = 0': limits.{key} = 0: "));
        assert!(named && error.contains("give ") && !error.contains('\n'), "{error}");
    }
    file(&format!("[limits]\ncontexts = 0\nahs = 0\n{GUEST_FILE}"))
        .expect("a guest whose kernel alone has RDMA, and no UD");
}

#[test]
fn a_guest_has_limits_of_its_own_over_those_of_all() {
    let text =
        format!("[limits]\nqps = 64\npds = 5\n{GUEST_FILE}weight = 3\nlimits = {{ qps = 128, mrs = 7 }}");
    let config = file(&text).unwrap();
    let of = |config: &Config| {
        let limits = config.limits_of(&config.guests[0]);
        (limits.qps, limits.pds, limits.mrs, limits.cqs)
    };
    assert_eq!(of(&config), (128, 5, 7, GuestLimits::default().cqs));
    assert_eq!((config.limits.qps, config.guests[0].weight.get()), (64, 3));
    // What `--check` prints is a configuration with these limits.
    let printed = config.to_toml().unwrap();
    let again = file(&printed).unwrap();
    assert_eq!((of(&again), again.guests[0].weight), (of(&config), config.guests[0].weight));
    // Guests without own limits have none in print, and the weight 1.
    let config = file(GUEST_FILE).unwrap();
    assert!(!config.to_toml().unwrap().contains("[guest.limits]"));
    assert_eq!(config.guests[0].weight.get(), 1);
    // The flag says it, too.
    let config = load(&["--guest", &format!("{GUEST},limits.qps=128,limits.mrs=7,weight=3")]).unwrap();
    assert_eq!((of(&config).0, of(&config).2, config.guests[0].weight.get()), (128, 7, 3));
    // Its RDMA function may meet its VMM in another way.
    load(&["--guest", "name=a,mac=02:00:00:00:00:01,connect=/x,dscp=1,pcp=7"]).unwrap();
    // Both functions of a guest have what the guest has.
    let both = format!("{text}\ntransport = 'both'\niwarp = '/y'");
    let guests = file(&format!("uplink = 'net_null0'\n{both}")).unwrap().resolved_guests();
    assert!(guests.iter().all(|guest| guest.weight.get() == 3 && guest.limits.mrs == Some(7)));
    assert_eq!(guests.len(), 2);
}

#[test]
fn flags_and_file_have_one_grammar() {
    let flag: GuestConfig =
        "name=a,mac=52-54-00-00-00-0A,socket=/x,gid=10.0.0.1,gid=fe80::1,extra-mac=52:54:00:00:00:02,any_mac=true"
            .parse()
            .unwrap();
    let one = |gids: &str| file(&format!("{GUEST_FILE}{gids}")).unwrap().guests.remove(0).gids;
    let ip = |text: &str| text.parse::<AllowedGid>().unwrap();
    assert_eq!(flag.mac, Mac([0x52, 0x54, 0, 0, 0, 0xa]));
    assert_eq!((flag.gids, flag.any_mac), (vec![ip("10.0.0.1"), ip("fe80::1")], true));
    assert_eq!(flag.extra_macs, [Mac([0x52, 0x54, 0, 0, 0, 2])]);
    for text in ["gid = '10.0.0.1'", "gids = '10.0.0.1'", "gid = ['10.0.0.1']", "gids = ['10.0.0.1']"] {
        assert_eq!(one(text), [ip("10.0.0.1")], "{text}");
    }
    let gids: GuestConfig = format!("{GUEST},gids=10.0.0.1").parse().unwrap();
    assert_eq!(gids.gids, [ip("10.0.0.1")]);
    for wrong in [
        "52:54:00:00:00",
        "52:54:00:00:00:01:02",
        "52:54:00:00:00:1",
        "52-54:00-00-00-01",
        "+1:54:00:00:00:01",
    ] {
        assert!(format!("name=a,socket=/x,mac={wrong}").parse::<GuestConfig>().is_err(), "{wrong}");
    }
}

#[test]
fn an_uplink_is_told_in_both_ways() {
    let eal = "--no-huge -m 64";
    let uplink = ["--uplink", "net_ring0,a=b", "--eal", eal, "--faults", "loss=0.5,dir=tx"];
    let flags = load(&[&["--guest", GUEST], &uplink[..]].concat());
    let text = format!("uplink = 'net_ring0,a=b'\neal = '{eal}'\nfaults = {{ loss = 0.5, dir = 'tx' }}");
    let file: Config = toml::from_str(&text).unwrap();
    for config in [flags.unwrap(), file] {
        assert_eq!(config.uplink.unwrap().to_string(), "net_ring0,a=b");
        assert_eq!(config.eal.as_deref(), Some(eal));
        let faults = config.faults.unwrap();
        assert_eq!((faults.loss, faults.dup, faults.dir), (0.5, 0., Direction::Tx));
    }
}

#[test]
fn planned_losses_are_told_in_both_ways() {
    let uplink = ["--uplink", "net_ring0", "--faults", "drop=17,drop=ack/100"];
    let flags = load(&[&["--guest", GUEST], &uplink[..]].concat()).unwrap();
    let read = |rules: &str| toml::from_str::<Config>(&format!("[faults]\ndrop = {rules}"));
    for config in [flags, read("[17, 'ack/100']").unwrap(), read("['17', 'ack/100']").unwrap()] {
        // As `--check` prints them.
        let rules: Vec<_> = config.faults.unwrap().drop.iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["17", "ack/100"]);
    }
    for rules in ["[0]", "[-1]", "[1.5]", "['ack/0']", "['acks/1']", "'ack/100'", "7"] {
        assert!(read(rules).is_err(), "{rules}");
    }
}

#[test]
fn guests_are_spread_over_workers() {
    let spread = |workers: &str, places: &[&str]| {
        let spec = |(index, place): (usize, &&str)| {
            format!("name=g{index},socket=/g{index},mac=52:54:00:00:00:{index:02x},any-gid=true{place}")
        };
        let guests: Vec<String> = places.iter().enumerate().map(spec).collect();
        let guests = guests.iter().flat_map(|guest| ["--guest", guest]);
        let config = load(&guests.chain(["--workers", workers]).collect::<Vec<_>>()).unwrap();
        config.resolved_guests().iter().map(|guest| guest.worker.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(spread("1", &["", ""]), [0, 0]);
    assert_eq!(spread("3", &["", "", "", "", ""]), [0, 1, 2, 0, 1]);
    assert_eq!(spread("2", &["", ",worker=0", ",worker=0", ""]), [1, 0, 0, 1]);
    let pinned = Args::try_parse_from(["vrdma-backend", "--workers", "4", "--cpus", "1,8-10"]).unwrap();
    let config: Config = toml::Table::try_from(&pinned.keys).unwrap().try_into().unwrap();
    assert_eq!((config.workers, config.cpus), (4, vec![1, 8, 9, 10]));
}

#[test]
fn files_are_read() {
    let text = format!("poll_us = 7\n[limits]\nqps = 64\n{GUEST_FILE}gids=['10.0.0.1']");
    let config = file(&text).unwrap();
    assert_eq!((config.poll_us, config.limits.qps, config.channels), (7, 64, 60));
    let gid = |last| Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]);
    let allows = |last| config.guests[0].allows(VlanId::UNTAGGED, gid(last));
    assert!(allows(1) && !allows(2));
}

#[test]
fn a_function_meets_its_front_end_at_one_place() {
    let place = |key: &str| {
        let text = format!("[[guest]]\nname='a'\nmac='52:54:00:00:00:01'\n{key}");
        file(&text).unwrap().guests.remove(0)
    };
    assert_eq!(place("fd = 3").rdma_place().unwrap().to_string(), "descriptor 3");
    assert_eq!(place("fd = '3'").fd, Some(Descriptor::Number(3)));
    assert_eq!(place("net_fd = 'a'").net_place().unwrap().to_string(), "descriptor a");
    assert_eq!(place("connect = '/x'").rdma_place().unwrap().to_string(), "connects to /x");
    assert_eq!(place("socket = '/x'").rdma_place().unwrap().to_string(), "/x");
    let both = "transport = 'both'\ntcp = 'kernel'\nhost_address = '127.0.0.1'\nfd = 3\niwarp_fd = 4";
    let functions = place(both).functions();
    let places = functions.iter().map(|one| (one.rdma_place(), one.iwarp_place()));
    let fds = [3, 4].map(Descriptor::Number);
    assert_eq!(
        places.collect::<Vec<_>>(),
        [(Some(MeetingPlace::Descriptor(&fds[0])), None), (Some(MeetingPlace::Descriptor(&fds[1])), None)]
    );
    let first = functions[0].name.clone();
    assert_eq!(functions[1].name, format!("{first}-iwarp"));
    assert!(functions.iter().all(|one| one.configured_name() == first));
    // A guest may have such a name of its own.
    let alike = GuestConfig { name: "b-iwarp".into(), ..functions[0].clone() };
    assert_eq!(alike.configured_name(), "b-iwarp");
}

#[test]
fn flags_win_over_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!("poll_us = 7\nchannels = 4\nbusy_poll = true\n{GUEST_FILE}any_gid = true");
    std::fs::write(&file, text).unwrap();
    let path = file.path().to_str().unwrap();
    let config = load(&["--config", path, "--poll-us", "8", "--guest", SECOND]).unwrap();
    assert_eq!((config.poll_us, config.channels, config.busy_poll), (8, 4, true));
    assert_eq!(config.guests.iter().map(|guest| &guest.name[..]).collect::<Vec<_>>(), ["a", "b"]);
}

/// The output of `--check` is a valid configuration file.
#[test]
fn what_is_printed_is_read_again() {
    let guest = "name=b,net=/b,mac=52:54:00:00:00:02,gid=10.0.0.1,gid=fe80::1,extra-mac=52:54:00:00:00:03,any-mac=true,vlan=10,vlan=20,gid=10.0.0.2@20,untagged=false";
    let all = load(&[
        "--guest",
        &format!("{GUEST},any-gid=true"),
        "--guest",
        guest,
        "--user",
        "root",
        "--sandbox",
        "none",
        "--seccomp",
        "log",
        "--admin",
        "/admin",
        "--observe",
        "/observe",
        "--uplink",
        "net_ring0,a=b",
        "--uplink-mtu",
        "4200",
        "--eal",
        "-m 64",
        "--capture",
        "/c",
        "--faults",
        "loss=0.5,dir=rx",
        "--busy-poll",
    ])
    .unwrap();
    let places = "name=a,fd=3,net-fd=a-net,mac=52:54:00:00:00:01,any-gid=true";
    let more = "name=b,connect=/b,net-connect=/c,mac=52:54:00:00:00:02,any-gid=true";
    let places = load(&["--guest", places, "--guest", more, "--admin-fd", "admin"]).unwrap();
    for config in [all, places, load(&["--guest", GUEST]).unwrap()] {
        let text = config.to_toml().unwrap();
        assert_eq!(format!("{:?}", file(&text).unwrap()), format!("{config:?}"), "{text}");
    }
}

#[test]
fn guests_are_in_the_vlans_that_they_are_given() {
    let gid = "10.0.0.1".parse::<AllowedGid>().unwrap().gid();
    let own = AllowedGid::link_local(Mac([0x52, 0x54, 0, 0, 0, 1])).gid();
    for (more, member_of, uses_gid) in [
        ("", &[0][..], &[0][..]),
        ("vlan=10,vlan=20", &[0, 10, 20], &[0, 10, 20]),
        ("vlan=10,untagged=false", &[10], &[10]),
        ("vlan=10,vlan=20,gid=10.0.0.1@20", &[0, 10, 20], &[20]),
        ("vlan=10,gid=10.0.0.1@untagged,gid=10.0.0.2", &[0, 10], &[0]),
        ("vlan=10,gid=10.0.0.1", &[0, 10], &[0, 10]),
        ("any-vlan=true", &[0, 10, 20, 4094], &[0, 10, 20, 4094]),
    ] {
        let flag = [GUEST, more].join(",");
        let guest = load(&["--guest", flag.trim_end_matches(',')]).unwrap().guests.remove(0);
        for number in [0, 10, 20, 4094] {
            let vlan = VlanId::new(number).unwrap();
            assert_eq!(guest.member_of().contains(vlan), member_of.contains(&number), "{more}: {number}");
            assert_eq!(guest.allows(vlan, gid), uses_gid.contains(&number), "{more}: GID in {number}");
            assert_eq!(guest.allows(vlan, own), member_of.contains(&number), "{more}: its own in {number}");
        }
    }
    let flag: GuestConfig = format!("{GUEST},gid=10.0.0.1@10,vlan=10,untagged=false").parse().unwrap();
    for vlans in ["vlan = 10", "vlans = 10", "vlan = [10]", "vlans = [10]"] {
        let text = format!("{GUEST_FILE}{vlans}\ngids = '10.0.0.1@10'\nuntagged = false");
        let guest = file(&text).unwrap().guests.remove(0);
        let all =
            |guest: &GuestConfig| (guest.gids.clone(), guest.vlans.clone(), guest.untagged, guest.any_vlan);
        assert_eq!(all(&guest), all(&flag), "{vlans}");
    }
}

#[test]
fn an_address_is_one_guest_s_in_each_vlan() {
    for (a, b, message) in [
        ("gid=10.0.0.1", "gid=10.0.0.2", None),
        (
            "gid=10.0.0.1",
            "gid=10.0.0.1",
            Some("guest b: gids = 10.0.0.1: guest a has this address too, untagged"),
        ),
        ("gid=10.0.0.1", "gid=::ffff:10.0.0.1", Some("guest a has this address too")),
        ("gid=10.0.0.1,vlan=10,untagged=false", "gid=10.0.0.1,vlan=20,untagged=false", None),
        (
            "gid=10.0.0.1,vlan=10",
            "gid=10.0.0.1,vlan=10,untagged=false",
            Some("guest a has this address too, VLAN 10"),
        ),
        ("gid=10.0.0.1@10,vlan=10", "gid=10.0.0.1@20,vlan=10,vlan=20", None),
        (
            "gid=10.0.0.1@10,vlan=10",
            "gid=10.0.0.1,vlan=10",
            Some("gids = 10.0.0.1: guest a has this address too, VLAN 10"),
        ),
        ("gid=10.0.0.1@10,vlan=10", "gid=10.0.0.1,vlan=20", None),
        ("gid=10.0.0.1@10,vlan=10", "gid=10.0.0.1@10,vlan=10", Some("gids = 10.0.0.1@10: guest a has")),
        // The first guest's link-local address, from its MAC address.
        ("gid=10.0.0.1", "gid=fe80::5054:ff:fe00:1", Some("gids = fe80::5054:ff:fe00:1: guest a has")),
        ("gid=10.0.0.1", "any-gid=true", None),
    ] {
        let (a, b) = (format!("{GUEST},{a}"), format!("name=b,net=/b,mac=52:54:00:00:00:02,{b}"));
        match (load(&["--guest", &a, "--guest", &b]), message) {
            (Ok(_), None) => {}
            (Err(error), Some(message)) => {
                assert!(format!("{error:#}").contains(message), "{a} {b}: {error:#}")
            }
            (found, _) => panic!("{a} {b}: {:?}", found.map(|_| ())),
        }
    }
}

#[test]
fn what_passes_the_check_is_valid_for_the_engine() {
    let set: [fn(&mut Congestion, u64); 11] = [
        |it, value| it.rp_max_rate = value,
        |it, value| it.rp_min_rate = value,
        |it, value| it.rp_ai_rate = value,
        |it, value| it.rp_hai_rate = value,
        |it, value| it.rp_time_reset = value,
        |it, value| it.rp_byte_reset = value,
        |it, value| it.rp_threshold = value as u16,
        |it, value| it.rp_dce_tcp_g = value as u16,
        |it, value| it.rp_initial_alpha_value = value as u16,
        |it, value| it.np_min_time_between_cnps = value,
        |it, value| it.np_cnp_dscp = value as u8,
    ];
    let (mut good, mut bad) = (0, 0);
    for set in set {
        for value in [0, 1, 10, 63, 64, 999, 1000, 1023, 1024, 1_000_000, 1_600_001, u64::MAX] {
            let mut config = Config::default();
            set(&mut config.congestion, value);
            config.guests = load(&["--guest", GUEST]).unwrap().guests;
            let congestion = &config.congestion;
            match config.check() {
                Ok(()) => {
                    assert!(congestion.parameters(10_000).unwrap().is_valid(), "{congestion:?}");
                    good += 1;
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("congestion."), "{error}");
                    bad += 1;
                }
            }
        }
    }
    assert!(good > 30 && bad > 20, "{good} {bad}");
}

#[test]
fn congestion_control_is_on_and_its_keys_are_named() {
    let with = |text: &str| load(&["--guest", GUEST, "--congestion", text]);
    assert!(load(&["--guest", GUEST]).unwrap().congestion.parameters(1000).is_some());
    assert!(with("mode=off").unwrap().congestion.parameters(1000).is_none());
    let target = |text| with(text).unwrap().congestion.parameters(1000).unwrap().rp_delay_target;
    assert_eq!(target("rp_delay_target=90"), None);
    assert_eq!(target("mode=delay,rp_delay_target=90"), Some(Duration::from_micros(90)));
    let config = with("rp_min_rate=100,np-cnp-dscp=46").unwrap().congestion;
    assert_eq!((config.rp_min_rate, config.np_cnp_dscp, config.mode), (100, 46, CongestionMode::Dcqcn));
    for (text, message) in [
        ("mode=dcqn", "mode"),
        ("rp_min_rat=7", "there is no key rp_min_rat: did you mean rp_min_rate?"),
        ("rp_min_rate=0", "congestion.rp_min_rate = 0: give a number from 1 to 1600000"),
        ("rp_max_rate=9", "congestion.rp_min_rate = 10: it is higher than rp_max_rate, 9"),
        ("rp_delay_target=0", "congestion.rp_delay_target = 0: give a number from 1 to 1000000"),
        ("np_cnp_dscp=64", "congestion.np_cnp_dscp = 64: give a number from 0 to 63"),
    ] {
        let error = format!("{:#}", with(text).unwrap_err());
        assert!(error.contains(message), "{text}: {error}");
    }
    let error = file(&format!("[congestion]\nrp_threshold = 0\n{GUEST_FILE}")).unwrap_err();
    let expected = "line 2, 'rp_threshold = 0': congestion.rp_threshold = 0: give a number from 1 to 1000";
    assert!(format!("{error:#}").contains(expected), "{error:#}");
    let text = load(&["--guest", GUEST]).unwrap().to_toml().unwrap();
    assert!(text.contains("[congestion]\nmode = \"dcqcn\"\nrp_max_rate = 0\nrp_min_rate = 10\n"), "{text}");
}
