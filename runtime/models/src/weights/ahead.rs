//! The tensors of a checkpoint that are being loaded to a GPU in the background, by name.

use std::collections::BTreeMap;
use std::ops::Range;

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::error::no_room;
use crate::weights::checkpoint::Checkpoint;
use crate::weights::upload::{Carrier, Extent, Upload, UploadError, UploadSizes, UploadTarget};
use crate::weights::{JointSpec, Spec, TensorPlace, joint_shape, locate};
use torchlib::torch_error::shortage;

/// The tensors that are being loaded.
pub(super) struct Ahead {
    /// By the name of the first part: the tensor, and the numbers of its parts in the upload.
    tensors: BTreeMap<String, (Tensor, Range<usize>)>,
    upload: Upload,
}

impl Ahead {
    /// Allocates tensors of this type on this device, in the order of the computation, and starts
    /// to fill them with a carrier that is created after them. Returns `None`, with a log message,
    /// if the device cannot be fed in this way.
    ///
    /// # Errors
    /// Returns [`Refusal`] if there is no memory for the tensors.
    pub(super) fn begin<C: Carrier>(
        checkpoint: &Checkpoint,
        specs: &[JointSpec],
        (kind, device): (Kind, Device),
        sizes: UploadSizes,
        carrier: impl FnOnce() -> Result<C, String>,
    ) -> Result<Option<Self>, Refusal> {
        let mut found = Vec::new();
        for specs in specs {
            let places = specs
                .iter()
                .map(|(name, shape)| locate(checkpoint, name, shape));
            if let Ok(places) = places.collect::<Result<Vec<TensorPlace>, _>>() {
                found.push((specs, places));
            }
        }
        let elements = found
            .iter()
            .map(|(specs, _)| joint_shape(specs).iter().product::<i64>());
        let total = elements.sum::<i64>() * kind.elt_size_in_bytes() as i64;
        // Allocate one block that libtorch divides for the following tensors, because hundreds of
        // allocations by the driver take longer than the copies. If one block is not available,
        // smaller ones may be.
        drop(Tensor::f_empty([total], (Kind::Uint8, device)));
        let (mut tensors, mut wanted) = (BTreeMap::new(), Vec::new());
        for (specs, places) in found {
            let tensor = Tensor::f_empty(joint_shape(specs), (kind, device)).map_err(|err| {
                let (dir, total) = (&checkpoint.dir, total.unsigned_abs());
                no_room(dir, total, device, shortage(&err.to_string()))
            })?;
            let (first, flat, mut at) = (wanted.len(), tensor.view(-1), 0);
            for place in places {
                let (count, bytes) = (place.shape.iter().product(), &place.bytes);
                let extent = Extent {
                    file: place.shard,
                    bytes: bytes.start.unsigned_abs()..bytes.end.unsigned_abs(),
                };
                wanted.push(UploadTarget {
                    extent,
                    stored: place.stored,
                    tensor: flat.narrow(0, at, count),
                });
                at += count;
            }
            tensors.insert(specs[0].0.clone(), (tensor, first..wanted.len()));
        }
        let shards = checkpoint.shards.iter();
        let sources = shards.map(|shard| shard.source.clone()).collect();
        let started = carrier().and_then(|carrier| Upload::start(sources, wanted, carrier, sizes));
        match started {
            Ok(upload) => Ok(Some(Self { tensors, upload })),
            Err(failure) => {
                tracing::warn!("weights are copied piece by piece: {failure}");
                Ok(None)
            }
        }
    }

    /// Waits for a tensor, which is then no longer kept here; returns `None` if it is not being
    /// loaded, or if the GPU cannot be fed in this way.
    pub(super) fn take(&mut self, specs: &[Spec]) -> Option<Result<Tensor, Refusal>> {
        let (name, _) = specs.first()?;
        let (tensor, parts) = self.tensors.remove(name)?;
        match self.upload.wait(parts) {
            Ok(()) => Some(Ok(tensor)),
            Err(UploadError::File(refusal)) => Some(Err(refusal)),
            Err(UploadError::Device(reason)) => {
                tracing::warn!("`{name}` is copied piece by piece: {reason}");
                None
            }
        }
    }
}
