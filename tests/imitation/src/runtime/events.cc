// Events: points of a stream that others wait for, and the joints of a capture.
#include "runtime.h"

namespace card {

namespace {

// A call that asks about an event: it must not come from a capture.
cudaError_t refuse_captured_event(cudaEvent_t event, const char* call) {
  if (!event->capture) return refuse_in_capture(call);
  for (auto& capture : captures()) {
    if (capture->id == event->capture) break_capture(*capture);
  }
  complain(std::string(call) + " of an event that was recorded in a capture");
  return fail(cudaErrorCapturedEvent);
}

std::shared_ptr<Capture> capture_of(cudaEvent_t event) {
  for (auto& capture : captures()) {
    if (capture->id == event->capture) return capture;
  }
  return nullptr;
}

// The stream joins the capture, or takes a branch back.
cudaError_t join(CUstream_st* stream, cudaEvent_t event) {
  auto capture = capture_of(event);
  if (!capture) return fail(cudaErrorCapturedEvent);
  if (stream->capture && stream->capture != capture) {
    break_capture(*capture);
    break_capture(*stream->capture);
    complain("a capturing stream waits for an event of another capture");
    return fail(cudaErrorStreamCaptureMerge);
  }
  if (!stream->capture) {
    stream->capture = capture;
    capture->members.insert(stream);
  }
  CUstream_st* branch = event->captured_on;
  capture->joined.erase(stream);  // who waits for it does not wait for this
  if (branch != stream && event->captured_at == branch->captured) {
    capture->joined[branch] = stream;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace card

using namespace card;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  ENTER(current_device);
  *out = new CUevent_st{flags, current_device};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  if (event->device != stream->device) {
    complain("an event is recorded on a stream of another device");
    return fail(cudaErrorInvalidResourceHandle);
  }
  event->is_recorded = true;
  event->queries = 0;
  event->capture = 0;
  if (stream->capture) {
    if (stream->capture->is_broken) return fail(cudaErrorStreamCaptureInvalidated);
    event->capture = stream->capture->id;
    event->captured_on = stream;
    event->captured_at = stream->captured;
    return cudaSuccess;
  }
  if (auto code = enqueue(handle, Kind::Other, "[event]", nullptr)) return code;
  event->point = {stream, stream->enqueued};
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

// Who asks a third time is answered: a loop that polls comes to an end.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER(event->device);
  if (auto code = refuse_captured_event(event, "cudaEventQuery")) return code;
  if (is_done(event->point)) return cudaSuccess;
  if (++event->queries < 3) return cudaErrorNotReady;
  run_until(event->point.stream, event->point.at);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER(event->device);
  if (auto code = refuse_captured_event(event, "cudaEventSynchronize")) return code;
  count(Kind::Synchronise, "cudaEventSynchronize");
  if (event->point.stream) run_until(event->point.stream, event->point.at);
  return cudaSuccess;
}

// Time is not imitated.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  CUstream_st* stream = resolve(handle);
  ENTER(stream->device);
  if (event->capture) return join(stream, event);
  if (!event->is_recorded) return cudaSuccess;
  if (stream->capture) {
    break_capture(*stream->capture);
    complain("a capturing stream waits for an event from outside the capture");
    return fail(cudaErrorStreamCaptureIsolation);
  }
  stream->after.push_back(event->point);
  return enqueue(handle, Kind::Other, "[wait]", nullptr);
}

}  // extern "C"
#pragma GCC visibility pop
