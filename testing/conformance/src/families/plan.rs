//! Which of other people's programs run, and where.

use vrdma_lab::device::Device;

/// A family of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// rdma-core's own tests, in one VM.
    Pyverbs,
    /// perftest, with each of its options.
    Perftest,
    /// Programs that connect by rdma_cm, and libibverbs' ping-pongs.
    Cm,
    /// Storage of the kernel: NVMe over Fabrics, iSER, SRP, NFS.
    Storage,
    /// Communication of parallel programs: UCX, libfabric, and MPI libraries over them.
    Mpi,
    /// rsockets, and programs that use them instead of the kernel's sockets.
    Sockets,
    /// RDMA software of machine learning, from PyPI.
    Ai,
    /// The guest's Linux as people set it up: the tests called `vm-linux-...`, in their own VMs.
    Linux,
}

/// Where the two VMs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// On one host.
    OneHost,
    /// On two hosts, with a wire between them.
    TwoHosts,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The families of programs.
    pub families: Vec<Family>,
    /// The device.
    pub device: Device,
    /// The device of the clients' VM, if that is another one.
    pub peer: Option<Device>,
    /// Where the VMs run.
    pub place: Place,
    /// Only programs whose names contain one of these texts. If the list is empty, all programs
    /// run.
    pub only: Vec<String>,
    /// Workers of each backend, if the command line sets their number.
    pub workers: Option<u32>,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 8] = [
        Self::Pyverbs,
        Self::Perftest,
        Self::Cm,
        Self::Storage,
        Self::Mpi,
        Self::Sockets,
        Self::Ai,
        Self::Linux,
    ];

    /// Returns the family's name, for the pages and the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyverbs => "pyverbs",
            Self::Perftest => "perftest",
            Self::Cm => "cm",
            Self::Storage => "storage",
            Self::Mpi => "mpi",
            Self::Sockets => "sockets",
            Self::Ai => "ai",
            Self::Linux => "linux",
        }
    }

    /// Returns the number of virtual CPUs of each VM. NVMe has a queue for each.
    pub(super) fn cpus(self) -> u32 {
        if self == Self::Storage { 2 } else { 1 }
    }

    /// Returns what its VMs must have: the number of processors, and whether programs of PyPI.
    pub(super) fn needs(self) -> (u32, bool) {
        (self.cpus(), self == Self::Ai)
    }
}

impl Plan {
    /// Adds all families that are possible with the plan's devices, if it names none.
    pub fn with_all_if_none(mut self) -> Self {
        if self.families.is_empty() {
            self.families = Family::ALL.into();
            let has_linux = self.has_linux();
            self.families.retain(|family| *family != Family::Linux || has_linux);
        }
        self
    }

    /// Whether the VMs of the family `linux` match the plan.
    pub fn has_linux(&self) -> bool {
        self.device == Device::Vrdma && self.peer.is_none() && self.workers.is_none()
    }

    /// Returns the column of its results.
    pub(super) fn column(&self) -> String {
        let place = match self.place {
            Place::OneHost => "one host",
            Place::TwoHosts => "two hosts",
        };
        let name = |device| match device {
            Device::Vrdma => "vrdma",
            Device::Rxe => "rdma_rxe",
            Device::Siw => "siw",
        };
        let device = name(self.device);
        let workers = self.workers.map(|workers| format!(", {workers} workers")).unwrap_or_default();
        match self.peer {
            Some(peer) => format!("{device}, clients on {}, {place}{workers}", name(peer)),
            None => format!("{device}, {place}{workers}"),
        }
    }

    /// Whether the program of this name is to run.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// Returns why a program cannot run between these two devices, if it cannot.
    ///
    /// If both are `rdma_rxe`, it runs, and reports the reason itself.
    pub(super) fn lacks(&self, name: &str) -> Option<String> {
        let xrc = ["xsrq", "-c XRC", "-c x"].iter().any(|part| name.contains(part));
        let mixed = self.peer.is_some_and(|peer| peer != self.device);
        (xrc && mixed).then(|| "rdma_rxe has no XRC".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(device: Device, peer: Option<Device>) -> Plan {
        Plan { families: Vec::new(), device, peer, place: Place::TwoHosts, only: Vec::new(), workers: None }
    }

    #[test]
    fn a_plan_that_names_no_family_has_all_that_go_with_its_devices() {
        let all = |plan: Plan| plan.with_all_if_none().families.len();
        assert_eq!(all(plan(Device::Vrdma, None)), Family::ALL.len());
        assert_eq!(all(plan(Device::Rxe, None)), Family::ALL.len() - 1);
        assert_eq!(all(plan(Device::Vrdma, Some(Device::Rxe))), Family::ALL.len() - 1);
        let named = Plan { families: vec![Family::Cm], ..plan(Device::Rxe, None) };
        assert_eq!(named.with_all_if_none().families, [Family::Cm]);
    }

    #[test]
    fn a_column_names_both_devices_if_they_differ() {
        let plan = |peer| plan(Device::Vrdma, peer);
        assert_eq!(plan(None).column(), "vrdma, two hosts");
        assert_eq!(plan(Some(Device::Rxe)).column(), "vrdma, clients on rdma_rxe, two hosts");
    }
}
