//! Draws pictures as ranks do: one for each GPU on the EGL device that belongs to it, or one on the
//! CPU.

use jobs::rank_probe::DrawnPicture;
use tch::Device;
use torchlib::cuda;

use crate::device::gpu::of_machine;
use crate::env::egl::EglRequest;
use crate::env::mujoco::draw_pair;

/// Draws a pair of pictures for each GPU, or one pair without GPUs.
///
/// # Errors
/// Returns the reason why nothing can be rendered.
pub(super) fn drawn() -> Result<Vec<DrawnPicture>, String> {
    let count = cuda::load().ok().and_then(|cuda| cuda.device_count().ok());
    let mut requests: Vec<EglRequest> = (0..count.unwrap_or(0)).map(of_gpu).collect();
    if requests.is_empty() {
        requests.push(EglRequest::default());
    }
    let pictures = requests.iter().map(draw_pair);
    pictures
        .collect::<Result<_, _>>()
        .map_err(|err| err.to_string())
}

/// Returns the request of the only rank on a GPU.
fn of_gpu(index: usize) -> EglRequest {
    EglRequest {
        gpu: of_machine(Device::Cuda(index)),
        local_rank: index,
        ..EglRequest::default()
    }
}
