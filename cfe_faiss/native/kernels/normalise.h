// Norms and unit rows. Squares are summed in float64 in the order of similarity.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "core/matrix.h"
#include "kernels/similarity.h"

namespace cfe::CFE_LEVEL {

// A vector divided by its norm in float32 is a unit vector up to rounding. Dividing it again would change its last
// bits, and break ties.
inline constexpr double kUnitTolerance = 3e-7;

CFE_INLINE double norm_of(const float* row, std::size_t d) { return std::sqrt(sum_of_products(row, row, d)); }

// The first row that is not finite, or -1.
std::ptrdiff_t first_not_finite(const Matrix<const float>& X) {
  for (std::size_t r = 0; r < X.rows; ++r)
    if (!std::isfinite(norm_of(X.data + r * X.columns, X.columns))) return static_cast<std::ptrdiff_t>(r);
  return -1;
}

// Writes the row divided by its norm. Zero rows and unit rows are copied. Returns whether the row is finite.
CFE_INLINE bool unit_row(const float* x, std::size_t d, float* unit) {
  const double norm = norm_of(x, d);
  if (norm > 0.0 && std::fabs(norm - 1.0) > kUnitTolerance)
    for (std::size_t i = 0; i < d; ++i) unit[i] = static_cast<float>(static_cast<double>(x[i]) / norm);
  else
    for (std::size_t i = 0; i < d; ++i) unit[i] = x[i];
  return std::isfinite(norm);
}

// Writes unit rows up to the first row that is not finite. Returns that row, or -1.
std::ptrdiff_t unit_rows(const Matrix<const float>& X, const Matrix<float>& unit) {
  for (std::size_t r = 0; r < X.rows; ++r)
    if (!unit_row(X.data + r * X.columns, X.columns, unit.data + r * X.columns)) return static_cast<std::ptrdiff_t>(r);
  return -1;
}

// Divides a row by its norm and returns the norm. A zero row stays zero.
double normalise(std::span<float> row) {
  const double norm = norm_of(row.data(), row.size());
  const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
  for (float& value : row) value = static_cast<float>(static_cast<double>(value) * scale);
  return norm;
}

}  // namespace cfe::CFE_LEVEL
