//! Whether bindgen would find a libclang, and one that has its own headers: asked of the crate that
//! bindgen searches by.

use std::ffi::c_ulong;
use std::ptr;

use clang_sys::{
    CXDiagnostic_Error, CXUnsavedFile, clang_createIndex, clang_disposeDiagnostic, clang_disposeIndex,
    clang_disposeTranslationUnit, clang_getDiagnostic, clang_getDiagnosticSeverity, clang_getNumDiagnostics,
    clang_parseTranslationUnit,
};

/// Headers that belong to the compiler: the library alone, without `libclang-common-*-dev`, has
/// none.
const PROBE: &str = "#include <stddef.h>\n#include <stdarg.h>\n";

/// Whether there is a libclang that reads a header.
pub fn reads_headers() -> bool {
    if clang_sys::load().is_err() {
        return false;
    }
    let reads = parse();
    // It fails only if no library is loaded.
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

    /// The test above in a process that looks for libclang in one directory alone: LIBCLANG_PATH is
    /// the whole process's.
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
        // What `libclang-cpp14` brings, by its names; that the library itself can be loaded is no
        // help.
        for name in ["libclang-cpp.so.14", "libclang-cpp.so"] {
            std::os::unix::fs::symlink(&libclang, directory.join(name)).unwrap();
        }
        let (without, with) = (found_in(directory), found_in(libclang.parent().unwrap()));
        let said = String::from_utf8_lossy(&without.stdout);
        assert!(!without.status.success() && said.contains("super::reads_headers()"), "{without:?}");
        assert!(with.status.success(), "{with:?}");
    }
}
