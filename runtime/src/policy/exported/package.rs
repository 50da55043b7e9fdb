//! A package that is loaded to its device, and the folder into which it is extracted: a library can
//! be loaded from a file alone.
//!
//! Each rank has a folder of its own, in `TMPDIR`, which nobody else may read. On a CPU it exists
//! until the package has run once; on a GPU, until the policy is dropped.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use nix::sys::statvfs::{FsFlags, statvfs};
use tch::{Device, Tensor};
use tempfile::TempDir;

use crate::policy::PolicyError;
use crate::policy::exported::Network;
use crate::policy::exported::inputs::Inputs;
use jobs::bytes::ByteSize;
use jobs::exported::{Machine, Package};
use jobs::refusal::Refusal;
use models::graphs::{Graphs, PassFn};
use torchlib::operators::InferenceMode;
use torchlib::package::CompiledPackage;
use torchlib::torch_error::{caught, is_out_of_memory, message};
use torchlib::{cuda, libtorch};

/// A loaded package.
pub(in crate::policy) struct LoadedPackage {
    package: Rc<CompiledPackage>,
    /// What the compiled code reads while it runs; `None` if there is nothing of the kind.
    pub(super) folder: Option<TempDir>,
    device: Device,
    /// How often the device had been out of memory when this was asked last.
    ooms: Cell<u64>,
}

impl LoadedPackage {
    /// Checks that a package can run on this machine and this device, and loads it, with the store
    /// of its captured passes.
    ///
    /// # Errors
    /// Returns the reason with the path of the package.
    pub(super) fn load(
        package: &Package,
        inputs: &Inputs,
        device: Device,
        captures: bool,
    ) -> Result<(Self, Rc<RefCell<Graphs>>), PolicyError> {
        package.check(&Machine::here())?;
        // If it has no file that says its version, the loader will tell.
        if let Some(loaded) = libtorch::minor() {
            package.check_torch(&[&loaded.to_string()])?;
        }
        check_device(package, device)?;
        let error = |reason: String| PolicyError::file(&package.path, reason);
        // This comes first because it gives this thread a stream of its own.
        let graphs = Rc::new(RefCell::new(Graphs::on(device, captures)));
        let folder = extract(package).map_err(error)?;
        let library = folder.path().join(&package.library);
        let _mode = InferenceMode::begin();
        let loaded = caught(|| {
            CompiledPackage::load(&library, folder.path(), device, inputs.signature.clone())
        });
        let loaded = loaded
            .and_then(|loaded| loaded.map_err(|err| err.to_string()))
            .map_err(|reason| error(format!("cannot load it: {}", message(&reason))))?;
        let loaded = Self {
            package: Rc::new(loaded),
            folder: Some(folder),
            device,
            ooms: Cell::new(ooms(device)),
        };
        Ok((loaded, graphs))
    }

    /// Deletes the extracted files, once the package has run: a loaded library needs its file no
    /// more. Code for a GPU loads its kernels when it comes to them, so its files stay.
    pub(super) fn loaded(&mut self) {
        if !self.device.is_cuda() {
            self.folder = None;
        }
    }
}

impl Network for LoadedPackage {
    fn pass(&self) -> PassFn {
        let package = Rc::clone(&self.package);
        Rc::new(move |inputs: &[Tensor]| {
            package
                .run(inputs)
                .unwrap_or_else(|err| panic!("libtorch: {err}"))
        })
    }

    /// Compiled code prints libtorch's exceptions and returns a number, so the allocator has to
    /// tell whether memory was short.
    fn failed(&self, reason: String) -> String {
        let ooms = ooms(self.device);
        if ooms > self.ooms.replace(ooms) && !is_out_of_memory(&reason) {
            return format!("out of memory: {reason}");
        }
        reason
    }
}

/// Returns how often a device was out of memory; 0 for a CPU.
fn ooms(device: Device) -> u64 {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return 0;
    };
    cuda.ooms(index).unwrap_or(0)
}

/// Checks that the package is for this device.
fn check_device(package: &Package, device: Device) -> Result<(), Refusal> {
    let compiled_for = &package.compiled_for;
    let (name, wanted) = match device {
        Device::Cuda(index) => (format!("cuda:{index}"), "cuda"),
        _ => ("cpu".to_owned(), "cpu"),
    };
    let found = &compiled_for.device;
    if found != wanted {
        return Err(package.refuse(format_args!(
            "it was compiled for {found}, but the device of the policy is {name}; export it with \
             `--device {wanted}`"
        )));
    }
    let Device::Cuda(gpu) = device else {
        return Ok(());
    };
    let facts = cuda::load().ok().and_then(|cuda| cuda.device(gpu).ok());
    let capability = facts.map(|facts| facts.compute_capability);
    let fits = compiled_for.check_gpus(gpu, capability.as_slice());
    fits.map_err(|refusal| package.refuse(refusal))
}

/// Extracts the compiled files of a package to a new folder in `TMPDIR`, which is deleted when the
/// value is dropped.
///
/// # Errors
/// Returns the reason: no room, no permission, or a file system whose files may not be executed.
fn extract(package: &Package) -> Result<TempDir, String> {
    extract_in(&std::env::temp_dir(), package)
}

fn extract_in(parent: &Path, package: &Package) -> Result<TempDir, String> {
    let needed = package.extracted_bytes();
    if let Ok(found) = statvfs(parent) {
        let free = found.blocks_available() * found.fragment_size();
        let is_noexec = found.flags().contains(FsFlags::ST_NOEXEC);
        check(parent, needed, free, is_noexec)?;
    }
    let prefix = format!("rrun-package-{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent);
    let folder = folder.map_err(|err| {
        format!(
            "cannot make a folder in `{}`, where its library is extracted: {err}; set TMPDIR to \
             another one",
            parent.display()
        )
    })?;
    let extracted = package.extract(folder.path());
    extracted.map_err(|err| match err.kind() {
        io::ErrorKind::StorageFull => full(parent, needed, 0),
        _ => format!("cannot extract it to `{}`: {err}", folder.path().display()),
    })?;
    Ok(folder)
}

/// Checks that files of `needed` bytes can be extracted to a file system with `free` bytes, and
/// executed there.
fn check(folder: &Path, needed: u64, free: u64, is_noexec: bool) -> Result<(), String> {
    if is_noexec {
        return Err(format!(
            "its library is extracted to `{}`, where nothing may be executed (noexec); set TMPDIR \
             to another folder",
            folder.display()
        ));
    }
    if free < needed {
        return Err(full(folder, needed, free));
    }
    Ok(())
}

fn full(folder: &Path, needed: u64, free: u64) -> String {
    format!(
        "its library takes {} in `{}` while it is loaded, where only {} is free; set TMPDIR to \
         another folder",
        ByteSize(needed),
        folder.display(),
        ByteSize(free)
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use jobs::samples::{DESCRIPTION, keys, package};

    fn packed(folder: &Path) -> Package {
        let path = folder.join("policy.pt2");
        fs::write(&path, package(&keys(), DESCRIPTION)).unwrap();
        Package::read(&path).unwrap()
    }

    #[test]
    fn a_folder_has_the_files_and_is_gone_with_its_value() {
        let parent = tempfile::tempdir().unwrap();
        let package = packed(parent.path());
        let folders = [0, 1].map(|_| extract_in(parent.path(), &package).unwrap());
        let [first, second] = folders.each_ref().map(TempDir::path);
        assert_ne!(first, second);
        assert!(first.join(&package.library).is_file());
        drop(folders);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_room_and_no_execution_are_refused_before_anything_is_written() {
        let folder = Path::new("/scratch");
        assert_eq!(check(folder, 5 << 20, 5 << 20, false), Ok(()));
        assert_eq!(
            check(folder, 600 << 20, 5 << 20, false).unwrap_err(),
            "its library takes 600 MiB in `/scratch` while it is loaded, where only 5 MiB is \
             free; set TMPDIR to another folder"
        );
        assert_eq!(
            check(folder, 1, 5 << 20, true).unwrap_err(),
            "its library is extracted to `/scratch`, where nothing may be executed (noexec); set \
             TMPDIR to another folder"
        );
    }

    #[test]
    fn a_parent_that_is_not_there_is_an_error_that_names_tmpdir() {
        let parent = tempfile::tempdir().unwrap();
        let package = packed(parent.path());
        let reason = extract_in(Path::new("/nowhere"), &package).unwrap_err();
        assert!(
            reason.starts_with("cannot make a folder in `/nowhere`") && reason.contains("TMPDIR"),
            "{reason}"
        );
    }
}
