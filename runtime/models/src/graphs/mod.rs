//! Inference by replaying captured CUDA graphs.
//!
//! ```text
//! first batch of a shape ─► pass, operator by operator          (makes tables, loads kernels)
//! second ────────────────► pass while capturing, then replay    ─► kept while memory lasts
//! any later one ─────────► copied into the graph's own tensors, replay
//! ```
//!
//! A pass consists of some thousands of small operators. At small batch sizes launching them takes
//! longer than running them; a replay launches all of them at once. A shape is identified by its
//! [`PassShape`]. Batches are padded to a few sizes ([`bucket`]), so that there are few shapes.
//! If capturing fails once, all later passes run operator by operator, and the reason is reported.
//! If the GPU is lost, this changes nothing: the operators fail with the same error.
//!
//! Each graph has its own memory pool: its intermediate results stay in place between replays, and
//! no other graph writes there. The price is memory, so the graphs are kept in a cache of
//! limited size. On a device that cannot capture, all passes run operator by operator.

use std::rc::Rc;

use tch::{Device, Tensor};

use crate::cache::Cache;
use torchlib::TorchError;
use torchlib::cuda::Cuda;
use torchlib::graph::CudaGraph;
use torchlib::torch_error::{caught, is_context_lost};

/// Number of shapes that are remembered.
const SEEN: u64 = 256;

/// Maximum number of captures of one shape, which is captured again if it was evicted; more would
/// cost more than they save.
const CAPTURES: u32 = 3;

/// Work on a batch on the device, with the same operators for every batch of a shape.
pub type PassFn = Rc<dyn Fn(&[Tensor]) -> Tensor>;

/// What batches of one captured pass have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassShape {
    /// Number of rows.
    pub rows: i64,
    /// Number of tokens of a row, for the log.
    pub tokens: i64,
    /// Everything else that tells shapes of the same network apart.
    pub detail: Vec<i64>,
}

/// A device that can capture a pass and replay it.
pub trait Engine {
    /// Returns the device on which passes run.
    fn device(&self) -> Device;

    /// Captures `pass`. Nothing has run yet. The caller keeps `pass` and everything it reads alive as long as the
    /// graph.
    ///
    /// # Errors
    /// Returns the reason why the pass cannot be captured.
    fn capture(&self, pass: Rc<dyn Fn() -> Tensor>) -> Result<CapturedPass, String>;

    /// Copies host tensors into device tensors, before any work that is launched later reads them.
    ///
    /// # Errors
    /// Returns the reason of the device.
    fn feed(&self, to: &[Tensor], from: &[Tensor]) -> Result<(), String>;

    /// Returns the memory of dropped graphs to the device.
    fn trim(&self);
}

/// What a capture makes.
pub struct CapturedPass {
    /// Replays the pass.
    pub graph: Box<dyn Graph>,
    /// The tensor to which every replay writes the result.
    pub out: Tensor,
}

/// A captured pass.
pub trait Graph {
    /// Launches the captured work.
    ///
    /// # Errors
    /// Returns the reason of the device.
    fn replay(&self) -> Result<(), String>;

    /// Returns the device memory that the graph holds, in bytes.
    fn bytes(&self) -> u64;
}

/// Captures passes on a CUDA device. Creating it gives the calling thread its own stream on the
/// device for all its later work, because the default stream cannot be captured.
pub struct CudaEngine {
    cuda: Cuda,
    index: usize,
}

impl CudaEngine {
    /// Creates an engine for this thread's work on device `index`.
    ///
    /// # Errors
    /// Returns libtorch's error if there is no such device.
    pub fn new(cuda: Cuda, index: usize) -> Result<Self, TorchError> {
        cuda.own_stream(index)?;
        Ok(Self { cuda, index })
    }
}

impl Engine for CudaEngine {
    fn device(&self) -> Device {
        Device::Cuda(self.index)
    }

    fn capture(&self, pass: Rc<dyn Fn() -> Tensor>) -> Result<CapturedPass, String> {
        let (graph, out) = said(self.cuda.capture(self.index, || pass()))?;
        Ok(CapturedPass {
            graph: Box::new(graph),
            out,
        })
    }

    fn feed(&self, to: &[Tensor], from: &[Tensor]) -> Result<(), String> {
        let [to, from] = [to, from].map(|batch| batch.iter().collect::<Vec<_>>());
        said(self.cuda.feed(self.index, &to, &from))
    }

    fn trim(&self) {
        // If this fails, the memory is returned later.
        self.cuda.empty_cache().ok();
    }
}

impl Graph for CudaGraph {
    fn replay(&self) -> Result<(), String> {
        said(CudaGraph::replay(self))
    }

    fn bytes(&self) -> u64 {
        CudaGraph::bytes(self)
    }
}

fn said<T>(result: Result<T, TorchError>) -> Result<T, String> {
    result.map_err(|err| err.to_string())
}

/// A graph with everything that it reads and writes.
struct CachedGraph {
    // Declared first, so that it is dropped before the tensors that it reads.
    graph: Box<dyn Graph>,
    batch: Rc<Vec<Tensor>>,
    out: Tensor,
    _pass: PassFn,
}

/// The captured passes of one network.
pub struct Graphs {
    device: Device,
    /// `None` where passes are not captured.
    engine: Option<Rc<dyn Engine>>,
    lru: Cache<PassShape, CachedGraph>,
    /// Shapes that have occurred, and how often each was captured.
    seen: Cache<PassShape, u32>,
    off: Option<String>,
}

impl Graphs {
    /// Creates an empty cache whose graphs hold at most `cap` bytes together.
    pub fn new(engine: Rc<dyn Engine>, cap: u64) -> Self {
        Self::of(engine.device(), Some(engine), cap)
    }

    fn of(device: Device, engine: Option<Rc<dyn Engine>>, cap: u64) -> Self {
        Self {
            device,
            engine,
            lru: Cache::new(cap),
            // Each remembered shape counts as 1 byte, so the limit is a number of shapes.
            seen: Cache::new(SEEN),
            off: None,
        }
    }

    /// Creates an empty cache for a GPU, with a stream for this thread, unless CUDA cannot capture
    /// there, which is logged with the reason. On a CPU, and if `captures` is not set, no pass is
    /// captured.
    pub fn on(device: Device, captures: bool) -> Self {
        if let (Device::Cuda(index), true, Ok(cuda)) = (device, captures, torchlib::cuda::load()) {
            let total = cuda.memory(index).map_or(0, |memory| memory.total_bytes);
            match CudaEngine::new(cuda, index) {
                Ok(engine) => {
                    let cap = jobs::captured_graphs::max_bytes(total);
                    return Self::new(Rc::new(engine), cap);
                }
                Err(reason) => tracing::warn!(
                    "no CUDA graphs on cuda:{index}, operators are started one by one: {reason}"
                ),
            }
        }
        Self::of(device, None, 0)
    }

    /// Returns whether passes are captured.
    pub fn captures(&self) -> bool {
        self.engine.is_some() && self.off.is_none()
    }

    /// Returns the reason why capturing is disabled after it has failed.
    pub fn off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    /// Returns the number of cached graphs.
    pub fn kept(&self) -> usize {
        self.lru.len()
    }

    /// Returns the memory that they hold, in bytes.
    pub fn bytes(&self) -> u64 {
        self.lru.bytes()
    }

    /// Runs a batch that is on the host; `pass` is built if there is no graph of this shape yet.
    /// The result is on the device and valid until the next call. Without a `key` the pass is not
    /// captured.
    ///
    /// # Errors
    /// Returns the errors of `pass`.
    pub fn run<E>(
        &mut self,
        key: Option<PassShape>,
        batch: &[Tensor],
        pass: impl FnOnce() -> Result<PassFn, E>,
    ) -> Result<Tensor, E> {
        let (Some(key), Some(engine)) = (key, self.engine.clone()) else {
            return Ok(pass()?(&to_device(batch, self.device)));
        };
        if let Some(captured) = self.lru.get(&key) {
            let fed = engine
                .feed(&captured.batch, batch)
                .and_then(|()| captured.graph.replay());
            match fed {
                Ok(()) => return Ok(captured.out.shallow_clone()),
                Err(reason) => self.turn_off(&reason),
            }
        }
        let pass = pass()?;
        match self.seen.get(&key).copied() {
            None => drop(self.seen.insert(key, 0, 1)),
            Some(captures) if self.off.is_none() && captures < CAPTURES => {
                self.seen.insert(key.clone(), captures + 1, 1);
                match self.capture(&*engine, key, batch, &pass) {
                    Ok(out) => return Ok(out),
                    Err(reason) => self.turn_off(&reason),
                }
            }
            Some(_) => {}
        }
        Ok(pass(&self.on_device(&*engine, batch)))
    }

    /// Copies a batch to the device, through pinned memory where possible.
    fn on_device(&self, engine: &dyn Engine, batch: &[Tensor]) -> Vec<Tensor> {
        let own = self.empty_like(batch);
        match engine.feed(&own, batch) {
            Ok(()) => own,
            Err(_) => to_device(batch, self.device),
        }
    }

    /// Allocates uninitialised tensors for batches of this shape.
    fn empty_like(&self, batch: &[Tensor]) -> Vec<Tensor> {
        let empty = |x: &Tensor| Tensor::empty(x.size(), (x.kind(), self.device));
        batch.iter().map(empty).collect()
    }

    fn capture(
        &mut self,
        engine: &dyn Engine,
        key: PassShape,
        batch: &[Tensor],
        pass: &PassFn,
    ) -> Result<Tensor, String> {
        let own = Rc::new(self.empty_like(batch));
        engine.feed(&own, batch)?;
        let work: Rc<dyn Fn() -> Tensor> = {
            let (pass, own) = (Rc::clone(pass), Rc::clone(&own));
            Rc::new(move || pass(&own))
        };
        let CapturedPass { graph, out } = caught(|| engine.capture(work)).flatten()?;
        graph.replay()?;
        let captured = CachedGraph {
            graph,
            batch: own,
            out,
            _pass: Rc::clone(pass),
        };
        Ok(self.keep(engine, key, captured))
    }

    /// Caches a graph that has just been replayed, and returns its result.
    fn keep(&mut self, engine: &dyn Engine, key: PassShape, captured: CachedGraph) -> Tensor {
        let (rows, tokens, bytes) = (key.rows, key.tokens, captured.graph.bytes());
        tracing::info!(rows, tokens, bytes, "captured a CUDA graph");
        let cap = self.lru.cap();
        if bytes > cap {
            tracing::info!(
                rows,
                tokens,
                bytes,
                cap,
                "the CUDA graph is too large to be kept"
            );
            self.seen.insert(key.clone(), CAPTURES, 1);
        }
        let out = captured.out.shallow_clone();
        let dropped = self.lru.insert(key, captured, bytes);
        if dropped.is_empty() {
            return out;
        }
        // The new graph may be among the evicted ones, so its result is copied before its memory
        // is returned.
        let shapes: Vec<_> = dropped
            .iter()
            .map(|(key, _)| (key.rows, key.tokens))
            .collect();
        tracing::debug!(?shapes, "CUDA graphs make room for others");
        let out = out.copy();
        drop(dropped);
        engine.trim();
        out
    }

    /// Drops all graphs, so that their memory is available to others.
    pub fn make_room(&mut self) {
        self.lru.clear();
        if let Some(engine) = &self.engine {
            engine.trim();
        }
    }

    fn turn_off(&mut self, reason: &str) {
        if is_context_lost(reason) {
            return;
        }
        let reason = reason.lines().next().unwrap_or_default();
        tracing::warn!("no CUDA graphs from now on, operators are started one by one: {reason}");
        self.off = Some(reason.to_owned());
        self.make_room();
    }
}

/// Returns copies on `device`.
pub fn to_device(batch: &[Tensor], device: Device) -> Vec<Tensor> {
    batch.iter().map(|x| x.to_device(device)).collect()
}

/// Returns the next batch size for `rows` rows, at most `most`: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so
/// on. No batch grows by as much as half.
pub fn bucket(rows: usize, most: usize) -> usize {
    let power = rows.next_power_of_two();
    let between = power / 4 * 3;
    let next = if rows <= between { between } else { power };
    next.min(most).max(rows)
}

#[cfg(test)]
mod tests;
