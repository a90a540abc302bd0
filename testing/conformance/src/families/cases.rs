//! Programs besides perftest, between two VMs or within one.

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::Pair;
use vrdma_lab::{paths, proc};

use crate::lineup::{IpFamily, Ready, Round, Row};

/// Where a program's server and client run, and by which addresses they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In two VMs.
    Between(IpFamily),
    /// In one VM, by its IPv4 address.
    Within,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Between(IpFamily::V4), Self::Between(IpFamily::V6), Self::Within];
    /// Those with IPv4 addresses, for programs that support no others.
    pub const V4: [Self; 2] = [Self::Between(IpFamily::V4), Self::Within];

    fn suffix(self) -> &'static str {
        match self {
            Self::Between(IpFamily::V4) => "",
            Self::Between(IpFamily::V6) => ", IPv6",
            Self::Within => ", within a VM",
        }
    }
}

/// A program with its command lines, place, and known flaw.
pub struct Case {
    /// Its name in the results page.
    pub name: String,
    /// Its command lines.
    pub row: Row,
    /// Where it runs.
    pub way: Way,
    /// A command line that shows, without a device, whether the program refuses its own options.
    pub probe: Option<String>,
    /// How it fails over any device of this kind.
    pub flaw: Option<Flaw>,
}

/// A fault of a program itself, which does not depend on the device.
#[derive(Clone, Copy, Debug)]
pub struct Flaw {
    /// Texts that a failed run prints, all of them.
    pub says: &'static [&'static str],
    /// A description of the fault.
    pub why: &'static str,
}

impl Flaw {
    /// Whether a run that failed with this output has this flaw.
    pub fn explains(self, said: &str) -> bool {
        self.says.iter().all(|words| said.contains(words))
    }
}

impl Case {
    /// Returns a program that runs between two VMs.
    pub fn new(row: Row) -> Self {
        Self { name: row.what.clone(), row, way: Way::Between(IpFamily::V4), probe: None, flaw: None }
    }

    /// Returns a case of the program for each of these places.
    pub fn on(ways: &[Way], row: &Row) -> Vec<Self> {
        let case = |way: &Way| Self {
            name: format!("{}{}", row.what, way.suffix()),
            row: row.clone(),
            way: *way,
            probe: None,
            flaw: None,
        };
        ways.iter().map(case).collect()
    }

    /// Adds a flaw.
    pub fn with(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }

    /// Runs the program, with its server in VM a.
    pub fn run(&self, pair: &Pair, port: u16) -> Result<()> {
        let round = match self.way {
            Way::Between(family) => Round::new(pair, &pair.a, family)?,
            Way::Within => Round::within(pair, &pair.a, IpFamily::V4)?,
        };
        round.run(&self.row, port).map(|_| ())
    }
}

/// A line that precedes a probe's output.
const PROBE: &str = "=== probe ";

/// Returns for each case why its program refuses its options, or `None` if it accepts them.
///
/// The probes run in the guest root, where there is no device. In a VM it would take minutes to
/// start them all.
pub fn refusals(cases: &[Case]) -> Result<Vec<Option<String>>> {
    let script: String = cases
        .iter()
        .enumerate()
        .filter_map(|(index, case)| Some((index, case.probe.as_ref()?)))
        .map(|(index, probe)| format!("echo '{PROBE}{index}'; {probe} 2>&1 || true\n"))
        .collect();
    let mut refusals = vec![None; cases.len()];
    if script.is_empty() {
        return Ok(refusals);
    }
    let said = proc::output(proc::in_root(&paths::guest_root(), &[], &script))?;
    let mut answers = 0;
    for answer in said.split(PROBE).skip(1) {
        let (index, said) = answer.split_once('\n').context("a probe's number stands on a line")?;
        let index: usize = index.parse().with_context(|| format!("odd number of a probe: {index:?}"))?;
        *refusals.get_mut(index).context("there is no such probe")? = refusal(said);
        answers += 1;
    }
    let asked = cases.iter().filter(|case| case.probe.is_some()).count();
    ensure!(answers == asked, "{asked} programs were asked, and {answers} answered");
    Ok(refusals)
}

/// Returns why perftest refuses an option, from its output with a device that does not exist.
///
/// If it accepts all options, it looks for that device.
fn refusal(said: &str) -> Option<String> {
    let looked = ["Did not detect devices", "not found", "Unable to find"];
    if looked.iter().any(|words| said.contains(words)) {
        return None;
    }
    let lines = said.lines().map(str::trim);
    let line =
        lines.filter(|line| line.contains(char::is_alphabetic)).find(|line| !line.starts_with("Usage"));
    Some(format!("perftest: {}", line.unwrap_or("it does not say why")))
}

/// Returns a program of librdmacm, whose server listens by rdma_cm.
pub fn cm_row(name: &str, server: &str, client: &str, expected: &str) -> Row {
    Row::new(name, Ready::Cm, server, client, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_explains_a_failure_that_says_all_of_it() {
        let flaw = Flaw { says: &["still runs", " MBytes "], why: "it waits for itself" };
        assert!(flaw.explains("it still runs after 60s\n  0.00-1.00 sec  39.2 MBytes  323 Mbits/sec"));
        assert!(!flaw.explains("it still runs after 60s"));
        assert!(!flaw.explains("39.2 MBytes  323 Mbits/sec"));
    }

    #[test]
    fn an_option_is_accepted_if_the_device_is_looked_for() {
        assert_eq!(refusal(" Did not detect devices \n If device exists, check if driver is up\n"), None);
        assert_eq!(
            refusal("IB device nowhere0 not found\n Unable to find the Infiniband/RoCE device\n"),
            None
        );
        let said = "\n Bidirectional only available on BW test\n";
        assert_eq!(refusal(said).as_deref(), Some("perftest: Bidirectional only available on BW test"));
        assert_eq!(refusal("").as_deref(), Some("perftest: it does not say why"));
    }
}
