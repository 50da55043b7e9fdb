// The environment variables that say what is imitated.
#include "runtime.h"

#include <cstdlib>

namespace card {

std::string setting(const char* name, const std::string& otherwise) {
  const char* value = getenv((std::string("IMITATION_") + name).c_str());
  return value && *value ? value : otherwise;
}

bool is_on(const char* name, bool otherwise) {
  return setting(name, otherwise ? "1" : "0") != "0";
}

size_t mebibytes(const char* name, size_t otherwise) {
  return std::stoull(setting(name, std::to_string(otherwise))) << 20;
}

int cards() {
  static const int count = std::min(MAX_CARDS, std::stoi(setting("CARDS", "1")));
  return count;
}

std::string card_name() { return setting("NAME", "NVIDIA H100 80GB HBM3"); }

size_t total_bytes() {
  static const size_t bytes = mebibytes("MEMORY_MIB", 81559);
  return bytes;
}

bool has_values() {
  static const bool on = is_on("VALUES", true);
  return on;
}

std::string shared_folder() { return setting("SHARED", "/dev/shm/imitation"); }

}  // namespace card
