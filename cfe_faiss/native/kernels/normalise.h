// Norms, and vectors divided by them. Squares are summed in float64 in the order of similarity.h.
//
// Each of these roundings decides bits that other results depend on, so none replaces another:
//   unit rows   x / |x| in float64. Rows of norm 1 keep their bits, as another division would break ties.
//   centroids   x / |x| in float64: the means of lists and of their other classes, which queries are routed by.
//   KS vectors  x * (1 / |x|) in float64.
//   k-means     x / |x| in float32, with this norm: trained lists (core/kmeans.cpp), query groups (core/grouping.cpp).
#pragma once

#include <cmath>

#include "core/common.h"
#include "kernels/similarity.h"

namespace cfe::CFE_LEVEL {

// A vector divided by its norm in float32 is a unit vector up to rounding. Dividing it again would change its last
// bits, and break ties.
inline constexpr double kUnitTolerance = 3e-7;

// The first row that is not finite, or -1.
std::ptrdiff_t first_not_finite(const Matrix<const float>& X) {
  for (std::size_t r = 0; r < X.rows; ++r)
    if (!std::isfinite(norm({X.data + r * X.columns, X.columns}))) return static_cast<std::ptrdiff_t>(r);
  return -1;
}

CFE_INLINE void divide(const float* x, std::size_t d, double norm, float* unit) {
  for (std::size_t i = 0; i < d; ++i) unit[i] = static_cast<float>(static_cast<double>(x[i]) / norm);
}

// Writes the row divided by its norm. Zero rows and unit rows are copied. Returns whether the row is finite.
CFE_INLINE bool unit_row(const float* x, std::size_t d, float* unit) {
  const double length = norm({x, d});
  if (length > 0.0 && std::fabs(length - 1.0) > kUnitTolerance)
    divide(x, d, length, unit);
  else
    for (std::size_t i = 0; i < d; ++i) unit[i] = x[i];
  return std::isfinite(length);
}

// Divides a mean by its norm; a zero mean stays zero.
CFE_INLINE void divide_by_norm(float* mean, std::size_t d) {
  const double length = norm({mean, d});
  if (length > 0) divide(mean, d, length, mean);
}

// Writes unit rows up to the first row that is not finite. Returns that row, or -1.
std::ptrdiff_t unit_rows(const Matrix<const float>& X, const Matrix<float>& unit) {
  for (std::size_t r = 0; r < X.rows; ++r)
    if (!unit_row(X.data + r * X.columns, X.columns, unit.data + r * X.columns)) return static_cast<std::ptrdiff_t>(r);
  return -1;
}

// Scales a KS vector to length 1 and returns its norm. A zero row stays zero.
double normalise(std::span<float> row) {
  const double length = norm(row);
  const double scale = length > 0.0 ? 1.0 / length : 0.0;
  for (float& value : row) value = static_cast<float>(static_cast<double>(value) * scale);
  return length;
}

}  // namespace cfe::CFE_LEVEL
