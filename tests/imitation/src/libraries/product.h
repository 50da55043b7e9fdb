// One product of cuBLASLt as its descriptors say: D = epilogue(alpha op(A) op(B) + beta C + bias).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace product {

// cudaDataType, cublasLtOrder_t and cublasLtEpilogue_t as cuBLASLt 13 counts them.
enum Type : int { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum Order : int { COLUMNS = 0, ROWS = 1 };
enum Epilogue : uint32_t { DEFAULT = 1, RELU = 2, BIAS = 4, GELU = 32 };

struct Layout {
  int type = F32, order = COLUMNS;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
  int32_t batches = 1;
  int64_t stride = 0;  // elements from one batch to the next

  size_t offset(uint64_t row, uint64_t column) const {
    return order == COLUMNS ? row + column * leading : row * leading + column;
  }
  // Elements from the first to the last.
  size_t extent() const;
  bool operator==(const Layout& other) const;
};

struct Product {
  Layout a, b, c, d;
  const void *a_data = nullptr, *b_data = nullptr, *c_data = nullptr;
  void* d_data = nullptr;
  int compute = 68, scale = F32;
  bool is_a_transposed = false, is_b_transposed = false;
  bool has_device_scalars = false;
  const void *alpha_data = nullptr, *beta_data = nullptr;  // read when it runs, on the device
  double alpha = 1, beta = 0;
  uint32_t epilogue = DEFAULT;
  const void* bias_data = nullptr;
  int bias_type = -1;  // of D
  int64_t bias_stride = 0;

  uint64_t inner() const { return is_a_transposed ? a.rows : a.columns; }
};

size_t size_of(int type);

struct Refusal {
  int status = 0;  // cublasStatus_t
  std::string reason;
};
// What cuBLASLt would refuse in the descriptors alone, and in the pointers as well.
Refusal check_layouts(const Product& product);
Refusal check_pointers(const Product& product);

// The result, densely, batches of columns of rows; reads the memory now.
std::vector<double> compute(const Product& product);
// Writes it to D.
void store(const Product& product, const std::vector<double>& result);
// The largest difference to what D holds, in units of D's largest magnitude.
double difference(const Product& product, const std::vector<double>& result);

}  // namespace product
