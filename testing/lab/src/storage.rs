//! Storage over RDMA between a pair's two VMs, by the modules of their kernels.
//!
//! The protocols are NVMe over Fabrics, iSER, SRP and NFS. One VM is the target (the server), the
//! other one the initiator (the client). On the initiator fio writes, reads and compares.

use std::fs::{self, File};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::vm::addresses::IP;
use crate::vm::{Job, Output, Pair, Vm};
use crate::{paths, proc};

/// The script that sets up target and initiator in the VMs.
const SCRIPT: &str = "storage.sh";
/// The file, in the shared directory, of a disk that outlives its VM.
const FILE: &str = "storage.disk";
/// Size of that disk in bytes.
const FILE_BYTES: u64 = 64 << 20;

/// The storage protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NVMe over Fabrics: nvmet-rdma and nvme-rdma.
    Nvme,
    /// iSCSI Extensions for RDMA: ib_isert and ib_iser.
    Iser,
    /// SCSI RDMA Protocol, connected by rdma_cm: ib_srpt and ib_srp.
    Srp,
    /// NFS 4.2 over RDMA.
    Nfs,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Nvme, Self::Iser, Self::Srp, Self::Nfs];

    /// Returns the protocol's name, for the script and for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Iser => "iser",
            Self::Srp => "srp",
            Self::Nfs => "nfs",
        }
    }
}

/// The disk that a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Memory of the target's VM. It is empty at first.
    Ram,
    /// A file that outlives the VM. It is empty when the target is made for the first time.
    File,
}

/// A load of fio.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of bytes to read and write, as fio's `--size` takes it.
    pub size: &'static str,
    /// Further options of fio.
    pub options: &'static str,
}

impl Load {
    /// A load just large enough to show whether the storage works.
    pub const SMALL: Self = Self { size: "4m", options: Self::ASYNCHRONOUS };
    /// Linux's asynchronous I/O, without the page cache.
    pub const ASYNCHRONOUS: &'static str = "--ioengine=libaio --direct=1";
    /// io_uring that polls for completions. It uses polled queues, if there are some.
    pub const POLLED: &'static str = "--ioengine=io_uring --hipri=1 --direct=1";

    /// I/O through the page cache.
    pub const CACHED: &'static str = "--ioengine=psync --end_fsync=1";

    /// Returns fio's command line: mixed sizes, 32 requests at once, all data read again and
    /// compared.
    fn command(&self, file: &str) -> String {
        let Self { size, options } = self;
        format!(
            "fio --name=check --filename={file} --size={size} {options} --rw=randrw --bsrange=512-1m --iodepth=32 \
             --verify=crc32c --verify_fatal=1"
        )
    }
}

/// A target and its initiator.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    protocol: Protocol,
    /// Index of the target's VM: 0 is a, 1 is b.
    target: usize,
}

impl Storage {
    /// Makes VM a (0) or VM b (1) the target, and the other VM the initiator.
    pub fn new(protocol: Protocol, target: usize) -> Self {
        Self { protocol, target }
    }

    /// Returns the storage protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the target's VM.
    pub fn target(self, pair: &Pair) -> &Vm {
        if self.target == 0 { &pair.a } else { &pair.b }
    }

    fn initiator(self, pair: &Pair) -> &Vm {
        if self.target == 0 { &pair.b } else { &pair.a }
    }

    /// Returns initiator and target by their devices: `rxe0 -> vrdma0`.
    pub fn ends(self, pair: &Pair) -> String {
        let name = |vm| pair.device(vm).name();
        format!("{} -> {}", name(self.initiator(pair)), name(self.target(pair)))
    }

    /// Sets up the target.
    pub fn serve(self, pair: &Pair, disk: Disk) -> Result<()> {
        let script = paths::workspace().join("testing/lab/checks").join(SCRIPT);
        paths::write(&pair.share().join(SCRIPT), paths::read(&script)?)?;
        let disk = match disk {
            Disk::Ram => "ram".to_owned(),
            Disk::File => {
                self.make_file(pair)?;
                format!("/share/{FILE}")
            }
        };
        self.run(pair, self.target(pair), &format!("serve {} {disk}", IP[self.target]))
            .context("the target")?;
        Ok(())
    }

    /// Makes the file of [`Disk::File`], unless it exists. For NFS it contains a file system.
    fn make_file(self, pair: &Pair) -> Result<()> {
        let path = pair.share().join(FILE);
        if path.exists() {
            return Ok(());
        }
        File::create(&path)?.set_len(FILE_BYTES)?;
        if self.protocol == Protocol::Nfs {
            let mut command = Command::new("/usr/sbin/mke2fs");
            command.args(["-q", "-F", "-t", "ext4"]).arg(&path);
            proc::output(command)?;
        }
        Ok(())
    }

    /// Connects the initiator. Returns the file that programs read and write.
    pub fn connect(self, pair: &Pair) -> Result<String> {
        let said = self.run(pair, self.initiator(pair), &format!("connect {}", IP[self.target]));
        let said = said.context("the initiator")?;
        let file = said.trim();
        ensure!(file.starts_with('/'), "an odd file: {said}");
        Ok(file.to_owned())
    }

    /// Reads, writes and compares with fio.
    pub fn load(self, pair: &Pair, file: &str, load: &Load) -> Result<()> {
        let output = self.start_load(pair, file, load)?.wait(pair.patience(20))?;
        expect_sound(&output)
    }

    /// Starts fio. [`expect_sound`] checks its output.
    pub fn start_load(self, pair: &Pair, file: &str, load: &Load) -> Result<Job> {
        self.initiator(pair).spawn(&load.command(file))
    }

    /// Disconnects the initiator from the target.
    pub fn disconnect(self, pair: &Pair) -> Result<()> {
        self.run(pair, self.initiator(pair), "disconnect").context("the initiator").map(|_| ())
    }

    /// Shuts the target down, and removes the file of a disk that outlives its VM.
    pub fn stop(self, pair: &Pair) -> Result<()> {
        self.run(pair, self.target(pair), "stop").context("the target")?;
        let file = pair.share().join(FILE);
        if file.exists() {
            fs::remove_file(file)?;
        }
        Ok(())
    }

    /// Sets up target and initiator, runs this load, and shuts both down.
    pub fn whole(self, pair: &Pair, load: &Load) -> Result<()> {
        self.serve(pair, Disk::Ram)?;
        let file = self.connect(pair)?;
        self.load(pair, &file, load)?;
        self.disconnect(pair)?;
        self.stop(pair)
    }

    fn run(self, pair: &Pair, vm: &Vm, action: &str) -> Result<String> {
        vm.check(&format!("sh /share/{SCRIPT} {} {action}", self.protocol.name()), pair.patience(10))
    }
}

/// Checks that fio read back what it had written.
pub fn expect_sound(output: &Output) -> Result<()> {
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.success() && said.contains("err= 0"), "fio: {:?}\n{}", output.exit, proc::indent(&said));
    Ok(())
}
