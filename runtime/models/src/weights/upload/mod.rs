//! Copies all tensors of a checkpoint to a GPU at once, as fast as the GPU accepts them.
//!
//! ```text
//! plan ─► threads: pread ─► staging buffer (pinned) ─► copy on its own stream ─► tensor
//!                  page cache                          dtype converted on the GPU
//! ```
//!
//! A copy from a mapped file is done by the driver, page by page, through a small buffer of its
//! own, while the caller waits; that uses a fraction of the bus bandwidth. Here several threads
//! read the files (with `pread`, which causes no page faults), each into one of its two buffers
//! while the other is copied, and the bus is busy from the first buffer to the last. Files are read
//! in order, through the page cache, so ranks of a node that load the same checkpoint read the disk
//! once.

use std::fs::File;
use std::mem;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, available_parallelism};

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::error::refuse;
pub(super) use plan::Extent;
use plan::{Load, LoadPiece, pieces, plan};
use torchlib::operators::InferenceMode;
use torchlib::torch_error::{caught, first_line};
use torchlib::upload::{Staging, Uploader};
use torchlib::{TorchError, cuda};

mod plan;

/// Number of buffers of a thread: one is filled while the other is copied.
const BUFFERS: usize = 2;

/// How much is processed at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadSizes {
    /// Size of a staging buffer in bytes.
    pub(super) buffer: usize,
    pub(super) threads: usize,
}

impl UploadSizes {
    /// Returns 64 MiB in the buffers of 8 threads. Pinning costs the driver some 0.3 s per GB, so
    /// more memory would cost what it gains. A buffer of 4 MiB takes 80 µs on a bus of 50 GB/s,
    /// which makes the fixed cost of a copy negligible, and 0.5 ms for one reading thread, so that
    /// 8 threads keep up.
    pub(super) fn usual() -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Self {
            buffer: 4 << 20,
            threads: cores.clamp(2, 8),
        }
    }

    /// Returns the number of buffers of all threads.
    pub(super) fn slots(self) -> usize {
        BUFFERS * self.threads
    }
}

/// Starts copies that continue while the next buffer is filled.
pub(super) trait Carrier: Send + Sync + 'static {
    /// Allocates a new staging buffer.
    fn buffer(&self, bytes: usize) -> Result<Staging, String>;

    /// Starts to copy the second tensor of each pair, a part of the slot's buffer, to the first.
    /// The two may differ in dtype.
    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), String>;

    /// Returns when all copies of the slot have arrived.
    fn land(&self, slot: usize) -> Result<(), String>;
}

/// Copies from pinned memory to tensors that were allocated on the GPU before.
pub(super) fn to_card(device: Device, slots: usize) -> Result<Uploader, String> {
    let Device::Cuda(index) = device else {
        return Err(format!("{device:?} is not a card"));
    };
    let cuda = cuda::load().map_err(|err| err.to_string())?;
    Uploader::new(cuda, index, slots).map_err(said)
}

impl Carrier for Uploader {
    fn buffer(&self, bytes: usize) -> Result<Staging, String> {
        self.pinned(bytes).map_err(said)
    }

    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), String> {
        Uploader::send(self, slot, &pairs).map_err(said)
    }

    fn land(&self, slot: usize) -> Result<(), String> {
        self.wait(slot).map_err(said)
    }
}

fn said(err: TorchError) -> String {
    err.to_string()
}

/// A file to read from, with its name for error messages.
#[derive(Clone, Debug)]
pub(super) struct ShardFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
}

/// A tensor to be filled.
#[derive(Debug)]
pub(super) struct UploadTarget {
    pub(super) extent: Extent,
    /// Element type in the file.
    pub(super) stored: Kind,
    /// The contiguous target tensor, on its device and with its final element type.
    pub(super) tensor: Tensor,
}

/// The reason why tensors cannot be loaded.
#[derive(Debug)]
pub(super) enum UploadError {
    /// A file cannot be read, or has become shorter.
    File(Refusal),
    /// The device cannot be fed in this way.
    Device(String),
}

impl From<String> for UploadError {
    fn from(reason: String) -> Self {
        Self::Device(reason)
    }
}

/// A load that has been copied, by its number, or why a thread has ended.
type Landed = Result<usize, UploadError>;

/// The tensors that are being loaded.
pub(super) struct Upload {
    shared: Arc<UploadShared>,
    threads: Vec<JoinHandle<()>>,
    landed: Receiver<Landed>,
    /// Number of pieces of each tensor that have not arrived yet.
    missing: Vec<usize>,
}

struct UploadShared {
    sources: Vec<ShardFile>,
    loads: Vec<Load>,
    /// The first load that no thread has begun.
    next: AtomicUsize,
    buffer: usize,
    carrier: Box<dyn Carrier>,
    wanted: Mutex<Vec<UploadTarget>>,
}

impl Upload {
    /// Starts loading. Each of `wanted` refers to `sources` by index, and is on the device to which
    /// `carrier` copies.
    ///
    /// # Errors
    /// Returns the reason why a thread cannot be started.
    pub(super) fn start(
        sources: Vec<ShardFile>,
        wanted: Vec<UploadTarget>,
        carrier: impl Carrier,
        sizes: UploadSizes,
    ) -> Result<Self, String> {
        let extents: Vec<_> = wanted.iter().map(|wanted| wanted.extent.clone()).collect();
        let loads = plan(&extents, sizes.buffer);
        let missing = pieces(&loads, wanted.len());
        let shared = Arc::new(UploadShared {
            sources,
            loads,
            next: AtomicUsize::new(0),
            buffer: sizes.buffer,
            carrier: Box::new(carrier),
            wanted: Mutex::new(wanted),
        });
        let (sender, landed) = mpsc::channel();
        let mut upload = Self {
            shared,
            threads: Vec::new(),
            landed,
            missing,
        };
        for number in 0..sizes.threads {
            let (shared, sender) = (Arc::clone(&upload.shared), sender.clone());
            let thread = thread::Builder::new()
                .name(format!("load {number}"))
                .spawn(move || shared.work(number, &sender));
            upload.threads.push(thread.map_err(|err| err.to_string())?);
        }
        Ok(upload)
    }

    /// Waits for tensors, given by their indices in `wanted`, and forgets them.
    ///
    /// # Errors
    /// Returns a failure to the first caller; later callers only learn that loading has failed.
    pub(super) fn wait(&mut self, numbers: Range<usize>) -> Result<(), UploadError> {
        for number in numbers {
            while self.missing[number] > 0 {
                let ended = |_| UploadError::Device("loading has failed before".to_owned());
                let load = self.landed.recv().map_err(ended)??;
                for piece in &self.shared.loads[load] {
                    self.missing[piece.tensor] -= 1;
                }
            }
            self.shared.wanted()[number].tensor = Tensor::new();
        }
        Ok(())
    }
}

impl Drop for Upload {
    /// Stops the threads: afterwards nothing writes to a tensor or reads a buffer.
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A panic of the thread has already been reported as a failure.
            drop(thread.join());
        }
    }
}

/// The buffers of a thread, allocated when they are first used, and the loads that are being copied
/// from them.
#[derive(Default)]
struct ThreadBuffers {
    buffers: [Option<Staging>; BUFFERS],
    loads: [Option<usize>; BUFFERS],
}

impl UploadShared {
    fn wanted(&self) -> MutexGuard<'_, Vec<UploadTarget>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no thread begin another load.
    fn stop(&self) {
        self.next.store(self.loads.len(), Ordering::Relaxed);
    }

    /// Runs one thread.
    fn work(&self, thread: usize, landed: &Sender<Landed>) {
        let _mode = InferenceMode::begin();
        let mut own = ThreadBuffers::default();
        let lost = |reason: String| Err(first_line(&reason).to_owned().into());
        let outcome = caught(|| self.turns(thread, &mut own, landed)).unwrap_or_else(lost);
        let Err(failure) = outcome else { return };
        let slot = |side| BUFFERS * thread + side;
        let are_idle = matches!(failure, UploadError::File(_))
            && (0..BUFFERS)
                .all(|side| own.loads[side].is_none() || self.carrier.land(slot(side)).is_ok());
        if !are_idle {
            // Copies from the buffers may be under way, and libtorch ends the process if it is to
            // free pinned memory of a lost GPU: they are leaked.
            mem::forget(own.buffers);
        }
        self.stop();
        // Nobody waits any more if the receiver is gone.
        let _ = landed.send(Err(failure));
    }

    /// Fills the buffers in turn, each as soon as what was in it has been copied.
    fn turns(
        &self,
        thread: usize,
        own: &mut ThreadBuffers,
        landed: &Sender<Landed>,
    ) -> Result<(), UploadError> {
        let mut sides = (0..BUFFERS).cycle();
        loop {
            let load = self.next.fetch_add(1, Ordering::Relaxed);
            // Without another load, what was sent last is waited for.
            let turns = if load < self.loads.len() { 1 } else { BUFFERS };
            for side in sides.by_ref().take(turns) {
                let slot = BUFFERS * thread + side;
                if let Some(sent) = own.loads[side].take() {
                    self.carrier.land(slot)?;
                    let _ = landed.send(Ok(sent));
                }
                if let Some(pieces) = self.loads.get(load) {
                    self.fill(slot, pieces, &mut own.buffers[side])?;
                    own.loads[side] = Some(load);
                }
            }
            if load >= self.loads.len() {
                return Ok(());
            }
        }
    }

    /// Reads a load into a buffer and sends it.
    fn fill(
        &self,
        slot: usize,
        load: &Load,
        buffer: &mut Option<Staging>,
    ) -> Result<(), UploadError> {
        let buffer = match buffer {
            Some(buffer) => buffer,
            None => buffer.insert(self.carrier.buffer(self.buffer)?),
        };
        let bytes = buffer.bytes_mut();
        for piece in load {
            let ShardFile { path, file } = &self.sources[piece.file];
            let read = file.read_exact_at(&mut bytes[piece.buffer.clone()], piece.at);
            read.map_err(|err| UploadError::File(refuse(path, err)))?;
        }
        let pairs = {
            let wanted = self.wanted();
            let pieces = load.iter();
            let pairs = pieces.map(|piece| pair(piece, &wanted[piece.tensor], buffer));
            pairs.collect()
        };
        Ok(self.carrier.send(slot, pairs)?)
    }
}

/// Returns the part of the tensor that a piece covers, and the piece as elements.
fn pair(piece: &LoadPiece, wanted: &UploadTarget, buffer: &Staging) -> (Tensor, Tensor) {
    let element = wanted.stored.elt_size_in_bytes();
    let (first, count) = (piece.begin / element as u64, piece.buffer.len() / element);
    let target = wanted.tensor.view(-1).narrow(0, first as i64, count as i64);
    (target, buffer.view(piece.buffer.clone(), wanted.stored))
}
