//! What can be asked of a running daemon, and why it is refused.

use crate::nearest::no_such;
use crossbeam_channel::Receiver;

/// A change of the guests that an administrator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a guest.
    Add {
        /// Its keys, as in a flag `--guest`.
        keys: String,
    },
    /// Removes a guest.
    Remove {
        /// Its name.
        name: String,
        /// Whether it ends although a front-end is connected.
        is_forced: bool,
    },
    /// Changes keys of a guest.
    Set {
        /// Its name.
        name: String,
        /// The keys, as in a flag `--guest`.
        keys: String,
    },
    /// Reads the configuration again, and does what was changed in it.
    Reload,
}

/// Names of guests that came, left and changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what the summary says")]
pub struct Changed {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<String>,
}

/// Why a change is refused. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no guest of this name.
    #[error("{reason}")]
    NoGuest {
        /// The name.
        name: String,
        /// What is wrong, and which name was probably meant.
        reason: String,
    },
    /// A front-end is connected.
    #[error("{reason}")]
    InUse {
        /// The guest.
        name: String,
        /// Processes of its front-ends, as far as they are known.
        pids: Vec<u32>,
        /// What is wrong, and what helps.
        reason: String,
    },
    /// A key or value is wrong.
    #[error("{0}")]
    Mistaken(String),
    /// It cannot be done, for instance because the host refuses something.
    #[error("{0}")]
    Impossible(String),
    /// There is no configuration file.
    #[error(
        "there is no configuration file (--config) to read again, and options hold until the daemon's end"
    )]
    NothingToRead,
    /// This worker makes no progress.
    #[error("worker {0} has not answered for some seconds")]
    Stuck(usize),
    /// The daemon is about to end.
    #[error("the daemon is about to end")]
    Stopping,
}

/// Where the answer to a change arrives.
pub type ChangeAnswer = Receiver<Result<Changed, Refusal>>;

impl Refusal {
    /// Returns the refusal of a name that no guest has.
    pub fn no_guest(name: &str, known: &[&str]) -> Refusal {
        Refusal::NoGuest { name: name.to_owned(), reason: no_such("guest", name, known) }
    }

    /// Returns the refusal for an error of the host.
    pub fn impossible(error: &anyhow::Error) -> Refusal {
        Refusal::Impossible(format!("{error:#}"))
    }

    /// Returns the refusal for an error in keys.
    pub fn mistaken(error: &anyhow::Error) -> Refusal {
        Refusal::Mistaken(format!("{error:#}"))
    }
}
