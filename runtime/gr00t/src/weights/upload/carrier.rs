//! Copies the bytes of staging buffers to their tensors.

use tch::{Device, Tensor};

use c10d::TorchError;
use c10d::cuda;
use c10d::upload::{Staging, Uploader};

/// The reason why a device cannot be fed.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// Only a GPU is fed through pinned memory.
    #[error("{device:?} is not a card")]
    NotACard {
        /// The device that was asked for.
        device: Device,
    },
    /// CUDA cannot be used, or refuses.
    #[error(transparent)]
    Device(#[from] TorchError),
    /// A carrier of the tests refuses.
    #[cfg(test)]
    #[error("{reason}")]
    Refused {
        /// What a test expects.
        reason: String,
    },
}

/// Starts copies that continue while the next buffer is filled.
pub trait Carrier: Send + Sync + 'static {
    /// Allocates a new staging buffer.
    fn buffer(&self, bytes: usize) -> Result<Staging, CarrierError>;

    /// Starts to copy the second tensor of each pair, a part of the slot's buffer, to the first.
    /// The two may differ in dtype.
    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), CarrierError>;

    /// Returns when all copies of the slot have arrived.
    fn land(&self, slot: usize) -> Result<(), CarrierError>;
}

/// Copies to a GPU, from pinned memory.
pub struct ToCard(Uploader);

impl ToCard {
    /// Creates a carrier for tensors that were allocated on `device` before.
    pub fn new(device: Device, slots: usize) -> Result<Self, CarrierError> {
        let Device::Cuda(index) = device else {
            return Err(CarrierError::NotACard { device });
        };
        let cuda = cuda::load()?;
        Ok(Self(Uploader::new(cuda, index, slots)?))
    }
}

impl Carrier for ToCard {
    fn buffer(&self, bytes: usize) -> Result<Staging, CarrierError> {
        Ok(self.0.pinned(bytes)?)
    }

    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), CarrierError> {
        Ok(self.0.send(slot, &pairs)?)
    }

    fn land(&self, slot: usize) -> Result<(), CarrierError> {
        Ok(self.0.wait(slot)?)
    }
}

/// Tensors on the CPU in place of a GPU. Nothing is copied until the caller waits for it, so that
/// tests detect a buffer that is reused too early.
#[cfg(test)]
#[derive(Default)]
pub struct Late {
    sent: std::sync::Mutex<std::collections::BTreeMap<usize, Vec<(Tensor, Tensor)>>>,
}

#[cfg(test)]
impl Carrier for Late {
    fn buffer(&self, bytes: usize) -> Result<Staging, CarrierError> {
        Ok(Staging::pageable(i64::try_from(bytes).unwrap()))
    }

    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), CarrierError> {
        let before = self.sent.lock().unwrap().insert(slot, pairs);
        before
            .is_none()
            .then_some(())
            .ok_or_else(|| refused(format!("slot {slot} is sent twice")))
    }

    fn land(&self, slot: usize) -> Result<(), CarrierError> {
        let pairs = self
            .sent
            .lock()
            .unwrap()
            .remove(&slot)
            .ok_or_else(|| refused(format!("slot {slot} was not sent")))?;
        for (mut target, source) in pairs {
            target
                .f_copy_(&source)
                .map_err(|err| refused(err.to_string()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(in crate::weights) fn refused(reason: String) -> CarrierError {
    CarrierError::Refused { reason }
}
