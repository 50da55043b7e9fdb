//! The tensors of a checkpoint that are being loaded to a GPU in the background, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::error::no_room;
use crate::weights::checkpoint::Checkpoint;
use crate::weights::upload::{
    Carrier, Extent, ToCard, Upload, UploadError, UploadSizes, UploadTarget,
};
use crate::weights::{JointSpec, Spec, TensorPlace, joint_shape, locate};
use torchlib::torch_error::shortage;

/// What the loaded tensors are to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadTarget {
    /// Their element type.
    pub(super) kind: Kind,
    /// Where they lie.
    pub(super) device: Device,
}

/// The tensors that are being loaded.
pub(super) struct Ahead {
    /// By the name of the first part: the tensor, and the numbers of its parts in the upload.
    tensors: BTreeMap<String, (Tensor, Range<usize>)>,
    upload: Upload,
}

impl Ahead {
    /// Starts loading; returns `None`, with a log message, if the GPU cannot be fed in this way.
    ///
    /// # Errors
    /// Returns [`Refusal`] if there is no memory for the tensors.
    pub(super) fn to_card(
        checkpoint: &Checkpoint,
        specs: &[JointSpec],
        kind: Kind,
        device: Device,
    ) -> Result<Option<Self>, Refusal> {
        let sizes = UploadSizes::usual();
        Self::begin(
            checkpoint,
            specs,
            LoadTarget { kind, device },
            sizes,
            || ToCard::new(device, sizes.slots()),
        )
    }

    /// Starts loading with any carrier, which is created after the tensors to which it copies.
    pub(super) fn begin<C: Carrier>(
        checkpoint: &Checkpoint,
        specs: &[JointSpec],
        target: LoadTarget,
        sizes: UploadSizes,
        carrier: impl FnOnce() -> Result<C, String>,
    ) -> Result<Option<Self>, Refusal> {
        let find = |specs: &JointSpec| {
            let place = |(name, shape): &Spec| locate(checkpoint, name, shape).ok();
            let places = specs.iter().map(place).collect::<Option<Vec<_>>>()?;
            Some((specs.clone(), places))
        };
        let found: Vec<_> = specs.iter().filter_map(find).collect();
        let (tensors, wanted) = room(checkpoint, &found, target)?;
        let sources = checkpoint
            .shards()
            .iter()
            .map(|shard| shard.source().clone())
            .collect();
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

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead")
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

/// The tensors to be filled, by the names of their first parts, and the places of all parts.
type Room = (BTreeMap<String, (Tensor, Range<usize>)>, Vec<UploadTarget>);

/// Allocates the tensors on the device, in the order of the computation, to be filled later.
fn room(
    checkpoint: &Checkpoint,
    found: &[(JointSpec, Vec<TensorPlace<'_>>)],
    LoadTarget { kind, device }: LoadTarget,
) -> Result<Room, Refusal> {
    let elements = |(specs, _): &(JointSpec, _)| joint_shape(specs).iter().product::<i64>();
    let total = found.iter().map(elements).sum::<i64>() * kind.elt_size_in_bytes() as i64;
    // Allocate one block that libtorch divides for the following tensors, because hundreds of
    // allocations by the driver take longer than the copies. If one block is not available, smaller
    // ones may be.
    drop(Tensor::f_empty([total], (Kind::Uint8, device)));
    let (mut tensors, mut targets) = (BTreeMap::new(), Vec::new());
    for (specs, places) in found {
        let tensor = Tensor::f_empty(joint_shape(specs), (kind, device));
        let tensor = tensor.map_err(|err| {
            let reason = err.to_string();
            no_room(
                checkpoint.dir(),
                total.unsigned_abs(),
                device,
                shortage(&reason),
            )
        })?;
        let (first, flat, mut at) = (targets.len(), tensor.view(-1), 0);
        for place in places {
            let count = place.entry.shape.iter().product();
            let bytes = &place.entry.bytes;
            targets.push(UploadTarget {
                extent: Extent {
                    file: place.number,
                    bytes: bytes.start.unsigned_abs()..bytes.end.unsigned_abs(),
                },
                stored: place.stored,
                tensor: flat.narrow(0, at, count),
            });
            at += count;
        }
        tensors.insert(specs[0].0.clone(), (tensor, first..targets.len()));
    }
    Ok((tensors, targets))
}
