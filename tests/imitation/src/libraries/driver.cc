// libcuda as far as it is asked, and the file by which a program sees that there is a driver.
//
// Nothing is put into the file system: only this process believes that /dev/nvidiactl is there.
#include "card.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstring>

namespace {

// Callers may pass null, which glibc's declaration denies: the compiler must not drop the test.
const char* redirect(const char* given) {
  const char* volatile path = given;
  return path && !strcmp(path, "/dev/nvidiactl") ? "/dev/null" : path;
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
  return real(folder, redirect(path), flags, mask, out);
}
int stat(const char* path, struct stat* out) {
  static const auto real = next(&stat, "stat");
  return real(redirect(path), out);
}

}  // extern "C"
#pragma GCC visibility pop
