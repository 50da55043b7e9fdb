// Operators whose results on a card differ from those of the CPU's operator of the same name.
#include "special.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>

namespace values {

namespace {

using c10::FunctionSchema;
using c10::IValue;

IValue named(const FunctionSchema& schema, const Stack& arguments, const char* name) {
  const auto index = schema.argumentIndexWithName(name);
  return index ? arguments[*index] : IValue();
}

template <class T>
std::optional<T> optional(const IValue& value) {
  return value.isNone() ? std::nullopt : std::optional<T>(value.to<T>());
}

// Queries that see no key: [batch, heads, queries], true where all of a row is masked.
at::Tensor unseeing(const at::Tensor& q, const at::Tensor& k, const at::Tensor& bias,
                    bool is_causal) {
  const auto queries = q.size(2), keys = k.size(2);
  at::Tensor masked = bias.scalar_type() == at::kBool ? bias.logical_not() : bias.isneginf();
  masked = masked.expand({q.size(0), q.size(1), queries, keys});
  if (is_causal) {
    const auto later = at::ones({queries, keys}, at::kBool).triu(1);
    masked = masked.logical_or(later);
  }
  return masked.all(-1);
}

// What a kernel gives such rows. Memory-efficient attention: zeros (PyTorch's own test,
// test_transformers.py: test_fully_masked_out_rows). Flash attention takes no mask. cuDNN: not
// documented, so NaN, which no caller can overlook.
double of_unseeing(const std::string& name) {
  const bool is_efficient = name == "aten::_scaled_dot_product_efficient_attention";
  return is_efficient ? 0 : std::numeric_limits<double>::quiet_NaN();
}

bool is_attention(const std::string& name) {
  return name == "aten::_scaled_dot_product_flash_attention" ||
         name == "aten::_scaled_dot_product_efficient_attention" ||
         name == "aten::_scaled_dot_product_cudnn_attention";
}

at::Tensor with_dense_rows(const at::Tensor& x) {
  return x.stride(-1) == 1 ? x : x.contiguous();
}

// The CPU's flash attention rounds where the kernels of a card do: the weights of a row to the type
// of the values, the result once. Called by its name: the user's choice of backends is the card's.
at::Tensor attend_on_cpu(const at::Tensor& q, at::Tensor k, at::Tensor v,
                         const std::optional<at::Tensor>& bias, bool is_causal,
                         std::optional<double> scale) {
  if (q.size(1) != k.size(1)) {
    k = k.repeat_interleave(q.size(1) / k.size(1), 1);
    v = v.repeat_interleave(q.size(1) / v.size(1), 1);
  }
  const bool is_even = q.size(3) == v.size(3) && q.numel() && k.numel();
  const bool is_added = !bias || bias->scalar_type() == q.scalar_type();
  if (!is_even || !is_added) {
    return std::get<0>(at::_scaled_dot_product_attention_math(
        q, k, v, bias, 0.0, is_causal && !bias, std::nullopt, scale));
  }
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      with_dense_rows(q), with_dense_rows(k), with_dense_rows(v), 0.0, is_causal, bias, scale));
}

void attend(const FunctionSchema& schema, const Stack& arguments, const Stack& results) {
  const at::Tensor q = arguments[0].toTensor(), k = arguments[1].toTensor();
  const at::Tensor v = arguments[2].toTensor();
  const auto bias = optional<at::Tensor>(named(schema, arguments, "attn_bias"));
  const auto scale = optional<double>(named(schema, arguments, "scale"));
  const bool is_causal = named(schema, arguments, "is_causal").toBool();
  auto out = attend_on_cpu(q, k, v, bias, is_causal, scale);
  if (bias) {
    const auto rows = unseeing(q, k, *bias, is_causal).unsqueeze(-1);
    out = out.masked_fill(rows, of_unseeing(schema.name()));
  }
  results[0].toTensor().copy_(out);
}

// On a card GELU at the end of a product is the approximation by tanh, on the CPU it is exact.
void activate(const FunctionSchema& schema, const Stack& arguments, const Stack& results) {
  const auto beta = named(schema, arguments, "beta").toScalar();
  const auto alpha = named(schema, arguments, "alpha").toScalar();
  const auto out = at::addmm(arguments[0].toTensor(), arguments[1].toTensor(),
                             arguments[2].toTensor(), beta, alpha);
  results[0].toTensor().copy_(at::gelu(out, "tanh"));
}

}  // namespace

bool compute_special(const FunctionSchema& schema, const Stack& arguments, const Stack& results) {
  const std::string& name = schema.name();
  if (is_attention(name)) {
    attend(schema, arguments, results);
    return true;
  }
  if (name == "aten::_addmm_activation" && named(schema, arguments, "use_gelu").toBool()) {
    activate(schema, arguments, results);
    return true;
  }
  return false;
}

}  // namespace values
