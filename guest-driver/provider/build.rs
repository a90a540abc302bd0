//! Makes Rust declarations of the guest's rdma-core, and links against the guest's libibverbs.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

const USAGE: &str = "\
VRDMA_GUEST_ROOT has to name the root file system of the guest (absolute), which holds
  usr/src/rdma-core/include    headers of the guest's rdma-core (its source tree, configured)
  usr/lib/<arch>/libibverbs.so the library itself
`cargo xtask image` makes one in target/vm/guest-root and builds the provider; by hand:
  VRDMA_GUEST_ROOT=$PWD/target/vm/guest-root cargo build --release --manifest-path guest-driver/provider/Cargo.toml";

fn main() {
    println!("cargo::rerun-if-env-changed=VRDMA_GUEST_ROOT");
    println!("cargo::rerun-if-changed=wrapper.h");
    if let Err(error) = run() {
        eprintln!("\n{error}\n\n{USAGE}\n");
        process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let root = env::var_os("VRDMA_GUEST_ROOT").ok_or("VRDMA_GUEST_ROOT is not set.")?;
    let root = PathBuf::from(root);
    if !root.is_absolute() {
        return Err(format!("VRDMA_GUEST_ROOT={} is not absolute.", root.display()));
    }
    let include = root.join("usr/src/rdma-core/include");
    let driver_h = existing(include.join("infiniband/driver.h"))?;
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let library = existing(root.join(format!("usr/lib/{arch}-linux-gnu/libibverbs.so.1")))?;
    println!("cargo::rerun-if-changed={}", driver_h.display());
    println!("cargo::rerun-if-changed={}", library.display());

    bind(&root, &include)?;

    // By its full path: a search directory in the guest's root would offer the guest's libc too. What
    // libibverbs itself needs is there in the guest, and not of the host's version. Only the provider is linked
    // like this; the tests bring a libibverbs of their own (src/fake).
    println!("cargo::rustc-cdylib-link-arg={}", library.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
    Ok(())
}

fn bind(root: &Path, include: &Path) -> Result<(), String> {
    let pabi = private_abi(&include.join("config.h"))?;
    // rdma-core wires its private ABI version into the name of this function.
    let alias = format!("pub use self::verbs_register_driver_{pabi} as verbs_register_driver;");
    let bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_arg(format!("--sysroot={}", root.display()))
        .clang_arg(format!("-isystem{}", include.display()))
        .allowlist_function("_?verbs_.*|ibv_cmd_.*|ibv_dontfork_range|ibv_dofork_range")
        .allowlist_type("verbs_.*|ibv_.*|ib_uverbs_.*")
        .allowlist_var("IBV_.*|VERBS_.*|UVERBS_.*|RDMA_IOCTL_MAGIC")
        .blocklist_function("verbs_get_.*|ibv_(get|query)_.*")
        .derive_debug(false)
        .layout_tests(false)
        .generate_comments(false)
        .prepend_enum_name(false)
        .raw_line(alias)
        .generate()
        .map_err(|error| format!("bindgen could not read rdma-core's headers: {error}"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("rdma_core.rs");
    bindings.write_to_file(&out).map_err(|error| format!("{}: {error}", out.display()))
}

/// The number in `#define IBVERBS_PABI_VERSION 34`; also that of the provider's file name, libvrdma-rdmav34.so.
fn private_abi(config_h: &Path) -> Result<String, String> {
    let config = fs::read_to_string(config_h).map_err(|error| format!("{}: {error}", config_h.display()))?;
    config
        .lines()
        .find_map(|line| line.strip_prefix("#define IBVERBS_PABI_VERSION"))
        .map(|version| version.trim().trim_matches('"').to_owned())
        .ok_or_else(|| format!("{} does not say IBVERBS_PABI_VERSION.", config_h.display()))
}

fn existing(path: PathBuf) -> Result<PathBuf, String> {
    if path.exists() { Ok(path) } else { Err(format!("{} is missing.", path.display())) }
}
