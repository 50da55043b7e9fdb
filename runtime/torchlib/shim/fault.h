// How a C++ exception crosses into Rust: as a number and a text, never as an exception.
#pragma once
#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace rrun {

enum Status : int { OK = 0, FAILED = 1 };

// What the last failed call on this thread said, without libtorch's C++ backtrace.
inline thread_local std::string last_words;

template <class Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return OK;
  } catch (const c10::Error& e) {
    last_words = e.what_without_backtrace();
    return FAILED;
  } catch (const std::exception& e) {
    last_words = e.what();
    return FAILED;
  } catch (...) {
    last_words = "a C++ exception without a text";
    return FAILED;
  }
}

}  // namespace rrun
