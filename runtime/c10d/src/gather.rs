//! The end of an evaluation: every rank's part comes to rank 0, or rank 0 says whose did not.

use crate::cuda;
use crate::deadline::{Deadline, within};
use crate::error::DistError;
use crate::meeting::{Meeting, longest_after_deadline};
use crate::store::Store;
use std::time::Duration;
use tch::Device;

/// Who gathers, and in which evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// `RANK`.
    pub rank: usize,
    /// `WORLD_SIZE`.
    pub world: usize,
    /// Which meeting of ranks this is: keeps parts of an earlier one out.
    pub restart: u32,
    /// The same on all ranks, and another for each gather that shares a store.
    pub run_id: String,
}

/// How parts came together, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// There is one rank.
    Single,
    /// Through the TCP store.
    Store,
    /// By a NCCL collective, GPU to GPU.
    Nccl,
}

/// What a rank has after a gather.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// By rank. On rank 0, none where a part did not come by the deadline; elsewhere none but one's own.
    pub parts: Vec<Option<Vec<u8>>>,
    /// The way they came.
    pub route: Route,
    /// What the user should know: who is missing, why NCCL was not used, that this rank came too late.
    pub note: Option<String>,
}

/// Brings every rank's `mine` to rank 0; all ranks call it once.
///
/// Returns soon after the deadline at the latest, whatever the others do. Rank 0 waits for parts until `deadline`;
/// other ranks deliver and leave, or, on GPUs, wait for rank 0's word. An error means that the store is gone.
/// `own_gpu_each`: no other rank was given this rank's `device`, as far as it knows; all must say so for NCCL.
pub fn gather(
    store: Option<&Store>,
    who: Who,
    device: Device,
    own_gpu_each: bool,
    mine: &[u8],
    deadline: Duration,
) -> Result<Gathered, DistError> {
    if who.world <= 1 {
        return Ok(Gathered { parts: vec![Some(mine.to_vec())], route: Route::Single, note: None });
    }
    let store = store.ok_or(DistError::NoStore { world: who.world })?;
    let meeting = Meeting {
        store: store.prefix(&format!("rrun/gather/{}/{}", who.run_id, who.restart)),
        who,
        device,
        until: Deadline::after(deadline),
    };
    let limit = deadline.saturating_add(longest_after_deadline(device));
    let (gpu, mine) = (own_gpu_each.then(|| gpu_of(device)).flatten(), mine.to_vec());
    // A connection whose other end vanished without a word answers never: even then we return.
    within(limit, move || meeting.hold(mine, gpu)).unwrap_or(Err(DistError::Stuck { after: limit }))
}

/// Host and UUID of the GPU behind `device`.
fn gpu_of(device: Device) -> Option<String> {
    let Device::Cuda(index) = device else { return None };
    Some(format!("{}/{}", jobs::host::name(), cuda::load().ok()?.device(index).ok()?.uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_needs_no_store_and_two_do() {
        let who = |world| Who { rank: 0, world, restart: 0, run_id: "r".to_owned() };
        let alone = gather(None, who(1), Device::Cpu, false, b"x", Duration::ZERO).unwrap();
        assert_eq!((alone.parts, alone.route), (vec![Some(b"x".to_vec())], Route::Single));
        let err = gather(None, who(2), Device::Cpu, false, b"x", Duration::ZERO).unwrap_err();
        assert_eq!(err.to_string(), "2 ranks need a store to gather, none was given");
    }
}
