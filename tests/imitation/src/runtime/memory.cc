// Device memory and pinned memory.
//
// A device address is reserved memory that nobody may touch: the host that follows one crashes, as
// it should. The same pages are mapped a second time, for copies and values (`host_view`). Pages
// that nobody writes cost nothing, so a card may be larger than the machine.
#include "runtime.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace card {

namespace {

constexpr size_t PAGE = 2 << 20;          // cudaMalloc takes whole pages of this size
constexpr size_t SPAN = size_t(1) << 40;  // addresses of one device
constexpr uintptr_t DEVICE_BASE = 0x200000000000, HOST_BASE = 0x300000000000;

struct Device {
  bool is_open = false;
  std::map<size_t, size_t> blocks;  // bytes by offset
  size_t next = 0, used = 0;
  int file = -1;
} devices[MAX_CARDS];

std::map<uintptr_t, size_t>& pinned() {
  static auto* all = new std::map<uintptr_t, size_t>;
  return *all;
}

size_t offset_of(const void* address) { return (uintptr_t(address) - DEVICE_BASE) % SPAN; }

void* reserve(uintptr_t at, int protection, int flags, int file) {
  flags |= MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* got = mmap(reinterpret_cast<void*>(at), SPAN, protection, flags, file, 0);
  if (got == MAP_FAILED) {
    perror("imitation: cannot map a card's memory");
    abort();
  }
  return got;
}

// Offsets are given out once, so that a stale address stays invalid, and only reused at the end.
bool place(Device& device, size_t size, size_t* at) {
  *at = device.next;
  if (*at + size <= SPAN) {
    device.next += size;
    return true;
  }
  *at = 0;
  for (const auto& [offset, held] : device.blocks) {
    if (*at + size <= offset) break;
    *at = offset + held;
  }
  return *at + size <= SPAN;
}

std::pair<const uintptr_t, size_t>* pinned_block(const void* address) {
  auto it = pinned().upper_bound(uintptr_t(address));
  if (it == pinned().begin()) return nullptr;
  --it;
  return uintptr_t(address) < it->first + it->second ? &*it : nullptr;
}

}  // namespace

void open_device(int index) {
  Device& device = devices[index];
  if (device.is_open) return;
  device.is_open = true;
  device.file = memfd_create("imitated card", MFD_CLOEXEC);
  if (ftruncate(device.file, SPAN)) abort();
  reserve(DEVICE_BASE + index * SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  reserve(HOST_BASE + index * SPAN, PROT_READ | PROT_WRITE, MAP_SHARED, device.file);
  device.used = mebibytes("CONTEXT_MIB", 512);
  set_used(visible()[index], device.used);
}

int device_of(const void* address) {
  const auto at = uintptr_t(address);
  const bool is_ours = at >= DEVICE_BASE && at < DEVICE_BASE + MAX_CARDS * SPAN;
  return is_ours ? int((at - DEVICE_BASE) / SPAN) : -1;
}

bool is_device(const void* address) { return device_of(address) >= 0; }

void* host_view(const void* address) {
  if (!is_device(address)) return const_cast<void*>(address);
  return reinterpret_cast<void*>(uintptr_t(address) - DEVICE_BASE + HOST_BASE);
}

bool is_allocated(const void* address, size_t bytes) {
  const int index = device_of(address);
  if (index < 0) return true;
  Lock lock(mutex);
  auto& blocks = devices[index].blocks;
  auto it = blocks.upper_bound(offset_of(address));
  if (it == blocks.begin()) return false;
  --it;
  return offset_of(address) + bytes <= it->first + it->second;
}

bool is_pinned(const void* address) { return pinned_block(address) != nullptr; }

bool is_within_pinned(const void* address, size_t bytes) {
  const auto* block = pinned_block(address);
  return !block || uintptr_t(address) + bytes <= block->first + block->second;
}

}  // namespace card

using namespace card;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  ENTER(current_device);
  *out = nullptr;
  if (auto code = refuse_in_capture("cudaMalloc")) return code;
  if (!bytes) return cudaSuccess;
  open_device(current_device);
  Device& device = devices[current_device];
  const int card = visible()[current_device];
  const size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
  size_t at = 0;
  if (size > total_bytes() || used_bytes(card) + size > total_bytes() ||
      !place(device, size, &at)) {
    trace("cudaMalloc %zu: out of memory", bytes);
    return fail(cudaErrorMemoryAllocation);
  }
  device.blocks[at] = size;
  device.used += size;
  set_used(card, device.used);
  *out = reinterpret_cast<void*>(DEVICE_BASE + current_device * SPAN + at);
  trace("cudaMalloc %zu = %p", bytes, *out);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  const int index = device_of(address);
  ENTER(index < 0 ? current_device : index);
  if (!address) return cudaSuccess;
  if (auto code = refuse_in_capture("cudaFree")) return code;
  if (index < 0) return fail(cudaErrorInvalidValue);
  run_device(index);
  Device& device = devices[index];
  auto block = device.blocks.find(offset_of(address));
  if (block == device.blocks.end()) {
    complain("cudaFree of what cudaMalloc did not give");
    return fail(cudaErrorInvalidValue);
  }
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  fallocate(device.file, mode, block->first, block->second);
  device.used -= block->second;
  set_used(visible()[index], device.used);
  device.blocks.erase(block);
  trace("cudaFree %p", address);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ENTER(current_device);
  open_device(current_device);
  const size_t used = used_bytes(visible()[current_device]);
  *total = total_bytes();
  *free = used < *total ? *total - used : 0;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  ENTER(current_device);
  if (auto code = refuse_in_capture("cudaHostAlloc")) return code;
  const size_t size = std::max<size_t>(bytes, 1);
  *out = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*out == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  pinned()[uintptr_t(*out)] = size;
  trace("cudaHostAlloc %zu = %p", bytes, *out);
  return cudaSuccess;
}

// Waits for everything, as CUDA does: no copy may still read it.
cudaError_t cudaFreeHost(void* address) {
  ENTER(current_device);
  if (auto code = refuse_in_capture("cudaFreeHost")) return code;
  for (size_t i = 0; i < visible().size(); ++i) run_device(int(i));
  auto block = pinned().find(uintptr_t(address));
  if (block == pinned().end()) return fail(cudaErrorInvalidValue);
  munmap(address, block->second);
  pinned().erase(block);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  ENTER(current_device);
  if (is_pinned(address)) return fail(cudaErrorHostMemoryAlreadyRegistered);
  pinned()[uintptr_t(address)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  ENTER(current_device);
  return pinned().erase(uintptr_t(address)) ? cudaSuccess
                                            : fail(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) {
  Lock lock(mutex);
  memset(out, 0, sizeof *out);
  out->device = -2;
  const int index = device_of(address);
  if (index < 0) out->hostPointer = const_cast<void*>(address);
  if (index < 0 && !is_pinned(address)) return cudaSuccess;  // cudaMemoryTypeUnregistered is 0
  out->type = index >= 0 ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  out->device = index >= 0 ? index : current_device;
  out->devicePointer = const_cast<void*>(address);
  return cudaSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
