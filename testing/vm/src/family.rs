//! The family `linux` of `cargo xtask conformance`: the guest's Linux as people set it up. Its
//! cases, which docs/cases.md lists, are the tests in VMs that are called `vm-linux-...`.

use anyhow::{Result, ensure};
use vrdma_conformance::families::{NoteCase, Outcome, Place, Plan};
use vrdma_lab::ui;
use vrdma_lab::vm::PairConfig;

use crate::lab::Lab;
use crate::runner;
use crate::test::{VmTest, all};

/// What the names of these tests begin with.
const PREFIX: &str = "vm-linux-";

/// Runs those of the place that the plan names, each in a pair of its kind.
pub fn run(plan: &Plan, note: NoteCase<'_>) -> Result<()> {
    ensure!(
        plan.has_linux(),
        "the family linux has VMs of its own: it goes with neither --device, --peer nor --workers"
    );
    let wanted = |test: &VmTest| {
        test.name.starts_with(PREFIX) && place(test.lab) == plan.place && plan.wants(test.name)
    };
    let labs: Vec<(&str, Lab)> =
        all().iter().filter(|test| wanted(test)).map(|test| (test.name, test.lab)).collect();
    let mut noted = Ok(());
    runner::run(&PairConfig::default(), wanted, |name, time, outcome| {
        let outcome = match outcome {
            runner::Outcome::Passed => Outcome::Passed,
            runner::Outcome::Skipped(why) => Outcome::Skipped(why.to_owned()),
            runner::Outcome::Failed(why) => Outcome::failed(&why),
            runner::Outcome::Flaky(_) => {
                Outcome::Failed("flaky: it failed once, and three times it did not".into())
            }
        };
        ui::say(&format!("{outcome} {:7.1} s  {name}", time.as_secs_f64()));
        let lab = labs.iter().find(|(of, _)| *of == name).map(|(_, lab)| *lab);
        let lab = lab.expect("only tests of the list run");
        let previous = std::mem::replace(&mut noted, Ok(()));
        noted = previous.and_then(|()| note(case(name), &column(lab), &outcome));
    });
    noted
}

/// The case of a test: its name without what says where it runs.
fn case(name: &str) -> &str {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    ["-two-hosts", "-own-tcp", "-iwarp"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name))
}

fn place(lab: Lab) -> Place {
    match lab {
        Lab::TwoHosts | Lab::IwarpTwoHosts | Lab::IwarpOwnTcp | Lab::Routed | Lab::RoutedIwarp => {
            Place::TwoHosts
        }
        _ => Place::OneHost,
    }
}

fn column(lab: Lab) -> String {
    let place = match place(lab) {
        Place::OneHost => "one host",
        Place::TwoHosts => "two hosts",
    };
    match lab {
        Lab::Iwarp | Lab::IwarpTwoHosts => format!("iWARP over the host's TCP, {place}"),
        Lab::IwarpOwnTcp | Lab::RoutedIwarp => format!("iWARP over the daemon's TCP, {place}"),
        _ => format!("vrdma, {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_of_the_guests_linux_has_a_row_and_a_column_of_its_own() {
        let tests: Vec<_> = all().into_iter().filter(|test| test.name.starts_with(PREFIX)).collect();
        let cells: std::collections::BTreeSet<_> =
            tests.iter().map(|test| (case(test.name).to_owned(), column(test.lab))).collect();
        assert_eq!(cells.len(), tests.len());
        assert!(cells.contains(&("netns".to_owned(), "iWARP over the daemon's TCP, two hosts".to_owned())));
    }
}
