//! Storage over RDMA between the two VMs of a pair, by what their kernels have: NVMe over Fabrics,
//! iSER, SRP and NFS. One is the target (the server), the other the initiator (the client), and fio
//! reads and writes what it sees, and compares.

use std::fs::{self, File};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::vm::addresses::IP;
use crate::vm::{Job, Output, Pair, Vm};
use crate::{paths, proc};

/// What does the work in the VMs.
const SCRIPT: &str = "storage.sh";
/// A disk that outlives its VM, in the shared directory.
const FILE: &str = "storage.disk";
/// Bytes of that disk.
const FILE_BYTES: u64 = 64 << 20;

/// How storage is spoken to.
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nvme, Self::Iser, Self::Srp, Self::Nfs];

    /// Its name in the script, and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Iser => "iser",
            Self::Srp => "srp",
            Self::Nfs => "nfs",
        }
    }
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Memory of its VM, empty.
    Ram,
    /// A file that outlives the VM, empty when the target is made for the first time.
    File,
}

/// What fio does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How much is read and written, as fio's `--size` has it.
    pub size: &'static str,
    /// Further options of fio.
    pub options: &'static str,
}

impl Load {
    /// As much as shows whether it works at all.
    pub const SMALL: Self = Self { size: "4m", options: Self::ASYNCHRONOUS };
    /// By Linux's asynchronous I/O, past the page cache.
    pub const ASYNCHRONOUS: &'static str = "--ioengine=libaio --direct=1";
    /// By io_uring, which polls for completions: queues that are polled, where there are some.
    pub const POLLED: &'static str = "--ioengine=io_uring --hipri=1 --direct=1";

    /// Through the page cache.
    pub const CACHED: &'static str = "--ioengine=psync --end_fsync=1";

    /// Sizes of all kinds, 32 requests at once, everything read again and compared.
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
    /// Of VM a (0) or b (1) as the target, and the other one as the initiator.
    pub fn new(protocol: Protocol, target: usize) -> Self {
        Self { protocol, target }
    }

    /// How it is spoken to.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The target's VM.
    pub fn target(self, pair: &Pair) -> &Vm {
        if self.target == 0 { &pair.a } else { &pair.b }
    }

    fn initiator(self, pair: &Pair) -> &Vm {
        if self.target == 0 { &pair.b } else { &pair.a }
    }

    /// Target and initiator by their devices: `rxe0 -> vrdma0`.
    pub fn ends(self, pair: &Pair) -> String {
        let name = |vm| pair.device(vm).name();
        format!("{} -> {}", name(self.initiator(pair)), name(self.target(pair)))
    }

    /// Makes the target.
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

    /// The file of [`Disk::File`], if it is not there yet. For NFS it is a file system.
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

    /// Connects the initiator; what its programs read and write.
    pub fn connect(self, pair: &Pair) -> Result<String> {
        let said = self.run(pair, self.initiator(pair), &format!("connect {}", IP[self.target]));
        let said = said.context("the initiator")?;
        let file = said.trim();
        ensure!(file.starts_with('/'), "an odd file: {said}");
        Ok(file.to_owned())
    }

    /// Reads, writes and compares.
    pub fn load(self, pair: &Pair, file: &str, load: &Load) -> Result<()> {
        let output = self.start_load(pair, file, load)?.wait(pair.patience(20))?;
        expect_sound(&output)
    }

    /// Starts to read, write and compare; [`expect_sound`] says how it went.
    pub fn start_load(self, pair: &Pair, file: &str, load: &Load) -> Result<Job> {
        self.initiator(pair).spawn(&load.command(file))
    }

    /// The initiator lets go of the target.
    pub fn disconnect(self, pair: &Pair) -> Result<()> {
        self.run(pair, self.initiator(pair), "disconnect").context("the initiator").map(|_| ())
    }

    /// Takes the target down. A disk that outlives its VM is gone with it.
    pub fn stop(self, pair: &Pair) -> Result<()> {
        self.run(pair, self.target(pair), "stop").context("the target")?;
        let file = pair.share().join(FILE);
        if file.exists() {
            fs::remove_file(file)?;
        }
        Ok(())
    }

    /// Target and initiator from the beginning to the end, with this load between.
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

/// That fio read what it had written.
pub fn expect_sound(output: &Output) -> Result<()> {
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.success() && said.contains("err= 0"), "fio: {:?}\n{}", output.exit, proc::indent(&said));
    Ok(())
}
