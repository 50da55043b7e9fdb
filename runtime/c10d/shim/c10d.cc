// The CPU half of the shim, linked into the program: c10d's TCPStore, and what Gloo and NCCL groups share.
//
// Handles are boxed intrusive_ptr: Rust owns the box, c10d counts the object inside.
// Calls return a rrun::Status; on failure the text is rr_last_words() of the same thread.
#define USE_DISTRIBUTED
#define USE_C10D_GLOO
#include "fault.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

static_assert(TORCH_VERSION_MAJOR == 2 && (TORCH_VERSION_MINOR == 11 || TORCH_VERSION_MINOR == 12),
              "the shims were checked against torch 2.11 and 2.12");
// What libtorch_python.so of both allocates for the class: the gloo stubs must not change its layout.
static_assert(sizeof(c10d::ProcessGroupGloo) == 0x1e8, "layout of ProcessGroupGloo differs: check gloo_stub");

using rrun::guarded;
using StoreBox = c10::intrusive_ptr<c10d::Store>;
using GroupBox = c10::intrusive_ptr<c10d::Backend>;
using Work = c10::intrusive_ptr<c10d::Work>;
using std::chrono::milliseconds;

namespace {

// Keeps c10d from printing what its exceptions say too, with pages of C++ frames. TORCH_CPP_LOG_LEVEL brings it back.
void hush() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

std::vector<std::string> names(const char* const* keys, const size_t* lengths, size_t count) {
  std::vector<std::string> names;
  names.reserve(count);
  for (size_t i = 0; i < count; i++) names.emplace_back(keys[i], lengths[i]);
  return names;
}

// How often a collective on a GPU is asked whether it has ended.
constexpr auto POLL = std::chrono::microseconds(200);

// Waits until `work` has ended or `limit` has passed.
//
// Gloo keeps its own time. NCCL's `wait` only orders CUDA streams, so its end is polled: the caller's thread then
// never enters a CUDA call that cannot be left.
void finish(c10d::Backend& group, const Work& work, milliseconds limit) {
  if (group.getBackendName() == "nccl") {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!work->isCompleted()) {
      if (std::chrono::steady_clock::now() >= end) {
        C10_THROW_ERROR(DistBackendError, c10::str("NCCL timed out after ", limit.count(), " ms"));
      }
      std::this_thread::sleep_for(POLL);
    }
    if (auto failure = work->exception()) std::rethrow_exception(failure);
    work->wait();
    return;
  }
  if (!work->wait(limit)) C10_THROW_ERROR(DistBackendError, "the collective was aborted");
}

// libtorch's flight recorder notes each group at its first collective in a map that it does not lock (torch 2.11,
// FlightRecorderDetail.hpp, `all_pg_status_`): groups of several threads begin one after the other.
std::timed_mutex beginning;

template <class Begin>
void run(GroupBox& group, int64_t limit_ms, Begin&& begin) {
  const milliseconds limit(limit_ms);
  std::unique_lock<std::timed_mutex> turn(beginning, limit);
  if (!turn) C10_THROW_ERROR(DistBackendError, "timed out: a collective of another group does not begin");
  const Work work = begin(*group);
  turn.unlock();
  finish(*group, work, limit);
}

}  // namespace

extern "C" {

const char* rr_last_words() { return rrun::last_words.c_str(); }

// ---- store ----

int rr_store_connect(const char* host, uint16_t port, size_t world, bool serve, int64_t limit_ms, StoreBox** out) {
  return guarded([&] {
    hush();
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = serve;
    if (world > 0) options.numWorkers = world;
    // A client only says that it came: a server in Python waits for that. As server we do not wait, lest a rank that
    // never comes keep this one from starting.
    options.waitWorkers = !serve;
    options.timeout = milliseconds(limit_ms);
    options.multiTenant = true;
    options.useLibUV = true;
    *out = new StoreBox(c10::make_intrusive<c10d::TCPStore>(host, options));
  });
}

uint16_t rr_store_port(StoreBox* store) {
  auto* tcp = dynamic_cast<c10d::TCPStore*>(store->get());
  return tcp == nullptr ? 0 : tcp->getPort();
}

int rr_store_prefix(StoreBox* inner, const char* prefix, size_t length, StoreBox** out) {
  return guarded(
      [&] { *out = new StoreBox(c10::make_intrusive<c10d::PrefixStore>(std::string(prefix, length), *inner)); });
}

StoreBox* rr_store_share(StoreBox* store) { return new StoreBox(*store); }

void rr_store_free(StoreBox* store) { delete store; }

int rr_store_set(StoreBox* store, const char* key, size_t length, const uint8_t* value, size_t size) {
  return guarded([&] { (*store)->set(std::string(key, length), std::vector<uint8_t>(value, value + size)); });
}

// `take` gets the value's bytes during the call and must not throw.
int rr_store_get(StoreBox* store, const char* key, size_t length, int64_t limit_ms, void* taker,
                 void (*take)(void* taker, const uint8_t* value, size_t size)) {
  return guarded([&] {
    const std::string name(key, length);
    (*store)->wait({name}, milliseconds(limit_ms));
    const auto value = (*store)->get(name);
    take(taker, value.data(), value.size());
  });
}

// As rr_store_get; `take` gets what is there afterwards, or `expected` if nothing was.
int rr_store_compare_set(StoreBox* store, const char* key, size_t length, const uint8_t* expected, size_t expected_size,
                         const uint8_t* desired, size_t desired_size, void* taker,
                         void (*take)(void* taker, const uint8_t* value, size_t size)) {
  return guarded([&] {
    const auto value = (*store)->compareSet(std::string(key, length),
                                            std::vector<uint8_t>(expected, expected + expected_size),
                                            std::vector<uint8_t>(desired, desired + desired_size));
    take(taker, value.data(), value.size());
  });
}

int rr_store_add(StoreBox* store, const char* key, size_t length, int64_t delta, int64_t* sum) {
  return guarded([&] { *sum = (*store)->add(std::string(key, length), delta); });
}

int rr_store_check(StoreBox* store, const char* key, size_t length, bool* exists) {
  return guarded([&] { *exists = (*store)->check({std::string(key, length)}); });
}

int rr_store_check_all(StoreBox* store, const char* const* keys, const size_t* lengths, size_t count, bool* exist) {
  return guarded([&] { *exist = (*store)->check(names(keys, lengths, count)); });
}

// As rr_store_get for keys that are all there; `take` gets their values in order.
int rr_store_multi_get(StoreBox* store, const char* const* keys, const size_t* lengths, size_t count, void* taker,
                       void (*take)(void* taker, const uint8_t* value, size_t size)) {
  return guarded([&] {
    for (const auto& value : (*store)->multiGet(names(keys, lengths, count))) take(taker, value.data(), value.size());
  });
}

int rr_store_wait(StoreBox* store, const char* const* keys, const size_t* lengths, size_t count, int64_t limit_ms) {
  return guarded([&] { (*store)->wait(names(keys, lengths, count), milliseconds(limit_ms)); });
}

int rr_store_delete(StoreBox* store, const char* key, size_t length, bool* existed) {
  return guarded([&] { *existed = (*store)->deleteKey(std::string(key, length)); });
}

// ---- group ----

int rr_gloo_new(StoreBox* store, int rank, int world, int64_t limit_ms, GroupBox** out) {
  return guarded([&] {
    // Honours GLOO_SOCKET_IFNAME, as Python does.
    auto options = c10d::ProcessGroupGloo::Options::create_default(milliseconds(limit_ms));
    options->group_name = "0";
    *out = new GroupBox(c10::make_intrusive<c10d::ProcessGroupGloo>(*store, rank, world, options));
  });
}

GroupBox* rr_group_share(GroupBox* group) { return new GroupBox(*group); }

void rr_group_free(GroupBox* group) { delete group; }

// torch.distributed.all_reduce
int rr_group_all_reduce(GroupBox* group, at::Tensor* tensor, int operation, int64_t limit_ms) {
  return guarded([&] {
    std::vector<at::Tensor> tensors{*tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = static_cast<c10d::ReduceOp::RedOpType>(operation);
    run(*group, limit_ms, [&](c10d::Backend& backend) { return backend.allreduce(tensors, options); });
  });
}

// torch.distributed.broadcast
int rr_group_broadcast(GroupBox* group, at::Tensor* tensor, int root, int64_t limit_ms) {
  return guarded([&] {
    std::vector<at::Tensor> tensors{*tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    run(*group, limit_ms, [&](c10d::Backend& backend) { return backend.broadcast(tensors, options); });
  });
}

// torch.distributed.all_gather_into_tensor
int rr_group_all_gather(GroupBox* group, at::Tensor* all, at::Tensor* mine, int64_t limit_ms) {
  return guarded(
      [&] { run(*group, limit_ms, [&](c10d::Backend& backend) { return backend._allgather_base(*all, *mine); }); });
}

// torch.distributed.barrier
int rr_group_barrier(GroupBox* group, int64_t limit_ms) {
  return guarded([&] { run(*group, limit_ms, [](c10d::Backend& backend) { return backend.barrier(); }); });
}

int rr_group_abort(GroupBox* group) {
  return guarded([&] { (*group)->abort(); });
}

int rr_group_shutdown(GroupBox* group) {
  return guarded([&] { (*group)->shutdown(); });
}

}  // extern "C"
