// What the imitation's libraries share. All of it is in the imitated libcudart.so; the others link
// with that.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace card {

enum class Kind {
  Launch,       // a kernel, or a library call that is one
  Copy,         // between host and device, or on the device
  Values,       // results that the CPU computes for a kernel; a real card has nothing like it
  Synchronise,  // the host waits
  Graph,        // the end of a capture; the name says how large the graph is
  Other,        // events, waits, memsets, host functions, graph launches
};

// Puts work behind what the stream was given so far, or into the graph that it is capturing. `run`
// may be empty. Fails as CUDA's launch would.
cudaError_t enqueue(cudaStream_t stream, Kind kind, const std::string& name,
                    std::function<void()> run);
bool is_capturing(cudaStream_t stream);

// Where the host finds what is at a device address; other addresses are returned as they are.
void* host_view(const void* address);
bool is_device(const void* address);
// Whether so many bytes lie in one allocation. True of host addresses.
bool is_allocated(const void* address, size_t bytes);

// Something that a real card would refuse, or would silently do wrong. Counted, printed once.
void complain(const std::string& what);
void count(Kind kind, const std::string& what);
// A function that is not imitated: printed once; `code` is returned.
int not_imitated(const char* name, int code);

// IMITATION_<name>, or `otherwise` where it is unset or empty.
std::string setting(const char* name, const std::string& otherwise);
bool is_on(const char* name, bool otherwise);

// Whether kernels have results at all (IMITATION_VALUES).
bool has_values();
// Between these two calls of a thread an ATen operator computes the results of what is launched.
void enter_operator();
void leave_operator();
bool in_operator();

// Cards of the machine, all of them, as NVML counts them.
int cards();
std::string card_name();
std::string uuid(int card);
size_t total_bytes();
// In use by all processes and by other programs (IMITATION_USED_MIB).
size_t used_bytes(int card);
std::vector<std::pair<int, size_t>> processes(int card);
// Where processes of the machine meet: IMITATION_SHARED.
std::string shared_folder();

}  // namespace card
