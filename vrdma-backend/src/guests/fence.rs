//! What the jail keeps from guests that come while the daemon runs.
//!
//! The jail was made for the guests of the start. A guest that needs more gets nothing at all, so
//! this says so before anything is tried.

use crate::config::Config;
use crate::jail::{Plan, Sandbox, Seccomp};
use std::path::{Path, PathBuf};

/// Checks that guests of a configuration need nothing that a jail for `start` lacks.
///
/// # Errors
/// They do. The error says what, and what helps.
pub fn check(start: &Plan, config: &Config) -> Result<(), String> {
    let wanted = config.jail();
    let has_walls = start.sandbox != Some(Sandbox::None);
    if has_walls || start.seccomp != Some(Seccomp::None) {
        for (is_wanted, was_there, what) in [
            (wanted.kernel_tcp, start.kernel_tcp, "tcp = \"kernel\": the host's TCP"),
            (wanted.connects, start.connects, "connect: the right to connect to front-ends"),
        ] {
            if is_wanted && !was_there {
                return Err(format!(
                    "{what} is not in the daemon's jail, as no guest had it at the start: restart the daemon"
                ));
            }
        }
    }
    if has_walls {
        let of_peers: Vec<PathBuf> = start.peers.iter().chain(&start.directories).cloned().collect();
        for (all, shown) in [(&wanted.directories, &start.directories), (&wanted.peers, &of_peers)] {
            if let Some(outside) = all.iter().find(|path| !is_within(path, shown)) {
                return Err(not_shown(outside, shown));
            }
        }
    }
    Ok(())
}

/// Checks that the configuration file can be read again in a jail for `start`.
///
/// # Errors
/// It cannot. The error says what helps.
pub fn check_file(start: &Plan, config: &Config) -> Result<(), String> {
    let Some(file) = config.file.as_ref().filter(|_| start.sandbox != Some(Sandbox::None)) else {
        return Ok(());
    };
    if start.configuration.is_some() {
        return Ok(());
    }
    let file = file.display();
    Err(format!(
        "{file} cannot be read again: the daemon's jail does not show its directory, which has much else in it, or is reached by `..`; put the file into a directory of its own, like /etc/vrdma, and restart the daemon"
    ))
}

fn is_within(path: &Path, shown: &[PathBuf]) -> bool {
    shown.iter().any(|directory| path.starts_with(directory))
}

fn not_shown(outside: &Path, shown: &[PathBuf]) -> String {
    let outside = outside.display();
    let known: Vec<String> = shown.iter().map(|path| path.display().to_string()).collect();
    match known[..] {
        [] => {
            format!("the directory {outside} is not in the daemon's jail, which has none: restart the daemon")
        }
        _ => format!(
            "the directory {outside} is not in the daemon's jail, which has those of the sockets at the start: put the socket into {}, or restart the daemon",
            known.join(" or ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let guest = "[[guest]]\nname = 'a'\nmac = '02:00:00:00:00:01'\n";
        toml::from_str(&format!("admin = 'none'\nobserve = 'none'\n{guest}{more}")).unwrap()
    }

    #[test]
    fn sockets_may_be_where_the_jail_shows_a_directory() {
        let start = config("socket = '/run/x/a'").jail();
        assert_eq!(check(&start, &config("socket = '/run/x/b'\nnet = '/run/x/inner/n'")), Ok(()));
        let error = check(&start, &config("socket = '/run/y/b'")).unwrap_err();
        assert!(error.contains("/run/y") && error.contains("into /run/x,"), "{error}");
        let open = Plan { sandbox: Some(Sandbox::None), ..start };
        assert_eq!(check(&open, &config("socket = '/run/y/b'")), Ok(()));
    }

    #[test]
    fn a_file_is_read_again_if_the_jail_shows_its_directory() {
        for (file, is_shown) in [("/etc/vrdma/backend.toml", true), ("/etc/backend.toml", false)] {
            let config = Config { file: Some(file.into()), ..config("socket = '/run/x/a'") };
            let start = config.jail();
            assert_eq!(check_file(&start, &config).is_ok(), is_shown, "{file}");
            let open = Plan { sandbox: Some(Sandbox::None), ..start };
            assert_eq!(check_file(&open, &config), Ok(()));
        }
    }

    #[test]
    fn calls_that_no_list_has_are_named() {
        let start = config("socket = '/run/x/a'").jail();
        let error = check(&start, &config("connect = '/run/x/b'")).unwrap_err();
        assert!(error.starts_with("connect: "), "{error}");
        let tcp = "socket = '/run/x/a'\ntransport = 'iwarp'\ntcp = 'kernel'\nhost_address = '127.0.0.1'";
        assert!(check(&start, &config(tcp)).unwrap_err().starts_with("tcp = "));
        assert_eq!(check(&config(tcp).jail(), &config(tcp)), Ok(()));
        let open = Plan { sandbox: Some(Sandbox::None), seccomp: Some(Seccomp::None), ..start };
        assert_eq!(check(&open, &config(tcp)), Ok(()));
    }
}
