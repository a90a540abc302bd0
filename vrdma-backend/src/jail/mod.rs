//! The jail: what the daemon gives up once it has opened what it needs.
//!
//! Guests, VMMs and peers write what the daemon parses. If one of them took over a thread, the jail
//! bounds what that thread could do next. docs/design/jail.md has the reasons, and what each uplink
//! keeps.
//!
//! # Promises
//!
//! After [`Jail::enter`], with everything that the jail has, no thread of the process can
//!
//! * start a program, trace a process, mount, change its user, or gain a capability,
//! * make memory executable,
//! * open a file outside the directories of the sockets and of the configuration file, `/proc/self`
//!   and a few files of the system,
//! * create a socket of a family that the configuration does not use,
//! * make a system call that is not in the list of its kind of thread ([`Kind`]).
//!
//! # Order
//!
//! Some steps concern one thread and its later children, so the order matters.
//!
//! 1. [`Jail::prepare`], before the process has threads: `NO_NEW_PRIVS`, the bounding set, own
//!    namespaces. Threads inherit all three.
//! 2. The daemon claims its sockets and opens the uplink, with the rights with which it was
//!    started. DPDK starts threads here.
//! 3. [`Jail::enter`]: a new root for all threads of the mount namespace, the user for all threads
//!    (glibc does that), then capabilities, Landlock and a seccomp filter. The last three are per
//!    thread. DPDK's threads take them in a signal handler (`others`).
//! 4. Threads that start later inherit this, and narrow their filter by [`confine`].
//!
//! # Files
//!
//! * `calls/` has the lists of system calls, by uplink and kind of thread, with reasons.
//! * `calls.rs` parses the lists. `numbers.rs` has the numbers of calls and arguments.
//! * `filter.rs` makes filters of the lists, and installs them.
//! * `namespaces.rs` makes namespaces and the new root. `files.rs` is Landlock.
//! * `rights.rs` changes user and capabilities.
//! * `plan.rs` is what the jail has to know of the configuration.
//! * `others.rs` (*unsafe*) acts in threads that exist already.
//! * `probe.rs` tries forbidden things, in debug builds.

mod calls;
mod files;
mod filter;
mod namespaces;
mod numbers;
mod others;
mod plan;
#[cfg(debug_assertions)]
pub mod probe;
mod rights;

pub use calls::Kind;
pub use filter::{confine, confine_threads};
pub use plan::{Plan, Sandbox, Seccomp, UplinkKind};

use anyhow::{Context, Result};
use filter::Policy;
use rights::DaemonUser;

/// A jail that is prepared, but not entered.
#[derive(Debug)]
#[must_use = "nothing is confined before the jail is entered"]
pub struct Jail {
    plan: Plan,
    account: Option<DaemonUser>,
    has_namespaces: bool,
    lacks: Lacks,
}

/// What cannot be had here.
#[derive(Debug, Default)]
struct Lacks(Vec<String>);

impl Lacks {
    /// Takes note of a failure, unless the user asked for what failed.
    fn note(&mut self, what: &str, was_asked: bool, result: Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if was_asked => Err(error.context(what.to_owned())),
            Err(error) => {
                self.0.push(format!("{what}: {error:#}"));
                Ok(false)
            }
        }
    }
}

impl Jail {
    /// Takes the steps that concern the calling thread and its later children.
    ///
    /// The process has no other threads yet.
    ///
    /// # Errors
    /// There is no such user, the process may not become that user, or something that was asked for
    /// cannot be had.
    pub fn prepare(plan: Plan) -> Result<Jail> {
        let (account, reason) = DaemonUser::find(plan.user)?;
        let mut lacks = Lacks(reason.into_iter().collect());
        lacks.note("no new privileges", true, rights::no_new_privileges())?;
        rights::drop_bounding_set();
        read_what_is_read_once();
        let mut has_namespaces = false;
        if plan.sandbox != Some(Sandbox::None) {
            let asked = plan.sandbox.is_some();
            let result = namespaces::unshare(plan::may_leave_network(&plan));
            // A unit that makes namespaces itself forbids more.
            if result.is_err() && !asked && is_service() {
                log::info!(
                    "jail: the unit of the service decides about namespaces (docs/security.md#run-it-as-a-service)"
                );
            } else {
                has_namespaces = lacks.note("namespaces", asked, result)?;
            }
        }
        Ok(Jail { plan, account, has_namespaces, lacks })
    }

    /// Returns the numbers of the user that the process becomes, and of that user's group.
    ///
    /// `None` if it keeps its user.
    pub fn later_user(&self) -> Option<(u32, u32)> {
        self.account.as_ref().map(DaemonUser::numbers)
    }

    /// Enters the jail, with all threads of the process.
    ///
    /// # Errors
    /// Something that was asked for cannot be had, or a step fails halfway.
    pub fn enter(mut self) -> Result<()> {
        let plan = &self.plan;
        let asked = plan.sandbox.is_some();
        if self.has_namespaces {
            let result = namespaces::change_root(plan, &files::shown(plan.uplink));
            if let Some(gaps) = result.map_or_else(
                |error| self.lacks.note("a root directory of its own", asked, Err(error)).map(|_| None),
                |gaps| Ok(Some(gaps)),
            )? {
                self.lacks.0.extend(gaps);
            }
        }
        let keeps = rights::kept(plan);
        if let Some(account) = &self.account {
            account.become_it().with_context(|| format!("user {}", account.name()))?;
        }
        rights::keep_only(&keeps).context("capabilities")?;
        let mut ruleset = None;
        if plan.sandbox != Some(Sandbox::None) {
            let result = files::ruleset(plan).map(|made| ruleset = Some(made));
            if self.lacks.note("Landlock", asked, result)? {
                self.lacks.note("Landlock", asked, files::ensure_complete())?;
            }
        }
        let action = plan.seccomp.unwrap_or(Seccomp::Kill);
        let mut policy = None;
        if action != Seccomp::None {
            let result = filter::ensure_supported(action);
            if self.lacks.note("seccomp", plan.seccomp.is_some(), result)? {
                policy = Some(Policy::new(plan, action)?);
            }
        }
        // Other threads first: this thread's filter forbids to signal them.
        let filter = policy.as_ref().map(|policy| policy.program(Kind::Uplink));
        let was_asked = asked || plan.seccomp.is_some();
        self.lacks.note("threads of DPDK", was_asked, others::confine(ruleset.as_ref(), filter))?;
        if let Some(ruleset) = &ruleset {
            others::restrict_self(ruleset).context("Landlock")?;
        }
        if let Some(policy) = policy {
            policy.install()?;
        }
        if !self.lacks.0.is_empty() {
            log::warn!(
                "the jail has gaps here, as this process or kernel does not allow more: {} (docs/design/jail.md)",
                self.lacks.0.join("; ")
            );
        }
        Ok(())
    }
}

/// Has rustix read what it keeps: the auxiliary vector, and by it the vDSO.
///
/// Before Linux 6.4 it opens /proc/self/auxv for that, by open(2), which no thread may call later.
fn read_what_is_read_once() {
    let _ = rustix::param::page_size();
    let _ = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
}

/// Whether systemd has started this process as the main one of a service.
fn is_service() -> bool {
    let own = std::process::id().to_string();
    std::env::var_os("SYSTEMD_EXEC_PID").is_some_and(|pid| pid == *own)
}
