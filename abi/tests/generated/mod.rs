//! Generated files in git that must match the declarations.

use std::path::Path;

/// Fails if the file at `path` (from the crate's directory) is not `wanted`.
///
/// With `VRDMA_BLESS` in the environment, the file is written first.
pub fn assert_current(path: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("VRDMA_BLESS").is_some() {
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "{} is stale: run VRDMA_BLESS=1 cargo test -p vrdma-abi", path.display());
}
