// libcublasLt: descriptors keep what they are told. What our own code multiplies is computed from
// them, in the order of its stream or as a node of a graph.
//
// Inside an ATen operator the operator's results count. IMITATION_CHECK_PRODUCTS=1 compares them
// with the descriptors' (src/values asks when the operator has computed).
#include "card.h"
#include "product.h"

#include <cstring>
#include <map>
#include <mutex>

using product::Layout;
using product::Product;

namespace {

constexpr int OK = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15, EXECUTION_FAILED = 13;

struct Description {
  Product product;
};
struct Preference {
  uint32_t alignment[4] = {256, 256, 256, 256};  // promised for A, B, C and D
};
// cublasLtMatmulAlgo_t, which the caller sees as eight numbers.
struct Algorithm {
  uint64_t mark;
  uint32_t alignment[4];
  uint64_t unused[5];
};
// cublasLtMatmulHeuristicResult_t
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
constexpr uint64_t MARK = 0x6c7461676f;

template <class T>
int set(T* field, const void* value, size_t size) {
  if (size != sizeof(T)) return INVALID_VALUE;
  memcpy(field, value, size);
  return OK;
}
int set_flag(bool* field, const void* value, size_t size) {
  int number = 0;
  const int status = set(&number, value, size);
  *field = number != 0;
  return status;
}

int refuse(const product::Refusal& refusal) {
  card::complain("cublasLtMatmul is refused: " + refusal.reason);
  return refusal.status;
}

Product bind(const Description& description, const Layout& a, const Layout& b, const Layout& c,
             const Layout& d) {
  Product out = description.product;
  out.a = a;
  out.b = b;
  out.c = c;
  out.d = d;
  return out;
}

double scalar(int type, const void* at) {
  return type == product::F64 ? *static_cast<const double*>(at) : *static_cast<const float*>(at);
}

// Results that an operator's are to be compared with, by the address of D.
std::mutex pending_mutex;
std::map<const void*, std::pair<Product, std::vector<double>>>& pending() {
  static auto* all = new std::map<const void*, std::pair<Product, std::vector<double>>>;
  return *all;
}

void keep_for_check(const Product& product) {
  auto result = product::compute(product);
  const std::lock_guard<std::mutex> lock(pending_mutex);
  pending()[product.d_data] = {product, std::move(result)};
}

std::function<void()> work_of(const Product& product) {
  static const bool is_checked = card::is_on("CHECK_PRODUCTS", false);
  if (!card::has_values()) return nullptr;
  if (!card::in_operator()) return [=] { product::store(product, product::compute(product)); };
  if (is_checked) return [=] { keep_for_check(product); };
  return nullptr;
}

// Rounding of the type, twice: of the product and of its sum with the bias.
double tolerance(int type) {
  return type == product::BF16 ? 0.016 : type == product::F16 ? 0.002 : 1e-4;
}

bool is_aligned(const void* data, uint32_t alignment) {
  return !data || !alignment || uintptr_t(data) % alignment == 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// An operator has computed what starts at `output`; null: it has computed everything.
void imitation_check_products(const void* output) {
  const std::lock_guard<std::mutex> lock(pending_mutex);
  if (!output) return pending().clear();
  auto found = pending().find(output);
  if (found == pending().end()) return;
  const auto& [product, result] = found->second;
  const double apart = product::difference(product, result);
  card::count(card::Kind::Other, "[product compared with its operator]");
  if (!(apart <= tolerance(product.d.type))) {
    card::complain("cublasLtMatmul's descriptors give another product than the operator: apart " +
                   std::to_string(apart) + " of the largest, epilogue " +
                   std::to_string(product.epilogue));
  }
  pending().erase(found);
}

size_t cublasLtGetVersion() { return 130100; }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }
int cublasLtCreate(void** handle) {
  *handle = new int;
  return OK;
}
int cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return OK;
}
const char* cublasLtGetStatusString(int status) {
  return status == OK ? "success" : "an imitated error of cuBLASLt";
}

int cublasLtMatmulDescCreate(Description** out, int compute, int scale) {
  *out = new Description;
  (*out)->product.compute = compute;
  (*out)->product.scale = scale;
  return OK;
}
int cublasLtMatmulDescDestroy(Description* it) {
  delete it;
  return OK;
}
// The numbers are those of cublasLtMatmulDescAttributes_t.
int cublasLtMatmulDescSetAttribute(Description* it, int attribute, const void* value, size_t size) {
  if (!it || !value) return INVALID_VALUE;
  Product& p = it->product;
  switch (attribute) {
    case 0: return set(&p.compute, value, size);
    case 1: return set(&p.scale, value, size);
    case 2: return set_flag(&p.has_device_scalars, value, size);
    case 3: return set_flag(&p.is_a_transposed, value, size);
    case 4: return set_flag(&p.is_b_transposed, value, size);
    case 7: return set(&p.epilogue, value, size);
    case 8: return set(&p.bias_data, value, size);
    case 10: return set(&p.bias_stride, value, size);
    case 26: return set(&p.bias_type, value, size);
    default: return OK;  // scales of eight-bit types, the number of multiprocessors
  }
}

int cublasLtMatrixLayoutCreate(Layout** out, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  *out = new Layout{type, product::COLUMNS, rows, columns, leading, 1, 0};
  return OK;
}
int cublasLtMatrixLayoutDestroy(Layout* it) {
  delete it;
  return OK;
}
int cublasLtMatrixLayoutSetAttribute(Layout* it, int attribute, const void* value, size_t size) {
  if (!it || !value) return INVALID_VALUE;
  switch (attribute) {
    case 0: return set(&it->type, value, size);
    case 1: return set(&it->order, value, size);
    case 2: return set(&it->rows, value, size);
    case 3: return set(&it->columns, value, size);
    case 4: return set(&it->leading, value, size);
    case 5: return set(&it->batches, value, size);
    case 6: return set(&it->stride, value, size);
    default: return OK;
  }
}

int cublasLtMatmulPreferenceCreate(Preference** out) {
  *out = new Preference;
  return OK;
}
int cublasLtMatmulPreferenceDestroy(Preference* it) {
  delete it;
  return OK;
}
// 5 to 8 are CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A,B,C,D}_BYTES.
int cublasLtMatmulPreferenceSetAttribute(Preference* it, int attribute, const void* value,
                                         size_t size) {
  if (!it || !value) return INVALID_VALUE;
  if (attribute < 5 || attribute > 8) return OK;
  return set(&it->alignment[attribute - 5], value, size);
}

int cublasLtMatmulAlgoGetHeuristic(void*, Description* description, Layout* a, Layout* b, Layout* c,
                                   Layout* d, Preference* preference, int wanted, Heuristic* found,
                                   int* count) {
  if (count) *count = 0;
  if (!description || !a || !b || !c || !d || !found || !count || wanted < 1) return INVALID_VALUE;
  const auto refusal = check_layouts(bind(*description, *a, *b, *c, *d));
  if (refusal.status) return refusal.status;
  *found = Heuristic{};
  found->algorithm.mark = MARK;
  const Preference chosen = preference ? *preference : Preference{};
  memcpy(found->algorithm.alignment, chosen.alignment, sizeof chosen.alignment);
  *count = 1;
  return OK;
}

int cublasLtMatmul(void* handle, Description* description, const void* alpha, const void* a_data,
                   Layout* a, const void* b_data, Layout* b, const void* beta, const void* c_data,
                   Layout* c, void* d_data, Layout* d, const Algorithm* algorithm, void* workspace,
                   size_t workspace_bytes, cudaStream_t stream) {
  if (!handle || !description || !a || !b || !c || !d || !alpha || !beta) {
    return refuse({INVALID_VALUE, "an argument is a null pointer"});
  }
  Product product = bind(*description, *a, *b, *c, *d);
  product.a_data = a_data;
  product.b_data = b_data;
  product.c_data = c_data;
  product.d_data = d_data;
  product.alpha_data = alpha;
  product.beta_data = beta;
  if (!product.has_device_scalars) {
    product.alpha = scalar(product.scale, alpha);
    product.beta = scalar(product.scale, beta);
  }
  for (const auto& refusal : {check_layouts(product), check_pointers(product)}) {
    // Types that are not imitated are no mistake of an operator of libtorch.
    const bool is_mistake = refusal.status != NOT_SUPPORTED || !card::in_operator();
    if (refusal.status && is_mistake) return refuse(refusal);
    if (refusal.status) return card::enqueue(stream, card::Kind::Launch, "cublasLtMatmul", nullptr);
  }
  if (workspace_bytes && !workspace) return refuse({INVALID_VALUE, "the workspace is null"});
  const void* const data[] = {a_data, b_data, c_data, d_data};
  for (int i = 0; algorithm && i < 4; ++i) {
    if (algorithm->mark != MARK) return refuse({INVALID_VALUE, "the algorithm is none"});
    if (is_aligned(data[i], algorithm->alignment[i])) continue;
    return refuse({INVALID_VALUE, std::string(1, "ABCD"[i]) + " is less aligned than promised"});
  }
  const auto code = card::enqueue(stream, card::Kind::Launch, "cublasLtMatmul", work_of(product));
  return code ? EXECUTION_FAILED : OK;
}

}  // extern "C"
#pragma GCC visibility pop
