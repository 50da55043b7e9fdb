//! The libraries that this process has loaded, and whether CUDA computes.

use jobs::rank_probe::{ComputedOnGpu, ComputedOnGpus, LoadedLibraries};
use tch::{Device, Kind, Tensor};
use torchlib::cuda::{self, Cuda};
use torchlib::libtorch;

use crate::versions::versions;

/// Edge of the matrices of the product: every GPU has a kernel for it, and the result is exact.
const EDGE: i64 = 64;

/// Returns the libraries of this process, without CUDA's.
pub(super) fn loaded() -> LoadedLibraries {
    let mut versions = versions();
    let folder = libtorch::folder().ok();
    LoadedLibraries {
        rrun: versions.remove("rrun").unwrap_or_default(),
        libtorch: versions.remove("libtorch"),
        has_cuda_half: folder
            .as_ref()
            .is_some_and(|folder| folder.join("libtorch_cuda.so").is_file()),
        libtorch_folder: folder.map(|folder| folder.display().to_string()),
        mujoco: versions.remove("mujoco").unwrap_or_default(),
    }
}

/// Multiplies two matrices on every GPU.
///
/// # Errors
/// Returns the reason why this process cannot use CUDA.
pub(super) fn computed() -> Result<ComputedOnGpus, String> {
    let cuda = cuda::load().map_err(|err| err.to_string())?;
    let count = cuda.device_count().map_err(|err| err.to_string())?;
    let mut versions = versions();
    let mut of = |name: &str| versions.remove(name).unwrap_or_default();
    Ok(ComputedOnGpus {
        runtime: of("cuda"),
        nccl: of("nccl"),
        gpus: (0..count).map(|index| of_gpu(cuda, index)).collect(),
    })
}

fn of_gpu(cuda: Cuda, index: usize) -> ComputedOnGpu {
    let name = cuda.device(index).map(|facts| facts.name);
    ComputedOnGpu {
        name: name.unwrap_or_default(),
        error: product(cuda, index).err(),
    }
}

/// Computes the sum of the product of two matrices of ones on a GPU, and checks it.
fn product(cuda: Cuda, index: usize) -> Result<(), String> {
    cuda.select(index).map_err(|err| err.to_string())?;
    let sum = || {
        let ones = Tensor::f_ones([EDGE, EDGE], (Kind::Float, Device::Cuda(index)))?;
        ones.f_matmul(&ones)?
            .f_sum(Kind::Float)?
            .f_double_value(&[])
    };
    let found = sum().map_err(|err| err.to_string())?;
    let expected = (EDGE * EDGE * EDGE) as f64;
    if found == expected {
        Ok(())
    } else {
        Err(format!("a sum is {found}, expected {expected}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_libtorch_and_mujoco() {
        let loaded = loaded();
        assert!(loaded.libtorch.is_some(), "{loaded:?}");
        assert!(loaded.libtorch_folder.is_some() && !loaded.mujoco.is_empty());
    }
}
