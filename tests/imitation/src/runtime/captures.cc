// Captures of streams, with CUDA's rules for global, thread-local and relaxed mode.
//
// A call that a rule forbids breaks the capture, is refused with CUDA's code, and is a complaint.
#include "runtime.h"

#include <algorithm>

namespace card {

namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

std::vector<std::shared_ptr<Capture>>& open_captures() {
  static auto* all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}

std::string size_of(const CUgraph_st& graph) {
  const auto number = [&](Kind kind) {
    return std::to_string(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const auto& node) { return node->kind == kind; }));
  };
  return number(Kind::Launch) + " launches, " + number(Kind::Copy) + " copies";
}

// Whether the capture's origin waits for all that the branch did.
bool is_joined(const Capture& capture, CUstream_st* branch) {
  for (size_t steps = 0; branch != capture.origin; ++steps) {
    const auto next = capture.joined.find(branch);
    if (next == capture.joined.end() || steps > capture.members.size()) return false;
    branch = next->second;
  }
  return true;
}

bool is_own(const Capture& capture) { return pthread_equal(capture.thread, pthread_self()); }

// Whether the capture forbids unsafe calls to this thread.
bool forbids(const Capture& capture) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (is_own(capture)) return capture.mode != cudaStreamCaptureModeRelaxed;
  return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

}  // namespace

const std::vector<std::shared_ptr<Capture>>& captures() { return open_captures(); }

void break_capture(Capture& capture) { capture.is_broken = true; }

cudaError_t refuse_in_capture(const char* call) {
  bool is_refused = false;
  for (auto& capture : captures()) {
    if (!forbids(*capture)) continue;
    break_capture(*capture);
    is_refused = true;
  }
  if (!is_refused) return cudaSuccess;
  complain(std::string(call) + " while a stream is capturing");
  return fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t refuse_captured(CUstream_st* stream, const char* call) {
  if (!stream->capture) return refuse_in_capture(call);
  break_capture(*stream->capture);
  complain(std::string(call) + " of a stream that is capturing");
  return fail(cudaErrorStreamCaptureUnsupported);
}

bool has_own_capture() {
  return std::any_of(captures().begin(), captures().end(),
                     [](const auto& capture) { return is_own(*capture); });
}

}  // namespace card

using namespace card;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  ENTER(resolve(stream)->device);
  static unsigned long long last_id = 0;
  if (uintptr_t(stream) <= 1) {
    complain("capture of the legacy stream");
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  stream = resolve(stream);
  if (stream->capture) return fail(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>(
      Capture{stream, mode, pthread_self(), ++last_id, std::make_unique<CUgraph_st>()});
  capture->members.insert(stream);
  stream->capture = capture;
  open_captures().push_back(capture);
  trace("BEGIN CAPTURE %llu", capture->id);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  *out = nullptr;
  auto capture = stream->capture;
  if (!capture) return fail(cudaErrorIllegalState);
  if (capture->origin != stream) {
    complain("a capture is ended on a stream that it did not begin on");
    return fail(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && !is_own(*capture)) {
    complain("a capture is ended by another thread");
    return fail(cudaErrorStreamCaptureWrongThread);
  }
  for (auto* member : capture->members) member->capture = nullptr;
  auto& open = open_captures();
  open.erase(std::find(open.begin(), open.end(), capture));
  trace("END CAPTURE %llu: %zu nodes%s", capture->id, capture->graph->nodes.size(),
        capture->is_broken ? ", broken" : "");
  if (capture->is_broken) return fail(cudaErrorStreamCaptureInvalidated);
  const auto& members = capture->members;
  if (!std::all_of(members.begin(), members.end(),
                   [&](auto* member) { return is_joined(*capture, member); })) {
    complain("a capture ends with streams that were not joined");
    return fail(cudaErrorStreamCaptureUnjoined);
  }
  count(Kind::Graph, size_of(*capture->graph));
  *out = capture->graph.release();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* out) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  *out = !stream->capture               ? cudaStreamCaptureStatusNone
         : stream->capture->is_broken ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  Lock lock(mutex);
  if (auto code = cudaStreamIsCapturing(handle, status)) return code;
  auto& capture = resolve(handle)->capture;
  if (capture && id) *id = capture->id;
  if (capture && graph) *graph = capture->graph.get();
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return cudaSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
