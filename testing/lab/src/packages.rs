//! The packages that builds and tests need on a machine, and how to see that they are there.

/// A prerequisite: something that the machine has to have.
#[derive(Debug)]
pub struct Need {
    /// Its usual name.
    pub name: &'static str,
    /// Its purpose.
    pub why: &'static str,
    /// The package that contains it. If there are several, it depends on Debian's release which one
    /// does.
    pub packages: &'static [&'static str],
    /// How to see that it is there.
    pub proof: Proof,
    /// What requires it.
    pub wanted: Wanted,
}

/// How to see that a prerequisite is there, wherever it comes from.
#[derive(Clone, Copy, Debug)]
pub enum Proof {
    /// Only by its package.
    Package,
    /// A program in `PATH`.
    Program(&'static str),
    /// A library that pkg-config knows.
    Library(&'static str),
    /// A libclang that bindgen can use.
    Libclang,
}

/// What requires a prerequisite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Cargo's builds.
    Build,
    /// Roots and image of the VMs, and namespaces.
    Vms,
    /// Comparisons. They are left out if it is missing.
    Compare,
}

/// All prerequisites. QEMU is not among them: it has a root of its own.
pub const NEEDS: &[Need] = &[
    need("a C compiler", "Rust links with it", &["gcc"], Proof::Program("cc"), Wanted::Build),
    need("C's headers", "C code is built with them", &["libc6-dev"], Proof::Package, Wanted::Build),
    need("pkg-config", "it finds DPDK", &["pkg-config"], Proof::Program("pkg-config"), Wanted::Build),
    need("libclang", "bindgen reads C headers with it", &["libclang-dev"], Proof::Libclang, Wanted::Build),
    need("DPDK", "the backend is built on it", &["libdpdk-dev"], Proof::Library("libdpdk"), Wanted::Build),
    need("mmdebstrap", "it makes the VMs' roots", &["mmdebstrap"], Proof::Program("mmdebstrap"), Wanted::Vms),
    need(
        "Debian's keys",
        "roots are checked by them",
        &["debian-archive-keyring"],
        Proof::Package,
        Wanted::Vms,
    ),
    need("gpgv", "it says who signed a mirror", &["gpgv"], Proof::Program("gpgv"), Wanted::Vms),
    need("mke2fs", "it makes the VMs' image", &["e2fsprogs"], Proof::Package, Wanted::Vms),
    need("xz", "it unpacks kernel modules", &["xz-utils"], Proof::Program("xz"), Wanted::Vms),
    need("zstd", "it unpacks the kernel", &["zstd"], Proof::Program("zstd"), Wanted::Vms),
    need("pip", "it fetches programs of PyPI", &["python3-pip"], Proof::Program("pip3"), Wanted::Vms),
    need("ip", "it joins network namespaces", &["iproute2"], Proof::Program("ip"), Wanted::Vms),
    need(
        "dpdk-testpmd",
        "benches compare with it",
        &["dpdk-dev", "dpdk"],
        Proof::Program("dpdk-testpmd"),
        Wanted::Compare,
    ),
    need("tshark", "captures are read by it", &["tshark"], Proof::Program("tshark"), Wanted::Compare),
    need(
        "prometheus",
        "it reads the exporter's series",
        &["prometheus"],
        Proof::Program("prometheus"),
        Wanted::Compare,
    ),
    need(
        "ucx_perftest",
        "vrdma-perf compares with it",
        &["ucx-utils"],
        Proof::Program("ucx_perftest"),
        Wanted::Compare,
    ),
];

const fn need(
    name: &'static str,
    why: &'static str,
    packages: &'static [&'static str],
    proof: Proof,
    wanted: Wanted,
) -> Need {
    Need { name, why, packages, proof, wanted }
}

/// Other programs, each with its package: every Debian has them, or [`NEEDS`] brings them.
const OTHERS: [(&str, &str); 5] = [
    ("apt-config", "apt"),
    ("apt-get", "apt"),
    ("nsenter", "util-linux"),
    ("strip", "binutils"),
    ("unshare", "util-linux"),
];

/// Returns the package of a program that xtask starts.
pub fn package_of(program: &str) -> Option<&'static str> {
    let named =
        |need: &&Need| need.name == program || matches!(need.proof, Proof::Program(name) if name == program);
    let other = || OTHERS.iter().find(|(name, _)| *name == program).map(|(_, package)| *package);
    NEEDS.iter().find(named).map(|need| need.packages[0]).or_else(other)
}

/// Returns the names of all packages, e.g. for the hash of the bare machine test's inputs.
pub fn packages() -> impl Iterator<Item = &'static str> {
    NEEDS.iter().flat_map(|need| need.packages).copied()
}
