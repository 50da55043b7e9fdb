// libcuda as far as it is asked, and the files by which a program sees a driver and its cards.
//
// Nothing is put where a real driver has it: only the processes of this run believe that there is a
// /dev/nvidiactl, and see a folder of theirs as /proc/driver/nvidia/gpus.
#include "card.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace {

// Asked for before constructors have run.
constexpr char GPUS[] = "/proc/driver/nvidia/gpus";
constexpr size_t GPUS_LENGTH = sizeof GPUS - 1;

// As devices.cc numbers the buses.
void describe(int card, const std::filesystem::path& folder) {
  char address[32];
  snprintf(address, sizeof address, "0000:%02x:00.0", 0x10 + card);
  std::filesystem::create_directories(folder / address);
  std::ofstream file(folder / address / "information");
  file << "Model: \t\t " << card::card_name() << "\nGPU UUID: \t " << card::uuid(card)
       << "\nBus Location: \t " << address << "\nDevice Minor: \t " << card << "\n";
}

// What the processes of this run have for GPUS; made by the first that asks.
const std::string& gpus() {
  static const auto* folder = [] {
    auto* made = new std::string(card::shared_folder() + "/gpus-" + std::to_string(card::cards()));
    for (int card = 0; card < card::cards(); ++card) describe(card, *made);
    return made;
  }();
  return *folder;
}

bool is_card_file(const char* path) {
  constexpr size_t length = sizeof "/dev/nvidia" - 1;
  if (strncmp(path, "/dev/nvidia", length) || !isdigit(path[length])) return false;
  return atoi(path + length) < card::cards();
}

std::string redirect(const char* path) {
  if (!strcmp(path, "/dev/nvidiactl") || is_card_file(path)) return "/dev/null";
  if (!strncmp(path, GPUS, GPUS_LENGTH)) return gpus() + (path + GPUS_LENGTH);
  return path;
}

// Callers may pass null, which glibc's declaration denies: the compiler must not drop the test.
bool is_ours(const char* given) {
  const char* volatile path = given;
  return path && (!strncmp(path, "/dev/nvidia", 11) || !strncmp(path, GPUS, GPUS_LENGTH));
}

// The system call itself: looking for libc's function may open a file.
int opened(const char* path, int flags, mode_t mode) {
  const std::string other = is_ours(path) ? redirect(path) : "";
  return int(syscall(SYS_openat, AT_FDCWD, other.empty() ? path : other.c_str(), flags, mode));
}

// The mode is there only where a file may be made.
#define MODE_OF(flags)                                             \
  mode_t mode = 0;                                                 \
  if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                  \
    va_start(rest, flags);                                         \
    mode = va_arg(rest, mode_t);                                   \
    va_end(rest);                                                  \
  }

template <class Function>
Function next(Function, const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return 0;
}
// The driver's codes are the runtime's where both have them.
int cuGetErrorString(int code, const char** text) {
  *text = cudaGetErrorString(cudaError_t(code));
  return 0;
}
int cuDeviceGet(int* out, int index) {
  *out = index;
  return 0;
}
int cuDeviceGetCount(int* count) { return cudaGetDeviceCount(count); }
int cuDeviceGetAttribute(int* out, int, int) {
  *out = 0;
  return 0;
}
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** out, int index) {
  *out = reinterpret_cast<void*>(uintptr_t(index) + 1);
  return 0;
}
int cuCtxGetCurrent(void** out) {
  *out = reinterpret_cast<void*>(1);
  return 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuTensorMapEncodeTiled() { return 0; }
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   cudaStream_t stream) {
  return card::enqueue(stream, card::Kind::Launch, "[cuLaunchKernel]", nullptr);
}

int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out) {
  static const auto real = next(&statx, "statx");
  return is_ours(path) ? real(folder, redirect(path).c_str(), flags, mask, out)
                       : real(folder, path, flags, mask, out);
}
int stat(const char* path, struct stat* out) {
  static const auto real = next(&stat, "stat");
  return is_ours(path) ? real(redirect(path).c_str(), out) : real(path, out);
}
DIR* opendir(const char* path) {
  static const auto real = next(&opendir, "opendir");
  return is_ours(path) ? real(redirect(path).c_str()) : real(path);
}
int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opened(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opened(path, flags, mode);
}

}  // extern "C"
#pragma GCC visibility pop
