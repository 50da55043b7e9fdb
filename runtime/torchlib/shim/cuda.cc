// The CUDA half of the shim: a library of its own, inside the program as bytes, loaded only where there is a driver.
//
// Calls return a rrun::Status; on failure the text is rr_cuda_last_words() of the same thread.
#include "fault.h"

#include <cstdint>
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/version.h>

static_assert(TORCH_VERSION_MAJOR == 2 && (TORCH_VERSION_MINOR == 11 || TORCH_VERSION_MINOR == 12),
              "the shims were checked against torch 2.11 and 2.12");

using rrun::guarded;
namespace allocator = c10::cuda::CUDACachingAllocator;

extern "C" {

// These structures stand in `ffi.rs` and `cuda.rs` too.
struct RrDevice {
  char name[256];  // as the driver says it, ended by a zero
  uint8_t uuid[16];
  int32_t pci_domain, pci_bus, pci_device;
  int32_t major, minor;  // compute capability
  uint64_t total_bytes;
};

struct RrMemory {
  uint64_t free_bytes, total_bytes;  // of the whole device, all processes
  uint64_t allocated_bytes, allocated_peak_bytes, reserved_peak_bytes;  // of this process, by libtorch's allocator
};

struct RrVersions {
  int32_t runtime, driver;
};

const char* rr_cuda_last_words() { return rrun::last_words.c_str(); }

// Fails with the driver's reason where no device can be used.
int rr_cuda_device_count(int* count) {
  return guarded([&] { *count = c10::cuda::device_count_ensure_non_zero(); });
}

// Attention is chosen between its flash, its memory-efficient and its plain form, in the whole process.
int rr_cuda_choose_attention() {
  return guarded([&] { at::globalContext().setSDPUseCuDNN(false); });
}

int rr_cuda_describe(int device, RrDevice* out) {
  return guarded([&] {
    const cudaDeviceProp* found = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
    std::memset(out, 0, sizeof *out);
    std::strncpy(out->name, found->name, sizeof out->name - 1);
    std::memcpy(out->uuid, found->uuid.bytes, sizeof out->uuid);
    out->pci_domain = found->pciDomainID;
    out->pci_bus = found->pciBusID;
    out->pci_device = found->pciDeviceID;
    out->major = found->major;
    out->minor = found->minor;
    out->total_bytes = found->totalGlobalMem;
  });
}

int rr_cuda_select(int device) {
  return guarded([&] { c10::cuda::set_device(static_cast<c10::DeviceIndex>(device)); });
}

int rr_cuda_memory(int device, RrMemory* out) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const auto& allocated = stats.allocated_bytes[0];  // 0: all pools together
    *out = {free, total, static_cast<uint64_t>(allocated.current), static_cast<uint64_t>(allocated.peak),
            static_cast<uint64_t>(stats.reserved_bytes[0].peak)};
  });
}

int rr_cuda_reset_peak(int device) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    allocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
  });
}

int rr_cuda_empty_cache() {
  return guarded([&] { allocator::emptyCache(); });
}

// libtorch's allocator takes no more than so many bytes of the device; what is beyond them is out of memory.
int rr_cuda_limit(int device, uint64_t bytes) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    const auto index = static_cast<c10::DeviceIndex>(device);
    const double total = static_cast<double>(at::cuda::getDeviceProperties(index)->totalGlobalMem);
    allocator::setMemoryFraction(std::min(1.0, static_cast<double>(bytes) / total), index);
  });
}

// What libtorch's allocator has taken from the device now. Asks the allocator alone: no call of CUDA that another thread's
// capture could mind.
int rr_cuda_reserved(int device, uint64_t* bytes) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    *bytes = static_cast<uint64_t>(stats.reserved_bytes[0].current);
  });
}

// How often libtorch's allocator had no memory. Compiled packages lose the exception that says so.
int rr_cuda_ooms(int device, uint64_t* count) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    *count = static_cast<uint64_t>(allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device)).num_ooms);
  });
}

// From now on this thread's work on the device goes to a stream of its own, behind all that was started before.
int rr_cuda_own_stream(int device) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard guard(index);
    if (c10::cuda::getCurrentCUDAStream(index) != c10::cuda::getDefaultCUDAStream(index)) return;
    c10::cuda::device_synchronize();
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(true, index));
  });
}

// Copies host tensors into device tensors through pinned memory on a stream of their own: after what this thread's
// stream was told so far, which may still read the old values, and before what it will be told.
int rr_cuda_feed(int device, at::Tensor* const* to, at::Tensor* const* from, size_t count) {
  return guarded([&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard guard(index);
    thread_local std::optional<c10::cuda::CUDAStream> copies;
    if (!copies || copies->device_index() != index) copies = c10::cuda::getStreamFromPool(true, index);
    const auto compute = c10::cuda::getCurrentCUDAStream(index);
    at::cuda::CUDAEvent before, after;
    before.record(compute);
    before.block(*copies);
    {
      const c10::cuda::CUDAStreamGuard on(*copies);
      // The pinned copy goes back to libtorch's cache, which waits for the stream before it gives it out again.
      for (size_t i = 0; i < count; ++i) to[i]->copy_(from[i]->contiguous().pin_memory(), /*non_blocking=*/true);
    }
    after.record(*copies);
    after.block(compute);
  });
}

// Copies a device tensor to new pinned memory and waits for it: the only wait of an inference.
int rr_cuda_fetch(const at::Tensor* from, at::Tensor** out) {
  return guarded([&] {
    const c10::cuda::CUDAGuard guard(from->device());
    at::Tensor host = at::empty(from->sizes(), from->options().device(at::kCPU).pinned_memory(true));
    host.copy_(*from, /*non_blocking=*/true);
    c10::cuda::getCurrentCUDAStream(from->device().index()).synchronize();
    *out = new at::Tensor(std::move(host));
  });
}

// A captured graph, with the pool that its tensors are in.
struct RrGraph {
  at::cuda::CUDAGraph graph;
  c10::DeviceIndex device;
  at::cuda::MempoolId_t pool;
  size_t free_before, reserved_before;
};

static size_t reserved_bytes(c10::DeviceIndex device) {
  return static_cast<size_t>(allocator::getDeviceStats(device).reserved_bytes[0].current);
}

static size_t free_bytes() {
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

// What this thread starts on its stream (see rr_cuda_own_stream) is written down from here on instead of done.
//
// Other threads go on as they are: the loop asks for free memory.
int rr_graph_begin(int device, RrGraph** out) {
  return guarded([&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard guard(index);
    c10::cuda::getCurrentCUDAStream(index).synchronize();
    auto box = std::make_unique<RrGraph>();
    box->device = index;
    box->pool = at::cuda::graph_pool_handle();
    box->free_before = free_bytes();
    box->reserved_before = reserved_bytes(index);
    box->graph.capture_begin(box->pool, cudaStreamCaptureModeThreadLocal);
    *out = box.release();
  });
}

// Ends it and makes the graph ready; `bytes`: what it holds on the device.
int rr_graph_end(RrGraph* box, uint64_t* bytes) {
  return guarded([&] {
    const c10::cuda::CUDAGuard guard(box->device);
    box->graph.capture_end();
    const size_t reserved = reserved_bytes(box->device), free = free_bytes();
    const size_t grown = reserved > box->reserved_before ? reserved - box->reserved_before : 0;
    const size_t taken = box->free_before > free ? box->free_before - free : 0;
    *bytes = std::max(grown, taken);
  });
}

// Ends a capture that went wrong, whose pass threw or whose end failed.
//
// If the stream's end of the capture fails, the allocator was not told: all later memory would come from the pool. Where
// it was told, the graph gives the pool back itself.
void rr_graph_abort(RrGraph* box) {
  guarded([&] {
    const c10::cuda::CUDAGuard guard(box->device);
    if (guarded([&] { box->graph.capture_end(); }) != rrun::OK) {
      guarded([&] {
        allocator::endAllocateToPool(box->device, box->pool);
        allocator::releasePool(box->device, box->pool);
      });
    }
    cudaGetLastError();  // the failed capture's, which the next check would find
  });
  delete box;
}

int rr_graph_replay(RrGraph* box) {
  return guarded([&] {
    const c10::cuda::CUDAGuard guard(box->device);
    box->graph.replay();
  });
}

// Waits for the last replay.
void rr_graph_free(RrGraph* box) {
  guarded([&] {
    const c10::cuda::CUDAGuard guard(box->device);
    c10::cuda::getCurrentCUDAStream(box->device).synchronize();
  });
  delete box;
}

int rr_cuda_versions(RrVersions* out) {
  return guarded([&] {
    C10_CUDA_CHECK(cudaRuntimeGetVersion(&out->runtime));
    C10_CUDA_CHECK(cudaDriverGetVersion(&out->driver));
  });
}

}  // extern "C"
