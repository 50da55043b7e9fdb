// The devices of a process and their properties: those of an H100 as far as libtorch asks.
#include "runtime.h"

#include <cstdio>
#include <cstring>

namespace card {
thread_local int current_device = 0;
}

using namespace card;

static void write_uuid(int card, char* out) {
  const std::string text = uuid(card).substr(4);
  int written = 0;
  for (size_t i = 0; i + 1 < text.size();) {
    if (text[i] == '-') {
      ++i;
      continue;
    }
    out[written++] = char(std::stoi(text.substr(i, 2), nullptr, 16));
    i += 2;
  }
}

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  load_values();
  *count = int(visible().size());
  return *count ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (!is_visible(device)) return fail(cudaErrorInvalidDevice);
  current_device = device;
  ENTER(device);
  open_device(device);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (visible().empty()) return fail(cudaErrorNoDevice);
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!is_visible(device)) return fail(cudaErrorInvalidDevice);
  const int card = visible()[device];
  memset(p, 0, sizeof *p);
  strncpy(p->name, card_name().c_str(), sizeof p->name - 1);
  write_uuid(card, p->uuid.bytes);
  p->totalGlobalMem = total_bytes();
  p->pciBusID = 0x10 + card;
  p->major = 9;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = 232448;
  p->sharedMemPerMultiprocessor = 233472;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->textureAlignment = 512;
  p->memPitch = 2147483647;
  p->l2CacheSize = 52428800;
  p->memoryBusWidth = 5120;
  p->asyncEngineCount = 3;
  p->ECCEnabled = p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = 1;
  p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->managedMemory = p->cooperativeLaunch = p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = p->clusterLaunch = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (auto code = cudaGetDeviceProperties(&p, device)) return code;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrCooperativeLaunch: *value = p.cooperativeLaunch; break;
    case cudaDevAttrMemoryPoolsSupported: *value = p.memoryPoolsSupported; break;
    case cudaDevAttrUnifiedAddressing: *value = p.unifiedAddressing; break;
    case cudaDevAttrConcurrentKernels: *value = p.concurrentKernels; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* out, int length, int device) {
  if (!is_visible(device)) return fail(cudaErrorInvalidDevice);
  snprintf(out, length, "0000:%02x:00.0", 0x10 + visible()[device]);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() {
  write_log();
  return cudaSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
