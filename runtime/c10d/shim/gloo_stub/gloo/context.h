// The torch wheel ships ProcessGroupGloo.hpp without gloo's headers. These stubs declare what that header names;
// nothing here is defined or called from our side, and c10d.cc asserts that the class keeps its size.
#pragma once
#include <chrono>
#include <memory>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds);
};
}
