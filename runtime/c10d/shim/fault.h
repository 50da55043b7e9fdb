// How a C++ exception crosses into Rust: as a number and a text, never as an exception.
#pragma once
#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace rrun {

// The same numbers stand in `ffi.rs`.
enum Status : int { OK = 0, OTHER = 1, STORE = 2, NETWORK = 3, OUT_OF_MEMORY = 4 };

// What the last failed call on this thread said, without libtorch's C++ backtrace.
inline thread_local std::string last_words;

template <class Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return OK;
  } catch (const c10::OutOfMemoryError& e) {
    last_words = e.what_without_backtrace();
    return OUT_OF_MEMORY;
  } catch (const c10::DistNetworkError& e) {
    last_words = e.what_without_backtrace();
    return NETWORK;
  } catch (const c10::DistStoreError& e) {
    last_words = e.what_without_backtrace();
    return STORE;
  } catch (const c10::Error& e) {
    last_words = e.what_without_backtrace();
    return OTHER;
  } catch (const std::exception& e) {
    last_words = e.what();
    return OTHER;
  } catch (...) {
    last_words = "a C++ exception without a text";
    return OTHER;
  }
}

}  // namespace rrun
