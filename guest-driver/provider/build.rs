//! Makes Rust declarations of the guest's rdma-core, and links against the guest's libibverbs.

use std::path::{Path, PathBuf};
use std::{env, fs, panic};

const USAGE: &str = "VRDMA_GUEST_ROOT names the guest's root file system, with usr/src/rdma-core/include and libibverbs.so.1: \
    `cargo xtask image` makes one in target/vm/guest-root, and builds the provider";

const NO_LIBCLANG: &str = "bindgen finds no libclang, which it reads rdma-core's headers with: apt-get install libclang-dev (Fedora: \
    dnf install clang-devel), or name the directory of libclang.so in LIBCLANG_PATH";

fn main() {
    println!("cargo::rerun-if-env-changed=VRDMA_GUEST_ROOT");
    println!("cargo::rerun-if-changed=wrapper.h");
    // Cargo shows this line, and none of the script's output.
    if let Err(error) = run() {
        println!("cargo::error={}", error.replace('\n', "; "));
    }
}

fn run() -> Result<(), String> {
    let root =
        env::var_os("VRDMA_GUEST_ROOT").ok_or_else(|| format!("VRDMA_GUEST_ROOT is not set ({USAGE})"))?;
    let root = PathBuf::from(root);
    if !root.is_absolute() {
        return Err(format!("VRDMA_GUEST_ROOT={} is not absolute", root.display()));
    }
    let include = root.join("usr/src/rdma-core/include");
    let driver_h = existing(include.join("infiniband/driver.h"))?;
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let library = existing(root.join(format!("usr/lib/{arch}-linux-gnu/libibverbs.so.1")))?;
    println!("cargo::rerun-if-changed={}", driver_h.display());
    println!("cargo::rerun-if-changed={}", library.display());

    bind(&root, &include)?;

    // Linked by its full path: a search directory in the guest's root would offer the guest's libc
    // too.
    // The dependencies of libibverbs exist in the guest, and may have other versions on the host.
    // So unresolved symbols in shared libraries are allowed.
    // Only the provider is linked like this. The tests have their own libibverbs (`src/fake`).
    println!("cargo::rustc-cdylib-link-arg={}", library.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
    Ok(())
}

fn bind(root: &Path, include: &Path) -> Result<(), String> {
    let pabi = private_abi(&include.join("config.h"))?;
    // rdma-core puts the version of its private ABI into the name of this function.
    let alias = format!("pub use self::verbs_register_driver_{pabi} as verbs_register_driver;");
    let builder = bindgen::Builder::default()
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
        .raw_line(alias);
    let bindings = quietly(|| builder.generate());
    let bindings = bindings.map_err(|words| {
        if words.contains("libclang") { NO_LIBCLANG.to_owned() } else { format!("bindgen: {words}") }
    })?;
    let bindings = bindings.map_err(|error| format!("bindgen cannot read rdma-core's headers: {error}"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("rdma_core.rs");
    bindings.write_to_file(&out).map_err(|error| format!("{}: {error}", out.display()))
}

/// Runs `work`. Returns its result, or the message of a panic, because bindgen panics without
/// libclang.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
    drop(panic::take_hook());
    result.map_err(|words| words.downcast::<String>().map_or_else(|_| "panic".to_owned(), |words| *words))
}

/// Returns the number in `#define IBVERBS_PABI_VERSION 34`.
///
/// It is also in the file name of the provider, libvrdma-rdmav34.so.
fn private_abi(config_h: &Path) -> Result<String, String> {
    let config = fs::read_to_string(config_h).map_err(|error| format!("{}: {error}", config_h.display()))?;
    config
        .lines()
        .find_map(|line| line.strip_prefix("#define IBVERBS_PABI_VERSION"))
        .map(|version| version.trim().trim_matches('"').to_owned())
        .ok_or_else(|| format!("{} does not say IBVERBS_PABI_VERSION", config_h.display()))
}

fn existing(path: PathBuf) -> Result<PathBuf, String> {
    if path.exists() { Ok(path) } else { Err(format!("{} is missing ({USAGE})", path.display())) }
}
