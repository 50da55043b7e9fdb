// Injected faults: from its N-th launch on, a card answers every call of a process with an error.
//
// IMITATION_FAULT is a list of CARD@LAUNCHES[:ecc|:illegal][:always]. As in CUDA the error is
// sticky: the context is dead until the process ends. Without `always` it happens to one process
// only, so that a restarted one lives; IMITATION_FAULT_ID tells one run from the next.
#include "runtime.h"

#include <cstdio>
#include <cstdlib>

namespace card {

namespace {

struct Fault {
  std::string text;
  int card;
  uint64_t launches;
  cudaError_t code;
  bool is_always;
};

Fault parse(const std::string& text) {
  char* end = nullptr;
  const long card = strtol(text.c_str(), &end, 10);
  if (*end != '@') {
    fprintf(stderr, "imitation: IMITATION_FAULT `%s` is not CARD@LAUNCHES\n", text.c_str());
    abort();
  }
  const uint64_t launches = strtoull(end + 1, &end, 10);
  const std::string rest = end;
  const bool is_illegal = rest.find(":illegal") != std::string::npos;
  const auto code = is_illegal ? cudaErrorIllegalAddress : cudaErrorECCUncorrectable;
  return {text, int(card), launches, code, rest.find(":always") != std::string::npos};
}

const std::vector<Fault>& faults() {
  static const auto* all = [] {
    auto* out = new std::vector<Fault>;
    const std::string list = setting("FAULT", "");
    for (size_t at = 0; at < list.size();) {
      const size_t end = std::min(list.find(',', at), list.size());
      out->push_back(parse(list.substr(at, end - at)));
      at = end + 1;
    }
    return out;
  }();
  return *all;
}

cudaError_t errors[MAX_CARDS];
uint64_t launched[MAX_CARDS];

bool happens(const Fault& fault) {
  return fault.is_always || claim_once(fault.text + " " + setting("FAULT_ID", ""));
}

}  // namespace

cudaError_t sticky_error(int device) {
  return device >= 0 && device < MAX_CARDS ? errors[device] : cudaSuccess;
}

cudaError_t count_launches(int device, uint64_t launches) {
  const uint64_t before = launched[device];
  launched[device] += launches;
  for (const auto& fault : faults()) {
    if (fault.card != visible()[device]) continue;
    if (before >= fault.launches || launched[device] < fault.launches || !happens(fault)) continue;
    errors[device] = fault.code;
    fprintf(stderr, "imitation: injected on card %d: %s\n", fault.card,
            cudaGetErrorString(fault.code));
    trace("FAULT %s", fault.text.c_str());
  }
  return errors[device];
}

}  // namespace card
