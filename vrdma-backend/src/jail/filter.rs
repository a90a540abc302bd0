//! Filters of system calls, made of the lists.

use super::calls::{ALL, Allowed, KINDS, Kind, add, lists};
use super::numbers::{self, architecture};
use super::others::has_action;
use super::plan::{Plan, Seccomp};
use anyhow::{Context, Result};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The filters of this process. Unset: there is no jail.
static POLICY: OnceLock<Policy> = OnceLock::new();

/// The filters of all kinds of threads.
#[derive(Debug)]
pub struct Policy {
    /// What is allowed to any thread. The thread that enters the jail has this filter, and all that
    /// it starts inherit it.
    any: BpfProgram,
    /// Answers that the kernel has no clone3, so that threads are made by clone. The flags of clone
    /// are an argument, those of clone3 are in memory, where no filter sees them.
    no_clone3: BpfProgram,
    kinds: Vec<(Kind, BpfProgram)>,
}

impl Policy {
    /// Makes the filters for a configuration.
    ///
    /// # Errors
    /// The architecture is unknown. Lists are tested to be well-formed.
    pub fn new(plan: &Plan, action: Seccomp) -> Result<Policy> {
        Policy::of(&lists(plan), action)
    }

    fn of(lists: &[(&str, &str)], action: Seccomp) -> Result<Policy> {
        let (mut any, mut kinds) = (Allowed::new(), Vec::new());
        for (_, kind) in KINDS {
            let mut allowed = Allowed::new();
            for (name, list) in lists {
                for list_of in kind.lists() {
                    add(&mut allowed, list, *list_of).with_context(|| format!("{name}.calls"))?;
                }
                add(&mut any, list, kind).with_context(|| format!("{name}.calls"))?;
            }
            kinds.push((kind, compile(allowed, action)?));
        }
        any.values_mut().for_each(simplify);
        let refused = BTreeMap::from([(numbers::CLONE3, Vec::new())]);
        let error = SeccompAction::Errno(libc::ENOSYS as u32);
        let no_clone3 = SeccompFilter::new(refused, SeccompAction::Allow, error, architecture()?)?;
        Ok(Policy { any: compile(any, action)?, no_clone3: no_clone3.try_into()?, kinds })
    }

    /// Returns the filter of a kind of threads.
    pub fn program(&self, kind: Kind) -> &BpfProgram {
        &self.kinds.iter().find(|(known, _)| *known == kind).expect("each kind has one").1
    }

    /// Installs the filter of the calling thread, and keeps those of the threads that it starts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn install(self) -> Result<()> {
        seccompiler::apply_filter(&self.no_clone3).context("seccomp")?;
        let policy = POLICY.get_or_init(|| self);
        seccompiler::apply_filter(&policy.any).context("seccomp")
    }
}

/// What tests do in threads of the daemon: their handler of fatal signals bounds its own time.
const OF_TESTS: (&str, &str) = ("of tests", "alarm # a handler that hangs");

/// Gives threads that start later the filters of their kinds, and the rest of the process none.
///
/// It is for tests whose guests are in the daemon's process. Such a process may have several
/// daemons with different uplinks, so all lists hold. Later calls change nothing.
///
/// # Errors
/// The architecture is unknown.
pub fn confine_threads(action: Seccomp) -> Result<()> {
    if POLICY.get().is_none() {
        let policy = Policy::of(&[&ALL[..], &[OF_TESTS]].concat(), action)?;
        POLICY.get_or_init(|| policy);
    }
    Ok(())
}

/// Narrows the calling thread's filter to its kind. Without a jail this does nothing.
///
/// Code that panics if this fails would end all guests. So the thread then keeps the wider filter.
pub fn confine(kind: Kind) {
    if let Some(policy) = POLICY.get()
        && let Err(error) = seccompiler::apply_filter(policy.program(kind))
    {
        log::warn!("a thread ({kind:?}) has no filter of system calls of its own: {error}");
    }
}

/// Fails unless kernel and architecture have filters with this action.
pub fn ensure_supported(action: Seccomp) -> Result<()> {
    architecture()?;
    let (name, number) = match action {
        Seccomp::Kill => ("kill_process", libc::SECCOMP_RET_KILL_PROCESS),
        Seccomp::Log => ("log", libc::SECCOMP_RET_LOG),
        Seccomp::None => return Ok(()),
    };
    has_action(number).with_context(|| {
        format!("the kernel (from 4.14 on) or a filter of the service (SystemCallFilter=) refuses filters with the action {name}")
    })
}

/// Removes what another alternative contains: a call that is allowed anyway has no conditions.
fn simplify(alternatives: &mut Vec<super::calls::Conditions>) {
    if alternatives.iter().any(Vec::is_empty) {
        *alternatives = vec![Vec::new()];
    }
    let mut unique: Vec<super::calls::Conditions> = Vec::new();
    for each in alternatives.drain(..) {
        if !unique.contains(&each) {
            unique.push(each);
        }
    }
    *alternatives = unique;
}

fn compile(mut allowed: Allowed, action: Seccomp) -> Result<BpfProgram> {
    allowed.values_mut().for_each(simplify);
    let rules = allowed.into_iter().map(|(number, alternatives)| {
        // A call without conditions has no rules.
        let conditional = alternatives.into_iter().filter(|conditions| !conditions.is_empty());
        let rules = conditional.map(|conditions| {
            let conditions = conditions.into_iter().map(|condition| {
                let operator = condition.mask.map_or(SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq);
                // Each argument that is looked at is an int, or has its flags in the low half.
                SeccompCondition::new(condition.argument, SeccompCmpArgLen::Dword, operator, condition.value)
            });
            Ok(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?)
        });
        Ok((number, rules.collect::<Result<Vec<_>>>()?))
    });
    let otherwise = match action {
        Seccomp::Kill => SeccompAction::KillProcess,
        Seccomp::Log | Seccomp::None => SeccompAction::Log,
    };
    let rules = rules.collect::<Result<BTreeMap<_, _>>>()?;
    let filter = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, architecture()?)?;
    Ok(filter.try_into()?)
}
