// Streams that are lazy: work runs when somebody waits for it, as late as streams and events allow.
//
// So a staging buffer that is reused too early gives wrong values every time, not once in a while.
// IMITATION_EAGER=1 runs everything at once.
#include "runtime.h"

namespace card {

namespace {

// Work that is kept at most; beyond it the stream runs, to save the host's memory.
constexpr size_t MOST_PENDING = 20000;

std::set<CUstream_st*>& streams() {
  static auto* all = new std::set<CUstream_st*>;
  return *all;
}

CUstream_st* legacy(int device) {
  static CUstream_st* all[MAX_CARDS] = {};
  if (!all[device]) {
    all[device] = new CUstream_st{device, 0, 0};
    all[device]->is_legacy = true;
    streams().insert(all[device]);
  }
  return all[device];
}

// The legacy stream waits for all blocking streams of its device, and they wait for it.
cudaError_t order_legacy(CUstream_st* stream, const std::string& name) {
  if (!stream->is_legacy && !stream->is_blocking()) return cudaSuccess;
  for (auto& capture : captures()) {
    if (!stream->is_legacy || !capture->origin->is_blocking()) continue;
    break_capture(*capture);
    complain("`" + name + "` on the legacy stream while a blocking stream is capturing");
    return fail(cudaErrorStreamCaptureImplicit);
  }
  for (auto* other : streams()) {
    const bool is_ordered = stream->is_legacy ? other->is_blocking() : other->is_legacy;
    if (other == stream || other->device != stream->device || !is_ordered) continue;
    stream->after.push_back({other, other->enqueued});
  }
  return cudaSuccess;
}

cudaError_t capture_work(CUstream_st* stream, Kind kind, const std::string& name,
                         std::function<void()> run) {
  if (stream->capture->is_broken) return fail(cudaErrorStreamCaptureInvalidated);
  ++stream->captured;
  stream->capture->joined.erase(stream);
  count_captured(kind, name);
  trace("captured %p %s", static_cast<void*>(stream), name.c_str());
  auto node = std::make_shared<CUgraphNode_st>(CUgraphNode_st{kind, name, std::move(run)});
  stream->capture->graph->nodes.push_back(std::move(node));
  return cudaSuccess;
}

}  // namespace

const std::set<CUstream_st*>& all_streams() { return streams(); }

CUstream_st* resolve(cudaStream_t stream) {
  Lock lock(mutex);
  const bool is_default = uintptr_t(stream) <= 2;  // none, cudaStreamLegacy, cudaStreamPerThread
  return is_default ? legacy(current_device) : stream;
}

void run_until(CUstream_st* stream, uint64_t upto) {
  while (stream->done < upto && !stream->queue.empty()) {
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    for (auto& point : work.after) {
      if (point.stream) run_until(point.stream, point.at);
    }
    if (work.run) work.run();
    ++stream->done;
  }
}

void run_all(CUstream_st* stream) { run_until(stream, stream->enqueued); }

void run_device(int device) {
  const auto now = streams();
  for (auto* stream : now) {
    if (stream->device == device) run_all(stream);
  }
}

bool is_done(const Point& point) { return !point.stream || point.stream->done >= point.at; }

cudaError_t enqueue(cudaStream_t handle, Kind kind, const std::string& name,
                    std::function<void()> run) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  if (kind == Kind::Launch && stream->device != current_device) {
    complain("`" + name + "` is launched on a stream of another device");
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture) return capture_work(stream, kind, name, std::move(run));
  if (auto code = order_legacy(stream, name)) return code;
  if (has_own_capture() && kind != Kind::Values) {
    complain("`" + name + "` of a capturing thread on a stream that does not capture: " +
             "the graph lacks it");
  }
  count(kind, name);
  trace("enqueued %p %s", static_cast<void*>(stream), name.c_str());
  if (kind == Kind::Launch) {
    if (auto code = count_launches(stream->device, 1)) return fail(code);
  }
  stream->queue.push_back({std::move(run), std::move(stream->after)});
  stream->after.clear();
  ++stream->enqueued;
  static const bool is_eager = is_on("EAGER", false);
  if (is_eager || stream->queue.size() > MOST_PENDING) run_all(stream);
  return cudaSuccess;
}

bool is_capturing(cudaStream_t stream) { return resolve(stream)->capture != nullptr; }

}  // namespace card

using namespace card;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  ENTER(current_device);
  open_device(current_device);
  *out = new CUstream_st{current_device, flags, priority};
  streams().insert(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return cudaStreamCreateWithPriority(out, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithPriority(out, 0, 0); }

// Its memory stays: events may still point to it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER(stream->device);
  run_all(stream);
  streams().erase(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* out) {
  *out = resolve(stream)->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  if (auto code = refuse_captured(stream, "cudaStreamSynchronize")) return code;
  count(Kind::Synchronise, "cudaStreamSynchronize");
  run_all(stream);
  return cudaSuccess;
}

// Not ready while there is work; each question runs one piece, so that polling comes to an end.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  if (auto code = refuse_captured(stream, "cudaStreamQuery")) return code;
  if (stream->done >= stream->enqueued) return cudaSuccess;
  run_until(stream, stream->done + 1);
  return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  ENTER(current_device);
  if (auto code = refuse_in_capture("cudaDeviceSynchronize")) return code;
  count(Kind::Synchronise, "cudaDeviceSynchronize");
  run_device(current_device);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void* data) {
  return enqueue(stream, Kind::Other, "[host function]", [=] { run(data); });
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t run, void* data,
                                  unsigned) {
  return enqueue(stream, Kind::Other, "[callback]", [=] { run(stream, cudaSuccess, data); });
}

}  // extern "C"
#pragma GCC visibility pop
