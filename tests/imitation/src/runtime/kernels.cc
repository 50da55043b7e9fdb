// Kernels: registered by name as nvcc's code does it, counted when they are launched. They compute
// nothing; results are those of the operator that launches them (src/values).
#include "runtime.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace card {

namespace {

std::map<const void*, std::string>& kernels() {
  static auto* all = new std::map<const void*, std::string>;
  return *all;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

cudaError_t launch(const void* kernel, cudaStream_t stream) {
  Lock lock(mutex);
  auto it = kernels().find(kernel);
  const std::string name = it == kernels().end() ? "[unknown kernel]" : it->second;
  if (has_values() && !in_operator()) {
    complain("kernel `" + name.substr(0, 120) + "` has no results: no operator launched it");
  }
  return enqueue(stream, Kind::Launch, name, nullptr);
}

}  // namespace

thread_local int operators = 0;
void enter_operator() { ++operators; }
void leave_operator() { --operators; }
bool in_operator() { return operators > 0; }

}  // namespace card

using namespace card;

#pragma GCC visibility push(default)
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* on_host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  Lock lock(mutex);
  kernels()[on_host] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const auto top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* on_host) {
  *out = static_cast<cudaKernel_t>(const_cast<void*>(on_host));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t,
                               cudaStream_t stream) {
  return launch(kernel, stream);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch(kernel, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, size_t,
                                        cudaStream_t stream) {
  return launch(kernel, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  return launch(kernel, config->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  memset(out, 0, sizeof *out);
  out->maxThreadsPerBlock = 1024;
  out->numRegs = 32;
  out->ptxVersion = out->binaryVersion = 90;
  out->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* out, const void*, int threads,
                                                          size_t shared) {
  const int by_threads = 2048 / std::max(threads, 1);
  const int by_shared = shared ? int(233472 / shared) : 32;
  *out = std::max(1, std::min({32, by_threads, by_shared}));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, const void* kernel,
                                                                   int threads, size_t shared,
                                                                   unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, kernel, threads, shared);
}

}  // extern "C"
#pragma GCC visibility pop
