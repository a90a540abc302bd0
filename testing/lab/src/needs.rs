//! Checks the machine's prerequisites for builds and tests, and installs what is missing.
//!
//! A prerequisite is met if dpkg lists its package as installed. It is also met if its user finds
//! it elsewhere. pkg-config finds a library, bindgen's own search finds libclang, and `PATH` finds
//! a program.
//!
//! The presence of a file is no proof. `libclang-cpp14` has files named libclang, but no libclang.
//! On Debian 12, `dpdk` has no `dpdk-testpmd`. Where there is no dpkg, packages without another
//! proof are assumed to be installed.

mod failure;
mod libclang;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Once;

use anyhow::{Result, bail};

use crate::packages::{NEEDS, Need, Proof, Wanted, packages};
use crate::{paths, proc, ui};
use failure::Failure;

/// The source of facts about the machine.
trait Machine {
    /// Whether there is a dpkg to ask.
    fn has_dpkg(&self) -> bool;
    /// Whether dpkg lists the package as installed, that is: unpacked and configured.
    fn installed(&self, package: &str) -> bool;
    /// Whether the package's installation or removal is incomplete.
    fn broken(&self, package: &str) -> bool;
    /// Whether `PATH` has the program.
    fn program(&self, name: &str) -> bool;
    /// Whether pkg-config knows the library.
    fn library(&self, name: &str) -> bool;
    /// Whether bindgen finds a libclang that can read headers.
    fn libclang(&self) -> bool;
}

impl Need {
    fn is_met(&self, machine: &dyn Machine) -> bool {
        // If there are several packages, none of them is proof by itself.
        if let [package] = self.packages
            && machine.installed(package)
        {
            return true;
        }
        if self.packages.iter().any(|package| machine.broken(package)) {
            return false;
        }
        match self.proof {
            Proof::Package => false,
            Proof::Program(name) => machine.program(name),
            Proof::Library(name) => machine.library(name),
            Proof::Libclang => machine.libclang(),
        }
    }

    /// Returns the next package to try, or `None` if all are installed.
    fn package(&self, machine: &dyn Machine) -> Option<&'static str> {
        self.packages.iter().copied().find(|package| !machine.installed(package))
    }
}

/// Returns the unmet prerequisites that a package may provide, each with that package.
fn missing(machine: &dyn Machine) -> Vec<(&'static Need, &'static str)> {
    let unmet = NEEDS.iter().filter(|need| !need.is_met(machine));
    unmet.filter_map(|need| Some((need, need.package(machine)?))).collect()
}

/// Returns the unmet prerequisites of some purposes, each with the package that may provide it.
fn missing_for(machine: &dyn Machine, which: impl Fn(Wanted) -> bool) -> Vec<(&'static Need, &'static str)> {
    missing(machine).into_iter().filter(|(need, _)| which(need.wanted)).collect()
}

fn packages_of<'a>(missing: &[(&Need, &'a str)]) -> Vec<&'a str> {
    missing.iter().map(|(_, package)| *package).collect()
}

/// Describes in one line what is missing, its purpose, and the command that installs it.
fn complaint(missing: &[(&Need, &str)]) -> String {
    let needs: Vec<String> =
        missing.iter().map(|(need, _)| format!("{} ({})", need.name, need.why)).collect();
    let packages = packages_of(missing);
    format!("missing: {}; mend it as root: apt-get install {}", needs.join(", "), packages.join(" "))
}

/// Installs what is missing, and says which packages.
///
/// Only root can install. For other users it is an error if a prerequisite of the builds is
/// missing. What only comparisons need may stay missing. Where there is no dpkg, nothing is
/// installed, and the builds' own proofs decide.
pub fn ensure() -> Result<()> {
    let machine = Here::look();
    if !machine.has_dpkg() {
        static SAID: Once = Once::new();
        let note = without_dpkg(&machine)?;
        SAID.call_once(|| ui::say(&format!("note: {note}")));
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        let wanted = missing_for(&machine, |wanted| wanted == Wanted::Build);
        return if wanted.is_empty() { Ok(()) } else { bail!(complaint(&wanted)) };
    }
    if let Some(note) = provide(Here::look, &Failure::here(), |packages| {
        ui::say(&format!("installing Debian packages: {}", packages.join(" ")));
        install(packages)
    })? {
        ui::say(&format!("note: {note}"));
    }
    Ok(())
}

/// Installs what is missing. Returns a note about comparisons that have to be left out.
///
/// Packages for comparisons are requested separately, because apt installs nothing at all if a
/// mirror lacks one package. After a failure, further commands do not request them again for a day.
fn provide<M: Machine>(
    look: impl Fn() -> M,
    failure: &Failure,
    mut install: impl FnMut(&[&str]) -> Result<()>,
) -> Result<Option<String>> {
    provide_some(&look, &mut install, |wanted| wanted != Wanted::Compare)?;
    let machine = look();
    let lacks = missing_for(&machine, |wanted| wanted == Wanted::Compare);
    if !lacks.is_empty() && failure.is_of(&packages_of(&lacks)) {
        return Ok(Some(format!("{} ({})", complaint(&lacks), failure.note())));
    }
    let compare = provide_some(&look, &mut install, |wanted| wanted == Wanted::Compare);
    match compare {
        Ok(()) => failure.forget(),
        Err(_) => failure.remember(&packages_of(&missing_for(&look(), |wanted| wanted == Wanted::Compare))),
    }
    Ok(compare.err().map(|error| format!("{error:#}")))
}

fn provide_some<M: Machine>(
    look: &impl Fn() -> M,
    install: &mut impl FnMut(&[&str]) -> Result<()>,
    which: impl Fn(Wanted) -> bool,
) -> Result<()> {
    let mut tried: Vec<&str> = Vec::new();
    // Each round leaves a prerequisite one package less to try.
    loop {
        let missing = missing_for(&look(), &which);
        if missing.is_empty() {
            return Ok(());
        }
        let packages = packages_of(&missing);
        if packages.iter().all(|package| tried.contains(package)) {
            bail!("{} (apt-get installed it, and dpkg does not know it)", complaint(&missing));
        }
        tried.extend(&packages);
        if let Err(error) = install(&packages) {
            bail!("{} ({error:#})", complaint(&missing));
        }
    }
}

/// Returns a note for a machine without dpkg, where nobody knows the installed packages.
///
/// It is an error if something is missing that the builds need and that can be checked otherwise.
fn without_dpkg(machine: &dyn Machine) -> Result<String> {
    let unmet: Vec<&Need> = NEEDS.iter().filter(|need| !need.is_met(machine)).collect();
    let seen = |need: &&&Need| need.wanted == Wanted::Build && !matches!(need.proof, Proof::Package);
    let lacks: Vec<(&Need, &str)> = unmet.iter().filter(seen).map(|need| (*need, need.packages[0])).collect();
    if !lacks.is_empty() {
        let needs: Vec<String> =
            lacks.iter().map(|(need, _)| format!("{} ({})", need.name, need.why)).collect();
        let packages: Vec<&str> = lacks.iter().map(|(_, package)| *package).collect();
        bail!(
            "missing: {}; there is no dpkg here: install what Debian has as {}",
            needs.join(", "),
            packages.join(" ")
        );
    }
    let packages: Vec<&str> = unmet.iter().map(|need| need.packages[0]).collect();
    Ok(format!(
        "there is no dpkg here to ask for {}: going on, as what the build can look for itself is there",
        packages.join(" ")
    ))
}

fn install(packages: &[&str]) -> Result<()> {
    let log = paths::log("apt-install")?;
    let mut command = Command::new("sh");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    // If the update fails, an older list of packages may still do. No package starts a service.
    let script = "apt-get update
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ]; then
            trap 'rm -f /usr/sbin/policy-rc.d' EXIT
            trap 'exit 1' HUP INT TERM
            printf '#!/bin/sh\\nexit 101\\n' >$policy && chmod 755 $policy
        fi
        apt-get install -y --no-install-recommends \"$@\"";
    command.args(["-c", script, "sh"]).args(packages);
    let result = ui::step_with_log("installing packages", Some(&log), || {
        proc::run_logged("apt-get install", command, &log, proc::LONG)
    });
    if result.is_ok() {
        return Ok(());
    }
    let text = paths::read(&log).unwrap_or_default();
    let said = text.lines().rev().find(|line| line.starts_with("E:")).unwrap_or("it failed").to_owned();
    bail!("apt-get said: {said}; log: {}", log.display())
}

/// dpkg's status words of packages, such as `install ok installed`.
#[derive(Clone, Default)]
struct Dpkg(BTreeMap<String, String>);

impl Dpkg {
    /// dpkg-query's output format. It has a line for each package: name, tab, status.
    const FORMAT: &str = "${Package}\t${Status}\n";

    fn parse(said: &str) -> Self {
        let line =
            |line: &str| line.split_once('\t').map(|(name, status)| (name.to_owned(), status.to_owned()));
        Self(said.lines().filter_map(line).collect())
    }

    /// Returns the last word of the package's status.
    fn state(&self, package: &str) -> Option<&str> {
        self.0.get(package)?.rsplit(' ').next()
    }

    fn installed(&self, package: &str) -> bool {
        self.0.get(package).is_some_and(|status| status.ends_with(" ok installed"))
    }

    fn broken(&self, package: &str) -> bool {
        let gone = [None, Some("not-installed"), Some("config-files")];
        !self.installed(package) && !gone.contains(&self.state(package))
    }
}

/// This machine. Without dpkg it holds `None`, and everything has to come from elsewhere.
struct Here(Option<Dpkg>);

impl Here {
    fn look() -> Self {
        let mut command = Command::new("dpkg-query");
        command.args(["--show", "--showformat", Dpkg::FORMAT]).args(packages());
        // dpkg-query prints errors about packages that it does not know.
        let said = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        Self(said.ok().map(|said| Dpkg::parse(&String::from_utf8_lossy(&said.stdout))))
    }
}

impl Machine for Here {
    fn has_dpkg(&self) -> bool {
        self.0.is_some()
    }

    fn installed(&self, package: &str) -> bool {
        self.0.as_ref().is_some_and(|dpkg| dpkg.installed(package))
    }

    fn broken(&self, package: &str) -> bool {
        self.0.as_ref().is_some_and(|dpkg| dpkg.broken(package))
    }

    fn program(&self, name: &str) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| {
            nix::unistd::access(&directory.join(name), nix::unistd::AccessFlags::X_OK).is_ok()
        })
    }

    fn library(&self, name: &str) -> bool {
        let program = std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
        let status = Command::new(program).args(["--exists", name]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    fn libclang(&self) -> bool {
        libclang::reads_headers()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A machine with a given dpkg status, programs and libraries.
    #[derive(Clone, Default)]
    struct Fake {
        dpkg: Dpkg,
        programs: Vec<&'static str>,
        library: bool,
        libclang: bool,
    }

    impl Machine for Fake {
        fn has_dpkg(&self) -> bool {
            !self.dpkg.0.is_empty()
        }

        fn installed(&self, package: &str) -> bool {
            self.dpkg.installed(package)
        }

        fn broken(&self, package: &str) -> bool {
            self.dpkg.broken(package)
        }

        fn program(&self, name: &str) -> bool {
            self.programs.contains(&name)
        }

        fn library(&self, _: &str) -> bool {
            self.library
        }

        fn libclang(&self) -> bool {
            self.libclang
        }
    }

    /// Returns Debian 12 with all packages except some.
    fn debian_12(without: &[&str]) -> Fake {
        let mut said = String::new();
        for package in packages().filter(|package| !without.contains(package)) {
            said += &format!("{package}\tinstall ok installed\n");
        }
        let programs = if without.contains(&"dpdk-dev") { vec![] } else { vec!["dpdk-testpmd"] };
        Fake { dpkg: Dpkg::parse(&said), programs, ..Fake::default() }
    }

    fn lacks(machine: &Fake) -> Vec<&'static str> {
        missing(machine).into_iter().map(|(_, package)| package).collect()
    }

    #[test]
    fn a_whole_machine_lacks_nothing() {
        assert_eq!(lacks(&debian_12(&[])), [""; 0]);
    }

    #[test]
    fn a_bare_machine_lacks_all() {
        let all: Vec<&str> = packages().filter(|package| *package != "dpdk").collect();
        assert_eq!(lacks(&Fake::default()), all);
    }

    #[test]
    fn libclang_cpp_is_no_libclang() {
        let mut machine = debian_12(&["libclang-dev"]);
        machine.dpkg.0.insert("libclang-cpp14".into(), "install ok installed".into());
        assert_eq!(lacks(&machine), ["libclang-dev"]);
    }

    #[test]
    fn testpmd_is_looked_for_in_both_packages() {
        // Debian 12: `dpkg` has `dpdk`, which does not contain the program.
        let machine = debian_12(&["dpdk-dev"]);
        assert!(machine.dpkg.installed("dpdk"));
        assert_eq!(lacks(&machine), ["dpdk-dev"]);
        // A release whose `dpdk-dev` does not contain the program.
        let machine = Fake { programs: vec![], ..debian_12(&["dpdk"]) };
        assert_eq!(lacks(&machine), ["dpdk"]);
        // If both are installed without the program, nothing is installed again and again.
        let machine = Fake { programs: vec![], ..debian_12(&[]) };
        assert_eq!(lacks(&machine), [""; 0]);
    }

    #[test]
    fn tshark_is_asked_of_dpkg() {
        assert_eq!(lacks(&debian_12(&["tshark"])), ["tshark"]);
        // Removed, except for its configuration files.
        let mut machine = debian_12(&["tshark"]);
        machine.dpkg.0.insert("tshark".into(), "deinstall ok config-files".into());
        assert_eq!(lacks(&machine), ["tshark"]);
    }

    #[test]
    fn a_package_that_is_half_there_is_missing() {
        for status in
            ["install ok unpacked", "install reinstreq half-installed", "install ok half-configured"]
        {
            let mut machine = debian_12(&[]);
            machine.dpkg.0.insert("mmdebstrap".into(), status.into());
            machine.programs.push("mmdebstrap");
            assert_eq!(lacks(&machine), ["mmdebstrap"], "{status}");
        }
        let mut machine = debian_12(&[]);
        machine.dpkg.0.insert("mmdebstrap".into(), "hold ok installed".into());
        assert_eq!(lacks(&machine), [""; 0]);
    }

    #[test]
    fn qemu_is_not_wanted_of_the_machine() {
        assert!(packages().all(|package| !package.contains("qemu")));
    }

    #[test]
    fn what_comes_from_elsewhere_is_fine() {
        // A DPDK built by hand (`PKG_CONFIG_PATH`) with its testpmd in `PATH`, and a libclang by
        // `LIBCLANG_PATH`.
        let machine = Fake {
            programs: vec!["dpdk-testpmd"],
            library: true,
            libclang: true,
            ..debian_12(&["libdpdk-dev", "dpdk", "dpdk-dev", "libclang-dev"])
        };
        assert_eq!(lacks(&machine), [""; 0]);
    }

    #[test]
    fn what_benches_compare_with_is_asked_for_by_itself() {
        let machine = RefCell::new(debian_12(&["mmdebstrap", "tshark", "zstd"]));
        let calls = RefCell::new(Vec::new());
        let mirror_without_tshark = |packages: &[&str]| {
            calls.borrow_mut().push(packages.join(" "));
            if packages.contains(&"tshark") {
                bail!("Unable to locate package tshark");
            }
            for package in packages {
                machine.borrow_mut().dpkg.0.insert((*package).into(), "install ok installed".into());
            }
            Ok(())
        };
        let failure = never("by-itself");
        let note = provide(|| machine.borrow().clone(), &failure, mirror_without_tshark).unwrap().unwrap();
        failure.forget();
        assert_eq!(*calls.borrow(), ["mmdebstrap zstd", "tshark"]);
        assert_eq!(lacks(&machine.borrow()), ["tshark"]);
        assert_eq!(
            note,
            "missing: tshark (captures are read by it); mend it as root: apt-get install tshark (Unable to locate package tshark)"
        );
        // Everything else is required.
        let error = provide(|| debian_12(&["zstd"]), &failure, |_| bail!("no mirror")).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "missing: zstd (it unpacks the kernel); mend it as root: apt-get install zstd (no mirror)"
        );
    }

    /// Returns a record without a failure, at second 1,000,000.
    fn never(name: &str) -> Failure {
        let file = std::env::temp_dir().join(format!("vrdma-{name}-{}", std::process::id()));
        let failure = Failure::new(file, 1_000_000);
        failure.forget();
        failure
    }

    #[test]
    fn what_cannot_be_had_is_asked_for_once_a_day() {
        let first = never("once-a-day");
        let calls = RefCell::new(Vec::new());
        let ask = |machine: &Fake, failure: &Failure| {
            calls.borrow_mut().clear();
            let note = provide(
                || machine.clone(),
                failure,
                |packages| {
                    calls.borrow_mut().push(packages.join(" "));
                    bail!("no mirror")
                },
            );
            (note.unwrap(), calls.borrow().len())
        };
        let machine = debian_12(&["tshark"]);
        let missing = "missing: tshark (captures are read by it); mend it as root: apt-get install tshark";
        assert_eq!(ask(&machine, &first), (Some(format!("{missing} (no mirror)")), 1));
        // Each further command prints one line, and installs nothing.
        let note = format!("{missing} ({})", first.note());
        let after = |seconds: u64| Failure { now: 1_000_000 + seconds, ..first.clone() };
        for seconds in [0, 60, 86_399] {
            assert_eq!(ask(&machine, &after(seconds)), (Some(note.clone()), 0), "after {seconds} s");
        }
        assert!(!note.contains('\n'));
        // It asks again for another list, on a new day, and after the clock was set back.
        assert_eq!(ask(&debian_12(&["tshark", "dpdk-dev"]), &after(60)).1, 1);
        assert_eq!(ask(&machine, &after(60)).1, 1, "the last failure was of another list");
        assert_eq!(ask(&machine, &after(86_460)).1, 1);
        assert_eq!(ask(&machine, &after(60)).1, 1);
        // Other packages are requested each time. A success removes the record of the failure.
        let build = provide(|| debian_12(&["tshark", "zstd"]), &after(60), |_| bail!("no mirror"));
        assert!(build.unwrap_err().to_string().starts_with("missing: zstd"));
        assert_eq!(ask(&debian_12(&[]), &after(60)), (None, 0));
        assert_eq!(ask(&machine, &after(60)).1, 1);
        first.forget();
    }

    #[test]
    fn without_dpkg_the_builds_own_proofs_decide() {
        let mut machine = Fake {
            programs: vec!["cc", "pkg-config", "ip"],
            library: true,
            libclang: true,
            ..Fake::default()
        };
        assert!(!machine.has_dpkg());
        assert_eq!(
            without_dpkg(&machine).unwrap(),
            "there is no dpkg here to ask for libc6-dev mmdebstrap debian-archive-keyring gpgv e2fsprogs xz-utils zstd \
             python3-pip dpdk-dev tshark prometheus ucx-utils: going on, as what the build can look for itself \
             is there"
        );
        machine.library = false;
        assert_eq!(
            without_dpkg(&machine).unwrap_err().to_string(),
            "missing: DPDK (the backend is built on it); there is no dpkg here: install what Debian has as libdpdk-dev"
        );
    }

    #[test]
    fn a_complaint_is_one_line_with_what_why_and_the_command() {
        let machine = debian_12(&["libclang-dev", "tshark"]);
        assert_eq!(
            complaint(&missing(&machine)),
            "missing: libclang (bindgen reads C headers with it), tshark (captures are read by it); mend it as root: \
             apt-get install libclang-dev tshark"
        );
    }
}
