//! Linux's soft-iWARP (`siw`), which Debian's kernel lacks.
//!
//! It is built once from Debian's sources of the VMs' kernel. It is built in variants, because its
//! settings are constants in the source.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::artefacts;
use crate::hash::{Inputs, Stamp};
use crate::kernel::Kernel;
use crate::proc::LONG;
use crate::vm::Vm;
use crate::{image, paths, proc, roots, ui};

const FETCH: &str = include_str!("../image/siw.sh");
/// The file with the constants.
const CONSTANTS: &str = "siw_main.c";
/// A change of all variants: how long siw waits for the reply to its MPA request.
///
/// It has the file, Linux's text, and the replacement. Before it replies, a peer's perftest fills
/// its buffers. For 8 MiB that takes 1.6 s in an emulated VM with a processor of its own. On a busy
/// machine it takes more than Linux's 10 s.
const PATIENCE: (&str, &str, &str) =
    ("siw_cm.h", "\n#define MPAREQ_TIMEOUT (HZ * 10)\n", "\n#define MPAREQ_TIMEOUT (HZ * 60)\n");

/// How a siw variant negotiates with its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As in Linux, except for `PATIENCE`.
    ///
    /// CRCs only if the peer asks for them, MPA revision 2, no peer-to-peer set-up.
    Stock,
    /// Asks for CRCs, and refuses connections without.
    Crc,
    /// Refuses CRCs.
    NoCrc,
    /// The connecting side sends the first message by itself, so that the responder may send (RFC
    /// 6581).
    PeerToPeer,
    /// Segments of up to 64 KiB, if the peer announces that it accepts them.
    ///
    /// The announcement is a reserved bit of the MPA request.
    Gso,
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 5] = [Self::Stock, Self::Crc, Self::NoCrc, Self::PeerToPeer, Self::Gso];

    /// Returns the variant's name, for tables and for its module's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Crc => "crc",
            Self::NoCrc => "no-crc",
            Self::PeerToPeer => "peer-to-peer",
            Self::Gso => "gso",
        }
    }

    /// Returns the constants to set. All of them are zero in Linux.
    fn constants(self) -> &'static [&'static str] {
        match self {
            Self::Stock => &[],
            Self::Crc => &["mpa_crc_required", "mpa_crc_strict"],
            Self::NoCrc => &["mpa_crc_strict"],
            Self::PeerToPeer => &["peer_to_peer"],
            Self::Gso => &["try_gso"],
        }
    }
}

/// Sets the constants in the text. Fails if one is not declared exactly once, without a value.
fn edit(text: &str, constants: &[&str]) -> Result<String> {
    constants.iter().try_fold(text.to_owned(), |text, constant| {
        let declaration = format!("\nconst bool {constant};\n");
        replace_one(&text, &declaration, &format!("\nconst bool {constant} = true;\n"))
    })
}

/// Replaces a text that occurs exactly once. Otherwise fails.
fn replace_one(text: &str, from: &str, to: &str) -> Result<String> {
    let count = text.matches(from).count();
    ensure!(count == 1, "siw has {:?} {count} times, not once as it was expected", from.trim());
    Ok(text.replace(from, to))
}

/// Builds all variants that are not up to date, and copies them into a directory that VMs see.
pub fn lay_out(share: &Path) -> Result<()> {
    let _lock = image::lock()?;
    let sources = sources()?;
    let mut work = Work { sources: &sources, directory: None };
    for variant in Variant::ALL {
        let module = work.build(variant)?;
        artefacts::strip_debug(&module, &share.join(file(variant)))?;
    }
    Ok(())
}

fn file(variant: Variant) -> String {
    format!("siw-{}.ko", variant.name())
}

/// Returns the directory of Debian's unchanged sources. Fetches them if necessary.
fn sources() -> Result<PathBuf> {
    let directory = paths::vm().join("siw");
    let hash = Inputs::new("siw sources 1").text(FETCH).text(&roots::kernel_version()?).finish();
    let stamp = Stamp::new(&directory, hash);
    if !stamp.is_current() {
        let log = paths::log("siw-sources")?;
        ui::step_with_log("fetching siw's sources", Some(&log), || {
            stamp.clear()?;
            paths::remove(&directory)?;
            paths::make_dir(&directory)?;
            let command = proc::in_root(&paths::guest_root(), &[(&directory, "/mnt")], FETCH);
            proc::run_logged("fetching siw's sources", command, &log, LONG)?;
            stamp.set()
        })?;
    }
    Ok(directory)
}

/// A directory in which variants are built one after another. They differ in one file.
struct Work<'a> {
    sources: &'a Path,
    /// A copy of the sources. It is made for the first variant that has to be built.
    directory: Option<PathBuf>,
}

impl Work<'_> {
    /// Returns the module of a variant. Builds it unless it is up to date.
    fn build(&mut self, variant: Variant) -> Result<PathBuf> {
        let kernel = Kernel::Usual;
        let result = artefacts::out(&file(variant))?;
        let (_, _, ours) = PATIENCE;
        let inputs = Inputs::new("siw 2").text(&kernel.identity()?).path(self.sources)?.text(ours);
        let stamp = Stamp::new(&result, inputs.text(&variant.constants().join(" ")).finish());
        if !stamp.is_current() {
            stamp.clear()?;
            let log = paths::log(&format!("build-siw-{}", variant.name()))?;
            ui::step_with_log(&format!("building siw ({})", variant.name()), Some(&log), || {
                let directory = self.directory()?;
                let text = paths::read(&self.sources.join(CONSTANTS))?;
                paths::write(&directory.join(CONSTANTS), edit(&text, variant.constants())?)?;
                artefacts::build_module_in(&directory, &["CONFIG_RDMA_SIW=m"], &log, kernel)?;
                fs::copy(directory.join("siw.ko"), &result).context("the build made no siw.ko")?;
                stamp.set()
            })?;
        }
        Ok(result)
    }

    /// Returns the copy of the sources, with the changes of all variants.
    fn directory(&mut self) -> Result<PathBuf> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        let directory = artefacts::out("siw-build")?;
        paths::remove(&directory)?;
        artefacts::copy_sources(self.sources, &directory)?;
        let (header, theirs, ours) = PATIENCE;
        let header = directory.join(header);
        paths::write(&header, replace_one(&paths::read(&header)?, theirs, ours)?)?;
        Ok(self.directory.insert(directory).clone())
    }
}

/// Gives a VM a device of this variant, and removes its previous siw device.
pub fn load(vm: &Vm, variant: Variant, patience: Duration) -> Result<()> {
    let script = format!(
        "if test -d /sys/module/siw; then
             ! test -d /sys/class/infiniband/siw0 || rdma link delete siw0
             # What held the device lets go of it in a while.
             until rmmod siw 2>/dev/null; do sleep 0.1; done
         fi
         modprobe -a iw_cm ib_uverbs libcrc32c && insmod /share/{} && rdma link add siw0 type siw netdev eth0",
        file(variant)
    );
    vm.check(&script, patience).map(|_| ()).with_context(|| format!("siw ({})", variant.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_set_where_it_is_declared_once() {
        let text = "\n/* peer_to_peer */\nconst bool peer_to_peer;\n\nconst bool try_gso;\n";
        assert_eq!(
            edit(text, &["peer_to_peer"]).unwrap(),
            "\n/* peer_to_peer */\nconst bool peer_to_peer = true;\n\nconst bool try_gso;\n"
        );
        assert_eq!(edit(text, &[]).unwrap(), text);
    }

    #[test]
    fn a_constant_that_is_declared_otherwise_is_an_error() {
        assert!(edit("\nconst bool try_gso = false;\n", &["try_gso"]).is_err());
        assert!(edit("\nconst bool try_gso;\n\nconst bool try_gso;\n", &["try_gso"]).is_err());
        assert!(edit("", &["try_gso"]).is_err());
    }

    #[test]
    fn what_is_replaced_is_there_once() {
        let (_, theirs, ours) = PATIENCE;
        let text = format!("/* waits */{theirs}#define MPAREP_TIMEOUT (HZ * 5)\n");
        assert_eq!(
            replace_one(&text, theirs, ours).unwrap(),
            "/* waits */\n#define MPAREQ_TIMEOUT (HZ * 60)\n#define MPAREP_TIMEOUT (HZ * 5)\n"
        );
        assert!(
            replace_one(&text.repeat(2), theirs, ours).is_err() && replace_one("", theirs, ours).is_err()
        );
    }

    #[test]
    fn variants_have_names_and_constants_of_their_own() {
        for (index, variant) in Variant::ALL.into_iter().enumerate() {
            for other in &Variant::ALL[index + 1..] {
                assert!(variant.name() != other.name() && variant.constants() != other.constants());
            }
        }
    }
}
