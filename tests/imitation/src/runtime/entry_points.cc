// Functions of the driver that are looked up by name, and those of the runtime that are refused.
#include "runtime.h"

#include <dlfcn.h>

using namespace card;

namespace {

cudaError_t refuse(const char* name) {
  return fail(cudaError_t(not_imitated(name, cudaErrorNotSupported)));
}

int refuse_driver_call() {
  return not_imitated("a driver function (IMITATION_TRACE names those that were looked up)",
                      cudaErrorNotSupported);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  *out = dlsym(RTLD_DEFAULT, name);
  if (!*out) {
    trace("driver function %s is not imitated", name);
    *out = reinterpret_cast<void*>(&refuse_driver_call);
  }
  if (status) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** out, const void*) {
  static void* memory = nullptr;
  if (!memory) cudaMalloc(&memory, 1);
  *out = memory;
  return cudaSuccess;
}

// Memory pools (libtorch's `cudaMallocAsync` backend).
cudaError_t cudaMallocAsync(void** out, size_t, cudaStream_t) {
  *out = nullptr;
  return refuse("cudaMallocAsync");
}
cudaError_t cudaFreeAsync(void*, cudaStream_t) { return refuse("cudaFreeAsync"); }

}  // extern "C"
#pragma GCC visibility pop
