// Dot products of one row with others, for finding groups of near rows: float32, in one order at every level. Products
// and sums are rounded separately: 16 partial sums, sums that are four apart added, a tree of four, then the last
// numbers of the rows one by one.
#pragma once

#include "core/common.h"
#include "simd/load.h"

namespace cfe::CFE_LEVEL {

inline constexpr std::size_t kRowsAtOnce = 4;

// Writes the product of x with some rows of X.
void dot_rows(const float* x, const Matrix<const float>& X, std::span<const std::int64_t> rows,
              std::span<float> result) {
  const std::size_t d = X.columns, number = rows.size();
  for (std::size_t first = 0; first < number; first += kRowsAtOnce) {
    const float* row[kRowsAtOnce];
    F32x16 sums[kRowsAtOnce];
    for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
      row[r] = X.data + static_cast<std::size_t>(rows[first + r < number ? first + r : number - 1]) * d;
      sums[r] = F32x16::all(0);
    }
    std::size_t i = 0;
    for (; i + kLanes <= d; i += kLanes) {
      const F32x16 own = F32x16::load(x + i);
      for (std::size_t r = 0; r < kRowsAtOnce; ++r) sums[r] = sums[r] + own * F32x16::load(row[r] + i);
    }
    Float4 totals = sums_of(in_four(sums[0]), in_four(sums[1]), in_four(sums[2]), in_four(sums[3]));
    for (; i < d; ++i)
      for (std::size_t r = 0; r < kRowsAtOnce; ++r) totals[r] += x[i] * row[r][i];
    for (std::size_t r = 0; r < kRowsAtOnce && first + r < number; ++r) result[first + r] = totals[r];
  }
}

}  // namespace cfe::CFE_LEVEL
