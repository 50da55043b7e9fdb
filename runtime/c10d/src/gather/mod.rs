//! The gather at the end of an evaluation: every rank's part reaches rank 0, or rank 0 reports
//! which parts are missing.

use crate::cuda;
use crate::gather::protocol::Gathering;
use std::time::Duration;
use tch::Device;
use tcpstore::{Deadline, Store, StoreError};

mod collection;
mod delivery;
mod protocol;
mod result;

pub use crate::gather::result::{Gathered, Participant, Route};

/// The reason why nothing was gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// There are several ranks but no store.
    #[error("{0} ranks need a store to gather, none was given")]
    NoStore(usize),
    /// The store is lost.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Brings every rank's `mine` to rank 0; all ranks call it once.
///
/// It returns some time limits of the store after the deadline at the latest, whatever the other
/// ranks do. Rank 0 waits for parts until `deadline`; other ranks deliver and leave or, on GPUs, wait for rank 0's
/// decision. An error means that the store is lost. `own_gpu_each` tells that, as far as this rank
/// knows, no other rank was given its `device`; NCCL is used only if all ranks say so.
pub fn gather(
    store: Option<&Store>,
    participant: Participant,
    device: Device,
    own_gpu_each: bool,
    mine: &[u8],
    deadline: Duration,
) -> Result<Gathered, GatherError> {
    if participant.world <= 1 {
        return Ok(Gathered {
            parts: vec![Some(mine.to_vec())],
            route: Route::Single,
            note: None,
        });
    }
    let store = store.ok_or(GatherError::NoStore(participant.world))?;
    let gathering = Gathering {
        store: store.prefix(&format!(
            "rrun/gather/{}/{}",
            participant.run_id, participant.restart
        )),
        participant,
        device,
        until: Deadline::after(deadline),
    };
    let gpu = own_gpu_each.then(|| gpu_of(device)).flatten();
    Ok(gathering.run(mine.to_vec(), gpu)?)
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
