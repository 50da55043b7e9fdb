// libnvidia-ml: all cards of the machine, whatever a process may see of them.
#include "card.h"

#include <cstdio>
#include <cstring>

namespace {

constexpr int INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7;

using Device = void*;  // the card's number, and one
int card_of(Device device) { return int(uintptr_t(device)) - 1; }

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

int list_processes(Device device, unsigned* count, Process* list) {
  const auto all = card::processes(card_of(device));
  const unsigned room = *count;
  *count = unsigned(all.size());
  if (room < all.size()) return INSUFFICIENT_SIZE;
  for (size_t i = 0; i < all.size(); ++i) {
    list[i] = {unsigned(all[i].first), all[i].second, ~0u, ~0u};
  }
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlInit() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code ? "an imitated error of NVML" : "Success"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  snprintf(text, size, "580.00");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDART_VERSION;
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = card::cards();
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  if (int(index) >= card::cards()) return INVALID_ARGUMENT;
  *out = reinterpret_cast<Device>(uintptr_t(index) + 1);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device* out) {
  for (int card = 0; card < card::cards(); ++card) {
    if (card::uuid(card) == uuid) return nvmlDeviceGetHandleByIndex_v2(card, out);
  }
  return NOT_FOUND;
}
// As devices.cc numbers the buses: 0000:10:00.0 is card 0. Some callers write eight zeros.
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device* out) {
  unsigned domain = 0, bus = 0;
  if (sscanf(id, "%x:%x", &domain, &bus) != 2 || bus < 0x10) return NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2(bus - 0x10, out);
}

int nvmlDeviceGetUUID(Device device, char* text, unsigned size) {
  snprintf(text, size, "%s", card::uuid(card_of(device)).c_str());
  return 0;
}
int nvmlDeviceGetName(Device, char* text, unsigned size) {
  snprintf(text, size, "%s", card::card_name().c_str());
  return 0;
}
int nvmlDeviceGetIndex(Device device, unsigned* index) {
  *index = unsigned(card_of(device));
  return 0;
}
int nvmlDeviceGetUtilizationRates(Device, Utilization* out) {
  *out = {50, 5};
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(Device device, Memory* out) {
  out->total = card::total_bytes();
  out->reserved = 0;
  out->used = card::used_bytes(card_of(device));
  out->free = out->used < out->total ? out->total - out->used : 0;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, Process* list) {
  return list_processes(device, count, list);
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, Process* list) {
  return list_processes(device, count, list);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device, unsigned* count, Process*) {
  *count = 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device, unsigned, int*) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device, unsigned, void*) { return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(Device, void*) { return NOT_SUPPORTED; }

}  // extern "C"
#pragma GCC visibility pop
