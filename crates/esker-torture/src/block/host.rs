//! The drive in the running system: FUSE, a loop device, ext4. Everything mounted or attached is released: by
//! `detach`, which reports errors, or by `Drop`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption};

use super::device::{Drive, DriveFs, Event, FILE};
use esker_world::failure::{Failure, Result};

/// `mkfs` writes the journal and all inode tables at once. Metadata checksums are off: ext4 requires that the
/// two sectors of its superblock are written atomically, and would refuse to mount after this drive tore
/// them. The journal protects all other metadata.
const FORMAT: [&str; 10] = [
    "-q",
    "-F",
    "-m",
    "0",
    "-E",
    "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
    "-b",
    "4096",
    "-O",
    "^metadata_csum",
];

/// The drive, available to loop devices.
pub(crate) struct Host {
    pub(crate) drive: Drive,
    dir: PathBuf,
    /// Ends when unmounted.
    _fuse: BackgroundSession,
}

/// Number of attempts to unmount, and the pause between them. A loop device releases its file shortly after
/// `losetup` returns, and replaced tables stay open while another thread reads a database.
const UNMOUNT_ATTEMPTS: (u32, Duration) = (6000, Duration::from_millis(10));

fn unmount(path: &Path) -> Result<()> {
    let mut umount = Command::new("umount");
    umount.env("LC_ALL", "C").arg(path);
    for _ in 0..UNMOUNT_ATTEMPTS.0 {
        match run(&mut umount) {
            Err(failure) if failure.to_string().contains("busy") => std::thread::sleep(UNMOUNT_ATTEMPTS.1),
            other => return other.map(drop),
        }
    }
    run(&mut umount).map(drop)
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(failure) = unmount(&self.dir.join("device")) {
            eprintln!("esker-torture: {failure}");
        }
    }
}

impl Host {
    /// Mounts the FUSE file system below `dir`.
    pub(crate) fn new(dir: &Path, drive: Drive) -> Result<Self> {
        for name in ["device", "mounted"] {
            std::fs::create_dir_all(dir.join(name))?;
        }
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("esker-torture".to_owned())];
        let fuse = fuser::spawn_mount(DriveFs(drive.clone()), dir.join("device"), &config);
        let fuse = fuse.map_err(|e| Failure::from(e).during("mounting a FUSE file system"))?;
        Ok(Host { drive, dir: dir.to_owned(), _fuse: fuse })
    }

    fn file(&self) -> PathBuf {
        self.dir.join("device").join(FILE)
    }

    /// Formats the drive and returns its contents.
    pub(crate) fn format(&self) -> Result<Vec<u8>> {
        run(Command::new("mkfs.ext4").args(FORMAT).arg(self.file()))?;
        Ok(self.drive.image())
    }

    /// Mounts a drive with these contents.
    pub(crate) fn attach(&self, image: Vec<u8>) -> Result<Attached<'_>> {
        self.drive.replace(image);
        let loop_device = run(Command::new("losetup").args(["--find", "--show"]).arg(self.file()))?;
        let mut attached = Attached { host: self, loop_device, mounted: false, attached: true };
        run(Command::new("mount").args(["-t", "ext4", &attached.loop_device]).arg(attached.path()))?;
        attached.mounted = true;
        Ok(attached)
    }
}

/// A mounted drive.
pub(crate) struct Attached<'h> {
    host: &'h Host,
    loop_device: String,
    mounted: bool,
    attached: bool,
}

impl Attached<'_> {
    /// Returns the mount point.
    pub(crate) fn path(&self) -> PathBuf {
        self.host.dir.join("mounted")
    }

    /// Unmounts the drive. Returns all events since it was attached.
    pub(crate) fn detach(mut self) -> Result<Vec<Event>> {
        self.let_go()?;
        Ok(self.host.drive.take())
    }

    fn let_go(&mut self) -> Result<()> {
        if std::mem::take(&mut self.mounted) {
            unmount(&self.path())?;
        }
        if std::mem::take(&mut self.attached) {
            run(Command::new("losetup").args(["--detach", &self.loop_device]))?;
        }
        Ok(())
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.let_go() {
            eprintln!("esker-torture: {failure}");
        }
    }
}

/// Runs a command and returns its output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| Failure::from(e).during(&format!("{command:?}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{command:?} failed: {}", text.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
