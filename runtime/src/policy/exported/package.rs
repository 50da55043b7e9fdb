//! A package that is loaded to its device.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tch::{Device, Tensor};
use tempfile::TempDir;

use crate::policy::PolicyError;
use crate::policy::exported::folder;
use crate::policy::exported::inputs::Inputs;
use crate::policy::exported::policy::Network;
use jobs::exported::{Machine, Package};
use jobs::refusal::Refusal;
use models::graphs::{Graphs, PassFn};
use torchlib::cuda;
use torchlib::operators::InferenceMode;
use torchlib::package::CompiledPackage;
use torchlib::torch_error::{caught, is_out_of_memory, message};

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
        check_torch(package)?;
        check_device(package, device)?;
        let error = |reason: String| PolicyError::file(package.path(), reason);
        // This comes first because it gives this thread a stream of its own.
        let graphs = Rc::new(RefCell::new(Graphs::on(device, captures)));
        let folder = folder::extract(package).map_err(error)?;
        let library = folder.path().join(package.library());
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
    const CAPTURES: bool = true;

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

/// Checks that the package is of the version of libtorch that is loaded, if that is known.
fn check_torch(package: &Package) -> Result<(), Refusal> {
    let Some(version) = torchlib::libtorch::version() else {
        return Ok(());
    };
    let mut numbers = version.splitn(3, '.');
    let minor = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
    package.check_torch(&[&minor.join(".")])
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
