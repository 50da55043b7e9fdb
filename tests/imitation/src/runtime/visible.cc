// The devices that CUDA_VISIBLE_DEVICES leaves to a process: numbers, or UUIDs and unique prefixes.
//
// As torch/cuda/__init__.py describes CUDA (`_parse_visible_devices`, torch 2.11): the first entry
// that is unknown, negative or ambiguous ends the list; an entry that comes twice empties it;
// numbers are read as strtol does.
#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace card {

// The first digit differs, so that "GPU-2" names one card.
std::string uuid(int card) {
  char text[48];
  snprintf(text, sizeof text, "GPU-%x2345678-9abc-4def-8012-3456789abc%02x", card + 1, card);
  return text;
}

namespace {

int by_uuid(const std::string& prefix) {
  int found = -1;
  for (int i = 0; i < cards(); ++i) {
    if (uuid(i).rfind(prefix, 0) != 0) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

int by_number(const std::string& entry) {
  char* end = nullptr;
  const long number = strtol(entry.c_str(), &end, 10);
  return end == entry.c_str() || number >= cards() ? -1 : int(number);
}

std::vector<int> parse(const std::string& list) {
  const bool are_uuids = list.rfind("GPU-", 0) == 0;
  std::vector<int> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string entry = list.substr(at, end - at);
    const int card = are_uuids ? (entry.rfind("GPU-", 0) == 0 ? by_uuid(entry) : -1)
                               : by_number(entry);
    if (card < 0) break;
    if (std::count(out.begin(), out.end(), card)) return {};
    out.push_back(card);
    at = end + 1;
  }
  return out;
}

std::vector<int> all() {
  std::vector<int> out;
  for (int i = 0; i < cards(); ++i) out.push_back(i);
  return out;
}

}  // namespace

const std::vector<int>& visible() {
  static const char* list = getenv("CUDA_VISIBLE_DEVICES");
  static const auto* found = new std::vector<int>(list ? parse(list) : all());
  return *found;
}

bool is_visible(int device) { return device >= 0 && device < int(visible().size()); }

}  // namespace card
