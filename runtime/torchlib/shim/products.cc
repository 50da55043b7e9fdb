// A linear layer and the sum that it is added to, in one launch: cuBLASLt takes the sum as the matrix C of its product
// (beta = 1) and the bias in its epilogue. ATen can do either, not both.
//
// cuBLASLt's own header comes with a wheel of hundreds of megabytes; what is called of it is declared in cuda_stub/cublasLt.h.
#include "fault.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/add.h>
#include <ATen/ops/linear.h>
#include <c10/cuda/CUDAGuard.h>

using rrun::guarded;

namespace {

void check(cublasStatus_t status, const char* call) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt's ", call, " failed with status ", static_cast<int>(status));
}

// One of cuBLASLt's descriptors, which it makes and destroys itself.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { if (handle) destroy(handle); }
};
using Matmul = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// What a product's algorithm depends on. cuBLASLt counts by columns: a row-major [a, b] is its b × a.
struct Shape {
  int64_t rows, inputs, outputs;
  int64_t x_stride, weight_stride, sum_stride, out_stride;
  int64_t type, has_bias, is_transposed, alignment, device;
  std::array<int64_t, 12> key() const {
    return {rows,       inputs, outputs,  x_stride,      weight_stride, sum_stride,
            out_stride, type,   has_bias, is_transposed, alignment,     device};
  }
};

// The descriptors of one shape and the algorithm that cuBLASLt proposes for it.
struct Plan {
  Matmul matmul;
  Layout weight, x, sum, out;
  cublasLtMatmulAlgo_t algorithm{};
  bool exists = false;

  explicit Plan(const Shape& shape) {
    const auto type = static_cast<cudaDataType_t>(shape.type);
    check(cublasLtMatmulDescCreate(&matmul.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(shape.is_transposed ? CUBLAS_OP_N : CUBLAS_OP_T));
    set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(CUBLAS_OP_N));
    const auto epilogue = shape.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue));
    if (shape.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type));
    const auto layout = [&](Layout& to, int64_t rows, int64_t columns, int64_t stride) {
      check(cublasLtMatrixLayoutCreate(&to.handle, type, rows, columns, stride), "MatrixLayoutCreate");
    };
    const auto [rows, columns] = shape.is_transposed ? std::pair(shape.outputs, shape.inputs)
                                                     : std::pair(shape.inputs, shape.outputs);
    layout(weight, rows, columns, shape.weight_stride);
    layout(x, shape.inputs, shape.rows, shape.x_stride);
    layout(sum, shape.outputs, shape.rows, shape.sum_stride);
    layout(out, shape.outputs, shape.rows, shape.out_stride);
    propose(static_cast<uint32_t>(shape.alignment));
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(matmul.handle, attribute, &value, sizeof value), "MatmulDescSetAttribute");
  }

 private:
  void propose(uint32_t alignment) {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(&preference.handle), "MatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      const auto status = cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value);
      check(status, "MatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(at::cuda::getCUDABlasLtWorkspaceSize()));
    for (auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(operand, alignment);
    }
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(
        at::cuda::getCurrentCUDABlasLtHandle(), matmul.handle, weight.handle, x.handle, sum.handle, out.handle,
        preference.handle, 1, &found, &count);
    exists = status == CUBLAS_STATUS_SUCCESS && count > 0;
    algorithm = found.algo;
  }
};

// Plans that a thread keeps: a network has a dozen shapes of layers for each size of a batch. A server that sees prompts of
// every length begins anew now and then.
constexpr size_t MOST_PLANS = 4096;

// The plan of a shape, made when it comes first.
Plan& plan_of(const Shape& shape) {
  thread_local std::map<std::array<int64_t, 12>, std::unique_ptr<Plan>> plans;
  if (plans.size() >= MOST_PLANS) plans.clear();
  auto& plan = plans[shape.key()];
  if (!plan) plan = std::make_unique<Plan>(shape);
  return *plan;
}

cudaDataType_t type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return CUDA_R_32F;
    case at::kHalf: return CUDA_R_16F;
    case at::kBFloat16: return CUDA_R_16BF;
    default: TORCH_CHECK(false, "a product of ", type, " is not offered");
  }
}

// The largest power of two up to 256 that all addresses are multiples of.
int64_t alignment_of(std::initializer_list<const void*> addresses) {
  int64_t alignment = 256;
  for (const void* address : addresses) {
    while (reinterpret_cast<uintptr_t>(address) % alignment) alignment /= 2;
  }
  return alignment;
}

bool is_alike(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.device() == other.device();
}

// Whether the values of a row lie side by side, and rows one after the other.
bool has_dense_rows(const at::Tensor& matrix) {
  return (matrix.size(1) < 2 || matrix.stride(1) == 1) && (matrix.size(0) < 2 || matrix.stride(0) >= matrix.size(1));
}

// From the begin of a row to that of the next; a single row has none to be asked for.
int64_t row_stride(const at::Tensor& matrix) {
  return matrix.size(0) < 2 ? std::max<int64_t>(matrix.size(1), 1) : matrix.stride(0);
}

// The matrix itself where a product can read it, else a copy.
at::Tensor readable(const at::Tensor& matrix) { return has_dense_rows(matrix) ? matrix : matrix.contiguous(); }

}  // namespace

extern "C" {

// out = sum + x·weightᵀ + bias, where `out` may be `sum`: `sum` and `out` [rows, out], `x` [rows, in], `weight` [out, in] in
// rows or in columns, `bias` [out] or null; all of one type, on one device. What does not lie in dense rows is copied first.
int rr_cuda_add_linear(const at::Tensor* out, const at::Tensor* sum, const at::Tensor* x, const at::Tensor* weight,
                       const at::Tensor* bias) {
  return guarded([&] {
    for (const at::Tensor* each : {out, sum, x, weight}) {
      TORCH_CHECK(each->is_cuda() && each->dim() == 2 && is_alike(*each, *out),
                  "a product needs matrices of one type on one CUDA device");
    }
    const int64_t rows = x->size(0), inputs = x->size(1), outputs = weight->size(0);
    TORCH_CHECK(weight->size(1) == inputs && sum->sizes() == at::IntArrayRef({rows, outputs}) && out->sizes() == sum->sizes(),
                "a sum of ", sum->sizes(), " is not that of ", x->sizes(), " times ", weight->sizes(), " transposed");
    TORCH_CHECK(!bias || (bias->sizes() == at::IntArrayRef({outputs}) && bias->is_contiguous() && is_alike(*bias, *out)),
                "a product's bias needs one value per output");
    TORCH_CHECK(has_dense_rows(*out), "a product is written to dense rows");
    if (rows == 0 || outputs == 0) return;
    const c10::cuda::CUDAGuard guard(out->device());
    const bool is_transposed = outputs > 1 && inputs > 1 && has_dense_rows(weight->t());
    const at::Tensor w = is_transposed ? weight->t() : readable(*weight), from = readable(*x), onto = readable(*sum);
    const int64_t alignment = alignment_of({out->data_ptr(), onto.data_ptr(), from.data_ptr(), w.data_ptr()});
    const Shape shape{rows, inputs, outputs, row_stride(from), row_stride(w), row_stride(onto), row_stride(*out),
                      type_of(out->scalar_type()), bias != nullptr, is_transposed, alignment, out->device().index()};
    Plan& plan = plan_of(shape);
    if (!plan.exists) {
      // cuBLASLt has no kernel for such a shape: two launches.
      at::Tensor to = *out;
      const at::Tensor product = at::linear(from, *weight, bias ? std::optional(*bias) : std::nullopt);
      at::add_out(to, onto, product);
      return;
    }
    if (bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias->data_ptr()));
    const float one = 1;
    const auto status = cublasLtMatmul(
        at::cuda::getCurrentCUDABlasLtHandle(), plan.matmul.handle, &one, w.data_ptr(), plan.weight.handle,
        from.data_ptr(), plan.x.handle, &one, onto.data_ptr(), plan.sum.handle, out->data_ptr(), plan.out.handle,
        &plan.algorithm, at::cuda::getCUDABlasLtWorkspace(), at::cuda::getCUDABlasLtWorkspaceSize(),
        at::cuda::getCurrentCUDAStream());
    check(status, "Matmul");
  });
}

}  // extern "C"
