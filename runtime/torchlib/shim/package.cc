// Packages of torch.export and AOTInductor, run without Python.
//
// The same conventions as operators.cc. libtorch registers a runner for each kind of device; that of CUDA is there as soon as
// libtorch's CUDA half is loaded.
#include "fault.h"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

using rrun::guarded;

extern "C" {

// A loaded package, with its call specification.
struct RrPackage {
  std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner;
  std::string call_spec;
};

// Loads `library`; the other compiled files are in `folder`. `kind`: cpu or cuda; `device`: cpu, or cuda:0 and the like.
//
// It runs single-threaded, which means that only one thread calls it: then it asks no events, which a capture could not.
int rr_package_load(const char* library, const char* kind, const char* device, const char* folder, RrPackage** out) {
  return guarded([&] {
    const auto& makers = torch::inductor::getAOTIModelRunnerRegistry();
    const auto maker = makers.find(kind);
    if (maker == makers.end()) throw std::runtime_error(std::string("libtorch runs no packages for ") + kind + " here");
    auto box = std::make_unique<RrPackage>();
    box->runner = maker->second(library, /*num_models=*/1, device, folder, /*run_single_threaded=*/true);
    const auto specs = box->runner->get_call_spec();
    if (!specs.empty()) box->call_spec = specs[0];
    *out = box.release();
  });
}

// How the arguments are nested, as torch.utils._pytree writes it; valid as long as the package.
const char* rr_package_call_spec(const RrPackage* box) { return box->call_spec.c_str(); }

// Runs it on this thread, on a GPU on this thread's stream.
//
// The compiled code does not check its inputs: number, types, shapes and devices have to be those that it was made for.
int rr_package_run(RrPackage* box, at::Tensor* const* inputs, size_t count, at::Tensor** out) {
  return guarded([&] {
    std::vector<at::Tensor> list;
    list.reserve(count);
    for (size_t i = 0; i < count; ++i) list.push_back(*inputs[i]);
    auto outputs = box->runner->run(list);
    if (outputs.size() != 1) {
      throw std::runtime_error("the package gave " + std::to_string(outputs.size()) + " tensors, expected 1");
    }
    *out = new at::Tensor(std::move(outputs[0]));
  });
}

void rr_package_free(RrPackage* box) {
  guarded([&] { delete box; });
}

}  // extern "C"
