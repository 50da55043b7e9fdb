//! A package that is loaded to its device, with its captured passes.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};
use tempfile::TempDir;

use crate::policy::exported::folder;
use crate::policy::exported::inputs::Inputs;
use crate::policy::exported::policy::Network;
use crate::policy::{PolicyError, RowError};
use jobs::captured_graphs;
use jobs::exported::{Machine, Package};
use jobs::refusal::Refusal;
use models::graphs::{CudaEngine, Graphs, PassFn, PassShape, to_device};
use torchlib::cuda;
use torchlib::operators::{InferenceMode, to_host};
use torchlib::package::CompiledPackage;
use torchlib::torch_error::{caught, is_out_of_memory, message};

/// A loaded package.
pub(in crate::policy) struct LoadedPackage {
    /// Declared before the package, whose memory they read, so that they are dropped first.
    graphs: RefCell<Option<Graphs>>,
    package: Rc<CompiledPackage>,
    /// What the compiled code reads while it runs; `None` if there is nothing of the kind.
    folder: Option<TempDir>,
    device: Device,
    /// How often the device had been out of memory when this was asked last.
    ooms: Cell<u64>,
}

impl LoadedPackage {
    /// Checks that a package can run on this machine and this device, and loads it.
    ///
    /// # Errors
    /// Returns the reason with the path of the package.
    pub(super) fn load(
        package: &Package,
        inputs: &Inputs,
        device: Device,
        captures: bool,
    ) -> Result<Self, PolicyError> {
        let fits = package
            .check(&Machine::here())
            .and_then(|()| check_torch(package))
            .and_then(|()| check_device(package, device));
        fits.map_err(refused)?;
        let error = |reason: String| PolicyError::file(package.path(), reason);
        // This comes first because it gives this thread a stream of its own.
        let graphs = if captures { graphs(device) } else { None };
        let folder = folder::extract(package).map_err(error)?;
        let library = folder.path().join(package.library());
        let _mode = InferenceMode::begin();
        let loaded = caught(|| {
            CompiledPackage::load(&library, folder.path(), device, inputs.signature().clone())
        });
        let loaded = loaded
            .and_then(|loaded| loaded.map_err(|err| err.to_string()))
            .map_err(|reason| error(format!("cannot load it: {}", message(&reason))))?;
        Ok(Self {
            graphs: RefCell::new(graphs),
            package: Rc::new(loaded),
            folder: Some(folder),
            device,
            ooms: Cell::new(ooms(device)),
        })
    }

    /// Deletes the extracted files, once the package has run: a loaded library needs its file no
    /// more. Code for a GPU loads its kernels when it comes to them, so its files stay.
    pub(super) fn loaded(&mut self) {
        if !self.device.is_cuda() {
            self.folder = None;
        }
    }

    /// Returns the reason of a failure. Compiled code prints libtorch's exceptions and returns a
    /// number, so the allocator has to tell whether memory was short.
    fn with_cause(&self, reason: String) -> String {
        let ooms = ooms(self.device);
        if ooms > self.ooms.replace(ooms) && !is_out_of_memory(&reason) {
            return format!("out of memory: {reason}");
        }
        reason
    }

    /// Runs a batch, or replays it. Like operators of tch, it panics with libtorch's error.
    fn pass(&self, inputs: &[Tensor], rows: usize) -> Tensor {
        let package = Rc::clone(&self.package);
        let pass: PassFn = Rc::new(move |inputs: &[Tensor]| {
            package
                .run(inputs)
                .unwrap_or_else(|err| panic!("libtorch: {err}"))
        });
        match self.graphs.borrow_mut().as_mut() {
            Some(graphs) => {
                // Batches differ in nothing else.
                let shape = PassShape {
                    rows: rows as i64,
                    tokens: 0,
                    detail: Vec::new(),
                };
                let Ok(out) = graphs.run(shape, inputs, || Ok::<_, Infallible>(pass));
                out
            }
            None => pass(&to_device(inputs, self.device)),
        }
    }

    #[cfg(test)]
    pub(super) fn capture_with(&self, graphs: Graphs) {
        *self.graphs.borrow_mut() = Some(graphs);
    }

    #[cfg(test)]
    pub(super) fn folder(&self) -> Option<&std::path::Path> {
        self.folder.as_ref().map(TempDir::path)
    }
}

impl Network for LoadedPackage {
    fn run(&self, inputs: &[Tensor], rows: usize) -> Result<Tensor, PolicyError> {
        let _mode = InferenceMode::begin();
        let result = caught(|| to_host(&self.pass(inputs, rows)).to_kind(Kind::Float));
        result.map_err(|reason| {
            let reason = self.with_cause(reason);
            if is_out_of_memory(&reason)
                && let Ok(mut graphs) = self.graphs.try_borrow_mut()
                && let Some(graphs) = graphs.as_mut()
            {
                graphs.make_room();
            }
            RowError(reason).into()
        })
    }

    fn captures(&self) -> Option<bool> {
        let graphs = self.graphs.borrow();
        Some(graphs.as_ref().is_some_and(|graphs| graphs.off().is_none()))
    }
}

/// Returns how often a device was out of memory; 0 for a CPU.
fn ooms(device: Device) -> u64 {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return 0;
    };
    cuda.ooms(index).unwrap_or(0)
}

/// Converts the refusal of a package.
pub(super) fn refused(refusal: Refusal) -> PolicyError {
    refusal.into()
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

/// Creates the storage for captured batches. Returns `None` on a CPU, and where CUDA cannot
/// capture, which is logged with the reason.
fn graphs(device: Device) -> Option<Graphs> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let cuda = cuda::load().ok()?;
    let total = cuda.memory(index).map_or(0, |memory| memory.total_bytes);
    match CudaEngine::new(cuda, index) {
        Ok(engine) => {
            let cap = captured_graphs::max_bytes(total);
            Some(Graphs::new(Box::new(engine), cap))
        }
        Err(reason) => {
            tracing::warn!("no CUDA graphs of the package on cuda:{index}: {reason}");
            None
        }
    }
}
