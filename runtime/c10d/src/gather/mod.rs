//! The gather at the end of an evaluation: every rank's part reaches rank 0, or rank 0 reports
//! which parts are missing.

use crate::cuda;
use crate::deadline::{Deadline, within};
use crate::error::DistError;
use crate::gather::protocol::{Gathering, longest_after_deadline};
use crate::store::Store;
use std::time::Duration;
use tch::Device;

mod collection;
mod delivery;
mod protocol;
mod result;

pub use crate::gather::result::{Gathered, Participant, Route};

/// Brings every rank's `mine` to rank 0; all ranks call it once.
///
/// It returns shortly after the deadline at the latest, whatever the other ranks do. Rank 0 waits
/// for parts until `deadline`; other ranks deliver and leave or, on GPUs, wait for rank 0's
/// decision. An error means that the store is lost. `own_gpu_each` tells that, as far as this rank
/// knows, no other rank was given its `device`; NCCL is used only if all ranks say so.
pub fn gather(
    store: Option<&Store>,
    participant: Participant,
    device: Device,
    own_gpu_each: bool,
    mine: &[u8],
    deadline: Duration,
) -> Result<Gathered, DistError> {
    if participant.world <= 1 {
        return Ok(Gathered {
            parts: vec![Some(mine.to_vec())],
            route: Route::Single,
            note: None,
        });
    }
    let store = store.ok_or(DistError::NoStore {
        world: participant.world,
    })?;
    let gathering = Gathering {
        store: store.prefix(&format!(
            "rrun/gather/{}/{}",
            participant.run_id, participant.restart
        )),
        participant,
        device,
        until: Deadline::after(deadline),
    };
    let limit = deadline.saturating_add(longest_after_deadline(device));
    let (gpu, mine) = (
        own_gpu_each.then(|| gpu_of(device)).flatten(),
        mine.to_vec(),
    );
    // A half-open connection never answers; this returns even then.
    within(limit, move || gathering.run(mine, gpu))
        .unwrap_or(Err(DistError::Stuck { after: limit }))
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
        let of = |world| {
            let who = Participant {
                rank: 0,
                world,
                restart: 0,
                run_id: "r".to_owned(),
            };
            gather(None, who, Device::Cpu, false, b"x", Duration::ZERO)
        };
        let alone = of(1).unwrap();
        assert_eq!(alone.parts, [Some(b"x".to_vec())]);
        assert_eq!(alone.route, Route::Single);
        let text = of(2).unwrap_err().to_string();
        assert_eq!(text, "2 ranks need a store to gather, none was given");
    }
}
