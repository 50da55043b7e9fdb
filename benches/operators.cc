// Counts the operators that libtorch dispatches in a process, in whatever language it is written: policy.py preloads it.
// At the end it writes "operators: CALLED NESTED" to stderr: those that the program calls, and those that these call.

#include <ATen/record_function.h>

#include <atomic>
#include <cstdio>

namespace {

std::atomic<long> called, nested;
thread_local int depth = 0;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
  (depth++ ? nested : called)++;
  return nullptr;
}

void end(const at::RecordFunction&, at::ObserverContext*) { depth--; }

struct Counter {
  Counter() { at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION})); }
  ~Counter() { std::fprintf(stderr, "operators: %ld %ld\n", called.load(), nested.load()); }
} counter;

}  // namespace
