// Operators that tch lacks or calls with wrong arguments, and the inference mode, which it lacks too.
//
// The same conventions as cuda.cc; the text is rr_last_words(). Nothing here needs CUDA's half of libtorch: the dispatcher finds it where it is loaded.
#include "fault.h"

#include <cstdint>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

using rrun::guarded;

extern "C" {

const char* rr_last_words() { return rrun::last_words.c_str(); }

// gelu(x·weight + bias) by tanh, or relu(x·weight + bias): `x` [rows, in], `weight` [in, out], `bias` [out].
//
// On a CUDA device the activation is the end of the matrix product. tch 0.24 passes `use_gelu` in the place of `beta`.
int rr_linear_activation(const at::Tensor* x, const at::Tensor* weight, const at::Tensor* bias, bool use_gelu,
                         at::Tensor** out) {
  return guarded([&] {
    *out = new at::Tensor(at::_addmm_activation(*bias, *x, *weight, /*beta=*/1, /*alpha=*/1, use_gelu));
  });
}

// Standard normal numbers of a generator of their own: those of `torch.manual_seed(seed); torch.randn(shape)`.
int rr_normal(uint64_t seed, const int64_t* sizes, size_t dims, at::Tensor** out) {
  return guarded([&] {
    const at::IntArrayRef shape(sizes, dims);
    *out = new at::Tensor(at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat)));
  });
}

// Tensors that this thread makes from here on have neither a version counter nor a place in a graph of gradients.
c10::InferenceMode* rr_inference_mode_begin() { return new c10::InferenceMode(true); }

void rr_inference_mode_end(c10::InferenceMode* mode) { delete mode; }

}  // extern "C"
