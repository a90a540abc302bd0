//! Programs between two VMs or within one, beside perftest.

use anyhow::Result;

use super::perftest::refusal;
use crate::lineup::{Family, Ready, Round, Row};
use crate::vm::Pair;

/// Where a program's server and client are, and by which addresses they find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In two VMs.
    Between(Family),
    /// In one VM, by its IPv4 address.
    Within,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Between(Family::V4), Self::Between(Family::V6), Self::Within];
    /// Those by IPv4 addresses, for programs that know no others.
    pub const V4: [Self; 2] = [Self::Between(Family::V4), Self::Within];

    fn suffix(self) -> &'static str {
        match self {
            Self::Between(Family::V4) => "",
            Self::Between(Family::V6) => ", IPv6",
            Self::Within => ", within a VM",
        }
    }
}

/// A program and what it takes to run it.
pub struct Case {
    /// What the page calls it.
    pub name: String,
    /// How it runs.
    pub row: Row,
    /// Where.
    pub way: Way,
    /// A command line that shows whether the program itself refuses its options.
    pub probe: Option<String>,
    /// How it fails over any such device.
    pub flaw: Option<Flaw>,
}

/// What is wrong with a program, whatever device it has.
#[derive(Clone, Copy, Debug)]
pub struct Flaw {
    /// What is printed then.
    pub says: &'static str,
    /// What it is.
    pub why: &'static str,
}

impl Case {
    /// A program between two VMs.
    pub fn new(row: Row) -> Self {
        Self { name: row.what.clone(), row, way: Way::Between(Family::V4), probe: None, flaw: None }
    }

    /// The same program on each of these ways.
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

    /// Why the program does not accept its options, if it does not.
    pub fn refusal(&self, pair: &Pair) -> Result<Option<String>> {
        let Some(probe) = &self.probe else { return Ok(None) };
        let output = pair.b.exec(probe, pair.patience(5))?;
        let said = [output.stdout, output.stderr].concat();
        Ok(refusal(&String::from_utf8_lossy(&said)))
    }

    /// The same, with a flaw.
    pub fn with(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }

    /// Runs it; servers are in VM a.
    pub fn run(&self, pair: &Pair, port: u16) -> Result<()> {
        let round = match self.way {
            Way::Between(family) => Round::new(pair, &pair.a, family)?,
            Way::Within => Round::within(pair, &pair.a, Family::V4)?,
        };
        round.run(&self.row, port).map(|_| ())
    }
}

/// A program of librdmacm's, whose server waits for rdma_cm's connections.
pub fn cm_row(name: &str, server: &str, client: &str, expected: &str) -> Row {
    Row::new(name, Ready::Cm, server, client, expected)
}
