// What rrun calls of libnccl, for processes of one machine: each rank puts its part into a file of
// the shared folder, and takes those of the others when its stream runs. NCCL's threads and its
// time are not imitated.
#include "card.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

using Parts = std::vector<std::vector<char>>;

struct Id {
  char text[128];
};
struct Comm {
  std::string name;
  int world, rank;
  uint64_t calls;
};

namespace {

// ncclDataType_t, as far as it is used.
enum Type { UINT8 = 1, INT64 = 4, FLOAT = 7 };

constexpr int PATIENCE_MS = 60000;

std::string path_of(const Comm& comm, uint64_t call, int rank) {
  return card::shared_folder() + "/" + comm.name + "-" + std::to_string(call) + "-" +
         std::to_string(rank);
}

// Written beside and renamed, so that it is never read in part.
void put(const Comm& comm, uint64_t call, const void* data, size_t bytes) {
  const std::string path = path_of(comm, call, comm.rank), draft = path + "~";
  FILE* file = fopen(draft.c_str(), "w");
  if (!file || (bytes && fwrite(card::host_view(data), 1, bytes, file) != bytes)) {
    card::complain("NCCL: " + draft + " cannot be written");
  }
  if (file) fclose(file);
  rename(draft.c_str(), path.c_str());
}

std::vector<char> take(const Comm& comm, uint64_t call, int rank, size_t bytes) {
  std::vector<char> out(bytes);
  const std::string path = path_of(comm, call, rank);
  for (int waited_ms = 0; access(path.c_str(), F_OK); ++waited_ms) {
    if (waited_ms > PATIENCE_MS) {
      card::complain("NCCL: a peer did not come within a minute");
      return out;
    }
    usleep(1000);
  }
  FILE* file = fopen(path.c_str(), "r");
  if (!file || fread(out.data(), 1, bytes, file) != bytes || fgetc(file) != EOF) {
    card::complain("NCCL: ranks give different numbers of bytes");
  }
  if (file) fclose(file);
  return out;
}

Parts take_all(const Comm& comm, uint64_t call, size_t bytes) {
  Parts parts;
  for (int rank = 0; rank < comm.world; ++rank) parts.push_back(take(comm, call, rank, bytes));
  // All have come to this call, so nobody reads the files of the last one.
  if (call > 0) unlink(path_of(comm, call - 1, comm.rank).c_str());
  return parts;
}

int collect(Comm* comm, const char* name, const void* from, size_t bytes, cudaStream_t stream,
            std::function<void(Parts&)> use) {
  constexpr int UNHANDLED_CUDA_ERROR = 1;
  if (card::is_capturing(stream)) {
    card::complain(std::string(name) + " in a capture is not imitated");
  }
  const uint64_t call = comm->calls++;
  if (cudaStreamSynchronize(stream)) return UNHANDLED_CUDA_ERROR;
  put(*comm, call, from, bytes);
  const Comm copy = *comm;
  const auto code = card::enqueue(stream, card::Kind::Launch, name, [=] {
    Parts parts = take_all(copy, call, bytes);
    use(parts);
  });
  return code ? UNHANDLED_CUDA_ERROR : 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
const char* ncclGetErrorString(int) { return "an imitated error of NCCL"; }
int ncclGetUniqueId(Id* id) {
  snprintf(id->text, sizeof id->text, "nccl-%d-%lx", getpid(), random());
  return 0;
}
int ncclCommInitRank(Comm** out, int world, Id id, int rank) {
  *out = new Comm{id.text, world, rank, 0};
  return 0;
}
int ncclCommDestroy(Comm*) { return 0; }
int ncclCommAbort(Comm*) { return 0; }

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Comm* comm,
                  cudaStream_t stream) {
  constexpr int SUM = 0;
  if (op != SUM || type != FLOAT) card::complain("ncclAllReduce: only sums of floats are imitated");
  return collect(comm, "ncclAllReduce", from, count * sizeof(float), stream, [=](Parts& parts) {
    float* sums = static_cast<float*>(card::host_view(to));
    for (size_t i = 0; i < count; ++i) {
      sums[i] = 0;
      for (auto& part : parts) sums[i] += reinterpret_cast<const float*>(part.data())[i];
    }
  });
}
int ncclAllGather(const void* from, void* to, size_t count, int type, Comm* comm,
                  cudaStream_t stream) {
  const size_t bytes = count * (type == INT64 ? sizeof(int64_t) : 1);
  if (type != INT64 && type != UINT8) card::complain("ncclAllGather: this type is not imitated");
  return collect(comm, "ncclAllGather", from, bytes, stream, [=](Parts& parts) {
    char* out = static_cast<char*>(card::host_view(to));
    for (auto& part : parts) {
      memcpy(out, part.data(), part.size());
      out += part.size();
    }
  });
}

}  // extern "C"
#pragma GCC visibility pop
