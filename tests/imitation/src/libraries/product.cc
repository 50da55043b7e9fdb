// Computes a product from its descriptors, in float32 or float64 as its compute type says.
#include "product.h"

#include "card.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace product {

namespace {

template <class T>
T read_as(const char* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

double read(const void* data, int type, size_t index) {
  const char* at = static_cast<const char*>(data) + index * size_of(type);
  switch (type) {
    case F64: return read_as<double>(at);
    case F16: return float(read_as<_Float16>(at));
    case BF16: {
      const uint32_t bits = uint32_t(read_as<uint16_t>(at)) << 16;
      return read_as<float>(reinterpret_cast<const char*>(&bits));
    }
    default: return read_as<float>(at);
  }
}

// Rounds to nearest, ties to even.
uint16_t to_bfloat16(float value) {
  if (std::isnan(value)) return 0x7fc0;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void write(void* data, int type, size_t index, double value) {
  char* at = static_cast<char*>(data) + index * size_of(type);
  if (type == F64) {
    memcpy(at, &value, sizeof value);
  } else if (type == F16) {
    const auto half = static_cast<_Float16>(static_cast<float>(value));
    memcpy(at, &half, sizeof half);
  } else if (type == BF16) {
    const uint16_t bits = to_bfloat16(float(value));
    memcpy(at, &bits, sizeof bits);
  } else {
    const float single = float(value);
    memcpy(at, &single, sizeof single);
  }
}

double activate(uint32_t epilogue, double x) {
  if (epilogue & RELU) return x > 0 || std::isnan(x) ? x : 0;
  if (!(epilogue & GELU)) return x;
  // cuBLASLt's GELU is the approximation by tanh.
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

// op(matrix) of a batch, element (row, column) at `row * row_step + column * column_step`.
template <class Real>
std::vector<Real> gather(const Layout& layout, bool is_transposed, const void* data, int batch,
                         bool has_rows_together) {
  const uint64_t rows = is_transposed ? layout.columns : layout.rows;
  const uint64_t columns = is_transposed ? layout.rows : layout.columns;
  std::vector<Real> out(rows * columns);
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      const size_t from = is_transposed ? layout.offset(j, i) : layout.offset(i, j);
      out[has_rows_together ? i + j * rows : i * columns + j] =
          Real(read(data, layout.type, batch * layout.stride + from));
    }
  }
  return out;
}

// One batch of op(A) op(B): the inner loop runs along a column, so that the compiler can widen it.
template <class Real>
void multiply(const Product& p, int batch, double* out) {
  const uint64_t m = p.d.rows, n = p.d.columns, k = p.inner();
  const auto a = gather<Real>(p.a, p.is_a_transposed, card::host_view(p.a_data), batch, true);
  const auto b = gather<Real>(p.b, p.is_b_transposed, card::host_view(p.b_data), batch, true);
  std::vector<Real> column(m);
  for (uint64_t j = 0; j < n; ++j) {
    std::fill(column.begin(), column.end(), Real(0));
    for (uint64_t l = 0; l < k; ++l) {
      const Real factor = b[l + j * k];
      const Real* from = &a[l * m];
      for (uint64_t i = 0; i < m; ++i) column[i] += from[i] * factor;
    }
    std::copy(column.begin(), column.end(), out + j * m);
  }
}

double scalar(const Product& p, const void* device, double host) {
  return p.has_device_scalars ? read(card::host_view(device), p.scale, 0) : host;
}

}  // namespace

size_t size_of(int type) {
  switch (type) {
    case F64: return 8;
    case F16:
    case BF16: return 2;
    default: return 4;
  }
}

std::vector<double> compute(const Product& p) {
  const double alpha = scalar(p, p.alpha_data, p.alpha), beta = scalar(p, p.beta_data, p.beta);
  const uint64_t m = p.d.rows, n = p.d.columns;
  const int bias_type = p.bias_type < 0 ? p.d.type : p.bias_type;
  std::vector<double> out(m * n * p.d.batches);
  for (int batch = 0; batch < p.d.batches; ++batch) {
    double* result = &out[batch * m * n];
    p.scale == F64 ? multiply<double>(p, batch, result) : multiply<float>(p, batch, result);
    for (uint64_t at = 0; at < m * n; ++at) {
      const uint64_t i = at % m, j = at / m;
      double value = alpha * result[at];
      if (beta != 0) {
        const size_t from = batch * p.c.stride + p.c.offset(i, j);
        value += beta * read(card::host_view(p.c_data), p.c.type, from);
      }
      if (p.epilogue & BIAS) {
        value += read(card::host_view(p.bias_data), bias_type, batch * p.bias_stride + i);
      }
      result[at] = activate(p.epilogue, value);
    }
  }
  return out;
}

void store(const Product& p, const std::vector<double>& result) {
  size_t at = 0;
  for (int batch = 0; batch < p.d.batches; ++batch) {
    for (uint64_t j = 0; j < p.d.columns; ++j) {
      for (uint64_t i = 0; i < p.d.rows; ++i) {
        const size_t to = batch * p.d.stride + p.d.offset(i, j);
        write(card::host_view(p.d_data), p.d.type, to, result[at++]);
      }
    }
  }
}

double difference(const Product& p, const std::vector<double>& result) {
  double most = 0, largest = 0;
  size_t at = 0;
  for (int batch = 0; batch < p.d.batches; ++batch) {
    for (uint64_t j = 0; j < p.d.columns; ++j) {
      for (uint64_t i = 0; i < p.d.rows; ++i) {
        const size_t from = batch * p.d.stride + p.d.offset(i, j);
        const double there = read(card::host_view(p.d_data), p.d.type, from), here = result[at++];
        if (std::isnan(there) && std::isnan(here)) continue;
        largest = std::max(largest, std::fabs(there));
        const double apart = there == here ? 0 : std::fabs(there - here);
        most = std::isnan(apart) ? INFINITY : std::max(most, apart);
      }
    }
  }
  return most == 0 ? 0 : largest == 0 ? INFINITY : most / largest;
}

}  // namespace product
