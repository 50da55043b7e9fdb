// What processes of the machine know of each other: a file that all map, with the memory that each
// uses on each card, and what must happen only once on the machine.
#include "runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace card {

namespace {

struct Process {
  std::atomic<int> pid;
  std::atomic<size_t> used[MAX_CARDS];
};
struct Shared {
  std::atomic<uint64_t> once[16];  // hashes of what has happened
  Process processes[64];
};

bool is_alive(int pid) { return pid && kill(pid, 0) == 0; }

Shared& shared() {
  static Shared* all = [] {
    mkdir(shared_folder().c_str(), 0777);
    const int file = open((shared_folder() + "/cards").c_str(), O_RDWR | O_CREAT, 0666);
    if (file < 0 || ftruncate(file, sizeof(Shared))) {
      perror(("imitation: " + shared_folder() + "/cards").c_str());
      abort();
    }
    void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) abort();
    return static_cast<Shared*>(at);
  }();
  return *all;
}

// The entry of this process; a forked child takes one of its own.
Process& own() {
  static Process* entry = nullptr;
  static int owner = 0;
  if (entry && owner == getpid()) return *entry;
  owner = getpid();
  for (auto& process : shared().processes) {
    int pid = process.pid;
    if (pid != owner && is_alive(pid)) continue;
    if (!process.pid.compare_exchange_strong(pid, owner)) continue;
    for (auto& bytes : process.used) bytes = 0;
    return *(entry = &process);
  }
  fprintf(stderr, "imitation: more than 64 processes share the cards\n");
  abort();
}

// IMITATION_USED_MIB, as in "0:2048,3:100".
size_t used_by_others(int card) {
  size_t bytes = 0;
  std::stringstream list(setting("USED_MIB", ""));
  for (std::string entry; std::getline(list, entry, ',');) {
    int number = 0;
    size_t mib = 0;
    if (sscanf(entry.c_str(), "%d:%zu", &number, &mib) != 2) {
      fprintf(stderr, "imitation: IMITATION_USED_MIB `%s` is not CARD:MIB\n", entry.c_str());
      abort();
    }
    if (number == card) bytes += mib << 20;
  }
  return bytes;
}

}  // namespace

void set_used(int card, size_t bytes) { own().used[card] = bytes; }

size_t used_bytes(int card) {
  size_t sum = used_by_others(card);
  for (const auto& [pid, bytes] : processes(card)) sum += bytes;
  return sum;
}

std::vector<std::pair<int, size_t>> processes(int card) {
  std::vector<std::pair<int, size_t>> out;
  for (auto& process : shared().processes) {
    const int pid = process.pid;
    if (is_alive(pid) && process.used[card]) out.push_back({pid, process.used[card]});
  }
  return out;
}

// True for the first who asks.
bool claim_once(const std::string& what) {
  const uint64_t hash = std::hash<std::string>()(what) | 1;
  for (auto& slot : shared().once) {
    uint64_t found = 0;
    if (slot.compare_exchange_strong(found, hash)) return true;
    if (found == hash) return false;
  }
  return false;
}

}  // namespace card
