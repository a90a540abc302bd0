//! perftest: each program over each transport service that it supports, with each option.

use super::cases::Case;
use crate::lineup::{PathMtu, Ready, Row};

/// Programs, and the transport services that they support by `-c`.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("send", &["RC", "UC", "UD", "XRC"]),
    ("write", &["RC", "UC", "XRC"]),
    ("read", &["RC", "XRC"]),
    ("atomic", &["RC", "XRC"]),
];

/// Options. Each case has one of them.
const OPTIONS: [&str; 17] = [
    "",
    "-a",
    "-I 32",
    "-q 16",
    "-e",
    "-R",
    "-b",
    "--use-srq",
    "-m 256",
    "-m 512",
    "-m 1024",
    "-m 2048",
    "-m 4096",
    "-D 2",
    "-Q 10",
    "--no_lock",
    "--use_hugepages",
];

/// Returns all cases. perftest itself says which of them it does not accept.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (program, services) in PROGRAMS {
        for kind in ["bw", "lat"] {
            for service in services {
                for option in OPTIONS {
                    cases.push(case(&format!("ib_{program}_{kind}"), service, option));
                }
            }
        }
    }
    cases
}

fn case(program: &str, service: &str, option: &str) -> Case {
    let name = format!("{program} -c {service} {option}").trim_end().to_owned();
    // A run with a duration has no number of iterations.
    let count = match option {
        "-a" => " -n 5",
        _ if option.starts_with("-D") => "",
        _ => " -n 20",
    };
    // `-F`: ignore a CPU frequency that cannot be read.
    let command = format!("{name}{count} -F");
    let result = format!(" {} ", last_size(program, service, option));
    let row = if option == "-R" {
        let line = format!("{command} -d @d -p @p");
        Row::new(&name, Ready::Cm, &line, &format!("{line} @a"), &result)
    } else {
        let line = format!("{command} -d @d -x @g -p @p");
        Row::new(&name, Ready::Tcp, &line, &format!("{line} @4"), &result)
    };
    Case { probe: Some(format!("{command} -d {NOWHERE}")), ..Case::new(row) }
}

/// Returns the length of the last messages, in bytes. Their line is printed when they have arrived.
///
/// A datagram is no longer than the path MTU, which the option `-m` lowers.
fn last_size(program: &str, service: &str, option: &str) -> u32 {
    let wanted = match (program, option) {
        ("ib_atomic_bw" | "ib_atomic_lat", _) => 8,
        (_, "-a") => 8_388_608,
        _ if program.ends_with("_lat") => 2,
        _ => 65_536,
    };
    let mtu = option.strip_prefix("-m ").and_then(|mtu| mtu.parse().ok());
    if service == "UD" { wanted.min(mtu.unwrap_or(PathMtu::Jumbo.bytes())) } else { wanted }
}

/// A device name that does not exist.
const NOWHERE: &str = "nowhere0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_occurs_with_each_service_of_each_program() {
        let cases = cases();
        assert_eq!(cases.len(), (4 + 3 + 2 + 2) * 2 * OPTIONS.len());
        let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().any(|case| case.name == "ib_send_lat -c UD --use-srq"));
    }

    #[test]
    fn a_datagram_is_no_longer_than_the_path_mtu() {
        assert_eq!(last_size("ib_send_bw", "UD", "-m 256"), 256);
        assert_eq!(last_size("ib_send_lat", "UD", "-a"), 4096);
        assert_eq!(last_size("ib_send_lat", "UD", "-m 256"), 2);
        assert_eq!(last_size("ib_send_bw", "UC", "-m 256"), 65_536);
        assert_eq!(last_size("ib_write_lat", "XRC", "-a"), 8_388_608);
    }
}
