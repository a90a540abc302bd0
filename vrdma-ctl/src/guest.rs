//! `guest` and `reload`: guests that come, change and leave while the daemon runs.

use crate::args::GuestChange;
use crate::connection::Connection;
use crate::print;
use anyhow::Result;
use vrdma_admin::daemon::{Reload, Reloaded};
use vrdma_admin::guest::{AddGuest, RemoveGuest, SetGuest};

/// Adds, changes or removes a guest.
///
/// # Errors
/// The daemon refuses that, or does not answer.
pub fn guest(connection: &Connection, json: bool, change: &GuestChange) -> Result<()> {
    let mut client = connection.to_administer()?;
    match change {
        GuestChange::Add { keys } => {
            let added = client.call(&AddGuest { guest: keys.join(",") })?;
            if json { print::json(&added) } else { print::line("the guest is added") }
        }
        GuestChange::Set { name, keys } => {
            let set = client.call(&SetGuest { name: name.clone(), keys: keys.join(",") })?;
            if json { print::json(&set) } else { print::line(&format!("guest {name} is changed")) }
        }
        GuestChange::Remove { name, force } => {
            let removed = client.call(&RemoveGuest { name: name.clone(), force: Some(*force) })?;
            if json { print::json(&removed) } else { print::line(&format!("guest {name} is removed")) }
        }
    }
}

/// Has the daemon read its configuration again.
///
/// # Errors
/// The daemon refuses that, or does not answer.
pub fn reload(connection: &Connection, json: bool) -> Result<()> {
    let done = connection.to_administer()?.call(&Reload {})?;
    if json { print::json(&done) } else { print::line(&told(&done)) }
}

/// Says what a new reading of the configuration did.
fn told(done: &Reloaded) -> String {
    let parts = [("added", &done.added), ("removed", &done.removed), ("changed", &done.changed)];
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> =
        parts.map(|(what, names)| format!("guests {what}: {}", names.join(", "))).collect();
    if parts.is_empty() { "no guest comes, changes or leaves".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_one_line() {
        let names = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        assert_eq!(told(&Reloaded::default()), "no guest comes, changes or leaves");
        let done = Reloaded { added: names("a b"), changed: names("c"), ..Reloaded::default() };
        assert_eq!(told(&done), "guests added: a, b; guests changed: c");
    }
}
