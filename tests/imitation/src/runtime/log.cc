// What was launched, copied and waited for, by name; complaints; the trace of everything in order.
//
// Complaints are written to the log at once, since a process may end without its destructors.
#include "runtime.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

namespace card {

std::recursive_mutex mutex;

namespace {

struct Counts {
  uint64_t enqueued = 0, captured = 0, replayed = 0;
};
using Key = std::pair<Kind, std::string>;

// Never destroyed: libraries that are unloaded later still count.
std::map<Key, Counts>& counts() {
  static auto* all = new std::map<Key, Counts>;
  return *all;
}
std::map<std::string, uint64_t>& complaints() {
  static auto* all = new std::map<std::string, uint64_t>;
  return *all;
}

const char* text(Kind kind) {
  switch (kind) {
    case Kind::Launch: return "launch";
    case Kind::Copy: return "copy";
    case Kind::Values: return "values";
    case Kind::Synchronise: return "sync";
    case Kind::Graph: return "graph";
    case Kind::Other: return "other";
  }
  return "other";
}

FILE* open_own(const char* name, const char* mode) {
  const std::string path = setting(name, "");
  return path.empty() ? nullptr : fopen((path + "." + std::to_string(getpid())).c_str(), mode);
}

FILE* trace_file() {
  static FILE* file = open_own("TRACE", "w");
  return file;
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* found = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 && found ? found : name;
  free(found);
  return out.substr(0, 400);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Host time from one launch of a thread to its next (IMITATION_TIMES).
struct Gaps {
  uint64_t count = 0, total_ns = 0, longest_ns = 0;
} gaps;

void measure_gap() {
  static const bool is_measured = is_on("TIMES", false);
  if (!is_measured) return;
  thread_local uint64_t previous = 0;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t ns = uint64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
  if (previous) {
    ++gaps.count;
    gaps.total_ns += ns - previous;
    gaps.longest_ns = std::max(gaps.longest_ns, ns - previous);
  }
  previous = ns;
}

// A forked child counts for itself.
const int forks = pthread_atfork(nullptr, nullptr, [] {
  counts().clear();
  complaints().clear();
});

struct AtExit {
  ~AtExit() { write_log(); }
} at_exit;

}  // namespace

void trace(const char* format, ...) {
  FILE* file = trace_file();
  if (!file) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fputc('\n', file);
  fflush(file);
}

void count(Kind kind, const std::string& what) {
  Lock lock(mutex);
  ++counts()[{kind, what}].enqueued;
  if (kind == Kind::Launch) measure_gap();
}
void count_captured(Kind kind, const std::string& name) {
  ++counts()[{kind, name}].captured;
  if (kind == Kind::Launch) measure_gap();
}
void count_replayed(Kind kind, const std::string& name) { ++counts()[{kind, name}].replayed; }

void complain(const std::string& text) {
  Lock lock(mutex);
  const std::string what = one_line(text);
  trace("COMPLAINT %s", what.c_str());
  if (complaints()[what]++) return;
  fprintf(stderr, "imitation: %s\n", what.c_str());
  if (FILE* file = open_own("LOG", "a")) {
    fprintf(file, "complaint 1 %s\n", what.c_str());
    fclose(file);
  }
  void* places[40];
  if (is_on("PLACES", false)) backtrace_symbols_fd(places, backtrace(places, 40), 2);
}

int not_imitated(const char* name, int code) {
  static auto* named = new std::set<std::string>;
  Lock lock(mutex);
  if (named->insert(name).second) fprintf(stderr, "imitation: %s is not imitated\n", name);
  return code;
}

void write_log() {
  Lock lock(mutex);
  if (counts().empty() && complaints().empty()) return;
  FILE* file = open_own("LOG", "w");
  if (!file) return;
  for (auto& [what, n] : complaints()) fprintf(file, "complaint %lu %s\n", n, what.c_str());
  if (gaps.count) {
    fprintf(file, "gaps %lu total_ns %lu longest_ns %lu\n", gaps.count, gaps.total_ns,
            gaps.longest_ns);
  }
  for (auto& [key, n] : counts()) {
    fprintf(file, "%s %lu %lu %lu %s\n", text(key.first), n.enqueued, n.captured, n.replayed,
            demangled(key.second).c_str());
  }
  fclose(file);
}

}  // namespace card
