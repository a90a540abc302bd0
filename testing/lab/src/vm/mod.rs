//! Test VMs: boots them, runs commands in them, resets and kills them.

pub mod addresses;
pub mod backend;
pub mod complaints;
pub mod control;
mod directories;
mod hosts;
pub mod nic;
pub mod pair;
mod pair_config;
mod probe;
pub mod qemu;
mod qmp;
pub mod reach;
pub mod router;
pub mod wire;

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::accel::Accel;
use crate::image::Image;
use crate::proc::{Proc, indent};
use crate::{ui, wait};
pub use control::{Control, Exit, Job, Output};
pub use directories::{CAPTURE, Lane, keep_run};
pub use pair::Pair;
pub use pair_config::{PairConfig, Tcp, Topology, Uplink, use_workers, workers};
pub use qemu::{Net, Places, RdmaDevice, VmConfig};
pub use qmp::Qmp;

/// How long a VM may take to boot under KVM, on a busy machine.
const BOOT: Duration = Duration::from_secs(36);

/// A running VM. Dropping it kills it.
pub struct Vm {
    config: VmConfig,
    places: Places,
    qemu: Proc,
    control: Arc<Control>,
    boot: Option<String>,
}

impl Vm {
    /// Starts QEMU. Several VMs can be started before the first one is waited for.
    ///
    /// `sockets` is a directory with a short path (a socket's path may not exceed 107 bytes).
    /// `logs` is any directory.
    pub fn start(config: VmConfig, image: &Image, accel: Accel, sockets: &Path, logs: &Path) -> Result<Self> {
        let name = &config.name;
        let places = Places {
            agent: sockets.join(format!("{name}.agent")),
            shell: sockets.join(format!("{name}.shell")),
            monitor: sockets.join(format!("{name}.monitor")),
            console: logs.join(format!("{name}.console.log")),
            qemu: logs.join(format!("{name}.qemu.log")),
        };
        for socket in [&places.agent, &places.shell, &places.monitor] {
            crate::paths::remove(socket)?;
        }
        let mut command = qemu::command(&config, image, accel, &places);
        if let Some(Net::Tap { namespace, .. }) = &config.net {
            command = wire::enter(namespace, &command);
        }
        let log = File::options().create(true).append(true).open(&places.qemu)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut qemu = Proc::spawn(&format!("QEMU of VM {name}"), command)?;
        let control = wait::until(&format!("QEMU of VM {name}"), wait::PATIENCE, || {
            if let Some(status) = qemu.try_wait()? {
                let said = indent(&ui::tail(&places.qemu, 10));
                bail!("QEMU of VM {name}: {}\n{said}", crate::proc::describe(status));
            }
            Ok(Control::connect(&places.agent).map_err(|error| format!("{error:#}")))
        })?;
        Ok(Self { config, places, qemu, control, boot: None })
    }

    /// Waits until commands can be run.
    pub fn wait_booted(&mut self) -> Result<()> {
        let patience = BOOT * self.config.slowness;
        self.boot =
            Some(self.control.greet(None, patience).with_context(|| self.complaint("does not boot"))?);
        Ok(())
    }

    /// Starts a VM and waits until commands can be run in it.
    pub fn boot(config: VmConfig, image: &Image, accel: Accel, sockets: &Path, logs: &Path) -> Result<Self> {
        let mut vm = Self::start(config, image, accel, sockets, logs)?;
        vm.wait_booted()?;
        Ok(vm)
    }

    /// Returns the VM's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the configuration that it was started with.
    pub fn config(&self) -> &VmConfig {
        &self.config
    }

    /// Returns the paths of its sockets and logs.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Connects to QEMU's monitor, which accepts one connection at a time.
    pub fn monitor(&self) -> Result<Qmp> {
        Qmp::connect(&self.places.monitor)
    }

    /// Returns QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.qemu.id()
    }

    /// Starts a shell command line.
    pub fn spawn(&self, command: &str) -> Result<Job> {
        self.control.run(command).with_context(|| self.complaint("cannot run a command"))
    }

    /// Runs a shell command line to its end. The [`Output`] says how it ended.
    pub fn exec(&self, command: &str, timeout: Duration) -> Result<Output> {
        self.spawn(command)?.wait(timeout).with_context(|| self.complaint("a command failed"))
    }

    /// Runs a shell command line to its end. Returns standard output.
    ///
    /// Any exit but status 0 is an error, which contains the output.
    pub fn check(&self, command: &str, timeout: Duration) -> Result<String> {
        let output = self.exec(command, timeout)?;
        if !output.success() {
            let said = [output.stdout.as_slice(), &output.stderr].concat();
            let said = indent(&String::from_utf8_lossy(&said));
            bail!("VM {}: `{command}`: {:?}\n{said}", self.name(), output.exit);
        }
        Ok(output.text())
    }

    /// Resets the machine at once, as a crash would (sysrq b), and waits until it has booted again.
    pub fn reset(&mut self) -> Result<()> {
        let before = self.boot.take();
        // A greeting, or the drop of the job here, kills the job's process group. On a busy machine
        // that might come before the reset. So the command first gets a session of its own, and
        // then prints.
        let command = "setsid sh -c 'echo resetting; sleep 1; echo b >/proc/sysrq-trigger'";
        let patience = Duration::from_secs(20).max(Duration::from_secs(4) * self.config.slowness);
        // An error is ignored: if the job is lost in the reset, the reset has happened.
        drop(self.spawn(command)?.wait_for("resetting", patience));
        let patience = BOOT * self.config.slowness;
        let boot = self.control.greet(before.as_deref(), patience);
        self.boot = Some(boot.with_context(|| self.complaint("does not come back from a reset"))?);
        Ok(())
    }

    /// Kills QEMU.
    pub fn kill(&mut self) -> Result<()> {
        self.qemu.kill().map(|_| ())
    }

    /// Returns the last lines of the kernel log.
    ///
    /// They come from inside if the VM answers, else from the console.
    pub fn dmesg(&self, lines: usize) -> String {
        let inside =
            self.spawn(&format!("dmesg | tail -n {lines}")).and_then(|job| job.wait(Duration::from_secs(5)));
        inside.map_or_else(|_| ui::tail(&self.places.console, lines), |output| output.text())
    }

    fn complaint(&self, what: &str) -> String {
        let console = ui::tail(&self.places.console, 12);
        let qemu = ui::tail(&self.places.qemu, 5);
        format!("VM {} {what}\n  console:\n{}\n  QEMU:\n{}", self.name(), indent(&console), indent(&qemu))
    }
}
