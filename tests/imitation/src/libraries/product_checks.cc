// What cuBLASLt refuses: shapes that do not fit, types without a kernel, pointers that cannot be.
#include "card.h"
#include "product.h"

namespace product {

namespace {

constexpr int INVALID_VALUE = 7, NOT_SUPPORTED = 15;  // cublasStatus_t

Refusal invalid(std::string reason) { return {INVALID_VALUE, std::move(reason)}; }
Refusal unsupported(std::string reason) { return {NOT_SUPPORTED, std::move(reason)}; }

std::string shape(uint64_t rows, uint64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

bool is_known(int type) { return type == F32 || type == F64 || type == F16 || type == BF16; }

// The rows of cuBLASLt's table of types that are imitated.
bool are_types_supported(const Product& p) {
  if (p.a.type != p.b.type || p.c.type != p.d.type) return false;
  for (const auto* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (!is_known(layout->type)) return false;
  }
  const bool is_double = p.compute == 70 || p.compute == 71;
  if (is_double) return p.scale == F64 && p.a.type == F64 && p.d.type == F64;
  const bool is_single = p.compute == 68 || p.compute == 69 || (p.compute >= 74 && p.compute <= 78);
  if (!is_single || p.scale != F32 || p.a.type == F64) return false;
  return p.d.type == p.a.type || p.d.type == F32;
}

bool is_epilogue_imitated(uint32_t epilogue) {
  for (uint32_t known : {1, 2, 4, 6, 32, 36}) {
    if (epilogue == known) return true;
  }
  return false;
}

Refusal check_layout(const char* name, const Layout& layout) {
  if (layout.order != COLUMNS && layout.order != ROWS) {
    return unsupported(std::string("the order of ") + name + " is not imitated");
  }
  const uint64_t least = layout.order == COLUMNS ? layout.rows : layout.columns;
  if (layout.leading < int64_t(least)) {
    return invalid(std::string("the leading dimension of ") + name + " is " +
                   std::to_string(layout.leading) + ", at least " + std::to_string(least) +
                   " is needed");
  }
  return {};
}

Refusal check_pointer(const char* name, const void* data, size_t elements, int type) {
  if (!data) return invalid(std::string(name) + " is a null pointer");
  if (uintptr_t(data) % size_of(type)) {
    return invalid(std::string(name) + " is not aligned to its elements");
  }
  if (!card::is_device(data)) return invalid(std::string(name) + " is not device memory");
  if (!card::is_allocated(data, elements * size_of(type))) {
    return invalid(std::string(name) + " leaves its allocation");
  }
  return {};
}

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = uintptr_t(a), second = uintptr_t(b);
  return first < second + b_bytes && second < first + a_bytes;
}

}  // namespace

size_t Layout::extent() const {
  if (!rows || !columns) return 0;
  return (batches - 1) * stride + offset(rows - 1, columns - 1) + 1;
}

bool Layout::operator==(const Layout& o) const {
  return type == o.type && order == o.order && rows == o.rows && columns == o.columns &&
         leading == o.leading && batches == o.batches && stride == o.stride;
}

Refusal check_layouts(const Product& p) {
  if (!are_types_supported(p)) return unsupported("these types have no kernel");
  if (!is_epilogue_imitated(p.epilogue)) {
    return unsupported("epilogue " + std::to_string(p.epilogue) + " is not imitated");
  }
  const uint64_t m = p.is_a_transposed ? p.a.columns : p.a.rows;
  const uint64_t n = p.is_b_transposed ? p.b.rows : p.b.columns;
  const uint64_t b_inner = p.is_b_transposed ? p.b.columns : p.b.rows;
  if (p.inner() != b_inner) {
    return invalid("op(A) is " + shape(m, p.inner()) + " and op(B) is " + shape(b_inner, n));
  }
  for (const auto* layout : {&p.c, &p.d}) {
    if (layout->rows == m && layout->columns == n) continue;
    return invalid(std::string(layout == &p.c ? "C" : "D") + " is " +
                   shape(layout->rows, layout->columns) + ", the product is " + shape(m, n));
  }
  const std::pair<const char*, const Layout*> all[] = {
      {"A", &p.a}, {"B", &p.b}, {"C", &p.c}, {"D", &p.d}};
  for (const auto& [name, layout] : all) {
    const auto refusal = check_layout(name, *layout);
    if (refusal.status) return refusal;
    if (layout->batches != p.d.batches) return invalid("the numbers of batches differ");
  }
  if ((p.epilogue & BIAS) && p.bias_type >= 0 && p.bias_type != p.d.type) {
    return unsupported("the bias has another type than D");
  }
  return {};
}

Refusal check_pointers(const Product& p) {
  const bool reads_c = p.has_device_scalars || p.beta != 0;
  const size_t bias_extent = (p.d.batches - 1) * p.bias_stride + p.d.rows;
  struct {
    const char* name;
    const void* data;
    size_t elements;
    int type;
    bool is_used;
  } const all[] = {
      {"A", p.a_data, p.a.extent(), p.a.type, true},
      {"B", p.b_data, p.b.extent(), p.b.type, true},
      {"C", p.c_data, p.c.extent(), p.c.type, reads_c},
      {"D", p.d_data, p.d.extent(), p.d.type, true},
      {"the bias", p.bias_data, bias_extent, p.d.type, (p.epilogue & BIAS) != 0},
  };
  for (const auto& it : all) {
    if (!it.is_used) continue;
    const auto refusal = check_pointer(it.name, it.data, it.elements, it.type);
    if (refusal.status) return refusal;
  }
  if (p.c_data == p.d_data && !(p.c == p.d)) {
    return invalid("C and D are the same memory in different layouts");
  }
  const size_t d_bytes = p.d.extent() * size_of(p.d.type);
  for (int i : {0, 1, 2}) {
    const bool is_in_place = i == 2 && p.c_data == p.d_data;
    if (!all[i].is_used || is_in_place) continue;
    const size_t bytes = all[i].elements * size_of(all[i].type);
    if (overlap(all[i].data, bytes, p.d_data, d_bytes)) {
      return invalid(std::string(all[i].name) + " and D overlap");
    }
  }
  return {};
}

}  // namespace product
