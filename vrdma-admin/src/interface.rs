//! The descriptions of the interfaces.

/// An interface of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: &'static str,
    /// Its description in varlink's language.
    pub description: &'static str,
}

macro_rules! interfaces {
    ($($name:literal)*) => {
        &[$(Interface {
            name: $name,
            description: include_str!(concat!("../idl/", $name, ".varlink")),
        }),*]
    };
}

/// All interfaces of the daemon.
pub const INTERFACES: &[Interface] = interfaces! {
    "org.varlink.service"
    "org.vrdma.Capture"
    "org.vrdma.Daemon"
    "org.vrdma.Guest"
    "org.vrdma.Log"
    "org.vrdma.Mr"
    "org.vrdma.Port"
    "org.vrdma.Qp"
    "org.vrdma.Worker"
};

/// Returns the interface with this name.
pub fn interface(name: &str) -> Option<&'static Interface> {
    INTERFACES.iter().find(|interface| interface.name == name)
}

impl Interface {
    /// Returns the names of its methods, in the order of the description.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> + use<> {
        let lines = self.description.lines();
        lines.filter_map(|line| line.strip_prefix("method ")?.split('(').next())
    }
}
