//! `cargo xtask`: what a person types. The library does the work.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use vrdma_conformance::demo::Plan;
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
use xtask::{bare, bench, repeat};

/// Builds, demonstrates and tests vrdma.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Two VMs on one backend: stock verbs programs of one write into the memory of the other.
    Demo {
        /// Another demo than that.
        #[command(subcommand)]
        which: Option<DemoOf>,
        /// Over the kernel's own rdma_rxe instead of our device: for comparison.
        #[arg(long, global = true)]
        rxe: bool,
        /// Workers of each backend; each VM is served by another [default: 1].
        #[arg(long, value_name = "NUMBER", global = true)]
        workers: Option<u32>,
    },
    /// Every check and test; the last line of the output is `N passed, N failed`.
    Test(TestArguments),
    /// What continuous integration runs: the same as `test`, and `bare --quick` where bare.lock
    /// says that it is due.
    Ci(TestArguments),
    /// README's two commands on a bare machine: a minimal Debian 12 root with the Rust toolchain
    /// and this working tree.
    Bare(bare::Plan),
    /// Another command again and again; says at the end which rounds failed. Each round's logs stay
    /// in a directory of their own.
    Repeat {
        /// How many times.
        rounds: u32,
        /// The command, as `test --only vm-ping`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Other people's programs over the device, one after the other; docs/conformance.md says how
    /// each went.
    Conformance {
        /// Which programs [default: all].
        families: Vec<Family>,
        /// The device that they use.
        #[arg(long, default_value = "vrdma")]
        device: Device,
        /// The device of the clients' VM, where it is another one.
        #[arg(long)]
        peer: Option<Device>,
        /// Where the two VMs are.
        #[arg(long, default_value = "one-host")]
        topology: Place,
        /// Only programs with this in their name (may be repeated).
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Workers of each backend; each VM is served by another [default: 1].
        #[arg(long, value_name = "NUMBER")]
        workers: Option<u32>,
    },
    /// Programs at random, while others are killed, drivers removed, VMs reset and links pulled; at
    /// the end all is given back.
    Soak {
        /// How long, after each program has run once.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// What a run before printed: the same programs and disturbances in the same order.
        #[arg(long)]
        seed: Option<u64>,
        /// Where the two VMs are.
        #[arg(long, default_value = "one-host")]
        topology: Place,
    },
    /// The kernel module on a kernel with KASAN, lockdep and kmemleak: tests, then random calls
    /// from processes that are killed, and rmmod.
    ///
    /// The kernel is built from Debian's sources when it is wanted for the first time, which takes
    /// an hour; an interrupted build goes on where it was. A report of a kernel is an error, with
    /// the report's text. At the end faults on purpose show that each kind would have been
    /// reported.
    KernelFaults {
        /// Only tests with this in their names, before the random calls (may be repeated).
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// How long there are random calls, after the tests.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// What a run before printed: the same rounds in the same order.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// How fast is it?
    Bench {
        #[command(subcommand)]
        which: BenchOf,
    },
    /// Two VMs with a shell each, or a command in them.
    Vm(VmArguments),
    /// Is every RoCE packet of a capture sound? By tshark's dissector and scapy's ICRC.
    CheckCapture {
        /// In pcap format.
        file: PathBuf,
        /// It is of TCP streams: is every FPDU of iWARP sound? By tshark's dissectors, which
        /// compute its CRC.
        #[arg(long)]
        iwarp: bool,
    },
    /// Build the roots and the VMs' image, the kernel module and the provider (all cached by
    /// content).
    Image {
        /// The kernel that they are for.
        #[arg(long, default_value = "usual")]
        kernel: Kernel,
    },
}

#[derive(Subcommand)]
enum DemoOf {
    /// Two hosts, each with a backend and a VM, and a wire between them.
    TwoHosts,
    /// A VM on a backend, and on another host a VM whose kernel's rdma_rxe speaks RoCE.
    Interop {
        /// Perftest's tables up to 8 MiB in all eight rounds, not in two. The check of what passed
        /// the wire then takes longer than the programs.
        #[arg(long)]
        all_sizes: bool,
    },
    /// Two hosts, and iWARP between them.
    Iwarp {
        /// Whose TCP it goes over.
        #[arg(long, default_value = "kernel")]
        tcp: Tcp,
        /// The driver of the hosts' uplinks.
        #[arg(long, default_value = "net_af_packet")]
        uplink: Uplink,
        /// The second VM has Linux's soft-iWARP, with CRCs on and off, and as one of two peers or
        /// not.
        #[arg(long)]
        siw: bool,
        /// Both VMs have Linux's soft-iWARP: for comparison, with what our device is shown beside.
        #[arg(long, conflicts_with_all = ["siw", "tcp"])]
        both_siw: bool,
        /// Only programs with this in their name (may be repeated), as `siw: crc: vrdma0 in a <-
        /// siw0 in b, IPv4: rping, 64 bytes` is one.
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
    },
    /// A VM in the role of a host, whose uplink is an emulated NIC on PCI behind an IOMMU, and a VM
    /// with rdma_rxe as its peer.
    PciNic {
        /// Which NICs [default: all].
        nics: Vec<Nic>,
    },
}

#[derive(Subcommand)]
enum BenchOf {
    /// All figures, plots and the cycle account of docs/performance/report.md, from a run on this
    /// machine: some five minutes, in which it should have nothing else to do.
    Report {
        /// The folder that report.md and its plots go to [default: docs/performance].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// What `vrdma-perf report` takes besides, as `-- -D 1`.
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// The daemons of two revisions measured in turns: each figure of vrdma-perf's standard set as
    /// a ratio, with its spread.
    ///
    /// A revision is built once and kept in target/bench. The guests are played by the working
    /// tree's vrdma-perf. Wants two processors and nothing else on them.
    Compare {
        /// A revision of git, `.` for the working tree, or the path of a vrdma-backend.
        old: String,
        /// Another.
        new: String,
        /// What `vrdma-perf compare` takes besides, as `-- --only WRITE -D 2`.
        #[arg(last = true)]
        options: Vec<String>,
    },
}

#[derive(Args)]
struct TestArguments {
    /// Without the tests in VMs.
    #[arg(long)]
    no_vm: bool,
    /// VMs without this part of our device (may be repeated); what needs it is skipped.
    #[arg(long, value_name = "PART")]
    without: Vec<Part>,
    /// Only steps and VM tests with this in their name (may be repeated); `vm-` is all VM tests.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Also what takes too long for every day: a run of an hour or more.
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
    /// Leave a part of our device out (may be repeated).
    #[arg(long, global = true, value_name = "PART")]
    without: Vec<Part>,
    /// Leave our device out altogether.
    #[arg(long, global = true)]
    no_rdma: bool,
    /// Each VM on a host of its own, with a wire between them.
    #[arg(long, global = true)]
    two_hosts: bool,
    /// One more argument for the backend (may be repeated), as `--backend=--poll-us=20`.
    #[arg(long, global = true, value_name = "ARGUMENT")]
    backend: Vec<String>,
    /// Virtual CPUs of each VM.
    #[arg(long, global = true, default_value_t = 1)]
    cpus: u32,
    /// Memory of each VM in MiB.
    #[arg(long, global = true, default_value_t = 1024)]
    memory: u32,
    /// What they boot.
    #[arg(long, global = true, default_value = "usual")]
    kernel: Kernel,
    /// More words for the guests' kernel command line; `vrdma.noload` keeps our module from being
    /// loaded.
    #[arg(long, global = true, default_value = "")]
    kernel_words: String,
}

#[derive(Subcommand)]
enum VmAction {
    /// Boot the pair, run a command line in both VMs or in one, end.
    Run {
        /// Only in this VM, a or b.
        #[arg(long)]
        on: Option<String>,
        /// Seconds after which the command is killed.
        #[arg(long, default_value_t = 600)]
        timeout: u64,
        /// The command line, for the VM's shell.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Join the terminal to a VM, a or b, that another `cargo xtask vm` runs.
    Attach {
        /// Which VM.
        name: String,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = proc::catch_signals().and_then(|()| run(arguments));
    // On the way out of `run` everything was dropped, that is: ended and removed.
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<suite::Failed>() && !error.is::<repeat::Failed>() {
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
                    demo::between_hosts(Plan { devices: [ours, ours], rounds: demo::TWO_HOSTS })
                }
                Some(DemoOf::Iwarp { .. }) if rxe => bail!("rdma_rxe has no iWARP"),
                Some(DemoOf::Iwarp { tcp, uplink, siw, both_siw, only }) => {
                    let siw = [both_siw, siw || both_siw];
                    demo::iwarp::run(&demo::iwarp::Plan { tcp, uplink, siw, only })
                }
                Some(DemoOf::PciNic { .. }) if rxe => bail!("rdma_rxe knows nothing of DPDK"),
                Some(DemoOf::PciNic { nics }) => {
                    demo::pci_nic::run(if nics.is_empty() { &Nic::ALL } else { &nics })
                }
                Some(DemoOf::Interop { all_sizes }) => {
                    let rounds = if all_sizes { demo::INTEROP_ALL } else { demo::INTEROP };
                    demo::between_hosts(Plan { devices: [ours, Device::Rxe], rounds })
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
            soak::run(&soak::Plan { time: Duration::from_secs(60 * minutes), seed, place: topology })
        }
        Sub::KernelFaults { only, minutes, seed } => {
            let time = Duration::from_secs(60 * minutes);
            kernel_faults::run(&kernel_faults::Plan { only, time, seed }, &of_kernel_faults())
        }
        Sub::Bench { which: BenchOf::Compare { old, new, options } } => {
            bench::compare(&bench::Plan { sides: [old, new], options })
        }
        Sub::Bench { which: BenchOf::Report { out, options } } => bench::report(out.as_deref(), &options),
        Sub::Vm(arguments) => vm(arguments),
        Sub::CheckCapture { file, iwarp } => capture::check_alone(&file, iwarp),
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
    // An option that is given replaces ours.
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
    // Side by side, so that one VM's output does not wait for the other's.
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
