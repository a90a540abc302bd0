//! docs/evidence.md: the promises of the project, each with the tests that say that they show it.
//!
//! A test says so by a line `Shows: SLUG, SLUG.` at the end of its documentation: that of a file of
//! tests (`//!`), or of a test in VMs (`///`). `VRDMA_BLESS=1 cargo test -p xtask` writes the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Result, bail, ensure};

use crate::suite::sources::texts;

/// A promise to users.
struct Promise {
    /// The name by which tests refer to it.
    slug: &'static str,
    /// The promise in a sentence without its full stop.
    text: &'static str,
    /// Whatever else shows it: commands, or all tests of a crate.
    also: &'static [&'static str],
}

/// The promises by section, in the order of the page.
const PROMISES: &[(&str, &[Promise])] = &[
    (
        "Programs of others",
        &[
            Promise {
                slug: "perftest",
                text: "perftest runs between two VMs, in both directions",
                also: &["`demo`"],
            },
            Promise {
                slug: "programs",
                text: "stock programs, rdma_cm, UD and UC run on one host, between hosts, and with `rdma_rxe`",
                also: &["`demo two-hosts`, `demo interop`"],
            },
            Promise {
                slug: "manual-pages",
                text: "verbs answer as their manual pages say, and rdma-core's own tests pass",
                also: &[],
            },
            Promise {
                slug: "suites",
                text: "rdma-core's tests, all of perftest's options, UCX, libfabric, Open MPI, MPICH, rsockets and Mooncake run",
                also: &["`cargo xtask conformance` ([conformance.md](conformance.md))"],
            },
            Promise {
                slug: "storage",
                text: "storage of the guest's kernel runs: NVMe over Fabrics, iSER and NFS",
                also: &["`cargo xtask conformance storage`"],
            },
            Promise {
                slug: "killed-target",
                text: "a killed storage target comes back, and the resources of its connections are released",
                also: &[],
            },
            Promise {
                slug: "linux-setups",
                text: "RDMA works with other set-ups of the guest's Linux: namespaces, names, addresses, users, SRP, SMC-R, resets",
                also: &["`vm-linux-...` ([cases.md](cases.md))"],
            },
            Promise {
                slug: "kernels",
                text: "the guest's driver works with the kernels of Debian 12, of Debian 13, and of its backports",
                also: &[],
            },
        ],
    ),
    (
        "Verbs",
        &[
            Promise {
                slug: "verbs",
                text: "each verb works and each completion status occurs, on one host and between two",
                also: &["`vrdma-transport`"],
            },
            Promise { slug: "shared-receives", text: "shared receive queues work", also: &[] },
            Promise {
                slug: "xrc",
                text: "XRC works, and its target outlives the process that made it",
                also: &[],
            },
            Promise {
                slug: "imports",
                text: "device memory, imports, parent domains and their allocators work",
                also: &[],
            },
            Promise {
                slug: "order",
                text: "a request that is posted first is seen first, across channels, processes, guests and hosts",
                also: &[],
            },
            Promise {
                slug: "no-channel",
                text: "a process without a channel of its own can use all verbs",
                also: &[],
            },
        ],
    ),
    (
        "Scale and cost",
        &[
            Promise {
                slug: "many-qps",
                text: "1,000 QPs between VMs, 4,000 QPs of one process, and 1,000 QPs through one channel work",
                also: &[],
            },
            Promise {
                slug: "no-system-calls",
                text: "posting and polling make no system call while the device polls",
                also: &[],
            },
            Promise {
                slug: "small-qps",
                text: "an idle connected QP costs less than 4 KiB, one with its peer on the wire less than 2 KiB",
                also: &["`vrdma-transport`"],
            },
            Promise {
                slug: "fairness",
                text: "a guest with 16,000 busy QPs leaves another guest its share",
                also: &["`cargo bench -p vrdma-tests --bench fairness`"],
            },
            Promise {
                slug: "quality-of-service",
                text: "guests have weights, rates and limits of their own, on one host, between hosts, over iWARP and for Ethernet",
                also: &["`cargo bench -p vrdma-tests --bench qos`"],
            },
            Promise {
                slug: "sleep",
                text: "an idle daemon needs no processor, and no wake-up is lost",
                also: &[],
            },
            Promise {
                slug: "many-guests",
                text: "64 guests come, go and return at once; guests of three workers do so while the link fails",
                also: &[],
            },
            Promise {
                slug: "plug",
                text: "guests are added, changed and removed at random while the daemon runs, and others lose nothing",
                also: &[],
            },
            Promise {
                slug: "idle-streams",
                text: "an idle connection over the daemon's TCP costs less than 8 KiB at each end and sends nothing",
                also: &["`vrdma-tcp`"],
            },
        ],
    ),
    (
        "Safety",
        &[
            Promise {
                slug: "hostile-guest",
                text: "a hostile process, kernel or VMM harms nobody else",
                also: &[],
            },
            Promise {
                slug: "hostile-input",
                text: "the daemon survives any packet, answer, record, command, request, ring, frame or vhost-user message",
                also: &["`testing/fuzz/`"],
            },
            Promise {
                slug: "jail",
                text: "the daemon gives up its rights before it reads anything of a guest, and no thread opens, starts or maps what the jail forbids",
                also: &[],
            },
            Promise {
                slug: "administration",
                text: "administrators see and drain a running daemon, and clients of its sockets slow nobody",
                also: &[],
            },
            Promise { slug: "forged", text: "forged packets and spoofed addresses reach nobody", also: &[] },
            Promise {
                slug: "foreign-qp",
                text: "a process that names another's QP when it connects gets an error",
                also: &[],
            },
            Promise {
                slug: "clean-up",
                text: "all resources are released after kill -9, rmmod, reset, and the death of a VMM",
                also: &[],
            },
            Promise {
                slug: "stopped-daemon",
                text: "while the daemon stands still, commands end in time, or the driver gives the device up",
                also: &[],
            },
            Promise {
                slug: "vlans",
                text: "guests stay in their VLANs, and two guests may have one address in different VLANs",
                also: &[],
            },
        ],
    ),
    (
        "RoCE",
        &[
            Promise {
                slug: "bad-link",
                text: "on a bad link, data arrives once, in order and intact, or the QP fails within the promised time",
                also: &[],
            },
            Promise {
                slug: "replaced-engine",
                text: "nobody notices when an engine is replaced by its copy amid traffic",
                also: &[],
            },
            Promise {
                slug: "link-loss",
                text: "connections survive a link that goes down and up",
                also: &[],
            },
            Promise {
                slug: "wire-format",
                text: "other programs recognise the packets as RoCEv2",
                also: &["`check-capture`"],
            },
            Promise {
                slug: "queues",
                text: "each worker has its own queue of the NIC, and frames reach the right queue",
                also: &["`demo --workers 2 pci-nic`"],
            },
            Promise {
                slug: "ethernet",
                text: "IP traffic of guests arrives intact, with checksums and segmentation",
                also: &["ping and iperf3 in the demos"],
            },
        ],
    ),
    (
        "iWARP",
        &[
            Promise {
                slug: "iwarp",
                text: "every operation, refusal and ending works, over the host's TCP and the daemon's",
                also: &[],
            },
            Promise { slug: "iwarp-one-host", text: "VMs of one host are connected", also: &[] },
            Promise {
                slug: "iwarp-two-hosts",
                text: "VMs of two hosts are connected, and VMs with Linux's siw",
                also: &["`demo iwarp`"],
            },
            Promise {
                slug: "fpdu-format",
                text: "other programs recognise the FPDUs, which are iWARP's segments",
                also: &[],
            },
            Promise {
                slug: "rewritten-memory",
                text: "a program may change memory while it is sent, and no connection ends",
                also: &[],
            },
            Promise {
                slug: "placed",
                text: "payload that arrives after a lost segment is placed at once, and completions stay in order",
                also: &[],
            },
            Promise {
                slug: "local-streams",
                text: "guests of one worker are connected without TCP",
                also: &[],
            },
            Promise { slug: "both-transports", text: "RoCE and iWARP work on one netdev", also: &[] },
            Promise {
                slug: "tcp-alone",
                text: "the daemon's TCP, tested alone, meets RFC 9293 and handles losses, attacks and Linux as peer",
                also: &["`vrdma-tcp`"],
            },
            Promise {
                slug: "tcp-in-daemon",
                text: "the daemon's TCP, tested with the daemon, handles losses, IPv6, VLANs, path MTU and smoltcp as peer",
                also: &[],
            },
        ],
    ),
];

/// The beginning of the page.
const HEAD: &str = "\
# Which tests show what

Each row has a promise of the project and the tests that fail if it is broken. The tests themselves
say what they show, and this page is written from that (`xtask/src/evidence.rs`).

- `vm-...` is a test in VMs, and `cargo xtask test --only NAME` runs it. A star marks tests that run
  only with `--long`.
- A plain name such as `wire` is a file of the end-to-end tests. `cargo test -p vrdma-tests wire::`
  runs those of that file.
- `crate`: `name` means tests of that crate. A crate without a name means all of its tests.
- `testing/fuzz/` has the fuzz targets.
- This command repeats one seed of `sim`:
  `VRDMA_SIM_SEED=N cargo test -p vrdma-transport --test sim one_seed -- --ignored`

[testing.md](testing.md) says how tests are run.
";

/// The begin of a line that names what a test shows.
const SHOWS: &str = "Shows: ";

/// The tests that show a promise, as the page lists them.
#[derive(Default)]
struct Tests {
    /// Tests in VMs, those of every day first.
    vm: BTreeSet<(bool, String)>,
    /// Files of the end-to-end tests.
    end_to_end: BTreeSet<String>,
    /// Files of tests by crate.
    of_crates: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Folders of crates with tests, and the names of the crates.
const CRATES: &[(&str, &str)] = &[
    ("transport/tcp", "vrdma-tcp"),
    ("transport", "vrdma-transport"),
    ("wire", "vrdma-wire"),
    ("guest-driver/verbs", "vrdma-verbs"),
    ("guest-driver/provider", "provider"),
    ("vrdma-backend", "vrdma-backend"),
];

/// Writes the page.
///
/// # Errors
/// A test names a promise that there is not, or a promise has no test.
pub fn page() -> Result<String> {
    let mut shown: BTreeMap<String, Tests> = BTreeMap::new();
    let long: BTreeMap<&str, bool> =
        vrdma_vm_tests::all().iter().map(|test| (test.name, test.long)).collect();
    for (file, text) in texts()? {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let doc = line.trim_start_matches(['/', '!', ' ']);
            let Some(slugs) = doc.strip_prefix(SHOWS).filter(|_| line.starts_with("//")) else { continue };
            for slug in slugs.trim_end_matches('.').split(", ") {
                let tests = shown.entry(slug.to_owned()).or_default();
                if line.starts_with("//!") {
                    tests.add_file(file)?;
                } else {
                    let names = vm_tests(&lines[at + 1..]);
                    ensure!(!names.is_empty(), "{file}:{}: there is no test in VMs below", at + 1);
                    tests.vm.extend(names.into_iter().map(|name| (long[name], name.to_owned())));
                }
            }
        }
    }
    let mut page = HEAD.to_owned();
    for (section, promises) in PROMISES {
        write!(page, "\n## {section}\n\n| promise | tests |\n|---|---|\n")?;
        for promise in *promises {
            let tests = shown.remove(promise.slug).unwrap_or_default();
            let cell = tests.cell(promise.also);
            ensure!(!cell.is_empty(), "no test shows {}: {}", promise.slug, promise.text);
            writeln!(page, "| {} | {cell} |", promise.text)?;
        }
    }
    match shown.keys().next() {
        Some(slug) => bail!("tests show {slug}, which is no promise of xtask/src/evidence.rs"),
        None => Ok(page),
    }
}

/// The names in the attributes `vm_test` before the next function.
fn vm_tests<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let above = lines.iter().take_while(|line| !line.contains("fn ") && !line.is_empty());
    let quoted = above.filter_map(|line| line.split('"').nth(1));
    quoted.filter(|name| name.starts_with("vm-")).collect()
}

impl Tests {
    /// Adds a file of tests by its path.
    fn add_file(&mut self, file: &str) -> Result<()> {
        let stem = file.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/main");
        if let Some(name) = stem.strip_prefix("tests/tests/end_to_end/") {
            self.end_to_end.insert(name.to_owned());
            return Ok(());
        }
        for (folder, krate) in CRATES {
            let Some(rest) = stem.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            let rest = rest.strip_prefix("src/").unwrap_or(rest);
            let name = rest.strip_prefix("tests/").unwrap_or(rest).replace('/', "::");
            self.of_crates.entry(krate).or_default().insert(name);
            return Ok(());
        }
        bail!("{file} is of no crate that has a name on the page")
    }

    /// The cell of the table.
    fn cell(&self, also: &[&str]) -> String {
        let mut groups: Vec<String> = also.iter().map(|also| (*also).to_owned()).collect();
        let list = |names: Vec<String>| names.join(", ");
        let vm = self.vm.iter().map(|(long, name)| format!("`{name}`{}", if *long { "*" } else { "" }));
        groups.push(list(vm.collect()));
        groups.push(list(self.end_to_end.iter().map(|name| format!("`{name}`")).collect()));
        for (krate, names) in &self.of_crates {
            groups
                .push(format!("`{krate}`: {}", list(names.iter().map(|name| format!("`{name}`")).collect())));
        }
        groups.retain(|group| !group.is_empty());
        groups.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use vrdma_lab::paths;

    use super::*;

    #[test]
    fn the_page_is_current() {
        let path = paths::workspace().join("docs/evidence.md");
        let page = page().unwrap();
        if std::env::var_os("VRDMA_BLESS").is_some() {
            paths::write(&path, &page).unwrap();
        }
        let now = paths::read(&path).unwrap();
        assert!(now == page, "docs/evidence.md is out of date: VRDMA_BLESS=1 cargo test -p xtask");
    }

    #[test]
    fn tests_are_listed_by_kind() {
        let mut tests = Tests::default();
        for file in [
            "tests/tests/end_to_end/wire.rs",
            "transport/tests/sim/main.rs",
            "transport/tcp/src/tests/a/b.rs",
        ] {
            tests.add_file(file).unwrap();
        }
        let attributes =
            ["#[vm_test(\"vm-b\", long)]", "#[vm_test(", "    \"vm-a\",", ")]", "fn a() {}", "\"vm-c\""];
        assert_eq!(vm_tests(&attributes), ["vm-b", "vm-a"]);
        tests.vm.extend([(true, "vm-b".to_owned()), (false, "vm-c".to_owned())]);
        assert_eq!(
            tests.cell(&["`demo`"]),
            "`demo`; `vm-c`, `vm-b`*; `wire`; `vrdma-tcp`: `a::b`; `vrdma-transport`: `sim`"
        );
        assert!(tests.add_file("elsewhere/a.rs").is_err());
    }
}
