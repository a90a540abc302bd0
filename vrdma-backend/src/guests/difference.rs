//! What is to be done for a configuration that was read again.
//!
//! Two readings are compared, and not the configuration with what runs. So a guest that an
//! administrator added or changed meanwhile stays as it is, unless the file says something new of
//! it.

use crate::config::{Config, GuestConfig, Qos};
use crate::logger::LogLevel;
use anyhow::{Result, ensure};
use toml::Table;

/// What is to be done for a configuration that was read again.
///
/// A guest that is to be made anew is in both lists, `remove` and `add`.
#[derive(Debug, Default)]
pub struct Difference {
    /// Guests that have to go, by name.
    pub remove: Vec<String>,
    /// Guests whose quality of service changes.
    pub set: Vec<(String, Qos)>,
    /// Guests that are new.
    pub add: Vec<GuestConfig>,
    /// The level of the log, if it changes.
    pub log: Option<Option<LogLevel>>,
}

impl Difference {
    /// Compares two readings of the configuration, for a daemon with the configuration `now`.
    ///
    /// # Errors
    /// A key differs that holds for the whole daemon.
    pub fn of(last: &Config, new: &Config, now: &Config) -> Result<Difference> {
        let differing = differing_keys(&whole(last)?, &whole(new)?);
        ensure!(
            differing.is_empty(),
            "{}: what holds for the whole daemon is read at its start alone, except log: restart it, or take the change back",
            differing.join(", ")
        );
        let mut found = Difference { log: (last.log != new.log).then_some(new.log), ..Default::default() };
        for guest in &last.guests {
            if new.guest(&guest.name).is_none() && now.guest(&guest.name).is_some() {
                found.remove.push(guest.name.clone());
            }
        }
        for guest in &new.guests {
            let same = |other: &GuestConfig| Ok::<_, anyhow::Error>(keys_of(other)? == keys_of(guest)?);
            if last.guest(&guest.name).map(same).transpose()? == Some(true) {
                continue;
            }
            match now.guest(&guest.name) {
                Some(running) => found.change(running, guest)?,
                None => found.add.push(guest.clone()),
            }
        }
        Ok(found)
    }

    fn change(&mut self, running: &GuestConfig, guest: &GuestConfig) -> Result<()> {
        let differing = differing_keys(&keys_of(running)?, &keys_of(guest)?);
        if differing.is_empty() {
            return Ok(());
        }
        if differing.iter().all(|key| Qos::KEYS.contains(&key.as_str())) {
            self.set.push((guest.name.clone(), guest.qos()));
        } else {
            self.remove.push(guest.name.clone());
            self.add.push(guest.clone());
        }
        Ok(())
    }

    /// Returns the configuration after all of it is done.
    pub fn applied(&self, now: &Config) -> Config {
        let mut after = now.clone();
        after.guests.retain(|guest| !self.remove.contains(&guest.name));
        for guest in &mut after.guests {
            if let Some((_, qos)) = self.set.iter().find(|(name, _)| *name == guest.name) {
                guest.set_qos(qos);
            }
        }
        after.guests.extend(self.add.iter().cloned());
        after.log = self.log.unwrap_or(after.log);
        after
    }
}

/// Returns the keys that hold for the whole daemon and are read at its start.
fn whole(config: &Config) -> Result<Table> {
    let mut table = Table::try_from(config)?;
    table.remove("guest");
    table.remove("log");
    Ok(table)
}

fn keys_of(guest: &GuestConfig) -> Result<Table> {
    Ok(Table::try_from(guest)?)
}

/// Returns the keys that are not the same in both tables.
fn differing_keys(one: &Table, other: &Table) -> Vec<String> {
    let mut all: Vec<&String> = one.keys().chain(other.keys()).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().filter(|key| one.get(*key) != other.get(*key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    fn guest(name: &str, more: &str) -> String {
        format!("[[guest]]\nname = '{name}'\nsocket = '/x/{name}'\nmac = '02:00:00:00:00:01'\n{more}\n")
    }

    fn names(found: &Difference) -> [Vec<&str>; 3] {
        [
            found.remove.iter().map(String::as_str).collect(),
            found.set.iter().map(|(name, _)| name.as_str()).collect(),
            found.add.iter().map(|guest| guest.name.as_str()).collect(),
        ]
    }

    #[test]
    fn guests_come_change_and_leave() {
        let last = config(&["a", "b", "c"].map(|name| guest(name, "")).concat());
        let new = config(&[guest("b", "weight = 3"), guest("c", "vlans = 5"), guest("d", "")].concat());
        let found = Difference::of(&last, &new, &last).unwrap();
        assert_eq!(names(&found), [vec!["a", "c"], vec!["b"], vec!["c", "d"]]);
        let after = found.applied(&last);
        assert_eq!(after.guests.iter().map(|guest| &guest.name[..]).collect::<Vec<_>>(), ["b", "c", "d"]);
        assert_eq!((after.guests[0].weight.get(), &after.guests[1].vlans[..]), (3, &[5][..]));
    }

    #[test]
    fn what_an_administrator_did_stays_unless_the_file_changes() {
        let last = config(&["a", "b"].map(|name| guest(name, "")).concat());
        // An administrator has removed a, changed b, and added c.
        let now = config(&[guest("b", "weight = 7"), guest("c", "")].concat());
        let found = Difference::of(&last, &last, &now).unwrap();
        assert_eq!(names(&found), [vec![""; 0], vec![], vec![]]);
        // The file loses a, says what b has, and has c with another weight.
        let new = config(&[guest("b", "weight = 7"), guest("c", "weight = 2")].concat());
        let found = Difference::of(&last, &new, &now).unwrap();
        assert_eq!(names(&found), [vec![], vec!["c"], vec![]]);
    }

    #[test]
    fn keys_of_the_whole_daemon_stay() {
        let (last, new) = (config("mtu = 1500"), config("mtu = 1600\nchannels = 7"));
        let error = Difference::of(&last, &new, &last).unwrap_err().to_string();
        assert!(error.starts_with("channels, mtu: "), "{error}");
        let new = config("mtu = 1500\nlog = 'debug'");
        assert_eq!(Difference::of(&last, &new, &last).unwrap().log, Some(Some(LogLevel::Debug)));
    }
}
