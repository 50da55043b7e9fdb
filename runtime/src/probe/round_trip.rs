//! All-reduces between processes of this machine, through a store on the loopback address.
//!
//! ```text
//! process 0: hosts the store ─► starts the others with its port ─┐
//! process 1: connects to the store ──────────────────────────────┴► group ─► all-reduces
//! ```

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use c10d::{ProcessGroup, Reduction, Store, StoreAddr, cuda};
use jobs::rank_probe::{RankQuestion, RoundTrip, WORD};
use tch::{Device, Kind, Tensor};

use crate::clock::now;

/// Timeout of the rendezvous and of each collective. Processes need a second to start; a slow file
/// system with libtorch's libraries takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of processes of a round trip on CPUs.
const ON_CPUS: usize = 2;

/// Number of values of the reduced tensor, 4 bytes each.
const VALUES: i64 = 1 << 18;

/// Number of timed all-reduces.
const TIMES: usize = 11;

/// The backend of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// On CPUs, between two processes.
    Gloo,
    /// One process per GPU.
    Nccl,
}

/// A process that another one has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    port: u16,
    pub(super) rank: usize,
    world: usize,
}

impl Peer {
    /// Parses the words with which [`lead`] starts it.
    pub(super) fn read(port: &str, rank: &str, world: &str) -> Option<Self> {
        Some(Self {
            port: port.parse().ok()?,
            rank: rank.parse().ok()?,
            world: world.parse().ok()?,
        })
    }
}

/// The processes that take part, which are killed when this one has no more use for them.
struct Peers(Vec<Child>);

impl Drop for Peers {
    fn drop(&mut self) {
        for peer in &mut self.0 {
            // One that has ended cannot be killed, and needs not.
            let _ = peer.kill();
            let _ = peer.wait();
        }
    }
}

/// Starts the other processes, and reduces with them.
///
/// # Errors
/// Returns the reason why the processes do not reach each other, or a wrong result.
pub(super) fn lead(backend: Backend) -> Result<RoundTrip, String> {
    one_thread();
    let start = now();
    let world = match backend {
        Backend::Gloo => ON_CPUS,
        Backend::Nccl => {
            let cuda = cuda::load().map_err(|err| err.to_string())?;
            cuda.device_count().map_err(|err| err.to_string())?
        }
    };
    let store = connect(0, world, true)?;
    let _peers = Peers::start(backend, store.port(), world)?;
    let group = group(backend, &store, 0, world)?;
    let mut tensor = tensor(backend, 0)?;
    reduced(&group, &mut tensor, 0, world)?;
    let meeting_s = start.elapsed().as_secs_f64();

    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = now();
        reduced(&group, &mut tensor, 0, world)?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    group.close().map_err(|err| err.to_string())?;
    Ok(RoundTrip {
        processes: world,
        bytes: VALUES as u64 * size_of::<f32>() as u64,
        all_reduce_s: times[TIMES / 2],
        meeting_s,
    })
}

/// Takes part in the all-reduces of [`lead`].
///
/// # Errors
/// Returns the reason why it does not reach the other processes, or a wrong result.
pub(super) fn join(backend: Backend, peer: &Peer) -> Result<(), String> {
    one_thread();
    let Peer { port, rank, world } = *peer;
    let store = connect(port, world, false)?;
    let group = group(backend, &store, rank, world)?;
    let mut tensor = tensor(backend, rank)?;
    for _ in 0..=TIMES {
        reduced(&group, &mut tensor, rank, world)?;
    }
    group.close().map_err(|err| err.to_string())
}

/// Lets libtorch fill and compare tensors without threads: on busy CPUs, they would wait longer for
/// each other than a collective takes.
fn one_thread() {
    tch::set_num_threads(1);
}

impl Peers {
    /// Starts one process for each rank but the first.
    fn start(backend: Backend, port: u16, world: usize) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|err| err.to_string())?;
        let question = match backend {
            Backend::Gloo => RankQuestion::Gloo,
            Backend::Nccl => RankQuestion::Nccl,
        };
        let mut peers = Self(Vec::new());
        for rank in 1..world {
            let words = [port.to_string(), rank.to_string(), world.to_string()];
            let peer = Command::new(&program)
                .args([WORD, question.name()])
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            peers.0.push(peer.map_err(|err| err.to_string())?);
        }
        Ok(peers)
    }
}

/// Connects to the store at a port of the loopback address; with `serve`, hosts it.
fn connect(port: u16, world: usize, serve: bool) -> Result<Store, String> {
    Store::connect(&StoreAddr::local(port), world, serve, PATIENCE).map_err(|err| err.to_string())
}

fn group(
    backend: Backend,
    store: &Store,
    rank: usize,
    world: usize,
) -> Result<ProcessGroup, String> {
    let group = match backend {
        Backend::Gloo => ProcessGroup::gloo(store, rank, world, PATIENCE),
        Backend::Nccl => {
            let cuda = cuda::load().map_err(|err| err.to_string())?;
            cuda.select(rank).map_err(|err| err.to_string())?;
            ProcessGroup::nccl(store, rank, world, rank, PATIENCE)
        }
    };
    group.map_err(|err| err.to_string())
}

/// Returns a tensor on the device of a rank.
fn tensor(backend: Backend, rank: usize) -> Result<Tensor, String> {
    let device = match backend {
        Backend::Gloo => Device::Cpu,
        Backend::Nccl => Device::Cuda(rank),
    };
    Tensor::f_zeros([VALUES], (Kind::Float, device)).map_err(|err| err.to_string())
}

/// Fills the tensor with the rank's number plus one, sums it over all ranks, and checks the sums.
fn reduced(
    group: &ProcessGroup,
    tensor: &mut Tensor,
    rank: usize,
    world: usize,
) -> Result<(), String> {
    // Both are small numbers, which are exact.
    let filled = tensor.f_fill_((rank + 1) as f64).map(drop);
    filled.map_err(|err| err.to_string())?;
    let done = group.all_reduce(tensor, Reduction::Sum);
    done.map_err(|err| err.to_string())?;

    let expected = (world * (world + 1) / 2) as f64;
    let [least, most] = ends(tensor).map_err(|err| err.to_string())?;
    if least == expected && most == expected {
        Ok(())
    } else {
        Err(format!(
            "the sum over {world} processes is {least} to {most}, expected {expected}"
        ))
    }
}

/// Returns the smallest and the largest value; on a GPU this waits for the collective.
fn ends(tensor: &Tensor) -> Result<[f64; 2], tch::TchError> {
    let least = tensor.f_min()?.f_double_value(&[])?;
    let most = tensor.f_max()?.f_double_value(&[])?;
    Ok([least, most])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_peer_are_three_numbers() {
        let peer = Peer {
            port: 29500,
            rank: 1,
            world: 2,
        };
        assert_eq!(Peer::read("29500", "1", "2"), Some(peer));
        assert_eq!(Peer::read("29500", "-1", "2"), None);
        assert_eq!(Peer::read("store", "1", "2"), None);
    }

    #[test]
    fn two_members_of_a_group_reduce_alike() {
        let store = connect(0, ON_CPUS, true).unwrap();
        let peer = Peer {
            port: store.port(),
            rank: 1,
            world: ON_CPUS,
        };
        let other = std::thread::spawn(move || join(Backend::Gloo, &peer));
        let group = group(Backend::Gloo, &store, 0, ON_CPUS).unwrap();
        let mut tensor = tensor(Backend::Gloo, 0).unwrap();
        for _ in 0..=TIMES {
            reduced(&group, &mut tensor, 0, ON_CPUS).unwrap();
        }
        assert_eq!(ends(&tensor).unwrap(), [3.0, 3.0]);
        group.close().unwrap();
        other.join().unwrap().unwrap();
    }
}
