// What the files of the imitated libcudart.so share with each other.
#pragma once
#include "card.h"

#include <pthread.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

struct Capture;

// Up to which work of a stream something waits.
struct Point {
  CUstream_st* stream = nullptr;
  uint64_t at = 0;
};

struct Work {
  std::function<void()> run;
  std::vector<Point> after;
};

struct CUstream_st {
  int device;
  unsigned flags;
  int priority;
  bool is_legacy = false;
  std::deque<Work> queue;
  uint64_t enqueued = 0, done = 0;
  std::vector<Point> after;  // what its next work waits for
  std::shared_ptr<Capture> capture;
  uint64_t captured = 0;

  bool is_blocking() const { return !is_legacy && !(flags & cudaStreamNonBlocking); }
};

struct CUevent_st {
  unsigned flags;
  int device;
  bool is_recorded = false;
  Point point;
  unsigned long long capture = 0;  // the capture that it was recorded in
  CUstream_st* captured_on = nullptr;
  uint64_t captured_at = 0;  // work that the stream had captured then
  int queries = 0;
};

struct CUgraphNode_st {
  card::Kind kind;
  std::string name;
  std::function<void()> run;
};
struct CUgraph_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  CUgraph_st graph;
  int device;
};

struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  pthread_t thread;
  unsigned long long id;
  std::unique_ptr<CUgraph_st> graph;
  bool is_broken = false;
  std::set<CUstream_st*> members;
  // Of a branch: the stream that waits for all of its work so far.
  std::map<CUstream_st*, CUstream_st*> joined;
};

namespace card {

constexpr int MAX_CARDS = 8;

// Every call of CUDA holds it. Recursive: work that runs may call again.
extern std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

// The device that this thread has chosen, as CUDA_VISIBLE_DEVICES counts.
extern thread_local int current_device;

// errors.cc
cudaError_t fail(cudaError_t code);

// settings.cc
size_t mebibytes(const char* name, size_t otherwise);

// log.cc
void trace(const char* format, ...) __attribute__((format(printf, 1, 2)));
void count_captured(Kind kind, const std::string& name);
void count_replayed(Kind kind, const std::string& name);
void write_log();

// visible.cc: devices that this process sees, each by the machine's number
const std::vector<int>& visible();
bool is_visible(int device);

// shared.cc
void set_used(int card, size_t bytes);
bool claim_once(const std::string& what);

// faults.cc: the sticky error of a device, or success
cudaError_t sticky_error(int device);
cudaError_t count_launches(int device, uint64_t launches);

// memory.cc
void open_device(int device);
int device_of(const void* address);
bool is_pinned(const void* address);
bool is_within_pinned(const void* address, size_t bytes);

// streams.cc
CUstream_st* resolve(cudaStream_t stream);
void run_until(CUstream_st* stream, uint64_t upto);
void run_all(CUstream_st* stream);
void run_device(int device);
bool is_done(const Point& point);
const std::set<CUstream_st*>& all_streams();

// captures.cc
const std::vector<std::shared_ptr<Capture>>& captures();
void break_capture(Capture& capture);
// For a call that waits, or that a capture forbids to its thread.
cudaError_t refuse_in_capture(const char* call);
cudaError_t refuse_captured(CUstream_st* stream, const char* call);
bool has_own_capture();

// values_loader.cc
void load_values();

}  // namespace card

// In front of a call's body: the lock, and the sticky error of the device if it has one.
#define ENTER(device)                                                             \
  card::Lock entered(card::mutex);                                                \
  if (auto sticky = card::sticky_error(device)) return card::fail(sticky)
