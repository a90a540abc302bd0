//! Generates Rust declarations of the installed libdpdk, builds the shim, and links the shared
//! libraries.

use std::path::PathBuf;
use std::{env, panic, process};

/// The libraries of the called functions.
///
/// Drivers are not among them: EAL loads drivers at run time, from a directory that was set when
/// DPDK was built. `log` is a library of its own since DPDK 24.
const LIBRARIES: [&str; 5] = ["rte_eal", "rte_ethdev", "rte_mbuf", "rte_mempool", "rte_log"];

const NO_DPDK: &str = "pkg-config finds no libdpdk 22.11 or later, on which the backend is built: apt-get install libdpdk-dev (Fedora: \
    dnf install dpdk-devel), or name the directory of your own build's libdpdk.pc in PKG_CONFIG_PATH";

const NO_LIBCLANG: &str = "bindgen finds no libclang, which it reads DPDK's headers with: apt-get install libclang-dev (Fedora: \
    dnf install clang-devel), or name the directory of libclang.so in LIBCLANG_PATH";

const FUNCTIONS: &str = "shim_.*|rte_eal_(init|iova_mode)|rte_thread_(register|unregister)|rte_strerror|rte_version|rte_openlog_stream|\
    rte_log_cur_msg_loglevel|rte_log_set_global_level|rte_dev_(name|probe|remove|dma_map|dma_unmap|event_callback_(register|unregister|process))|rte_extmem_(register|unregister)|rte_pktmbuf_pool_create|rte_mempool_avail_count|\
    rte_eth_dev_(get_port_by_name|info_get|configure|start|stop|close|set_mtu|adjust_nb_rx_tx_desc|rx_intr_enable|\
    rx_intr_disable|rx_intr_ctl_q_get_fd)|rte_eth_(rx|tx)_queue_setup|rte_eth_promiscuous_enable|rte_eth_macaddr_get|\
    rte_eth_stats_get|rte_eth_tx_done_cleanup|rte_eth_find_next";

fn main() {
    for file in ["build.rs", "shim.h", "shim.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    // Cargo shows this line, but no other output of the script.
    if let Err(error) = run() {
        println!("cargo::error={}", error.replace('\n', "; "));
    }
}

fn run() -> Result<(), String> {
    let mut config = pkg_config::Config::new();
    config.cargo_metadata(false).env_metadata(true);
    let library = config.probe("libdpdk").map_err(|error| match error {
        pkg_config::Error::Command { .. } => {
            "pkg-config, which finds DPDK, cannot be started: apt-get install pkg-config"
        }
        _ => NO_DPDK,
    })?;
    if version(&library.version) < Some((22, 11)) {
        return Err(format!("libdpdk {} is too old: {NO_DPDK}", library.version));
    }
    let flags = other_flags()?;

    let mut shim = cc::Build::new();
    shim.file("shim.c").includes(&library.include_paths).warnings(false);
    // rte_config.h must precede everything. Inline functions need the instructions that the library
    // was built for.
    flags.iter().for_each(|flag| _ = shim.flag(flag));
    // Without debug assertions, because some inline functions would check them for each packet.
    shim.opt_level(2).define("ALLOW_EXPERIMENTAL_API", None);
    shim.try_compile("dpdk_shim").map_err(|error| format!("dpdk-sys/shim.c: {error}"))?;

    for name in LIBRARIES.iter().filter(|name| library.libs.iter().any(|lib| lib == *name)) {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }

    let builder = bindgen::Builder::default()
        .header("shim.h")
        .clang_args(library.include_paths.iter().map(|path| format!("-I{}", path.display())))
        .clang_args(&flags)
        .clang_arg("-DALLOW_EXPERIMENTAL_API")
        .allowlist_function(FUNCTIONS)
        .allowlist_var("SHIM_.*|RTE_PKTMBUF_HEADROOM|RTE_MAX_ETHPORTS|RTE_IOVA_.*")
        .opaque_type("rte_mbuf|rte_mempool|rte_device|rte_eth_dev|rte_mbuf_ext_shared_info|_IO_FILE")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_debug(false)
        .derive_default(false)
        .layout_tests(false)
        .generate_comments(false);
    let bindings = quietly(|| builder.generate());
    let bindings = bindings.map_err(|words| {
        if words.contains("libclang") { NO_LIBCLANG.to_owned() } else { format!("bindgen: {words}") }
    })?;
    let bindings = bindings.map_err(|error| format!("bindgen cannot read DPDK's headers: {error}"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    bindings.write_to_file(out.join("bindings.rs")).map_err(|error| error.to_string())
}

/// Returns the result of `work`, or the message of its panic. bindgen panics without libclang.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
    drop(panic::take_hook());
    result.map_err(|words| words.downcast::<String>().map_or_else(|_| "panic".to_owned(), |words| *words))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Returns the flags of `pkg-config --cflags` other than directories. The crate `pkg_config` does
/// not return them.
fn other_flags() -> Result<Vec<String>, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = process::Command::new(&program).args(["--cflags-only-other", "libdpdk"]).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
}
