//! `cargo xtask ten-minutes`: runs the commands of `docs/ten-minutes.md`, and no others, on a clean
//! host with two clean guests.
//!
//! The host is a Debian 12 root in namespaces of its own, whose first process is systemd. QEMU runs
//! the guests there, with Debian 13. `cargo xtask unit` runs the daemon's unit on such a host.

mod guests;
mod host;
mod page;
mod relay;
mod unit;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};
use vrdma_lab::{needs, paths, proc, roots, ui};

use self::guests::{GUESTS, SLOW};
use self::host::Host;
use self::page::{Block, Place, When};
use crate::bare::Suite;
use crate::package::{self, PackagePlan};

pub use unit::run as unit;

/// The page, from the workspace's root.
const PAGE: &str = "docs/ten-minutes.md";

/// What to try of the page.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TenMinutesPlan {
    /// Use the packages in target/vm/packages as they are, instead of building them.
    #[arg(long)]
    pub built: bool,
}

/// Runs the page's commands.
pub fn run(plan: &TenMinutesPlan) -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "a host in namespaces is made by root: use sudo");
    needs::ensure()?;
    let blocks = page::blocks(&paths::read(&paths::workspace().join(PAGE))?)?;
    let suites = [Suite::Bookworm, Suite::Trixie];
    let packages = packages(&suites, plan.built)?;
    roots::qemu()?;
    let host = Host::boot("ten-minutes", |upper| {
        host::with_packages(upper, &packages)?;
        host::with_qemu(upper)?;
        guests::with_disks(upper)
    })?;
    let mut run = Run { host, before: Vec::new(), number: 0 };
    let before = run.host.files()?;
    run.page(&blocks)?;
    let left = host::traces(&before, &run.host.files()?);
    ensure!(left.is_empty(), "the page's commands leave on the host:\n{}", left.join("\n"));
    println!("{PAGE}: {} blocks of commands succeeded", run.number);
    Ok(())
}

/// Makes the packages of some releases, or finds those that are there.
fn packages(suites: &[Suite], built: bool) -> Result<Vec<PathBuf>> {
    if !built {
        package::run(&PackagePlan { quick: true, suites: suites.to_vec(), ..PackagePlan::default() })?;
    }
    let mut found = Vec::new();
    for suite in suites {
        let directory = paths::vm().join("packages").join(suite.name());
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "deb") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// A run of the page.
struct Run {
    host: Host,
    /// The files of each guest, from before its first command.
    before: Vec<String>,
    /// How many blocks have run.
    number: usize,
}

impl Run {
    fn page(&mut self, blocks: &[Block]) -> Result<()> {
        let last_of_guests = blocks.iter().rposition(|block| block.place.is_guest());
        let mut index = 0;
        while let Some(block) = blocks.get(index) {
            if block.when == When::Booted {
                ui::step("booting the guests", || guests::wait_for_boot(&self.host))?;
            }
            if block.place.is_guest() && self.before.is_empty() {
                self.before = self.files_of_guests()?;
            }
            if let (When::Meanwhile, Some(client)) = (block.when, blocks.get(index + 1)) {
                self.with_server(block, client)?;
                index += 1;
            } else {
                self.one(block)?;
            }
            if last_of_guests == Some(index) {
                self.check_guests()?;
            }
            index += 1;
        }
        Ok(())
    }

    /// Runs a block, and checks what it prints.
    fn one(&mut self, block: &Block) -> Result<()> {
        self.number += 1;
        run_block(&self.host, block, self.number)
    }

    /// Runs a block that serves the next one, and that next one.
    fn with_server(&mut self, server: &Block, client: &Block) -> Result<()> {
        let Place::Guest(guest) = server.place else {
            anyhow::bail!("only one guest can serve meanwhile");
        };
        self.number += 2;
        let (host, number) = (&self.host, self.number);
        thread::scope(|scope| {
            let serving = scope.spawn(move || run_block(host, server, number - 1));
            guests::wait_for_server(host, guest)?;
            let asked = run_block(host, client, number);
            let served = serving.join().expect("a block's thread does not panic");
            asked.and(served)
        })
    }

    fn files_of_guests(&self) -> Result<Vec<String>> {
        (0..GUESTS.len()).map(|guest| guests::run(&self.host, guest, &host::list_files(), SLOW)).collect()
    }

    /// Fails if the packages left something in a guest.
    fn check_guests(&self) -> Result<()> {
        let after = self.files_of_guests()?;
        for ((before, after), (name, _)) in self.before.iter().zip(&after).zip(GUESTS) {
            let left = host::traces(before, after);
            ensure!(left.is_empty(), "the page's commands leave in guest {name}:\n{}", left.join("\n"));
        }
        Ok(())
    }
}

/// Runs a block's commands where they are to be typed.
fn run_block(host: &Host, block: &Block, number: usize) -> Result<()> {
    let first = block.commands.lines().next().unwrap_or_default();
    let (place, commands) = (block.place, &block.commands);
    let log = |name: &str| paths::log(&format!("ten-minutes-{number:02}-{name}"));
    let file = log(place.name())?;
    ui::step_with_log(&format!("{}: {first} ...", place.name()), Some(&file), || match place {
        Place::Host => {
            host.run_logged("the host's commands", commands, &file, SLOW)?;
            block.check(&printed(&file)?)
        }
        Place::Guest(guest) => in_guest(host, guest, block, &file),
        Place::Guests => thread::scope(|scope| {
            let start = |(guest, (name, _)): (usize, &(&str, u16))| {
                let file = log(&format!("guest-{name}"))?;
                Ok(scope.spawn(move || in_guest(host, guest, block, &file)))
            };
            let running: Result<Vec<_>> = GUESTS.iter().enumerate().map(start).collect();
            let ended = running?.into_iter().map(|thread| thread.join().expect("it does not panic"));
            // All of them end before one's error is told.
            ended.collect::<Vec<_>>().into_iter().collect()
        }),
    })
    .with_context(|| format!("{PAGE}: {}", proc::indent(commands).trim()))
}

fn in_guest(host: &Host, guest: usize, block: &Block, file: &Path) -> Result<()> {
    guests::run_logged(host, guest, &block.commands, file)?;
    block.check(&printed(file)?)
}

fn printed(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
