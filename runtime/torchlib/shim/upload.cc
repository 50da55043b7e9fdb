// Copies from host memory to a card beside everything else: a stream of their own, an event for each staging buffer.
//
// Part of the library that cuda.cc is; the same conventions. Calls may come from several threads at once.
#include "fault.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

using rrun::guarded;

extern "C" {

struct RrUpload {
  c10::cuda::CUDAStream stream;
  std::vector<at::cuda::CUDAEvent> landed;  // by slot
};

// Host memory that a card can read by itself; libtorch keeps it for later when the tensor is gone.
int rr_upload_pinned(int64_t bytes, at::Tensor** out) {
  return guarded([&] {
    *out = new at::Tensor(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true)));
  });
}

int rr_upload_new(int device, int slots, RrUpload** out) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard guard(index);
    auto upload = std::make_unique<RrUpload>(RrUpload{c10::cuda::getStreamFromPool(false, index), {}});
    // Waiting threads sleep: the others need their cores for copying.
    for (int i = 0; i < slots; ++i) upload->landed.emplace_back(cudaEventDisableTiming | cudaEventBlockingSync);
    // The memory of a new tensor may be waited for by work of the stream that it was made on.
    at::cuda::CUDAEvent begun;
    begun.record(c10::cuda::getCurrentCUDAStream(index));
    begun.block(upload->stream);
    *out = upload.release();
  });
}

// Waits for all copies.
int rr_upload_free(RrUpload* upload) {
  const std::unique_ptr<RrUpload> owned(upload);
  return guarded([&] { owned->stream.synchronize(); });
}

// Returns at once if `source` is pinned. Another dtype is converted on the card: on the host it would be by one thread.
int rr_upload_copy(RrUpload* upload, at::Tensor* target, at::Tensor* source) {
  return guarded([&] {
    const c10::cuda::CUDAStreamGuard guard(upload->stream);
    const c10::NoGradGuard no_grad;
    if (target->scalar_type() == source->scalar_type()) {
      target->copy_(*source, /*non_blocking=*/true);
    } else {
      target->copy_(source->to(source->options().device(target->device()), /*non_blocking=*/true));
    }
  });
}

// All copies so far belong to this slot, or to one that was marked before it.
int rr_upload_mark(RrUpload* upload, int slot) {
  return guarded([&] { upload->landed.at(slot).record(upload->stream); });
}

// Until all copies before the slot's last mark are done.
int rr_upload_wait(RrUpload* upload, int slot) {
  return guarded([&] { upload->landed.at(slot).synchronize(); });
}

}  // extern "C"
