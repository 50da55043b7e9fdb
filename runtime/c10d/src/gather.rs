//! The gather at the end of an evaluation: every rank's part reaches rank 0, or rank 0 reports
//! which parts are missing.

use crate::cuda;
use crate::deadline::{Deadline, within};
use crate::error::DistError;
use crate::meeting::{Meeting, longest_after_deadline};
use crate::store::Store;
use std::time::Duration;
use tch::Device;

/// The identity of a rank in a gather.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The rank's `RANK`.
    pub rank: usize,
    /// The number of ranks, `WORLD_SIZE`.
    pub world: usize,
    /// Number of the ranks' rendezvous round; it keeps out the parts of an earlier round.
    pub restart: u32,
    /// An id that is the same on all ranks and different for each gather that shares a store.
    pub run_id: String,
}

/// How the parts were gathered, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// There is only one rank.
    Single,
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

/// Brings every rank's `mine` to rank 0; all ranks call it once.
///
/// It returns shortly after the deadline at the latest, whatever the other ranks do. Rank 0 waits
/// for parts until `deadline`; other ranks deliver and leave or, on GPUs, wait for rank 0's
/// decision. An error means that the store is lost. `own_gpu_each` tells that, as far as this rank
/// knows, no other rank was given its `device`; NCCL is used only if all ranks say so.
pub fn gather(
    store: Option<&Store>,
    who: Who,
    device: Device,
    own_gpu_each: bool,
    mine: &[u8],
    deadline: Duration,
) -> Result<Gathered, DistError> {
    if who.world <= 1 {
        return Ok(Gathered {
            parts: vec![Some(mine.to_vec())],
            route: Route::Single,
            note: None,
        });
    }
    let store = store.ok_or(DistError::NoStore { world: who.world })?;
    let meeting = Meeting {
        store: store.prefix(&format!("rrun/gather/{}/{}", who.run_id, who.restart)),
        who,
        device,
        until: Deadline::after(deadline),
    };
    let limit = deadline.saturating_add(longest_after_deadline(device));
    let (gpu, mine) = (
        own_gpu_each.then(|| gpu_of(device)).flatten(),
        mine.to_vec(),
    );
    // A half-open connection never answers; this returns even then.
    within(limit, move || meeting.hold(mine, gpu)).unwrap_or(Err(DistError::Stuck { after: limit }))
}

/// Returns the host and UUID of the GPU behind `device`.
fn gpu_of(device: Device) -> Option<String> {
    let Device::Cuda(index) = device else {
        return None;
    };
    Some(format!(
        "{}/{}",
        jobs::host::name(),
        cuda::load().ok()?.device(index).ok()?.uuid
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_needs_no_store_and_two_do() {
        let who = |world| Who {
            rank: 0,
            world,
            restart: 0,
            run_id: "r".to_owned(),
        };
        let alone = gather(None, who(1), Device::Cpu, false, b"x", Duration::ZERO).unwrap();
        assert_eq!(
            (alone.parts, alone.route),
            (vec![Some(b"x".to_vec())], Route::Single)
        );
        let err = gather(None, who(2), Device::Cpu, false, b"x", Duration::ZERO).unwrap_err();
        assert_eq!(
            err.to_string(),
            "2 ranks need a store to gather, none was given"
        );
    }
}
