//! Checks whether bindgen would find a libclang that has its own headers.
//!
//! It asks the crate by which bindgen searches.

use std::ffi::c_ulong;
use std::ptr;

use clang_sys::{
    CXDiagnostic_Error, CXUnsavedFile, clang_createIndex, clang_disposeDiagnostic, clang_disposeIndex,
    clang_disposeTranslationUnit, clang_getDiagnostic, clang_getDiagnosticSeverity, clang_getNumDiagnostics,
    clang_parseTranslationUnit,
};

/// Includes headers that belong to the compiler.
///
/// The library alone, without `libclang-common-*-dev`, does not have them.
const PROBE: &str = "#include <stddef.h>\n#include <stdarg.h>\n";

/// Whether there is a libclang that can read a header.
pub fn reads_headers() -> bool {
    if clang_sys::load().is_err() {
        return false;
    }
    let reads = parse();
    // An error means only that no library is loaded.
    let _ = clang_sys::unload();
    reads
}

fn parse() -> bool {
    let name = c"probe.c".as_ptr();
    let length = PROBE.len() as c_ulong;
    let mut file = CXUnsavedFile { Filename: name, Contents: PROBE.as_ptr().cast(), Length: length };
    // SAFETY: the library is loaded. Name and text live until the end of this function, and each
    // object is disposed of once, after its last use.
    unsafe {
        let index = clang_createIndex(0, 0);
        let unit = clang_parseTranslationUnit(index, name, ptr::null(), 0, &raw mut file, 1, 0);
        let is_error = |number| {
            let diagnostic = clang_getDiagnostic(unit, number);
            let severity = clang_getDiagnosticSeverity(diagnostic);
            clang_disposeDiagnostic(diagnostic);
            severity >= CXDiagnostic_Error
        };
        let reads = !unit.is_null() && !(0..clang_getNumDiagnostics(unit)).any(is_error);
        if !unit.is_null() {
            clang_disposeTranslationUnit(unit);
        }
        clang_disposeIndex(index);
        reads
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};

    use crate::proc::Ephemeral;

    #[test]
    fn what_the_workspace_was_built_with_is_found() {
        assert!(super::reads_headers());
    }

    /// Runs the test above in a process that looks for libclang in one directory only.
    ///
    /// It needs its own process because `LIBCLANG_PATH` applies to a whole process.
    fn found_in(directory: &Path) -> Output {
        let (_, module) = module_path!().split_once("::").expect("a module of this program");
        let test = format!("{module}::what_the_workspace_was_built_with_is_found");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &test]).env("LIBCLANG_PATH", directory).output().unwrap()
    }

    fn here() -> PathBuf {
        clang_sys::load().unwrap();
        let path = clang_sys::get_library().unwrap().path().to_owned();
        clang_sys::unload().unwrap();
        path
    }

    #[test]
    fn a_directory_with_libclang_cpp_alone_has_no_libclang() {
        let directory = std::env::temp_dir().join(format!("vrdma-libclang-{}", std::process::id()));
        let ephemeral = Ephemeral::new(directory);
        let (directory, libclang) = (ephemeral.path(), here());
        std::fs::create_dir(directory).unwrap();
        // The names of the libraries in `libclang-cpp14`. That the linked library can be loaded
        // must not help.
        for name in ["libclang-cpp.so.14", "libclang-cpp.so"] {
            std::os::unix::fs::symlink(&libclang, directory.join(name)).unwrap();
        }
        let (without, with) = (found_in(directory), found_in(libclang.parent().unwrap()));
        let said = String::from_utf8_lossy(&without.stdout);
        assert!(!without.status.success() && said.contains("super::reads_headers()"), "{without:?}");
        assert!(with.status.success(), "{with:?}");
    }
}
