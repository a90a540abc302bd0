//! `cargo xtask`: the command line of the project. The libraries do the work.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use vrdma_conformance::demo::DemoPlan;
use vrdma_conformance::families::{self, Family, Place};
use vrdma_conformance::{capture, demo, kernel_faults, soak};
use vrdma_lab::artefacts::{Build, Part};
use vrdma_lab::device::Device;
use vrdma_lab::kernel::Kernel;
use vrdma_lab::vm::nic::Nic;
use vrdma_lab::vm::{Exit, Job, Pair, PairConfig, Tcp, Topology, Uplink, use_workers};
use vrdma_lab::{artefacts, image, paths, proc, shell, ui, wheels};
use vrdma_vm_tests::{family, of_kernel_faults};
use xtask::suite::{self, Selection};
use xtask::{bare, bench, package, repeat, ten_minutes};

/// Builds, demonstrates and tests vrdma.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Boot two VMs on one backend, where stock verbs programs write into the other VM's memory.
    Demo {
        /// Another demo.
        #[command(subcommand)]
        which: Option<DemoOf>,
        /// Use the kernel's rdma_rxe instead of our device, for comparison.
        #[arg(long, global = true)]
        rxe: bool,
        /// Workers of each backend. Each VM is served by another worker [default: 1].
        #[arg(long, value_name = "NUMBER", global = true)]
        workers: Option<u32>,
    },
    /// Run every check and test. The last line of the output is `N passed, N failed`.
    Test(TestArguments),
    /// Run what continuous integration runs: `test`, and `bare --quick` if bare.lock says that it
    /// is due.
    Ci(TestArguments),
    /// Run README's two commands on a bare machine: a minimal Debian root (12 by default) with the
    /// Rust toolchain and this working tree.
    Bare(bare::BarePlan),
    /// Repeat another command, and report which rounds failed. Each round's logs are kept in a
    /// directory of their own.
    Repeat {
        /// Number of rounds.
        rounds: u32,
        /// The command, e.g. `test --only vm-ping`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run other people's programs over the device, one after another. The results are written to
    /// docs/conformance.md.
    Conformance {
        /// Families of programs [default: all].
        families: Vec<Family>,
        /// The device that the programs use.
        #[arg(long, default_value = "vrdma")]
        device: Device,
        /// The device of the clients' VM, if it is another one.
        #[arg(long)]
        peer: Option<Device>,
        /// Where the two VMs run.
        #[arg(long, default_value = "one-host")]
        topology: Place,
        /// Only programs with this text in their names (may be repeated).
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Workers of each backend. Each VM is served by another worker [default: 1].
        #[arg(long, value_name = "NUMBER")]
        workers: Option<u32>,
    },
    /// Run random programs while others are killed, drivers removed, VMs reset and links pulled. At
    /// the end all objects must be released.
    Soak {
        /// Duration, after each program has run once.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// The seed that an earlier run printed, for the same programs and disturbances in the same
        /// order.
        #[arg(long)]
        seed: Option<u64>,
        /// Where the two VMs run.
        #[arg(long, default_value = "one-host")]
        topology: Place,
    },
    /// Test the kernel module on a kernel with KASAN, lockdep and kmemleak: tests, then random
    /// calls from processes that are killed, and rmmod.
    ///
    /// The kernel is built from Debian's sources on first use, which takes an hour. An interrupted
    /// build continues. Each report of a kernel is an error, with the report's text. At the end,
    /// deliberate faults show that each kind of fault would have been reported.
    KernelFaults {
        /// Only tests with this text in their names, before the random calls (may be repeated).
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Duration of the random calls, after the tests.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// The seed that an earlier run printed, for the same rounds in the same order.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Measure how fast vrdma is.
    Bench {
        #[command(subcommand)]
        which: BenchOf,
    },
    /// Open a shell in each of two VMs, or run a command in them.
    Vm(VmArguments),
    /// Check every RoCE packet of a capture with tshark's dissector and scapy's ICRC.
    CheckCapture {
        /// The capture, in pcap format.
        file: PathBuf,
        /// The capture contains TCP streams. Check every iWARP FPDU with tshark's dissectors, which
        /// compute its CRC.
        #[arg(long)]
        iwarp: bool,
    },
    /// Make Debian packages of the daemon, the guest's driver and its provider, and check them.
    Package(package::PackagePlan),
    /// Run the commands of docs/ten-minutes.md, and no others, on a clean host with two clean
    /// guests.
    ///
    /// The host is a Debian 12 root in namespaces of its own, with systemd. The guests are VMs with
    /// Debian 13, in which DKMS builds the driver. In emulated guests that takes half an hour.
    TenMinutes(ten_minutes::TenMinutesPlan),
    /// Run the daemon's packaged unit on a host with systemd: users, directories, notifications,
    /// watchdog, reload, sockets and the journal.
    Unit {
        /// Use the packages in target/vm/packages as they are, instead of building them.
        #[arg(long)]
        built: bool,
    },
    /// Build the roots, the VMs' image, the kernel module and the provider. All are cached by
    /// content.
    Image {
        /// The kernel of the VMs.
        #[arg(long, default_value = "usual")]
        kernel: Kernel,
    },
}

#[derive(Subcommand)]
enum DemoOf {
    /// Run two hosts, each with a backend and a VM, joined by a wire.
    TwoHosts,
    /// Run a VM on a backend, and a VM on another host whose kernel's rdma_rxe speaks RoCE.
    Interop {
        /// Run perftest's tables up to 8 MiB in all eight rounds, not only in two. The check of the
        /// captured packets then takes longer than the programs.
        #[arg(long)]
        all_sizes: bool,
    },
    /// Run two hosts, with iWARP between them.
    Iwarp {
        /// Whose TCP carries the connections.
        #[arg(long, default_value = "kernel")]
        tcp: Tcp,
        /// The driver of the hosts' uplinks.
        #[arg(long, default_value = "net_af_packet")]
        uplink: Uplink,
        /// The second VM has Linux's soft-iWARP: with CRCs on and off, and with peer-to-peer mode
        /// on and off.
        #[arg(long)]
        siw: bool,
        /// Both VMs have Linux's soft-iWARP, for comparison with our device.
        #[arg(long, conflicts_with_all = ["siw", "tcp"])]
        both_siw: bool,
        /// Only programs with this text in their names (may be repeated). A name is e.g.
        /// `siw: crc: vrdma0 in a <- siw0 in b, IPv4: rping, 64 bytes`.
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
    },
    /// Run a VM in the role of a host, with a VM with rdma_rxe as its peer. The host's uplink is an
    /// emulated NIC on PCI behind an IOMMU.
    PciNic {
        /// NICs [default: all].
        nics: Vec<Nic>,
    },
}

#[derive(Subcommand)]
enum BenchOf {
    /// Measure all figures, plots and the cycle account of docs/performance/report.md on this
    /// machine. This takes some five minutes, in which the machine should have nothing else to do.
    Report {
        /// The folder for report.md and its plots [default: docs/performance].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Additional options of `vrdma-perf report`, e.g. `-- -D 1`.
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// Measure the daemons of two revisions alternately: each figure of vrdma-perf's standard set
    /// as a ratio, with its spread.
    ///
    /// A revision is built once, and kept in target/bench. The working tree's vrdma-perf plays the
    /// guests. The command needs two processors with nothing else on them.
    Compare {
        /// A git revision, `.` for the working tree, or the path of a vrdma-backend.
        old: String,
        /// Another revision, `.`, or the path of a vrdma-backend.
        new: String,
        /// Additional options of `vrdma-perf compare`, e.g. `-- --only WRITE -D 2`.
        #[arg(last = true)]
        options: Vec<String>,
    },
}

#[derive(Args)]
struct TestArguments {
    /// Leave out the tests in VMs.
    #[arg(long)]
    no_vm: bool,
    /// Leave this part of our device out of the VMs (may be repeated). Tests that need it are
    /// skipped.
    #[arg(long, value_name = "PART")]
    without: Vec<Part>,
    /// Only steps and VM tests with this text in their names (may be repeated). `vm-` selects all
    /// VM tests.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Also run what takes too long for every day. Such a run takes an hour or more.
    #[arg(long)]
    long: bool,
    /// Print the names of all steps and VM tests, and run none.
    #[arg(long)]
    list: bool,
}

#[derive(Args)]
struct VmArguments {
    #[command(subcommand)]
    action: Option<VmAction>,
    /// Leave out a part of our device (may be repeated).
    #[arg(long, global = true, value_name = "PART")]
    without: Vec<Part>,
    /// Leave out our device altogether.
    #[arg(long, global = true)]
    no_rdma: bool,
    /// Run each VM on a host of its own, with a wire between the hosts.
    #[arg(long, global = true)]
    two_hosts: bool,
    /// An additional argument of the backend (may be repeated), e.g. `--backend=--poll-us=20`.
    #[arg(long, global = true, value_name = "ARGUMENT")]
    backend: Vec<String>,
    /// Virtual CPUs of each VM.
    #[arg(long, global = true, default_value_t = 1)]
    cpus: u32,
    /// Memory of each VM in MiB.
    #[arg(long, global = true, default_value_t = 1024)]
    memory: u32,
    /// The kernel that the VMs boot.
    #[arg(long, global = true, default_value = "usual")]
    kernel: Kernel,
    /// Additional words for the guests' kernel command line. `vrdma.noload` prevents loading of our
    /// module.
    #[arg(long, global = true, default_value = "")]
    kernel_words: String,
}

#[derive(Subcommand)]
enum VmAction {
    /// Boot the pair, run a command line in both VMs or in one, and end.
    Run {
        /// Run it only in this VM, a or b.
        #[arg(long)]
        on: Option<String>,
        /// Seconds after which the command is killed.
        #[arg(long, default_value_t = 600)]
        timeout: u64,
        /// The command line, for the VM's shell.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Join the terminal to a VM, a or b, of another `cargo xtask vm`.
    Attach {
        /// The VM.
        name: String,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = proc::catch_signals().and_then(|()| run(arguments));
    // When `run` has returned, everything is dropped, that is, ended and removed.
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<suite::SuiteFailed>() && !error.is::<repeat::RoundsFailed>() {
                ui::say(&format!("error: {error:#}"));
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Sub::Demo { which, rxe, workers } => {
            use_workers(workers);
            let ours = if rxe { Device::Rxe } else { Device::Vrdma };
            match which {
                None => demo::run(ours),
                Some(DemoOf::TwoHosts) => {
                    demo::between_hosts(DemoPlan { devices: [ours, ours], rounds: demo::TWO_HOSTS })
                }
                Some(DemoOf::Iwarp { .. }) if rxe => bail!("rdma_rxe has no iWARP"),
                Some(DemoOf::Iwarp { tcp, uplink, siw, both_siw, only }) => {
                    let siw = [both_siw, siw || both_siw];
                    demo::iwarp::run(&demo::iwarp::IwarpPlan { tcp, uplink, siw, only })
                }
                Some(DemoOf::PciNic { .. }) if rxe => bail!("rdma_rxe knows nothing of DPDK"),
                Some(DemoOf::PciNic { nics }) => {
                    demo::pci_nic::run(if nics.is_empty() { &Nic::ALL } else { &nics })
                }
                Some(DemoOf::Interop { all_sizes }) => {
                    let rounds = if all_sizes { demo::INTEROP_ALL } else { demo::INTEROP };
                    demo::between_hosts(DemoPlan { devices: [ours, Device::Rxe], rounds })
                }
            }
        }
        Sub::Test(arguments) => test(arguments, false),
        Sub::Ci(arguments) => test(arguments, true),
        Sub::Bare(plan) => bare::run(&plan),
        Sub::Repeat { rounds, command } => repeat::run(rounds, &command),
        Sub::Conformance { families, device, peer, topology, only, workers } => {
            use_workers(workers);
            let plan = families::Plan { families, device, peer, place: topology, only, workers };
            families::run(&plan.with_all_if_none(), &family::run)
        }
        Sub::Soak { minutes, seed, topology } => {
            soak::run(&soak::SoakPlan { time: Duration::from_secs(60 * minutes), seed, place: topology })
        }
        Sub::KernelFaults { only, minutes, seed } => {
            let time = Duration::from_secs(60 * minutes);
            kernel_faults::run(&kernel_faults::FaultsPlan { only, time, seed }, &of_kernel_faults())
        }
        Sub::Bench { which: BenchOf::Compare { old, new, options } } => {
            bench::compare(&bench::BenchPlan { sides: [old, new], options })
        }
        Sub::Bench { which: BenchOf::Report { out, options } } => bench::report(out.as_deref(), &options),
        Sub::Vm(arguments) => vm(arguments),
        Sub::CheckCapture { file, iwarp } => capture::check_alone(&file, iwarp),
        Sub::Package(plan) => package::run(&plan),
        Sub::TenMinutes(plan) => ten_minutes::run(&plan),
        Sub::Unit { built } => ten_minutes::unit(built),
        Sub::Image { kernel } => {
            let image = kernel.image(image::ensure()?)?;
            let share = paths::vm().join("share");
            artefacts::build(&[], kernel, Build::Release)?.lay_out(&share)?;
            wheels::ensure()?;
            ui::say(&format!("image: {}", image.root.display()));
            ui::say(&format!("share with module and provider: {}", share.display()));
            Ok(())
        }
    }
}

fn test(arguments: TestArguments, ci: bool) -> Result<()> {
    let TestArguments { no_vm, without, only, long, list } = arguments;
    if list {
        suite::list();
        return Ok(());
    }
    suite::run(Selection { no_vm, without, only, long, ci })
}

fn vm(arguments: VmArguments) -> Result<()> {
    let VmArguments { action, without, no_rdma, two_hosts, backend, cpus, memory, kernel, kernel_words } =
        arguments;
    let without = if no_rdma { Part::ALL.to_vec() } else { without };
    let mut config = PairConfig { without, cpus, memory, kernel, kernel_words, ..PairConfig::default() };
    if two_hosts {
        config.topology = Topology::Wire([Device::Vrdma; 2]);
    }
    // An option on the command line replaces the default.
    let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    config.backend_arguments.retain(|ours| backend.iter().all(|given| name(given) != name(ours)));
    config.backend_arguments.extend(backend);
    match action {
        Some(VmAction::Attach { name }) => shell::attach(&shell::find(&name)?),
        Some(VmAction::Run { on, timeout, command }) => {
            let mut pair = Pair::boot(&config)?;
            run_in(&mut pair, on.as_deref(), &command.join(" "), Duration::from_secs(timeout))
        }
        None => {
            let pair = Pair::boot(&config)?;
            for vm in [&pair.a, &pair.b] {
                ui::say(&format!("VM {}: serial port at {}", vm.name(), vm.places().shell.display()));
            }
            ui::say(&format!("/share in the VMs is {}", pair.share().display()));
            ui::say("this terminal is VM a's; for VM b type in another one: cargo xtask vm attach b");
            shell::attach(&pair.a.places().shell)
        }
    }
}

fn run_in(pair: &mut Pair, on: Option<&str>, line: &str, timeout: Duration) -> Result<()> {
    if let Some(name) = on {
        pair.vm(name)?;
    }
    let mut jobs = Vec::new();
    for vm in [&pair.a, &pair.b].into_iter().filter(|vm| on.is_none_or(|name| name == vm.name())) {
        let mut job = vm.spawn(line)?;
        job.echo(&if on.is_some() { String::new() } else { format!("{}: ", vm.name()) });
        jobs.push((vm.name(), job));
    }
    // The waits run in parallel, so that one VM's output does not wait for the other VM.
    let failures: Vec<String> = std::thread::scope(|scope| {
        let wait = |(name, job): (&str, Job)| match job.wait(timeout) {
            Ok(output) if output.exit == Exit::Code(0) => None,
            Ok(output) => Some(format!("VM {name}: {:?}", output.exit)),
            Err(error) => Some(format!("VM {name}: {error:#}")),
        };
        let name = |(name, job): (&str, Job)| (name.to_owned(), job);
        let waiting: Vec<_> =
            jobs.into_iter().map(name).map(|(name, job)| scope.spawn(move || wait((&name, job)))).collect();
        waiting.into_iter().filter_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    if failures.is_empty() { Ok(()) } else { bail!("the command failed in {}", failures.join(", ")) }
}
