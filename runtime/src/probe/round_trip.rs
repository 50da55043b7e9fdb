//! All-reduces between the GPUs of this machine, through a store on the loopback address.
//!
//! ```text
//! process 0: hosts the store ─► starts the others with its port ─┐
//! process 1: connects to the store ──────────────────────────────┴► group ─► all-reduces
//! ```

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jobs::rank_probe::{RankQuestion, RoundTrip, WORD};
use tch::{Device, Kind, Tensor};
use tcpstore::{Store, StoreAddr};
use torchlib::cuda;
use torchlib::nccl::NcclGroup;

use crate::clock::now;

/// Timeout of the store. Processes need a second to start; a slow file system with libtorch's
/// libraries takes longer. Whoever asked has a time limit for the rest.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of values of the reduced tensor, 4 bytes each.
const VALUES: i64 = 1 << 18;

/// Number of timed all-reduces.
const TIMES: usize = 11;

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

/// Starts a process for each further GPU, and reduces with them.
///
/// # Errors
/// Returns the reason why the processes do not reach each other, or a wrong result.
pub(super) fn lead() -> Result<RoundTrip, String> {
    let start = now();
    let cuda = cuda::load().map_err(text)?;
    let world = cuda.device_count().map_err(text)?;
    let store = connect(0, world, true)?;
    let _peers = Peers::start(store.port(), world)?;
    let mut times = Vec::new();
    let mut meeting_s = None;
    reduce(&store, 0, world, |took| {
        meeting_s.get_or_insert_with(|| start.elapsed().as_secs_f64());
        times.push(took.as_secs_f64());
    })?;
    times.remove(0); // that in which the group formed
    times.sort_by(f64::total_cmp);
    Ok(RoundTrip {
        processes: world,
        bytes: VALUES as u64 * size_of::<f32>() as u64,
        all_reduce_s: times[TIMES / 2],
        meeting_s: meeting_s.unwrap_or_default(),
    })
}

/// Takes part in the all-reduces of [`lead`].
///
/// # Errors
/// Returns the reason why it does not reach the other processes, or a wrong result.
pub(super) fn join(port: u16, rank: usize, world: usize) -> Result<(), String> {
    reduce(&connect(port, world, false)?, rank, world, |_| {})
}

impl Peers {
    /// Starts one process for each rank but the first.
    fn start(port: u16, world: usize) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(text)?;
        let mut peers = Self(Vec::new());
        for rank in 1..world {
            let words = [port.to_string(), rank.to_string(), world.to_string()];
            let peer = Command::new(&program)
                .args([WORD, RankQuestion::Nccl.name()])
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            peers.0.push(peer.map_err(text)?);
        }
        Ok(peers)
    }
}

/// Connects to the store at a port of the loopback address; with `serve`, hosts it.
fn connect(port: u16, world: usize, serve: bool) -> Result<Store, String> {
    Store::connect(&StoreAddr::local(port), world, serve, PATIENCE).map_err(text)
}

/// Sums a tensor over the GPUs of all ranks, [`TIMES`] times after the first one; calls `on` with
/// the time of each.
fn reduce(
    store: &Store,
    rank: usize,
    world: usize,
    mut on: impl FnMut(Duration),
) -> Result<(), String> {
    let group = NcclGroup::join(store, rank, world, rank, PATIENCE).map_err(text)?;
    let device = Device::Cuda(rank);
    let mut tensor = Tensor::f_zeros([VALUES], (Kind::Float, device)).map_err(text)?;
    for _ in 0..=TIMES {
        let start = now();
        // Both are small numbers, which are exact.
        drop(tensor.f_fill_((rank + 1) as f64).map_err(text)?);
        group.all_reduce_sum(&mut tensor).map_err(text)?;
        let (expected, [least, most]) = ((world * (world + 1) / 2) as f64, ends(&tensor)?);
        if least != expected || most != expected {
            return Err(format!(
                "the sum over {world} processes is {least} to {most}, expected {expected}"
            ));
        }
        on(start.elapsed());
    }
    group.close().map_err(text)
}

/// Returns the smallest and the largest value, which waits for the collective.
fn ends(tensor: &Tensor) -> Result<[f64; 2], String> {
    let value = |of: Result<Tensor, tch::TchError>| of.and_then(|it| it.f_double_value(&[]));
    let least = value(tensor.f_min()).map_err(text)?;
    let most = value(tensor.f_max()).map_err(text)?;
    Ok([least, most])
}

fn text(err: impl ToString) -> String {
    err.to_string()
}
