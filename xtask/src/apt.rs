//! The machine's own package sources: which mirror it uses and how, so that the roots come from the same place.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{paths, proc, ui};

/// Packages of the machine that the build and the tests need, with a file or program that shows each is there.
const NEEDED: [(&str, &str); 12] = [
    ("mmdebstrap", "/usr/bin/mmdebstrap"),
    ("debian-archive-keyring", KEYRING),
    ("e2fsprogs", "/usr/sbin/mke2fs"),
    ("xz-utils", "/usr/bin/xz"),
    ("zstd", "/usr/bin/zstd"),
    ("gcc", "/usr/bin/cc"),
    ("pkg-config", "/usr/bin/pkg-config"),
    ("libclang-dev", "libclang"),
    ("libdpdk-dev", "/usr/include/dpdk/rte_eal.h"),
    ("dpdk", "/usr/bin/dpdk-testpmd"),
    ("tshark", "/usr/bin/tshark"),
    ("iproute2", "/bin/ip"),
];

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One place that Debian's archive can be had from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Base address.
    pub uri: String,
    /// Whether the machine trusts it without signatures.
    pub trusted: bool,
}

impl Mirror {
    /// A line of a sources.list for one suite.
    pub fn line(&self, kind: &str, suite: &str) -> String {
        let options = if self.trusted { "[trusted=yes] " } else { "" };
        format!("{kind} {options}{} {suite} main", self.uri)
    }
}

/// Installs what is missing of the packages that we need, after saying which.
pub fn install_needed() -> Result<()> {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(_, proof)| !is_there(proof)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    ui::say(&format!("installing Debian packages: {}", missing.join(" ")));
    let log = paths::log("apt-install")?;
    ui::step_with_log("installing packages", Some(&log), || {
        let mut command = Command::new("sh");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        let script = "apt-get update && exec apt-get install -y --no-install-recommends \"$@\"";
        command.args(["-c", script, "sh"]).args(&missing);
        proc::run_logged("apt-get install", command, &log, super::image::LONG)
    })
}

fn is_there(proof: &str) -> bool {
    if proof != "libclang" {
        return Path::new(proof).exists();
    }
    // Its place names its version: /usr/lib/llvm-NN/lib/libclang*.so.
    fs::read_dir("/usr/lib").into_iter().flatten().flatten().any(|entry| {
        entry.file_name().to_string_lossy().starts_with("llvm-")
            && fs::read_dir(entry.path().join("lib"))
                .into_iter()
                .flatten()
                .flatten()
                .any(|file| file.file_name().to_string_lossy().starts_with("libclang"))
    })
}

/// A mirror that the machine's sources name and that has all these suites.
pub fn mirror(suites: &[&str]) -> Result<Mirror> {
    let sources = read_sources()?;
    let codename = codename()?;
    let named: Vec<Mirror> = parse(&sources)
        .into_iter()
        .filter(|(_, of)| of.contains(&codename))
        .map(|(mirror, _)| mirror)
        .collect();
    let mut tried = Vec::new();
    for mirror in named.into_iter().flat_map(|mirror| [Some(mirror.clone()), undated(&mirror)]).flatten() {
        if !tried.contains(&mirror) {
            if suites.iter().all(|suite| has_suite(&mirror, suite)) {
                return Ok(mirror);
            }
            tried.push(mirror);
        }
    }
    let tried: Vec<&str> = tried.iter().map(|mirror| mirror.uri.as_str()).collect();
    bail!(
        "no mirror in /etc/apt has the suites {}; tried for {codename}: {}",
        suites.join(", "),
        if tried.is_empty() { "none named".to_owned() } else { tried.join(", ") }
    )
}

/// Where the archive's keys are.
pub fn keyring() -> &'static str {
    KEYRING
}

/// The machine's settings of how to download, as `Name "value"` for `mmdebstrap --aptopt`.
pub fn options() -> Result<Vec<String>> {
    let kept = [
        "Acquire::Check-Valid-Until",
        "Acquire::Check-Date",
        "Acquire::Max-ValidTime",
        "Acquire::Retries",
        "Acquire::ForceIP",
        "Acquire::http",
        "Acquire::https",
        "Acquire::AllowInsecureRepositories",
    ];
    let mut command = Command::new("apt-config");
    command.args(["dump", "Acquire"]);
    let dump = proc::output(command)?;
    let mut options: Vec<String> = dump
        .lines()
        .filter(|line| kept.iter().any(|name| line.starts_with(name)) && !line.ends_with("\"\";"))
        .map(|line| line.trim_end_matches(';').to_owned())
        .collect();
    options.push("Acquire::Languages \"none\"".into());
    options.push("Acquire::Retries \"3\"".into());
    options.push("APT::Install-Recommends \"false\"".into());
    options.push("APT::Sandbox::User \"root\"".into());
    Ok(options)
}

fn codename() -> Result<String> {
    let release = paths::read(Path::new("/etc/os-release"))?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name
        .context("/etc/os-release names no VERSION_CODENAME: is this Debian?")?
        .trim_matches('"')
        .to_owned())
}

/// The text of all source files; each one-line file becomes deb822-like by [`parse`]'s kindness.
fn read_sources() -> Result<String> {
    let mut files = vec![Path::new("/etc/apt/sources.list").to_owned()];
    for entry in fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten() {
        files.push(entry?.path());
    }
    files.sort();
    let wanted = |path: &&std::path::PathBuf| {
        path.extension().is_some_and(|ending| ending == "list" || ending == "sources")
    };
    let texts: Vec<String> =
        files.iter().filter(wanted).filter_map(|path| fs::read_to_string(path).ok()).collect();
    Ok(texts.join("\n\n"))
}

/// Mirrors with their suites, from one-line and deb822 entries alike.
fn parse(sources: &str) -> Vec<(Mirror, Vec<String>)> {
    let mut found = Vec::new();
    let mut stanza: Vec<(String, String)> = Vec::new();
    for line in sources.lines().chain([""]) {
        let line = line.trim_end();
        if line.starts_with('#') {
            continue;
        }
        if let Some(entry) = line.strip_prefix("deb ") {
            found.extend(parse_line(entry));
        } else if line.is_empty() {
            found.extend(finish(&std::mem::take(&mut stanza)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    found
}

fn parse_line(entry: &str) -> Option<(Mirror, Vec<String>)> {
    let (options, rest) = match entry.trim_start().strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", entry),
    };
    let mut words = rest.split_whitespace();
    let uri = words.next()?.to_owned();
    Some((Mirror { uri, trusted: options.contains("trusted=yes") }, vec![words.next()?.to_owned()]))
}

fn finish(stanza: &[(String, String)]) -> Vec<(Mirror, Vec<String>)> {
    let field =
        |name: &str| stanza.iter().find(|(this, _)| this == name).map_or("", |(_, value)| value.as_str());
    let off = field("enabled").eq_ignore_ascii_case("no");
    if off || !field("types").split_whitespace().any(|kind| kind == "deb") {
        return Vec::new();
    }
    let suites: Vec<String> = field("suites").split_whitespace().map(str::to_owned).collect();
    let trusted = field("trusted").eq_ignore_ascii_case("yes");
    let uris = field("uris").split_whitespace();
    uris.map(|uri| (Mirror { uri: uri.to_owned(), trusted }, suites.clone())).collect()
}

/// For a mirror whose path holds a date (`.../20250520T000000Z/...`), the same one of today.
fn undated(mirror: &Mirror) -> Option<Mirror> {
    let is_date = |part: &str| {
        part.len() == 16
            && part.ends_with('Z')
            && part.as_bytes()[8] == b'T'
            && part.bytes().filter(u8::is_ascii_digit).count() == 14
    };
    let mut command = Command::new("date");
    command.args(["-u", "+%Y%m%dT000000Z"]);
    let today = proc::output(command).ok()?;
    let parts: Vec<&str> = mirror.uri.split('/').collect();
    parts.iter().any(|part| is_date(part)).then(|| {
        let parts = parts.iter().map(|part| if is_date(part) { today.trim() } else { *part });
        Mirror { uri: parts.collect::<Vec<_>>().join("/"), ..mirror.clone() }
    })
}

/// Asks with apt's own downloader, which knows the machine's proxies.
fn has_suite(mirror: &Mirror, suite: &str) -> bool {
    let file = std::env::temp_dir().join(format!("vrdma-inrelease-{}", std::process::id()));
    let url = format!("{}/dists/{suite}/InRelease", mirror.uri.trim_end_matches('/'));
    let status = Command::new("/usr/lib/apt/apt-helper")
        .args(["download-file", &url])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let _ = fs::remove_file(&file);
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let text = "# a comment\ndeb [trusted=yes] http://one.example/debian bookworm main\n\n\
            Types: deb deb-src\nURIs: http://two.example/debian\nSuites: bookworm\n bookworm-updates\n\n\
            Types: deb\nEnabled: no\nURIs: http://three.example/debian\nSuites: bookworm\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        assert!(found[0].0.trusted && found[0].0.uri == "http://one.example/debian");
        assert_eq!(found[1].1, ["bookworm", "bookworm-updates"]);
    }

    #[test]
    fn a_dated_mirror_has_an_undated_sibling() {
        let dated = |uri: &str| undated(&Mirror { uri: uri.into(), trusted: false });
        assert_eq!(dated("http://one.example/debian"), None);
        let today = dated("http://one.example/archive/debian/20250520T000000Z").unwrap();
        assert!(
            today.uri.starts_with("http://one.example/archive/debian/2") && !today.uri.contains("20250520")
        );
    }
}
