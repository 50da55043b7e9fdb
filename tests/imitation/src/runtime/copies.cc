// Copies and memsets, in the order of their stream.
//
// Pinned memory is read and written when the copy runs, which is late. Pageable memory is read at
// once, as CUDA stages it; a copy down to pageable memory waits.
#include "runtime.h"

#include <cstring>

namespace card {

namespace {

// Pageable memory is staged up to this size; a larger copy runs at once, to save the host's memory.
constexpr size_t STAGED = 1 << 20;

enum class Way { Up, Down, Within };

Way way(const void* to, const void* from) {
  if (is_device(to) && !is_device(from)) return Way::Up;
  return !is_device(to) && is_device(from) ? Way::Down : Way::Within;
}

const char* name_of(Way way, bool is_pageable) {
  switch (way) {
    case Way::Up: return is_pageable ? "[copy up, pageable]" : "[copy up, pinned]";
    case Way::Down: return is_pageable ? "[copy down, pageable]" : "[copy down, pinned]";
    case Way::Within: return "[copy]";
  }
  return "[copy]";
}

// `height` rows of `width` bytes, `to_pitch` and `from_pitch` bytes apart.
struct Rows {
  char* to;
  const char* from;
  size_t to_pitch, from_pitch, width, height;

  size_t span(size_t pitch) const { return height ? (height - 1) * pitch + width : 0; }
};

void move(const Rows& rows) {
  char* to = static_cast<char*>(host_view(rows.to));
  const char* from = static_cast<const char*>(host_view(rows.from));
  for (size_t y = 0; y < rows.height; ++y) {
    memmove(to + y * rows.to_pitch, from + y * rows.from_pitch, rows.width);
  }
}

std::function<void()> staged(Rows rows) {
  auto bytes = std::make_shared<std::string>(rows.from, rows.span(rows.from_pitch));
  rows.from = bytes->data();
  return [rows, bytes] { move(rows); };
}

bool is_in_bounds(const Rows& rows) {
  const size_t to = rows.span(rows.to_pitch), from = rows.span(rows.from_pitch);
  return is_allocated(rows.to, to) && is_allocated(rows.from, from) &&
         is_within_pinned(rows.to, to) && is_within_pinned(rows.from, from);
}

cudaError_t copy(const Rows& rows, cudaStream_t handle, bool is_waiting) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  if (is_waiting) {
    if (auto code = refuse_captured(stream, "cudaMemcpy")) return code;
  }
  if (!is_in_bounds(rows)) {
    complain("a copy leaves the memory that it was given");
    return fail(cudaErrorInvalidValue);
  }
  const Way direction = way(rows.to, rows.from);
  const bool is_pageable = (direction == Way::Up && !is_pinned(rows.from)) ||
                           (direction == Way::Down && !is_pinned(rows.to));
  if (is_pageable && stream->capture) {
    break_capture(*stream->capture);
    complain("a copy of pageable memory on a stream that is capturing");
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  const bool is_staged = is_pageable && direction == Way::Up && rows.width * rows.height <= STAGED;
  auto run = is_staged ? staged(rows) : std::function<void()>([rows] { move(rows); });
  const char* name = name_of(direction, is_pageable);
  if (auto code = enqueue(handle, Kind::Copy, name, std::move(run))) return code;
  const bool waits = is_waiting || (is_pageable && direction == Way::Down);
  if (waits) count(Kind::Synchronise, is_waiting ? "cudaMemcpy" : "copy down to pageable memory");
  if (waits || (is_pageable && !is_staged)) run_all(stream);
  return cudaSuccess;
}

Rows one_row(void* to, const void* from, size_t bytes) {
  return {static_cast<char*>(to), static_cast<const char*>(from), bytes, bytes, bytes, 1};
}

}  // namespace
}  // namespace card

using namespace card;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return copy(one_row(to, from, bytes), nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return copy(one_row(to, from, bytes), stream, false);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return copy(one_row(to, from, bytes), stream, false);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  const Rows rows{static_cast<char*>(to), static_cast<const char*>(from),
                  to_pitch, from_pitch, width, height};
  return copy(rows, stream, false);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  ENTER(resolve(stream)->device);
  if (!is_allocated(to, bytes)) {
    complain("a memset leaves the memory that it was given");
    return fail(cudaErrorInvalidValue);
  }
  auto run = [=] { memset(host_view(to), value, bytes); };
  return enqueue(stream, Kind::Other, "[memset]", run);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

// Constants of kernels: nobody reads them here.
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
