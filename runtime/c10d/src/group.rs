//! A process group that runs collectives: Gloo on CPUs and NCCL on GPUs, both from c10d.
//!
//! A group made in [`Store::default_group`] and one made by Python's `init_process_group` form one
//! group. Every rank must call the same collectives in the same order.

use crate::cuda;
use crate::error::DistError;
use crate::ffi::exception::CppException;
use crate::ffi::group::GroupHandle;
use crate::store::Store;
use crate::torch_error::message;
use std::time::Duration;
use tch::{Device, TchError, Tensor};

/// The reduction of the values of several ranks: `c10d::ReduceOp::RedOpType`, torch 2.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum of the values.
    Sum = 0,
    /// The smallest value.
    Min = 3,
    /// The largest value.
    Max = 4,
}

/// This rank's membership in a process group.
#[derive(Clone)]
pub struct ProcessGroup {
    handle: GroupHandle,
    world: usize,
    device: Device,
    timeout: Duration,
}

impl ProcessGroup {
    /// Joins the Gloo group that meets in `store`. The rendezvous and each collective wait for the
    /// other ranks at most `timeout`.
    pub fn gloo(
        store: &Store,
        rank: usize,
        world: usize,
        timeout: Duration,
    ) -> Result<Self, DistError> {
        let [rank_index, world_size] = seat(rank, world)?;
        let handle = GroupHandle::gloo(store.handle(), rank_index, world_size, timeout)?;
        Ok(Self {
            handle,
            world,
            device: Device::Cpu,
            timeout,
        })
    }

    /// Joins the NCCL group that meets in `store` with CUDA device `device`, which no other rank
    /// may use.
    ///
    /// NCCL connects in the first collective, and that call has no deadline inside NCCL, so run it
    /// on a thread that can be left behind. A collective that times out leaves the device busy
    /// until [`abort`](Self::abort).
    pub fn nccl(
        store: &Store,
        rank: usize,
        world: usize,
        device: usize,
        timeout: Duration,
    ) -> Result<Self, DistError> {
        let [rank_index, world_size] = seat(rank, world)?;
        let index = i32::try_from(device)
            .map_err(|_| misuse(format!("there is no CUDA device {device}")))?;
        // Our own timeout ends first; the watchdog only handles collectives that were left behind.
        let watchdog = timeout.saturating_mul(10);
        let handle =
            cuda::load()?
                .shim()
                .nccl(store.handle(), rank_index, world_size, index, watchdog)?;
        Ok(Self {
            handle,
            world,
            device: Device::Cuda(device),
            timeout,
        })
    }

    /// Returns the same group with another timeout for each collective.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns every rank's bytes on every rank, in rank order. Lengths may differ and be zero.
    pub fn all_gather_bytes(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, DistError> {
        let lengths = self.all_gather_lengths(mine.len())?;
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let all = self.all_gather(&Tensor::f_from_slice(&padded)?)?;
        let all = Vec::<u8>::try_from(&all)?;
        Ok(all
            .chunks(longest)
            .zip(lengths)
            .map(|(row, length)| row[..length].to_vec())
            .collect())
    }

    fn all_gather_lengths(&self, mine: usize) -> Result<Vec<usize>, DistError> {
        let mine = i64::try_from(mine).map_err(|_| misuse(format!("{mine} bytes are too many")))?;
        let lengths = Vec::<i64>::try_from(&self.all_gather(&Tensor::f_from_slice(&[mine])?)?)?;
        let usable = |&length: &i64| usize::try_from(length).ok();
        lengths
            .iter()
            .map(usable)
            .collect::<Option<_>>()
            .ok_or_else(|| misuse("a rank sent a negative length".into()))
    }

    /// Takes `mine`, `[n]` on the CPU, and returns `[world * n]` on the CPU.
    fn all_gather(&self, mine: &Tensor) -> Result<Tensor, DistError> {
        let mine = mine.f_to_device(self.device)?;
        let total = mine.numel() as i64 * self.world as i64;
        let all = Tensor::f_empty([total], (mine.kind(), self.device))?;
        self.handle.all_gather(&all, &mine, self.timeout)?;
        Ok(all.f_to_device(Device::Cpu)?)
    }

    /// Replaces every rank's tensor, which must be on the group's device, by the reduction over all
    /// ranks. After an error its values are undefined.
    pub fn all_reduce(&self, tensor: &mut Tensor, reduction: Reduction) -> Result<(), DistError> {
        Ok(self
            .handle
            .all_reduce(tensor, reduction as i32, self.timeout)?)
    }

    /// Replaces every rank's tensor by that of rank `root`.
    pub fn broadcast(&self, tensor: &mut Tensor, root: usize) -> Result<(), DistError> {
        if root >= self.world {
            return Err(misuse(format!(
                "there is no rank {root} in a group of {}",
                self.world
            )));
        }
        Ok(self.handle.broadcast(tensor, root as i32, self.timeout)?)
    }

    /// Waits until every rank has called it.
    pub fn barrier(&self) -> Result<(), DistError> {
        Ok(self.handle.barrier(self.timeout)?)
    }

    /// Aborts the running collectives on this rank; the group cannot be used afterwards.
    pub fn abort(&self) -> Result<(), DistError> {
        Ok(self.handle.abort()?)
    }

    /// Leaves the group regularly; every rank must call it after the last collective.
    pub fn close(self) -> Result<(), DistError> {
        Ok(self.handle.shutdown()?)
    }
}

fn seat(rank: usize, world: usize) -> Result<[i32; 2], DistError> {
    match (i32::try_from(rank), i32::try_from(world)) {
        (Ok(rank), Ok(world)) if rank < world => Ok([rank, world]),
        _ => Err(misuse(format!(
            "there is no rank {rank} in a group of {world}"
        ))),
    }
}

fn misuse(what: String) -> DistError {
    DistError::Misuse { what }
}

impl From<TchError> for DistError {
    fn from(err: TchError) -> Self {
        CppException::from_tch(message(&err.to_string())).into()
    }
}
