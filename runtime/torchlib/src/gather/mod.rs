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

/// The identity of a rank in a gather.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
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
/// It returns some time limits of the store after the deadline at the latest, whatever the other
/// ranks do. Rank 0 waits for parts until `deadline`; other ranks deliver and leave or, on GPUs,
/// wait for rank 0's decision. An error means that the store is lost. `own_gpu_each` tells that, as
/// far as this rank knows, no other rank was given its `device`; NCCL is used only if all ranks say
/// so.
pub fn gather(
    store: Option<&Store>,
    participant: Participant,
    device: Device,
    own_gpu_each: bool,
    mine: &[u8],
    deadline: Duration,
) -> Result<Gathered, StoreError> {
    if participant.world <= 1 {
        return Ok(Gathered {
            parts: vec![Some(mine.to_vec())],
            route: Route::Single,
            note: None,
        });
    }
    let world = participant.world;
    let no_store = || {
        StoreError::NoStore(format!(
            "{world} ranks need a store to gather, none was given"
        ))
    };
    let store = store.ok_or_else(no_store)?;
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
    gathering.run(mine.to_vec(), gpu)
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
