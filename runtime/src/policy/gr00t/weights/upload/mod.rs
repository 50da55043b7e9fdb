//! All tensors of a checkpoint to a card at once, as fast as the card takes them.
//!
//! ```text
//! plan ─► ring ─► threads: pread ─► staging buffer (pinned) ─► copy on a stream of its own ─► tensor
//!                          page cache                            dtype converted on the card
//! ```
//!
//! A copy out of a map is made by the driver, page by page, through a small buffer of its own, while the caller waits:
//! that is a fraction of what the bus can do. Here several threads read the files (without page faults, which `pread`
//! does not have), and the bus is busy from the first buffer to the last. Files are read in order, through the page cache:
//! ranks of a node that load the same checkpoint read the disk once.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle, available_parallelism};

use tch::{Kind, Tensor};

use c10d::operators::InferenceMode;
use c10d::torch_error::{caught, first_line, is_context_lost};
use c10d::upload::Staging;
#[cfg(test)]
pub(super) use carrier::Late;
pub(super) use carrier::{Carrier, ToCard};
pub(super) use plan::Extent;
use plan::{Load, Piece, plan};
use ring::{Next, Ring};

mod carrier;
mod plan;
mod ring;

/// How much is under way at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) slots: usize,
    /// Bytes of a staging buffer.
    pub(super) buffer: usize,
    pub(super) threads: usize,
}

impl Sizes {
    /// 64 MiB in 16 buffers. Pinning takes the driver some 0.3 s a GB, so more would cost what it gains; 4 MiB are 80 µs
    /// of a bus of 50 GB/s, in which nothing else of a copy counts, and 0.5 ms of one thread that reads: 8 keep up.
    pub(super) fn usual() -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Self { slots: 16, buffer: 4 << 20, threads: cores.clamp(2, 8) }
    }
}

/// A file to read from, with its name for errors.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
}

/// A tensor that is to be filled.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) extent: Extent,
    /// Element type in the file.
    pub(super) stored: Kind,
    /// Contiguous, on its device, of the element type that it is to have.
    pub(super) tensor: Tensor,
}

/// Why tensors do not come.
#[derive(Debug)]
pub(super) enum Failure {
    /// A file cannot be read, or has become shorter.
    File { path: PathBuf, err: io::Error },
    /// The device does not take them.
    Device { reason: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, err } => write!(f, "`{}`: {err}", path.display()),
            Self::Device { reason } => f.write_str(reason),
        }
    }
}

/// Tensors under way.
pub(super) struct Upload {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    sources: Vec<Source>,
    loads: Vec<Load>,
    buffer: usize,
    carrier: Box<dyn Carrier>,
    state: Mutex<State>,
    /// The state has changed.
    changed: Condvar,
}

struct State {
    ring: Ring,
    wanted: Vec<Wanted>,
    /// Those of slots that nobody fills; made when a slot is used first.
    buffers: Vec<Option<Staging>>,
    failure: Option<Failure>,
    has_failed: bool,
}

impl Upload {
    /// Begins. `wanted` lie in `sources` by their number, and on the device that `carrier` brings them to.
    pub(super) fn start(
        sources: Vec<Source>,
        wanted: Vec<Wanted>,
        carrier: impl Carrier,
        sizes: Sizes,
    ) -> Result<Self, Failure> {
        let extents: Vec<_> = wanted.iter().map(|wanted| wanted.extent.clone()).collect();
        let loads = plan(&extents, sizes.buffer);
        let state = State {
            ring: Ring::new(sizes.slots, &loads, wanted.len()),
            wanted,
            buffers: (0..sizes.slots).map(|_| None).collect(),
            failure: None,
            has_failed: false,
        };
        let shared = Arc::new(Shared {
            sources,
            loads,
            buffer: sizes.buffer,
            carrier: Box::new(carrier),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut upload = Self { shared, threads: Vec::new() };
        for number in 0..sizes.threads {
            let shared = Arc::clone(&upload.shared);
            let thread = thread::Builder::new().name(format!("load {number}")).spawn(move || shared.work());
            upload.threads.push(thread.map_err(|err| Failure::Device { reason: err.to_string() })?);
        }
        Ok(upload)
    }

    /// Waits for a tensor, by its number in `wanted`.
    ///
    /// # Errors
    /// What went wrong, the first time that it is asked; afterwards only that something did.
    pub(super) fn take(&self, number: usize) -> Result<Tensor, Failure> {
        let mut state = self.shared.lock();
        while !state.has_failed && !state.ring.has(number) {
            state = self.shared.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if state.ring.has(number) {
            return Ok(state.wanted[number].tensor.shallow_clone());
        }
        let again = || Failure::Device { reason: "loading has failed before".to_owned() };
        Err(state.failure.take().unwrap_or_else(again))
    }
}

impl Drop for Upload {
    /// Nobody writes to a tensor or reads a buffer afterwards.
    fn drop(&mut self) {
        self.shared.lock().ring.stop();
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic in it was told as a failure.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// One thread.
    fn work(&self) {
        let _mode = InferenceMode::begin();
        let lost = |reason: String| Err(Failure::Device { reason: first_line(&reason).to_owned() });
        let outcome = caught(|| self.turns()).unwrap_or_else(lost);
        if let Err(failure) = outcome {
            let mut state = self.lock();
            if is_context_lost(&failure.to_string()) {
                // libtorch asks CUDA before it frees pinned memory, and ends the process if there is no answer.
                mem::forget(mem::take(&mut state.buffers));
            }
            state.ring.stop();
            state.has_failed = true;
            state.failure.get_or_insert(failure);
        }
        self.changed.notify_all();
    }

    fn turns(&self) -> Result<(), Failure> {
        loop {
            match self.next() {
                Next::Fill { slot, load } => self.fill(slot, &self.loads[load])?,
                Next::Land { slot } => {
                    self.carrier.land(slot).map_err(|reason| Failure::Device { reason })?;
                    self.lock().ring.landed(slot, &self.loads);
                }
                Next::Wait | Next::Over => return Ok(()),
            }
            self.changed.notify_all();
        }
    }

    /// Waits until there is something to do; never [`Next::Wait`].
    fn next(&self) -> Next {
        let mut state = self.lock();
        loop {
            match state.ring.next() {
                Next::Wait => state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
                other => return other,
            }
        }
    }

    /// Reads a load and sends it.
    fn fill(&self, slot: usize, load: &Load) -> Result<(), Failure> {
        let device = |reason| Failure::Device { reason };
        let kept = self.lock().buffers.get_mut(slot).and_then(Option::take);
        let mut buffer = kept.map_or_else(|| self.carrier.buffer(self.buffer), Ok).map_err(device)?;
        let bytes = buffer.bytes_mut();
        for piece in load {
            let source = &self.sources[piece.file];
            let read = source.file.read_exact_at(&mut bytes[piece.buffer.clone()], piece.at);
            read.map_err(|err| Failure::File { path: source.path.clone(), err })?;
        }
        let pairs = {
            let state = self.lock();
            load.iter().map(|piece| pair(piece, &state.wanted[piece.tensor], &buffer)).collect()
        };
        if let Err(reason) = self.carrier.send(slot, pairs) {
            // Copies out of it may be under way.
            mem::forget(buffer);
            return Err(device(reason));
        }
        let mut state = self.lock();
        match state.buffers.get_mut(slot) {
            Some(place) => *place = Some(buffer),
            // Loading has failed.
            None => mem::forget(buffer),
        }
        state.ring.sent(slot);
        Ok(())
    }
}

/// The part of the tensor that a piece is, and the piece as elements.
fn pair(piece: &Piece, wanted: &Wanted, buffer: &Staging) -> (Tensor, Tensor) {
    let element = wanted.stored.elt_size_in_bytes();
    let (first, count) = (piece.begin / element as u64, piece.buffer.len() / element);
    let target = wanted.tensor.view(-1).narrow(0, first as i64, count as i64);
    (target, buffer.view(piece.buffer.clone(), wanted.stored))
}
