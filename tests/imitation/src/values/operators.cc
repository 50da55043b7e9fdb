// Results of operators: each operator of libtorch's CUDA half runs as it is, which launches kernels
// that compute nothing, and then gets its results from the same operator on the CPU.
//
// That is work of the stream as well: it runs in the stream's order, or as a node of the graph that
// is captured, so that a replay computes with what is in the graph's memory then.
#include "special.h"

#include "card.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <atomic>
#include <cstdio>
#include <list>
#include <set>
#include <string>
#include <vector>

using c10::IValue;
using values::Stack;

namespace {

// These have no results of their own.
const std::set<std::string> UNTOUCHED = {
    "aten::_local_scalar_dense", "aten::resize_",         "aten::set_",
    "aten::record_stream",       "aten::_fused_sdp_choice", "aten::empty",
    "aten::empty_strided",       "aten::_pin_memory",     "aten::is_pinned",
    "aten::is_set_to",           "aten::_resize_output_", "aten::_efficientzerotensor",
};
// The size of what they return depends on values: computed on the CPU, after the stream.
const std::set<std::string> SIZED_BY_VALUES = {
    "aten::equal",    "aten::nonzero",    "aten::masked_select",
    "aten::_unique2", "aten::unique_dim", "aten::repeat_interleave",
};
// Collectives have kernels for both devices, which do not mean the same.
const std::set<std::string> COLLECTIVES = {
    "c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor",
};

thread_local int depth = 0;
struct Inside {
  Inside() {
    ++depth;
    card::enter_operator();
  }
  ~Inside() {
    --depth;
    card::leave_operator();
  }
};

// The memory of a tensor on a card as the host reaches it; it does not keep the tensor, as little
// as the work of a stream does.
at::Tensor view(const at::Tensor& t) {
  if (!t.defined() || !t.is_cuda()) return t;
  void* data = t.numel() ? card::host_view(t.unsafeGetTensorImpl()->data()) : nullptr;
  return at::from_blob(data, t.sizes(), t.strides(), at::dtype(t.scalar_type()));
}

IValue view(const IValue& value) {
  if (value.isTensor()) {
    const auto& t = value.toTensor();
    // A tensor of the host goes along with the launch, as it is now.
    return !t.defined() || t.is_cuda() ? IValue(view(t)) : IValue(t.clone());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& t : value.toTensorVector()) out.push_back(view(t));
    return out;
  }
  if (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> out;
    for (const IValue& item : value.toListRef()) {
      out.push_back(item.isNone() ? std::nullopt : std::optional(view(item.toTensor())));
    }
    return out;
  }
  if (value.isDevice()) return at::Device(at::kCPU);
  if (value.isGenerator()) {
    static at::Generator own = at::make_generator<at::CPUGeneratorImpl>(1);
    return own;
  }
  return value;
}

bool is_dense(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return true;
  return value.toTensor().layout() == at::kStrided && !value.toTensor().is_quantized();
}

// The device that the tensors of an operator are on; none of an operator that makes one.
std::optional<c10::Device> device_of(const Stack& arguments) {
  for (const auto& value : arguments) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) {
      return value.toTensor().device();
    }
    if (!value.isTensorList()) continue;
    for (const at::Tensor& t : value.toTensorVector()) {
      if (t.defined() && t.is_cuda()) return t.device();
    }
  }
  for (const auto& value : arguments) {
    if (value.isDevice() && value.toDevice().has_index()) return value.toDevice();
  }
  return std::nullopt;
}

// IMITATION_SUMS=1: the sum of magnitudes of each first result. Two runs, or a run and some lines
// of Python on the CPU, are compared line by line: the first that differs is the one to look at.
void print_sum(const std::string& name, const Stack& results) {
  static const bool is_printed = card::is_on("SUMS", false);
  if (!is_printed || results.empty() || !results[0].isTensor()) return;
  const at::Tensor& out = results[0].toTensor();
  if (!out.defined()) return;
  std::string sizes;
  for (const auto size : out.sizes()) sizes += std::to_string(size) + ",";
  const double sum = out.to(at::kDouble).abs().sum().item<double>();
  fprintf(stderr, "sum %s [%s] %.6f\n", name.c_str(), sizes.c_str(), sum);
}

// IMITATION_CHECK_PRODUCTS=1: products that were computed from descriptors (cublaslt.cc).
void check_products(const std::vector<const void*>& addresses) {
  using Check = void (*)(const void*);
  static const bool is_checked = card::is_on("CHECK_PRODUCTS", false);
  if (!is_checked) return;
  static const auto check = Check(dlsym(RTLD_DEFAULT, "imitation_check_products"));
  for (const void* address : addresses) check(address);
  check(nullptr);
}

void compute_as_cpu(const c10::OperatorHandle& op, const Stack& arguments, const Stack& results) {
  const auto& schema = op.schema();
  Stack stack = arguments;
  op.callBoxed(&stack);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].isTensor() || schema.returns()[i].alias_info()) continue;
    const at::Tensor &to = results[i].toTensor(), &from = stack[i].toTensor();
    if (!to.defined() || !from.defined()) continue;
    if (to.sizes() == from.sizes()) {
      to.copy_(from);
    } else {
      card::complain("no results of " + schema.name() + ": another shape on the CPU");
    }
  }
}

void compute(const c10::OperatorHandle& op, const Stack& arguments, const Stack& results) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::NoGradGuard no_grad;
  const auto& schema = op.schema();
  try {
    const bool is_special = values::compute_special(schema, arguments, results);
    if (!is_special) compute_as_cpu(op, arguments, results);
    print_sum(schema.name(), results);
  } catch (const std::exception& error) {
    const std::string reason = std::string(error.what()).substr(0, 200);
    card::complain("no results of " + schema.name() + ": " + reason);
  }
}

// The same operator for a card that is there: results by the CPU behind those of its kernels.
class Computed : public c10::OperatorKernel {
 public:
  Computed(c10::SafeKernelFunction own, const c10::FunctionSchema& schema) : own_(std::move(own)) {
    for (const auto& argument : schema.arguments()) {
      has_results_ |= argument.alias_info() && argument.alias_info()->isWrite();
    }
    for (const auto& result : schema.returns()) {
      has_results_ |= !result.alias_info() && result.type()->isSubtypeOf(*c10::TensorType::get());
    }
    is_copy_ = schema.name() == "aten::copy_";
    is_sized_by_values_ = SIZED_BY_VALUES.count(schema.name()) &&
                          schema.overload_name().find("out") == std::string::npos;
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack);

 private:
  bool is_left_alone(const Stack& arguments) const {
    if (depth || !(has_results_ || is_sized_by_values_)) return true;
    // Between host and card the copy itself moves the bytes.
    if (is_copy_ && arguments[0].toTensor().is_cuda() != arguments[1].toTensor().is_cuda()) {
      return true;
    }
    for (const auto& argument : arguments) {
      if (!is_dense(argument)) return true;
    }
    return false;
  }
  void compute_now(const c10::OperatorHandle& op, const Stack& arguments, Stack* stack);

  c10::SafeKernelFunction own_;
  bool has_results_ = false, is_copy_ = false, is_sized_by_values_ = false;
};

void Computed::compute_now(const c10::OperatorHandle& op, const Stack& arguments, Stack* stack) {
  c10::cuda::getCurrentCUDAStream().synchronize();
  Stack on_cpu;
  for (const auto& argument : arguments) on_cpu.push_back(view(argument));
  card::count(card::Kind::Other, op.schema().name() + " (sized by values: computed on the CPU)");
  op.callBoxed(&on_cpu);
  stack->resize(stack->size() - arguments.size());
  const auto device = arguments[0].toTensor().device();
  for (auto& out : on_cpu) stack->push_back(out.isTensor() ? out.toTensor().to(device) : out);
}

std::atomic<bool> has_new_operators{false};
void wrap_operators();

void Computed::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (has_new_operators.exchange(false)) wrap_operators();
  const auto& schema = op.schema();
  const Stack arguments(stack->end() - schema.arguments().size(), stack->end());
  if (is_left_alone(arguments)) return own_.callBoxed(op, keys, stack);
  const c10::cuda::OptionalCUDAGuard guard(device_of(arguments));
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  if (is_sized_by_values_ && !card::is_capturing(stream)) return compute_now(op, arguments, stack);
  {
    const Inside inside;
    own_.callBoxed(op, keys, stack);
  }
  Stack results, views;
  std::vector<const void*> addresses;
  for (auto it = stack->end() - schema.returns().size(); it != stack->end(); ++it) {
    results.push_back(view(*it));
    const bool is_tensor = it->isTensor() && it->toTensor().defined() && it->toTensor().numel();
    if (is_tensor) addresses.push_back(it->toTensor().unsafeGetTensorImpl()->data());
  }
  for (const auto& argument : arguments) views.push_back(view(argument));
  card::enqueue(stream, card::Kind::Values, schema.name(), [=] {
    compute(op, views, results);
    check_products(addresses);
  });
}

bool is_wrapped(const c10::OperatorHandle& op, const c10::OperatorName& name) {
  const std::string space = name.name.substr(0, name.name.find("::"));
  if (UNTOUCHED.count(name.name) || COLLECTIVES.count(space)) return false;
  const auto has = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CUDA)) return false;
  if (name.name == "aten::copy_") return true;
  if (!has(c10::DispatchKey::CUDA)) return false;
  // An operator of somebody else's without a CPU kernel keeps the results of what it calls.
  return space == "aten" || has(c10::DispatchKey::CPU);
}

void wrap_operators() {
  static auto* handles = new std::list<c10::RegistrationHandleRAII>;
  static auto* wrapped = new std::set<std::string>;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findSchema(name);
    if (!op || !is_wrapped(*op, name) || !wrapped->insert(c10::toString(name)).second) continue;
    auto own = op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA);
    auto kernel = c10::KernelFunction::makeFromBoxedFunctor(
        std::make_unique<Computed>(std::move(own), op->schema()));
    handles->push_back(dispatcher.registerImpl(name, c10::DispatchKey::CUDA, std::move(kernel),
                                               std::nullopt, nullptr, "imitation"));
  }
}

// Operators that come later are wrapped at the next call of any operator.
struct Watch : c10::OpRegistrationListener {
  void onOperatorRegistered(const c10::OperatorHandle&) override { has_new_operators = true; }
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void imitation_wrap_operators() {
  // libtorch warns of a kernel that takes another's place.
  struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  wrap_operators();
  static auto* watch = new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Watch>()));
  (void)watch;
  has_new_operators = false;
}
