//! The VMs in which other people's programs run.

use anyhow::{Context, Result, ensure};
use vrdma_lab::artefacts::Part;
use vrdma_lab::device::Device;
use vrdma_lab::vm::{Pair, PairConfig, Topology};

use super::ai;
use super::plan::{Family, Place, Plan};
use crate::lineup::{PathMtu, prepare};

/// A pair of VMs, which is replaced if a program breaks it.
pub struct Vms<'a> {
    /// The plan that is run.
    pub plan: &'a Plan,
    /// The family of the programs that run in the VMs.
    pub family: Family,
    pair: Option<Pair>,
}

impl<'a> Vms<'a> {
    /// Boots the VMs.
    pub fn boot(plan: &'a Plan, family: Family) -> Result<Self> {
        Ok(Self { plan, family, pair: Some(boot(plan, family)?) })
    }

    /// Returns the VMs.
    pub fn pair(&mut self) -> &mut Pair {
        self.pair
            .as_mut()
            .expect("there is one but while others are booted, and after that has failed nobody asks")
    }

    /// Replaces the VMs. The old ones end first, because the new ones use the same socket paths.
    pub fn renew(&mut self) -> Result<()> {
        self.pair = None;
        self.pair = Some(boot(self.plan, self.family).context("VMs in place of those that a program broke")?);
        Ok(())
    }
}

/// Boots VMs for this family of programs.
fn boot(plan: &Plan, family: Family) -> Result<Pair> {
    let devices = [plan.device, plan.peer.unwrap_or(plan.device)];
    let without =
        if devices == [Device::Rxe; 2] { vec![Part::Module, Part::Provider, Part::Backend] } else { vec![] };
    let topology = match plan.place {
        Place::OneHost => Topology::OneHost,
        Place::TwoHosts => Topology::Wire(devices),
    };
    ensure!(
        plan.peer.is_none() || plan.place == Place::TwoHosts,
        "VMs on one host have the same device: --peer wants --topology two-hosts"
    );
    let cpus = family.cpus();
    let pair = Pair::boot(&PairConfig { without, topology, cpus, ..PairConfig::default() })?;
    prepare(&pair, PathMtu::Jumbo)?;
    if family == Family::Ai {
        ai::lay_out(&pair)?;
    }
    for vm in [&pair.a, &pair.b] {
        // perftest's `--use_hugepages` needs huge pages.
        vm.check("echo 64 >/proc/sys/vm/nr_hugepages", pair.patience(3))?;
    }
    Ok(pair)
}

/// Whether the VMs answer, and have their devices.
pub fn is_well(pair: &Pair) -> bool {
    [&pair.a, &pair.b].into_iter().all(|vm| {
        let command = format!("ibv_devinfo -d {} | grep -q PORT_ACTIVE", pair.device(vm).name());
        vm.check(&command, pair.patience(5)).is_ok()
    })
}
