//! NCCL, called directly: the few functions of `libnccl.so.2` that this program needs, which is
//! looked for when the first group forms. libtorch's CUDA half has loaded the same library.
//!
//! nccl.h, NCCL 2.28 and 2.29: `ncclUniqueId`, `ncclDataType_t`, `ncclRedOp_t`, `ncclResult_t`.

use crate::cuda;
use crate::ffi::{Library, functions};
use crate::torch_error::TorchError;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tch::{Device, Kind, Tensor};
use tcpstore::{Store, StoreError};

/// Key of the id of a group, which rank 0 draws.
const ID: &str = "id";

/// `ncclUniqueId`, in which the address of rank 0 is.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

type Comm = *mut c_void;
type Stream = *mut c_void;
type End = unsafe extern "C" fn(Comm) -> c_int;

functions! {
    /// The functions of the library.
    Nccl {
        ncclGetVersion: unsafe extern "C" fn(*mut c_int) -> c_int,
        ncclGetUniqueId: unsafe extern "C" fn(*mut UniqueId) -> c_int,
        ncclCommInitRank: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> c_int,
        ncclAllGather:
            unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Comm, Stream) -> c_int,
        ncclAllReduce: unsafe extern "C" fn(
            *const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream
        ) -> c_int,
        ncclCommDestroy: End,
        ncclCommAbort: End,
        ncclGetErrorString: unsafe extern "C" fn(c_int) -> *const c_char,
    }
}

impl Nccl {
    /// Returns the functions of the library, which is loaded once.
    fn load() -> Result<&'static Self, TorchError> {
        static LOADED: OnceLock<Result<Nccl, TorchError>> = OnceLock::new();
        let load = || Self::bind(Library::open("libnccl.so.2", false)?);
        LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// Converts a result (`ncclResult_t`) of the function `what`.
    fn check(&self, what: &str, result: c_int) -> Result<(), TorchError> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: NCCL returns a literal for every number.
        let reason = unsafe { CStr::from_ptr((self.ncclGetErrorString)(result)) };
        Err(failed(&format!("{what}: {}", reason.to_string_lossy())))
    }
}

/// Returns the version of NCCL, 22809 for 2.28.9.
///
/// # Errors
/// Returns an error if the library cannot be loaded.
pub fn version() -> Result<i32, TorchError> {
    let (nccl, mut version) = (Nccl::load()?, 0);
    // SAFETY: `version` outlives the call.
    nccl.check("ncclGetVersion", unsafe {
        (nccl.ncclGetVersion)(&mut version)
    })?;
    Ok(version)
}

/// This rank's membership in a group of ranks that have a GPU each. Every rank must call the same
/// collectives in the same order.
///
/// A call has no deadline inside NCCL, so make it on a thread that can be left behind. It is
/// launched on CUDA's default stream: that thread must not have a stream of its own.
#[derive(Clone)]
pub struct NcclGroup {
    comm: Arc<OwnedComm>,
    world: usize,
    device: Device,
}

/// A communicator, null once it has ended. It is left to the process if nobody ends it: only the
/// ranks together can.
struct OwnedComm {
    nccl: &'static Nccl,
    comm: AtomicPtr<c_void>,
}

impl OwnedComm {
    fn comm(&self) -> Result<Comm, TorchError> {
        let comm = self.comm.load(Ordering::SeqCst);
        if comm.is_null() {
            return Err(failed("the group has ended"));
        }
        Ok(comm)
    }

    fn end(&self, what: &str, end: End) -> Result<(), TorchError> {
        let comm = self.comm.swap(ptr::null_mut(), Ordering::SeqCst);
        if comm.is_null() {
            return Ok(());
        }
        // SAFETY: `join` has made the communicator, and nobody else ends it. NCCL takes an abort
        // while another thread waits for a collective.
        self.nccl.check(what, unsafe { end(comm) })
    }
}

impl NcclGroup {
    /// Joins the group that meets in `store` with CUDA device `device`, which no other rank may
    /// use. Waits for the id of the group at most `wait`, and for the other ranks without a limit.
    ///
    /// # Errors
    /// Returns an error if CUDA, NCCL or the store fails.
    pub fn join(
        store: &Store,
        rank: usize,
        world: usize,
        device: usize,
        wait: Duration,
    ) -> Result<Self, TorchError> {
        let number = |number| i32::try_from(number).map_err(|_| failed("too many ranks"));
        let (rank_index, world_size) = (number(rank)?, number(world)?);
        cuda::load()?.select(device)?;
        let nccl = Nccl::load()?;
        let mut id = UniqueId([0; 128]);
        if rank == 0 {
            // SAFETY: `id` outlives the call.
            nccl.check("ncclGetUniqueId", unsafe {
                (nccl.ncclGetUniqueId)(&mut id)
            })?;
            store.set(ID, &id.0).map_err(lost)?;
        } else {
            let found = store.get(ID, wait).map_err(lost)?;
            let found = found.try_into();
            id = UniqueId(found.map_err(|_| failed("its id is not 128 bytes long"))?);
        }
        let mut comm = ptr::null_mut();
        // SAFETY: `comm` outlives the call, which writes it before it returns success.
        let joined = unsafe { (nccl.ncclCommInitRank)(&mut comm, world_size, id, rank_index) };
        nccl.check("ncclCommInitRank", joined)?;
        let comm = AtomicPtr::new(comm);
        Ok(Self {
            comm: Arc::new(OwnedComm { nccl, comm }),
            world,
            device: Device::Cuda(device),
        })
    }

    /// Returns every rank's bytes on every rank, in rank order. Lengths may differ and be zero.
    ///
    /// # Errors
    /// Returns an error if NCCL or libtorch fails.
    pub fn all_gather_bytes(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, TorchError> {
        let lengths = self.all_gather(&Tensor::f_from_slice(&[mine.len() as i64])?)?;
        let lengths = Vec::<i64>::try_from(&lengths)?.into_iter();
        let lengths: Vec<usize> = lengths
            .map(|length| usize::try_from(length).map_err(|_| failed("a negative length came")))
            .collect::<Result<_, _>>()?;
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let all = Vec::<u8>::try_from(&self.all_gather(&Tensor::f_from_slice(&padded)?)?)?;
        let rows = all.chunks(longest).zip(lengths);
        Ok(rows.map(|(row, length)| row[..length].to_vec()).collect())
    }

    /// Takes `mine`, `[n]` on the CPU, and returns `[world * n]` on the CPU.
    fn all_gather(&self, mine: &Tensor) -> Result<Tensor, TorchError> {
        let mine = mine.f_to_device(self.device)?;
        let total = mine.numel() as i64 * self.world as i64;
        let all = Tensor::f_empty([total], (mine.kind(), self.device))?;
        let (nccl, comm) = (self.comm.nccl, self.comm.comm()?);
        let (from, to, count) = (mine.data_ptr(), all.data_ptr(), mine.numel());
        let kind = data_type(mine.kind())?;
        // SAFETY: both are contiguous tensors of this kind on the group's device, with `count` and
        // `world * count` elements; they live until the copy below has waited for the collective.
        let begun = unsafe { (nccl.ncclAllGather)(from, to, count, kind, comm, ptr::null_mut()) };
        nccl.check("ncclAllGather", begun)?;
        Ok(all.f_to_device(Device::Cpu)?)
    }

    /// Replaces every rank's tensor by the sum over all ranks. Work that this thread launches later
    /// sees it.
    ///
    /// # Errors
    /// Returns an error if the tensor is not one of the group's device, or NCCL fails.
    pub fn all_reduce_sum(&self, tensor: &mut Tensor) -> Result<(), TorchError> {
        const SUM: c_int = 0;
        if tensor.device() != self.device || !tensor.is_contiguous() {
            return Err(failed(
                "the tensor is not a contiguous one of the group's GPU",
            ));
        }
        let (nccl, comm) = (self.comm.nccl, self.comm.comm()?);
        let (data, count, kind) = (tensor.data_ptr(), tensor.numel(), data_type(tensor.kind())?);
        // SAFETY: the tensor is contiguous and of this kind, on the group's device, with `count`
        // elements. libtorch's allocator gives its memory only to later work of this stream.
        let begun =
            unsafe { (nccl.ncclAllReduce)(data, data, count, kind, SUM, comm, ptr::null_mut()) };
        nccl.check("ncclAllReduce", begun)
    }

    /// Ends the running collectives on this rank; the group cannot be used afterwards.
    ///
    /// # Errors
    /// Returns an error if NCCL fails.
    pub fn abort(&self) -> Result<(), TorchError> {
        self.comm.end("ncclCommAbort", self.comm.nccl.ncclCommAbort)
    }

    /// Leaves the group regularly; every rank must call it after the last collective.
    ///
    /// # Errors
    /// Returns an error if NCCL fails.
    pub fn close(&self) -> Result<(), TorchError> {
        self.comm
            .end("ncclCommDestroy", self.comm.nccl.ncclCommDestroy)
    }
}

/// Returns `ncclDataType_t` of a kind.
fn data_type(kind: Kind) -> Result<c_int, TorchError> {
    match kind {
        Kind::Uint8 => Ok(1),
        Kind::Int64 => Ok(4),
        Kind::Float => Ok(7),
        other => Err(failed(&format!("{other:?} is not a kind that is sent"))),
    }
}

fn lost(err: StoreError) -> TorchError {
    failed(&err.to_string())
}

fn failed(reason: &str) -> TorchError {
    TorchError::new(format!("NCCL: {reason}"))
}
