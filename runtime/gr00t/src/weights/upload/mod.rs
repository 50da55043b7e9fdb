//! Copies all tensors of a checkpoint to a GPU at once, as fast as the GPU accepts them.
//!
//! ```text
//! plan ─► ring ─► threads: pread ─► staging buffer (pinned) ─► copy on its own stream ─► tensor
//!                          page cache                          dtype converted on the GPU
//! ```
//!
//! A copy from a mapped file is done by the driver, page by page, through a small buffer of its
//! own, while the caller waits; that uses a fraction of the bus bandwidth. Here several threads
//! read the files (with `pread`, which causes no page faults), and the bus is busy from the first
//! buffer to the last. Files are read in order, through the page cache, so ranks of a node that
//! load the same checkpoint read the disk once.

use std::fs::File;
use std::io;
use std::mem;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle, available_parallelism};

use tch::{Kind, Tensor};

use c10d::operators::InferenceMode;
use c10d::torch_error::{caught, first_line, is_context_lost};
use c10d::upload::Staging;
pub(super) use carrier::{Carrier, CarrierError, ToCard};
#[cfg(test)]
pub(super) use carrier::{Late, refused};
pub(super) use plan::Extent;
use plan::{Load, LoadPiece, plan};
use ring::{Ring, RingTask};

mod carrier;
mod plan;
mod ring;

/// How much is processed at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadSizes {
    pub(super) slots: usize,
    /// Size of a staging buffer in bytes.
    pub(super) buffer: usize,
    pub(super) threads: usize,
}

impl UploadSizes {
    /// Returns 64 MiB in 16 buffers and 8 threads. Pinning costs the driver some 0.3 s per GB, so
    /// more memory would cost what it gains. A buffer of 4 MiB takes 80 µs on a bus of 50 GB/s,
    /// which makes the fixed cost of a copy negligible, and 0.5 ms for one reading thread, so that
    /// 8 threads keep up.
    pub(super) fn usual() -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Self {
            slots: 16,
            buffer: 4 << 20,
            threads: cores.clamp(2, 8),
        }
    }
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
#[derive(Debug, thiserror::Error)]
pub(super) enum UploadError {
    /// A file cannot be read, or has become shorter.
    #[error("`{}`: {err}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// The device refuses the copies.
    #[error(transparent)]
    Device(#[from] CarrierError),
    /// libtorch has panicked in a thread that loads.
    #[error("{reason}")]
    Panicked {
        /// The first line of libtorch's message.
        reason: String,
    },
    /// A thread cannot be started.
    #[error(transparent)]
    NoThread(io::Error),
    /// The failure was reported to an earlier caller.
    #[error("loading has failed before")]
    Before,
}

/// The tensors that are being loaded.
pub(super) struct Upload {
    shared: Arc<UploadShared>,
    threads: Vec<JoinHandle<()>>,
}

struct UploadShared {
    sources: Vec<ShardFile>,
    loads: Vec<Load>,
    buffer: usize,
    carrier: Box<dyn Carrier>,
    state: Mutex<UploadState>,
    /// Notified whenever the state has changed.
    changed: Condvar,
}

struct UploadState {
    ring: Ring,
    wanted: Vec<UploadTarget>,
    /// Buffers of the slots that no thread is filling; allocated when a slot is first used.
    buffers: Vec<Option<Staging>>,
    failure: Option<UploadError>,
    has_failed: bool,
}

impl Upload {
    /// Starts loading. Each of `wanted` refers to `sources` by index, and is on the device to which
    /// `carrier` copies.
    pub(super) fn start(
        sources: Vec<ShardFile>,
        wanted: Vec<UploadTarget>,
        carrier: impl Carrier,
        sizes: UploadSizes,
    ) -> Result<Self, UploadError> {
        let extents: Vec<_> = wanted.iter().map(|wanted| wanted.extent.clone()).collect();
        let loads = plan(&extents, sizes.buffer);
        let state = UploadState {
            ring: Ring::new(sizes.slots, &loads, wanted.len()),
            wanted,
            buffers: (0..sizes.slots).map(|_| None).collect(),
            failure: None,
            has_failed: false,
        };
        let shared = Arc::new(UploadShared {
            sources,
            loads,
            buffer: sizes.buffer,
            carrier: Box::new(carrier),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut upload = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 0..sizes.threads {
            let shared = Arc::clone(&upload.shared);
            let thread = thread::Builder::new()
                .name(format!("load {number}"))
                .spawn(move || shared.work());
            upload.threads.push(thread.map_err(UploadError::NoThread)?);
        }
        Ok(upload)
    }

    /// Waits for tensors, given by their indices in `wanted`, and forgets them.
    ///
    /// # Errors
    /// Returns the failure to the first caller; later callers only learn that loading has failed.
    pub(super) fn wait(&self, numbers: Range<usize>) -> Result<(), UploadError> {
        let mut state = self.shared.lock();
        for number in numbers {
            while !state.has_failed && !state.ring.has(number) {
                state = self
                    .shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            if !state.ring.has(number) {
                return Err(state.failure.take().unwrap_or(UploadError::Before));
            }
            state.wanted[number].tensor = Tensor::new();
        }
        Ok(())
    }
}

impl Drop for Upload {
    /// Stops the threads: afterwards nothing writes to a tensor or reads a buffer.
    fn drop(&mut self) {
        self.shared.lock().ring.stop();
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of the thread has already been reported as a failure.
            drop(thread.join());
        }
    }
}

impl UploadShared {
    fn lock(&self) -> MutexGuard<'_, UploadState> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs the loop of one thread.
    fn work(&self) {
        let _mode = InferenceMode::begin();
        let lost = |reason: String| {
            Err(UploadError::Panicked {
                reason: first_line(&reason).to_owned(),
            })
        };
        let outcome = caught(|| self.turns()).unwrap_or_else(lost);
        if let Err(failure) = outcome {
            let mut state = self.lock();
            if is_context_lost(&failure.to_string()) {
                // libtorch asks CUDA before it frees pinned memory, and ends the process if CUDA
                // does not answer, so the buffers are leaked.
                mem::forget(mem::take(&mut state.buffers));
            }
            state.ring.stop();
            state.has_failed = true;
            state.failure.get_or_insert(failure);
        }
        self.changed.notify_all();
    }

    fn turns(&self) -> Result<(), UploadError> {
        loop {
            match self.next() {
                RingTask::Fill { slot, load } => self.fill(slot, &self.loads[load])?,
                RingTask::Land { slot } => {
                    self.carrier.land(slot)?;
                    self.lock().ring.landed(slot, &self.loads);
                }
                RingTask::Wait | RingTask::Over => return Ok(()),
            }
            self.changed.notify_all();
        }
    }

    /// Waits until there is something to do; never returns [`RingTask::Wait`].
    fn next(&self) -> RingTask {
        let mut state = self.lock();
        loop {
            match state.ring.next() {
                RingTask::Wait => {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(|poisoned| poisoned.into_inner())
                }
                other => return other,
            }
        }
    }

    /// Reads a load and sends it.
    fn fill(&self, slot: usize, load: &Load) -> Result<(), UploadError> {
        let kept = self.lock().buffers.get_mut(slot).and_then(Option::take);
        let mut buffer = kept.map_or_else(|| self.carrier.buffer(self.buffer), Ok)?;
        let bytes = buffer.bytes_mut();
        for piece in load {
            let source = &self.sources[piece.file];
            let read = source
                .file
                .read_exact_at(&mut bytes[piece.buffer.clone()], piece.at);
            read.map_err(|err| UploadError::File {
                path: source.path.clone(),
                err,
            })?;
        }
        let pairs = {
            let state = self.lock();
            load.iter()
                .map(|piece| pair(piece, &state.wanted[piece.tensor], &buffer))
                .collect()
        };
        if let Err(err) = self.carrier.send(slot, pairs) {
            // Copies from the buffer may be under way, so it is leaked.
            mem::forget(buffer);
            return Err(err.into());
        }
        let mut state = self.lock();
        match state.buffers.get_mut(slot) {
            Some(place) => *place = Some(buffer),
            // Loading has failed, so the buffer is leaked.
            None => mem::forget(buffer),
        }
        state.ring.sent(slot);
        Ok(())
    }
}

/// Returns the part of the tensor that a piece covers, and the piece as elements.
fn pair(piece: &LoadPiece, wanted: &UploadTarget, buffer: &Staging) -> (Tensor, Tensor) {
    let element = wanted.stored.elt_size_in_bytes();
    let (first, count) = (piece.begin / element as u64, piece.buffer.len() / element);
    let target = wanted.tensor.view(-1).narrow(0, first as i64, count as i64);
    (target, buffer.view(piece.buffer.clone(), wanted.stored))
}
