//! The machine's package sources: which mirror it uses and how. The roots come from the same
//! mirror.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{paths, proc};

/// The keyring of Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A mirror of Debian's archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Base address.
    pub uri: String,
    /// Whether the machine trusts it without signatures.
    pub trusted: bool,
    /// The keyring by which the machine checks it.
    pub keyring: PathBuf,
}

impl Mirror {
    /// Returns a line of a sources.list for one suite.
    pub fn line(&self, kind: &str, suite: &str) -> String {
        let options = if self.trusted { "[trusted=yes] " } else { "" };
        format!("{kind} {options}{} {suite} main", self.uri)
    }
}

/// Returns a mirror from the machine's sources that has all these suites.
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

/// Returns the machine's download settings, as `Name "value"` for `mmdebstrap --aptopt`.
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

/// Returns the code name of the machine's release.
pub fn codename() -> Result<String> {
    let release = paths::read(Path::new("/etc/os-release"))?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name
        .context("/etc/os-release names no VERSION_CODENAME: is this Debian?")?
        .trim_matches('"')
        .to_owned())
}

/// Returns apt's package lists, one a line, in [`Site::FORMAT`].
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
    // apt knows the release only of lists that it has fetched.
    let mut update = Command::new("apt-get");
    update.arg("update");
    proc::run_logged("apt-get update", update, &paths::log("apt-update")?, proc::LONG)?;
    ask()
}

/// A package source of the machine.
#[derive(Debug, PartialEq, Eq)]
struct Site {
    uri: String,
    trusted: bool,
    list: PathBuf,
}

impl Site {
    const FORMAT: &str = "$(SITE)\t$(CODENAME)\t$(COMPONENT)\t$(TRUSTED)\t$(FILENAME)";

    /// Returns the source's mirror.
    ///
    /// apt does not say why it trusts a source: because of its signature, or because the sources'
    /// settings say so. So the signature is checked. If it cannot be checked, it is taken for
    /// valid.
    fn mirror(&self) -> Mirror {
        let signer = self.release().map(|release| signer(&release));
        let unsigned = matches!(signer, Some(Ok(None)));
        let keyring = signer.and_then(Result::ok).flatten().unwrap_or_else(|| KEYRING.into());
        Mirror { uri: self.uri.clone(), trusted: self.trusted && unsigned, keyring }
    }

    /// Returns the `InRelease` file that apt fetched with the list.
    ///
    /// The names of all lists of a release begin like the name of that file.
    fn release(&self) -> Option<PathBuf> {
        let list = self.list.file_name()?.to_string_lossy().into_owned();
        fs::read_dir(self.list.parent()?).ok()?.flatten().map(|entry| entry.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.strip_suffix("InRelease").is_some_and(|start| list.starts_with(start))
        })
    }
}

/// Returns the sources of the release's main component.
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

/// Returns the machine's keyrings, Debian's own first.
fn keyrings() -> Vec<PathBuf> {
    let mut keyrings = vec![PathBuf::from(KEYRING), "/etc/apt/trusted.gpg".into()];
    for directory in ["/etc/apt/trusted.gpg.d", "/etc/apt/keyrings", "/usr/share/keyrings"] {
        keyrings.extend(fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    keyrings.retain(|path| path.extension().is_some_and(|ending| ending == "gpg"));
    keyrings
}

/// Returns the keyring that verifies the file's signature, if there is one.
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

/// Returns today's snapshot of a mirror whose path holds a date (`.../20250520T000000Z/...`).
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

/// Whether the mirror has the suite. Asks by apt's own downloader, which knows the machine's
/// proxies.
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
        // It is trusted, and nobody has signed it: the sources' settings say so.
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
