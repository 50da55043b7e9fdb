//! Inference by replaying work that was captured.
//!
//! ```text
//! first batch of a shape ─► pass, operator by operator          (makes tables, loads kernels)
//! second ────────────────► pass while capturing, then replay    ─► shelf, while memory lasts
//! any later one ─────────► copied into the graph's own tensors, replay
//! ```
//!
//! A pass is some thousands of small operators, and at small batches starting them takes longer than they do; a replay
//! starts all of them at once. A shape is what [`FrameKey`] says; batches are filled up to a few sizes ([`bucket`]), so
//! that there are few shapes. If capturing fails once, everything goes operator by operator from then on, and the
//! reason is told. If the GPU is lost, that changes nothing: the operators fail with the same error.
//!
//! Each graph has a memory pool of its own: what it computes with stays in place between replays, and no other graph
//! writes there. The price is memory, which is why they are kept in a [`Shelf`] of limited size.

mod bucket;
mod cuda;
mod shelf;

use std::fmt;
use std::rc::Rc;

use tch::{Device, Tensor};

use crate::policy::gr00t::model::{Batch, FrameKey};
pub use bucket::bucket;
use c10d::torch_error::{caught, is_context_lost};
pub use cuda::CudaEngine;
pub use shelf::Shelf;

/// Shapes that are remembered.
const SEEN: u64 = 256;

/// How often a shape is captured anew after it had to make room: more would cost more than it saves.
const CAPTURES: u32 = 3;

/// Work on a batch that is on the device: the same operators for every batch of a shape.
pub type Pass = Rc<dyn Fn(&Batch) -> Tensor>;

/// What can capture a pass and run it again.
pub trait Engine: fmt::Debug {
    /// Where passes run.
    fn device(&self) -> Device;

    /// Captures `pass`: a graph, and the tensor that every replay writes its result to. Nothing has run yet. The caller
    /// keeps `pass` and what it reads as long as the graph.
    ///
    /// # Errors
    /// Why it cannot be captured, in words.
    fn capture(&self, pass: Rc<dyn Fn() -> Tensor>) -> Result<(Box<dyn Graph>, Tensor), String>;

    /// Copies host tensors into device tensors, before anything that is started later reads them.
    ///
    /// # Errors
    /// In words.
    fn feed(&self, to: &Batch, from: &Batch) -> Result<(), String>;

    /// Gives memory of graphs that are gone back to the device.
    fn trim(&self);
}

/// Captured work.
pub trait Graph: fmt::Debug {
    /// Starts it.
    ///
    /// # Errors
    /// In words.
    fn replay(&self) -> Result<(), String>;

    /// Memory that it holds.
    fn bytes(&self) -> u64;
}

/// A graph with all that it reads and writes.
struct Captured {
    // Before what it reads.
    graph: Box<dyn Graph>,
    batch: Rc<Batch>,
    out: Tensor,
    _pass: Pass,
}

/// The captured passes of one network.
pub struct Graphs {
    engine: Box<dyn Engine>,
    shelf: Shelf<FrameKey, Captured>,
    /// Shapes that came before, and how often each was captured.
    seen: Shelf<FrameKey, u32>,
    off: Option<String>,
}

impl fmt::Debug for Graphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Graphs");
        out.field("engine", &self.engine).field("kept", &self.shelf.len()).field("off", &self.off).finish()
    }
}

impl Graphs {
    /// None yet; those that are kept hold at most `cap` bytes together.
    pub fn new(engine: Box<dyn Engine>, cap: u64) -> Self {
        // Shapes that were seen weigh nothing; they count.
        Self { engine, shelf: Shelf::new(cap), seen: Shelf::new(SEEN), off: None }
    }

    /// Why nothing is captured any more.
    pub fn off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    /// Graphs that are kept.
    pub fn kept(&self) -> usize {
        self.shelf.len()
    }

    /// Memory that they hold.
    pub fn bytes(&self) -> u64 {
        self.shelf.bytes()
    }

    /// Runs a batch that is on the host; `pass` is made where there is no graph of this shape yet. The result is on the
    /// device and good until the next call.
    ///
    /// # Errors
    /// Those of `pass`.
    pub fn run<E>(
        &mut self,
        key: FrameKey,
        batch: &Batch,
        pass: impl FnOnce() -> Result<Pass, E>,
    ) -> Result<Tensor, E> {
        if let Some(captured) = self.shelf.get(&key) {
            let fed = self.engine.feed(&captured.batch, batch).and_then(|()| captured.graph.replay());
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
                match self.capture(key, batch, &pass) {
                    Ok(out) => return Ok(out),
                    Err(reason) => self.turn_off(&reason),
                }
            }
            Some(_) => {}
        }
        Ok(pass(&self.on_device(batch)))
    }

    /// A copy of a batch, through pinned memory where that goes.
    fn on_device(&self, batch: &Batch) -> Batch {
        let own = batch.empty_like(self.engine.device());
        match self.engine.feed(&own, batch) {
            Ok(()) => own,
            Err(_) => batch.to_device(self.engine.device()),
        }
    }

    fn capture(&mut self, key: FrameKey, batch: &Batch, pass: &Pass) -> Result<Tensor, String> {
        let own = Rc::new(batch.empty_like(self.engine.device()));
        self.engine.feed(&own, batch)?;
        let work: Rc<dyn Fn() -> Tensor> = {
            let (pass, own) = (Rc::clone(pass), Rc::clone(&own));
            Rc::new(move || pass(&own))
        };
        let (graph, out) = caught(|| self.engine.capture(work)).flatten()?;
        graph.replay()?;
        let (rows, tokens, bytes) = (key.rows, key.tokens(), graph.bytes());
        tracing::info!(rows, tokens, bytes, "captured a CUDA graph");
        let captured = Captured { graph, batch: own, out: out.shallow_clone(), _pass: Rc::clone(pass) };
        if bytes > self.shelf.cap() {
            tracing::info!(rows, tokens, bytes, cap = self.shelf.cap(), "the CUDA graph is too large to be kept");
            self.seen.insert(key.clone(), CAPTURES, 1);
        }
        let dropped = self.shelf.insert(key, captured, bytes);
        if !dropped.is_empty() {
            // The new one may be among them: its result is taken before its memory is given back.
            let shapes: Vec<_> = dropped.iter().map(|(key, _)| (key.rows, key.tokens())).collect();
            tracing::debug!(?shapes, "CUDA graphs make room for others");
            let out = out.copy();
            drop(dropped);
            self.engine.trim();
            return Ok(out);
        }
        Ok(out)
    }

    /// Gives the memory of all graphs back, for who needs it more.
    pub fn make_room(&mut self) {
        self.shelf.clear();
        self.engine.trim();
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

#[cfg(test)]
mod tests;
