// The similarity of two rows: products of float32 summed in float64, in one order at every level.
//
// A product of two float32 numbers is exact in float64, so only the order of the sums decides the bits: 16 partial
// sums, the upper eight added to the lower, then a tree, then what is left at the end of the rows one by one.
#pragma once

#include <cmath>
#include <span>

#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

CFE_INLINE DoubleRegister widened(const float* from) {
  FloatRegister v;
  std::memcpy(&v, from, sizeof v);
  return __builtin_convertvector(v, DoubleRegister);
}

CFE_INLINE DoubleRegister widened(const double* from) {
  DoubleRegister v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// The inner product of x, in float32 or float64 (of float32 numbers), and y, both of length d.
template <class Number>
CFE_INLINE double sum_of_products(const Number* x, const float* y, std::size_t d) {
  DoubleRegister sums[kParts] = {};
  std::size_t i = 0;
  for (; i + kLanes <= d; i += kLanes)
    for (int p = 0; p < kParts; ++p) sums[p] += widened(x + i + p * kWidth) * widened(y + i + p * kWidth);
  double lanes[kLanes];
  std::memcpy(lanes, sums, sizeof lanes);
  for (int width = kLanes / 2, first = 1; width > 0; width /= 2, first = 0)
    for (int lane = 0; lane < width; ++lane)
      lanes[lane] = first ? lanes[lane] + lanes[lane + width] : lanes[2 * lane] + lanes[2 * lane + 1];
  double total = lanes[0];
  for (; i < d; ++i) total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return total;
}

CFE_INLINE float similarity(const float* x, const float* y, std::size_t d) {
  return static_cast<float>(sum_of_products(x, y, d));
}

// The length of x, in float64.
double norm(std::span<const float> x) { return std::sqrt(sum_of_products(x.data(), x.data(), x.size())); }

// Writes the similarity of each row of X with the same row of Y.
void pair_similarities(const float* X, const float* Y, std::size_t d, std::span<float> result) {
  for (std::size_t r = 0; r < result.size(); ++r) result[r] = similarity(X + r * d, Y + r * d, d);
}

// Writes the similarity of x with some rows of X.
void row_similarities(const float* x, const float* X, std::size_t d, std::span<const std::int64_t> rows,
                      std::span<float> result) {
  for (std::size_t r = 0; r < rows.size(); ++r) result[r] = similarity(x, X + static_cast<std::size_t>(rows[r]) * d, d);
}

}  // namespace cfe::CFE_LEVEL
