// libcublas: handles, and each routine as one launch. Its results are those of the ATen operator
// that calls it; build.py writes the routines that are not here, all through imitation_blas.
#include "card.h"

struct Handle {
  cudaStream_t stream;
  int math_mode, pointer_mode;
};

#pragma GCC visibility push(default)
extern "C" {

int cublasCreate_v2(Handle** out) {
  *out = new Handle{};
  return 0;
}
int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return 0;
}
int cublasSetStream_v2(Handle* handle, cudaStream_t stream) {
  handle->stream = stream;
  return 0;
}
int cublasGetStream_v2(Handle* handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return 0;
}
int cublasSetWorkspace_v2(Handle*, void*, size_t) { return 0; }
int cublasGetMathMode(Handle* handle, int* mode) {
  *mode = handle->math_mode;
  return 0;
}
int cublasSetMathMode(Handle* handle, int mode) {
  handle->math_mode = mode;
  return 0;
}
int cublasGetPointerMode_v2(Handle* handle, int* mode) {
  *mode = handle->pointer_mode;
  return 0;
}
int cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}

int imitation_blas(Handle* handle, const char* routine) {
  constexpr int EXECUTION_FAILED = 13;
  if (card::has_values() && !card::in_operator()) {
    card::complain(std::string(routine) + " has no results: no operator calls it");
  }
  const auto code = card::enqueue(handle->stream, card::Kind::Launch, routine, nullptr);
  return code ? EXECUTION_FAILED : 0;
}

}  // extern "C"
#pragma GCC visibility pop
