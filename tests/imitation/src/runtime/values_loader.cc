// Loads the library that computes the results of operators (src/values) as soon as libtorch's CUDA
// half is there: that has the operators.
#include "runtime.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace card {

void load_values() {
  static std::recursive_mutex loading;
  const std::lock_guard<std::recursive_mutex> lock(loading);
  static bool is_tried = false;
  const std::string path = setting("VALUES_LIBRARY", "");
  if (is_tried || path.empty() || !has_values()) return;
  if (!dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD)) return;
  is_tried = true;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    fprintf(stderr, "imitation: %s\n", dlerror());
    abort();
  }
  reinterpret_cast<void (*)()>(dlsym(library, "imitation_wrap_operators"))();
}

}  // namespace card
