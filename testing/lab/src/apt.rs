//! The machine's own package sources: which mirror it uses and how, so that the roots come from the
//! same place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{paths, proc};

/// The archive's keys.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One place that Debian's archive can be had from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Base address.
    pub uri: String,
    /// Whether the machine trusts it without signatures.
    pub trusted: bool,
    /// The keys that the machine checks it by.
    pub keyring: PathBuf,
}

impl Mirror {
    /// A line of a sources.list for one suite.
    pub fn line(&self, kind: &str, suite: &str) -> String {
        let options = if self.trusted { "[trusted=yes] " } else { "" };
        format!("{kind} {options}{} {suite} main", self.uri)
    }
}

/// A mirror that the machine's sources name and that has all these suites.
pub fn mirror(suites: &[&str]) -> Result<Mirror> {
    let codename = codename()?;
    let named: Vec<Mirror> = sites(&index_targets()?, &codename).iter().map(|site| site.mirror()).collect();
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

/// The release that the machine runs.
pub fn codename() -> Result<String> {
    let release = paths::read(Path::new("/etc/os-release"))?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name
        .context("/etc/os-release names no VERSION_CODENAME: is this Debian?")?
        .trim_matches('"')
        .to_owned())
}

/// What apt fetches lists of packages from, a line for each list.
fn index_targets() -> Result<String> {
    let ask = || {
        let mut command = Command::new("apt-get");
        command.args(["indextargets", "--format", Site::FORMAT, "Created-By: Packages"]);
        proc::output(command)
    };
    let said = ask()?;
    if !said.trim().is_empty() {
        return Ok(said);
    }
    // Only of what it has lists of apt knows the release.
    let mut update = Command::new("apt-get");
    update.arg("update");
    proc::run_logged("apt-get update", update, &paths::log("apt-update")?, proc::LONG)?;
    ask()
}

/// A source of the machine.
#[derive(Debug, PartialEq, Eq)]
struct Site {
    uri: String,
    trusted: bool,
    list: PathBuf,
}

impl Site {
    const FORMAT: &str = "$(SITE)\t$(CODENAME)\t$(COMPONENT)\t$(TRUSTED)\t$(FILENAME)";

    /// apt does not say why it trusts a source: its signature, or the sources' own words. So the
    /// signature is checked; who cannot check it takes it for a good one.
    fn mirror(&self) -> Mirror {
        let signer = self.release().map(|release| signer(&release));
        let unsigned = matches!(signer, Some(Ok(None)));
        let keyring = signer.and_then(Result::ok).flatten().unwrap_or_else(|| KEYRING.into());
        Mirror { uri: self.uri.clone(), trusted: self.trusted && unsigned, keyring }
    }

    /// What apt fetched with the list: all lists of a release start with the same words.
    fn release(&self) -> Option<PathBuf> {
        let list = self.list.file_name()?.to_string_lossy().into_owned();
        fs::read_dir(self.list.parent()?).ok()?.flatten().map(|entry| entry.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.strip_suffix("InRelease").is_some_and(|start| list.starts_with(start))
        })
    }
}

/// Sources of the release's main component.
fn sites(said: &str, codename: &str) -> Vec<Site> {
    let mut sites = Vec::new();
    for line in said.lines() {
        if let [uri, of, "main", trusted, list] = line.split('\t').collect::<Vec<_>>()[..]
            && of == codename
        {
            let site = Site { uri: uri.to_owned(), trusted: trusted == "yes", list: list.into() };
            if sites.iter().all(|other: &Site| other.uri != site.uri) {
                sites.push(site);
            }
        }
    }
    sites
}

/// The machine's keyrings, Debian's own first.
fn keyrings() -> Vec<PathBuf> {
    let mut keyrings = vec![PathBuf::from(KEYRING), "/etc/apt/trusted.gpg".into()];
    for directory in ["/etc/apt/trusted.gpg.d", "/etc/apt/keyrings", "/usr/share/keyrings"] {
        keyrings.extend(fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    keyrings.retain(|path| path.extension().is_some_and(|ending| ending == "gpg"));
    keyrings
}

/// The keyring by which the file is signed, if there is one.
fn signer(release: &Path) -> Result<Option<PathBuf>> {
    for keyring in keyrings() {
        let mut command = Command::new("gpgv");
        command.arg("--keyring").arg(&keyring).arg(release);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if status.context("cannot start gpgv")?.success() {
            return Ok(Some(keyring));
        }
    }
    Ok(None)
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
    fn sources_are_those_of_the_release() {
        let said = "http://one.example/debian\tbookworm\tmain\tyes\t/l/one.example_debian_dists_bookworm_main_binary-amd64_Packages\n\
            http://one.example/debian\tbookworm\tcontrib\tyes\t/l/c\n\
            http://one.example/debian\tbookworm\tmain\tyes\t/l/again\n\
            http://two.example/other\tsid\tmain\tyes\t/l/d\n\
            http://three.example/debian\tbookworm\tmain\tno\t/l/e\n";
        let found = sites(said, "bookworm");
        let uris: Vec<&str> = found.iter().map(|site| site.uri.as_str()).collect();
        assert_eq!(uris, ["http://one.example/debian", "http://three.example/debian"]);
        assert!(found[0].trusted && !found[1].trusted);
    }

    #[test]
    fn a_release_is_found_beside_its_lists() {
        let directory =
            proc::Ephemeral::new(std::env::temp_dir().join(format!("vrdma-lists-{}", std::process::id())));
        paths::make_dir(directory.path()).unwrap();
        for name in ["x_debian_dists_bookworm-updates_InRelease", "x_debian_dists_bookworm_InRelease"] {
            paths::write(&directory.path().join(name), "").unwrap();
        }
        let list = directory.path().join("x_debian_dists_bookworm_main_binary-amd64_Packages.lz4");
        let site = Site { uri: "http://x/debian".into(), trusted: true, list };
        assert_eq!(site.release().unwrap(), directory.path().join("x_debian_dists_bookworm_InRelease"));
        // Trusted, and signed by nobody: by the sources' own words.
        assert!(site.mirror().trusted);
    }

    #[test]
    fn a_dated_mirror_has_an_undated_sibling() {
        let dated = |uri: &str| undated(&Mirror { uri: uri.into(), trusted: false, keyring: KEYRING.into() });
        assert_eq!(dated("http://one.example/debian"), None);
        let today = dated("http://one.example/archive/debian/20250520T000000Z").unwrap();
        assert!(
            today.uri.starts_with("http://one.example/archive/debian/2") && !today.uri.contains("20250520")
        );
    }
}
