//! `cargo xtask`: what a person types.

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::vm::{Exit, Pair, PairConfig};
use xtask::{image, proc, ui};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, demonstrates and tests vrdma.")]
struct Arguments {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Build the roots and the VMs' image (cached by content).
    Image,
    /// Two VMs: a shell in VM a, or run a command.
    Vm {
        #[command(subcommand)]
        action: Option<VmAction>,
        /// Leave the backend and our device out.
        #[arg(long, global = true)]
        no_rdma: bool,
    },
}

#[derive(Subcommand)]
enum VmAction {
    /// Run a command line in both VMs, or in one.
    Run {
        /// Only in this VM.
        #[arg(long)]
        on: Option<String>,
        /// Seconds after which the command is killed.
        #[arg(long, default_value_t = 300)]
        timeout: u64,
        /// The command line.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> Result<()> {
    proc::catch_signals()?;
    match Arguments::parse().command {
        Sub::Image => image::ensure().map(|_| ()),
        Sub::Vm { action: Some(VmAction::Run { on, timeout, command }), no_rdma } => {
            let pair = Pair::boot(&PairConfig { rdma: !no_rdma, ..PairConfig::default() })?;
            let line = command.join(" ");
            let names: Vec<&str> = on.as_deref().map_or(vec!["a", "b"], |name| vec![name]);
            let mut failed = false;
            let mut jobs = Vec::new();
            for vm in [&pair.a, &pair.b].into_iter().filter(|vm| names.contains(&vm.name())) {
                let mut job = vm.spawn(&line)?;
                job.echo(&if names.len() > 1 { format!("{}: ", vm.name()) } else { String::new() });
                jobs.push(job);
            }
            for job in jobs {
                failed |= job.wait(Duration::from_secs(timeout))?.exit != Exit::Code(0);
            }
            if failed { anyhow::bail!("the command failed") } else { Ok(()) }
        }
        Sub::Vm { action: None, .. } => {
            ui::say("not yet");
            Ok(())
        }
    }
}
