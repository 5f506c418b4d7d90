// One query against the float32 rows of a list, where FAISS keeps them: four rows at a time are screened by a product
// in any order; what comes within a margin of the k-th best is scored.
#pragma once

#include <span>

#include "core/topk.h"
#include "kernels/similarity.h"

namespace cfe::CFE_LEVEL {

using Float4 = float __attribute__((vector_size(16)));

inline constexpr std::size_t kRowsAtOnce = 4;

// The sums of numbers that are four apart.
CFE_INLINE Float4 in_four(const F16& v) {
  float numbers[kLanes];
  v.store(numbers);
  Float4 four[4];
  std::memcpy(four, numbers, sizeof four);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

// The sum of each of four vectors.
CFE_INLINE Float4 sums_of(const Float4& a, const Float4& b, const Float4& c, const Float4& d) {
  const Float4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Float4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// The products of x and of d numbers from `row` on, in 16 sums; d >= 16. `rest` is what x holds after the last whole 16
// numbers, at the end of 16, and zeros: so the last numbers of a row are read without those behind it.
CFE_INLINE F16 products(std::span<const float> x, const F16& rest, const float* row) {
  F16 sums = F16::load(row + x.size() - kLanes) * rest;
  for (std::size_t i = 0; i + kLanes <= x.size(); i += kLanes)
    sums = fused(F16::load(x.data() + i), F16::load(row + i), sums);
  return sums;
}

CFE_INLINE void score_row(std::span<const float> x, const float* row, std::int64_t id, bool deduplicate, TopK& best) {
  const float s = similarity(x.data(), row, x.size());
  deduplicate ? best.push_once(s, id) : best.push(s, id);
}

// Takes rows that follow each other into the k best of a query; ids, (rows,), are theirs. `margin` bounds how far a
// product in float32 is from the similarity.
void scan_rows(std::span<const float> x, const float* rows, std::span<const std::int64_t> ids, float margin,
               bool deduplicate, TopK best) {
  const std::size_t d = x.size(), number = ids.size();
  std::size_t r = 0;
  if (d >= kLanes) {
    float numbers[kLanes] = {};
    for (std::size_t i = d - d % kLanes; i < d; ++i) numbers[i + kLanes - d] = x[i];
    const F16 rest = F16::load(numbers);
    for (; r + kRowsAtOnce <= number; r += kRowsAtOnce) {
      const float* row = rows + r * d;
      const Float4 scores = sums_of(in_four(products(x, rest, row)), in_four(products(x, rest, row + d)),
                                    in_four(products(x, rest, row + 2 * d)), in_four(products(x, rest, row + 3 * d)));
      const auto reach = scores >= best.worst() - margin;
      if ((reach[0] | reach[1] | reach[2] | reach[3]) == 0) continue;
      for (std::size_t i = 0; i < kRowsAtOnce; ++i)
        if (scores[i] >= best.worst() - margin) score_row(x, row + i * d, ids[r + i], deduplicate, best);
    }
  }
  for (; r < number; ++r) score_row(x, rows + r * d, ids[r], deduplicate, best);
}

}  // namespace cfe::CFE_LEVEL
