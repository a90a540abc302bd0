//! Keeps daemons of tests from the usual places of admin sockets.

use std::process::Command;

/// Has a daemon make no admin sockets but those that its command names.
///
/// The usual places are of the whole host. Another daemon may be there, and is found there by those
/// who look for it.
pub fn only_named(command: &mut Command) {
    for option in ["--admin", "--observe"] {
        let is_named = |arg: &std::ffi::OsStr| arg.to_str().is_some_and(|arg| arg.starts_with(option));
        if !command.get_args().any(is_named) {
            command.args([option, "none"]);
        }
    }
}
