//! The port to other hosts: its link and its counters.

use crate::save::{Violation, record};
use crate::verbs::counters::{MalformedFrames, PortCounters};

/// The port, by which all other hosts are reached.
pub(crate) struct Port {
    /// Whether the link is up. `None` if there is no port, and never was.
    pub(crate) link: Option<bool>,
    pub(crate) counters: PortCounters,
    pub(crate) malformed: MalformedFrames,
}

impl Default for Port {
    fn default() -> Port {
        Port { link: None, counters: PortCounters::ZERO, malformed: MalformedFrames::ZERO }
    }
}

impl Port {
    /// Returns the record of the port.
    pub(crate) fn save(&self) -> record::Port {
        let Port { link, counters, malformed } = self;
        let link = match link {
            None => record::Link::None,
            Some(false) => record::Link::Down,
            Some(true) => record::Link::Up,
        };
        record::Port { link, counters: counters.save(), malformed: malformed.save() }
    }

    /// Restores the port.
    pub(crate) fn restore(record: &record::Port) -> Result<Port, Violation> {
        let link = match record.link {
            record::Link::None => None,
            record::Link::Down => Some(false),
            record::Link::Up => Some(true),
        };
        let counters = PortCounters::restore(&record.counters)?;
        Ok(Port { link, counters, malformed: MalformedFrames::restore(&record.malformed)? })
    }

    /// Whether there is a port. Without one, addresses that are not on this host have no route.
    pub(crate) fn exists(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.link == Some(true)
    }
}
