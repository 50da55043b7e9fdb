//! The tensors of a checkpoint that are being loaded to a GPU in the background, by name.

use std::collections::BTreeMap;
use std::fmt;

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::error::{no_room, refuse};
use crate::weights::checkpoint::Checkpoint;
use crate::weights::layout::Spec;
use crate::weights::upload::{
    Carrier, CarrierError, Extent, ToCard, Upload, UploadError, UploadSizes, UploadTarget,
};
use crate::weights::{TensorPlace, locate};
use c10d::torch_error::shortage;

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
    numbers: BTreeMap<String, usize>,
    upload: Upload,
}

impl Ahead {
    /// Starts loading; returns `None`, with a log message, if the GPU cannot be fed in this way.
    ///
    /// # Errors
    /// Returns [`Refusal`] if there is no memory for the tensors.
    pub(super) fn to_card(
        checkpoint: &Checkpoint,
        specs: &[Spec],
        kind: Kind,
        device: Device,
    ) -> Result<Option<Self>, Refusal> {
        let sizes = UploadSizes::usual();
        Self::begin(
            checkpoint,
            specs,
            LoadTarget { kind, device },
            sizes,
            || ToCard::new(device, sizes.slots),
        )
    }

    /// Starts loading with any carrier, which is created after the tensors to which it copies.
    pub(super) fn begin<C: Carrier>(
        checkpoint: &Checkpoint,
        specs: &[Spec],
        target: LoadTarget,
        sizes: UploadSizes,
        carrier: impl FnOnce() -> Result<C, CarrierError>,
    ) -> Result<Option<Self>, Refusal> {
        let place =
            |(name, shape): &'_ Spec| Some((name.clone(), locate(checkpoint, name, shape).ok()?));
        let (names, places): (Vec<_>, Vec<_>) = specs.iter().filter_map(place).unzip();
        let wanted = room(checkpoint, &places, target)?;
        let sources = checkpoint
            .shards()
            .iter()
            .map(|shard| shard.source().clone())
            .collect();
        let started = carrier()
            .map_err(UploadError::from)
            .and_then(|carrier| Upload::start(sources, wanted, carrier, sizes));
        match started {
            Ok(upload) => Ok(Some(Self {
                numbers: names.into_iter().zip(0..).collect(),
                upload,
            })),
            Err(failure) => {
                tracing::warn!("weights are copied piece by piece: {failure}");
                Ok(None)
            }
        }
    }

    /// Waits for a tensor; returns `None` if it is not being loaded, or if the GPU cannot be fed in
    /// this way.
    pub(super) fn take(&self, name: &str) -> Option<Result<Tensor, Refusal>> {
        match self.upload.take(*self.numbers.get(name)?) {
            Ok(tensor) => Some(Ok(tensor)),
            Err(UploadError::File { path, err }) => Some(Err(refuse(&path, err))),
            Err(failure) => {
                tracing::warn!("`{name}` is copied piece by piece: {failure}");
                None
            }
        }
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead")
            .field("tensors", &self.numbers.len())
            .finish_non_exhaustive()
    }
}

/// Allocates a tensor on the device for each place, in their order, to be filled later.
///
/// The order is that of the computation. Layers that will be joined lie next to each other in it,
/// so that they leave a gap into which the joined layers of the next block fit. In the order of the
/// names most gaps are too small, and for the released model libtorch's allocator holds 0.7 GB more
/// of the GPU's memory.
fn room(
    checkpoint: &Checkpoint,
    places: &[TensorPlace<'_>],
    LoadTarget { kind, device }: LoadTarget,
) -> Result<Vec<UploadTarget>, Refusal> {
    let bytes = |place: &TensorPlace<'_>| {
        place.entry.shape.iter().product::<i64>() * kind.elt_size_in_bytes() as i64
    };
    let total: i64 = places.iter().map(bytes).sum();
    // Allocate one block that libtorch divides for the following tensors, because hundreds of
    // allocations by the driver take longer than the copies. If one block is not available, smaller
    // ones may be.
    drop(Tensor::f_empty([total], (Kind::Uint8, device)));
    let wanted = |place: &TensorPlace<'_>| {
        let tensor = Tensor::f_empty(&place.entry.shape[..], (kind, device)).map_err(|err| {
            no_room(
                checkpoint.dir(),
                total.unsigned_abs(),
                device,
                shortage(&err.to_string()),
            )
        })?;
        let bytes = place.entry.bytes.start.unsigned_abs()..place.entry.bytes.end.unsigned_abs();
        Ok(UploadTarget {
            extent: Extent {
                file: place.number,
                bytes,
            },
            stored: place.stored,
            tensor,
        })
    };
    places.iter().map(wanted).collect()
}
