//! The gather at the end of an evaluation: every rank's part reaches rank 0, or rank 0 reports
//! which parts are missing.
//!
//! ```text
//! every rank   deliver to the store ─► CPU: done                                       ─► Gathered
//!                                  └─► GPU: wait for rank 0's decision ─► all gather ─┘
//! rank 0       wait for all labels until the deadline ─► close ─► decision: nccl | store
//!              nccl and complete ─► parts of the collective     else ─► parts from the store
//!              stay until the ranks that delivered have left
//! ```
//!
//! NCCL may hang while a simulator holds the GPU. Therefore the parts are in the store before NCCL
//! is tried, it is tried only if all ranks have arrived, and it runs on a thread that can be left
//! behind. If it fails, nothing is lost.

mod parts;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tch::Device;
use tcpstore::{Deadline, Store, StoreError};

use crate::cuda;
use crate::gather::parts::{CLOSED, PartLabel, left_key};
use crate::nccl::NcclGroup;

/// Maximum time of NCCL from rank 0's decision to the last byte; the first collective of 8 ranks
/// takes seconds.
const NCCL_WAIT: Duration = Duration::from_secs(60);

/// Extra time after the deadline for moving bytes that have already arrived.
const SLACK: Duration = Duration::from_secs(30);

/// How long rank 0 waits for ranks whose parts it has to leave, because it may host the store,
/// which ends with it.
const SEE_OFF: Duration = Duration::from_secs(5);

/// Key of rank 0's decision: `nccl` or `store`.
const WORD: &str = "word";

/// One rank's participation in one gather.
pub struct Gathering {
    /// A part of the store that only this gather uses: it keeps out the parts of an earlier round.
    pub store: Store,
    /// The rank's `RANK`.
    pub rank: usize,
    /// The number of ranks, `WORLD_SIZE`, at least 2.
    pub world: usize,
    /// The device of the rank.
    pub device: Device,
    /// Whether, as far as this rank knows, no other rank was given its device. NCCL is used only if
    /// all ranks say so.
    pub own_gpu_each: bool,
    /// How long rank 0 waits for parts.
    pub until: Deadline,
}

/// How the parts were gathered, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the TCP store.
    Store,
    /// By an NCCL collective, from GPU to GPU.
    Nccl,
}

/// The result of a gather on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Parts by rank. On rank 0, `None` for parts that did not arrive by the deadline; on other
    /// ranks, `None` for all parts but their own.
    pub parts: Vec<Option<Vec<u8>>>,
    /// How the parts were gathered.
    pub route: Route,
    /// A note for the user: which ranks are missing, why NCCL was not used, or that this rank was
    /// too late.
    pub note: Option<String>,
}

impl Gathering {
    /// Brings every rank's `mine` to rank 0; all ranks call it once.
    ///
    /// It returns some time limits of the store after the deadline at the latest, whatever the
    /// other ranks do. Rank 0 waits for parts until then; other ranks deliver and leave or, on
    /// GPUs, wait for rank 0's decision.
    ///
    /// # Errors
    /// Fails if the store is lost.
    pub fn run(&self, mine: Vec<u8>) -> Result<Gathered, StoreError> {
        let gpu = self.own_gpu_each.then(|| gpu_of(self.device)).flatten();
        self.run_with(mine, gpu)
    }

    /// Works like [`Gathering::run`]; `gpu` is the host and UUID of the GPU that only this rank
    /// uses.
    fn run_with(&self, mine: Vec<u8>, gpu: Option<String>) -> Result<Gathered, StoreError> {
        let label = PartLabel::of(&mine, gpu);
        match self.rank {
            0 => self.collect(mine, label),
            _ => self.contribute(mine, &label),
        }
    }

    /// Runs the gather on all ranks but rank 0.
    fn contribute(&self, mine: Vec<u8>, label: &PartLabel) -> Result<Gathered, StoreError> {
        let rank = self.rank;
        parts::deliver(&self.store, rank, &mine, label)?;
        let (route, note) = if self.store.check(CLOSED)? {
            let note = format!("rank 0 had closed the report before rank {rank} came");
            (Route::Store, Some(note))
        } else if label.gpu.is_some() {
            self.follow(&mine)?
        } else {
            (Route::Store, None)
        };
        // The part is delivered, so errors of the store no longer matter.
        drop(self.store.set(&left_key(rank), b""));
        let mut parts = vec![None; self.world];
        parts[rank] = Some(mine);
        Ok(Gathered { parts, route, note })
    }

    /// Follows rank 0's decision. The part is in the store already, so a failure here loses
    /// nothing.
    fn follow(&self, mine: &[u8]) -> Result<(Route, Option<String>), StoreError> {
        match self.store.get(WORD, self.until.plus(SLACK).left()) {
            Ok(word) if word == b"nccl" => Ok(match self.meet_by_nccl(mine) {
                Ok(_) => (Route::Nccl, None),
                Err(err) => (Route::Store, Some(format!("NCCL failed: {err}"))),
            }),
            Ok(_) => Ok((Route::Store, None)),
            Err(err) if err.is_missing() => {
                Ok((Route::Store, Some("rank 0 did not answer".to_owned())))
            }
            Err(err) => Err(err),
        }
    }

    /// Runs the gather on rank 0.
    fn collect(&self, mine: Vec<u8>, own: PartLabel) -> Result<Gathered, StoreError> {
        let labels = parts::labels(&self.store, own, self.world, self.until)?;
        let why_not = why_not_nccl(&labels);
        let word: &[u8] = if why_not.is_none() { b"nccl" } else { b"store" };
        self.store.set(WORD, word)?;
        let by_nccl = match why_not {
            Some(reason) => Err(self
                .device
                .is_cuda()
                .then(|| format!("NCCL was not used: {reason}"))),
            None => self
                .meet_by_nccl(&mine)
                .and_then(|parts| whole(parts, &labels))
                .map_err(|err| Some(format!("NCCL failed ({err}), the store was used"))),
        };
        let (parts, route, note) = match by_nccl {
            Ok(parts) => {
                for (rank, label) in labels.iter().enumerate().skip(1) {
                    parts::empty(&self.store, rank, label)?;
                }
                (parts, Route::Nccl, None)
            }
            Err(note) => {
                let parts = parts::parts(&self.store, mine, &labels)?;
                let notes: Vec<_> = note.into_iter().chain(absent(&labels, &parts)).collect();
                let note = (!notes.is_empty()).then(|| notes.join("; "));
                (parts, Route::Store, note)
            }
        };
        parts::see_off(&self.store, &labels, Deadline::after(SEE_OFF));
        Ok(Gathered { parts, route, note })
    }

    /// Returns all parts by rank, or the reason why NCCL did not deliver them in time.
    fn meet_by_nccl(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let Device::Cuda(device) = self.device else {
            return Err("this rank has no GPU".to_owned());
        };
        let (store, mine) = (self.store.prefix("nccl"), mine.to_vec());
        let (rank, world) = (self.rank, self.world);
        let formed = Arc::new(OnceLock::<NcclGroup>::new());
        let group = Arc::clone(&formed);
        let meet = move || {
            let joined = NcclGroup::join(&store, rank, world, device, SLACK)?;
            group.get_or_init(|| joined).all_gather_bytes(&mine)
        };
        let outcome = match within(NCCL_WAIT, meet) {
            Some(outcome) => outcome.map_err(|err| err.to_string()),
            None => Err(format!("no answer within {NCCL_WAIT:?}")),
        };
        let failed = outcome.is_err();
        // Both calls may wait for the device, so their time is limited.
        within(SLACK, move || match formed.get() {
            Some(group) if failed => group.abort(),
            Some(group) => group.close(),
            None => Ok(()),
        });
        outcome
    }
}

/// Returns the host and UUID of the GPU behind `device`.
fn gpu_of(device: Device) -> Option<String> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let uuid = cuda::load().ok()?.device(index).ok()?.uuid;
    Some(format!("{}/{uuid}", jobs::host::name()))
}

fn why_not_nccl(labels: &[Option<PartLabel>]) -> Option<String> {
    let mut seen = HashSet::new();
    for (rank, label) in labels.iter().enumerate() {
        let Some(label) = label else {
            return Some(format!("rank {rank} did not join"));
        };
        let Some(gpu) = &label.gpu else {
            return Some(format!("rank {rank} has no GPU of its own"));
        };
        if !seen.insert(gpu) {
            return Some(format!("rank {rank} shares {gpu}"));
        }
    }
    None
}

/// Returns the parts, if each matches its rank's label.
fn whole(
    parts: Vec<Vec<u8>>,
    labels: &[Option<PartLabel>],
) -> Result<Vec<Option<Vec<u8>>>, String> {
    let fits = |(part, label): (&Vec<u8>, &Option<PartLabel>)| {
        label.as_ref().is_some_and(|label| label.fits(part))
    };
    match parts.iter().zip(labels).position(|pair| !fits(pair)) {
        Some(rank) => Err(format!("the part of rank {rank} came damaged")),
        None => Ok(parts.into_iter().map(Some).collect()),
    }
}

/// Names the ranks that did not deliver, and those whose parts do not match their labels.
fn absent(labels: &[Option<PartLabel>], parts: &[Option<Vec<u8>>]) -> Vec<String> {
    let without = |labelled: bool| -> Vec<usize> {
        let lost = |rank: &usize| parts[*rank].is_none() && labels[*rank].is_some() == labelled;
        (0..parts.len()).filter(lost).collect()
    };
    let late =
        named(&without(false)).map(|ranks| format!("{ranks} did not deliver by the deadline"));
    let damaged = named(&without(true)).map(|ranks| format!("{ranks} delivered a damaged part"));
    late.into_iter().chain(damaged).collect()
}

/// Formats ranks as `rank 2` or `ranks 1, 3`.
fn named(ranks: &[usize]) -> Option<String> {
    let list = ranks
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    match ranks {
        [] => None,
        [_] => Some(format!("rank {list}")),
        _ => Some(format!("ranks {list}")),
    }
}

/// Runs `work` on a thread and returns its result, or `None` after `limit`, when the thread is left
/// behind: NCCL waits for a dead peer without an end.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, outcome) = mpsc::channel();
    let named = thread::Builder::new().name("rrun-nccl".to_owned());
    // After the limit the receiver is gone, and the result is dropped.
    named.spawn(move || drop(done.send(work()))).ok()?;
    outcome.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests;
