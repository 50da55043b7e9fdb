//! Copies the bytes of staging buffers to their tensors.

use tch::{Device, Tensor};

use torchlib::TorchError;
use torchlib::cuda;
use torchlib::upload::{Staging, Uploader};

/// Starts copies that continue while the next buffer is filled.
pub trait Carrier: Send + Sync + 'static {
    /// Allocates a new staging buffer.
    fn buffer(&self, bytes: usize) -> Result<Staging, String>;

    /// Starts to copy the second tensor of each pair, a part of the slot's buffer, to the first.
    /// The two may differ in dtype.
    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), String>;

    /// Returns when all copies of the slot have arrived.
    fn land(&self, slot: usize) -> Result<(), String>;
}

/// Copies to a GPU, from pinned memory.
pub struct ToCard(Uploader);

impl ToCard {
    /// Creates a carrier for tensors that were allocated on `device` before.
    pub fn new(device: Device, slots: usize) -> Result<Self, String> {
        let Device::Cuda(index) = device else {
            return Err(format!("{device:?} is not a card"));
        };
        let cuda = cuda::load().map_err(|err| err.to_string())?;
        Ok(Self(said(Uploader::new(cuda, index, slots))?))
    }
}

impl Carrier for ToCard {
    fn buffer(&self, bytes: usize) -> Result<Staging, String> {
        said(self.0.pinned(bytes))
    }

    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), String> {
        said(self.0.send(slot, &pairs))
    }

    fn land(&self, slot: usize) -> Result<(), String> {
        said(self.0.wait(slot))
    }
}

fn said<T>(result: Result<T, TorchError>) -> Result<T, String> {
    result.map_err(|err| err.to_string())
}
