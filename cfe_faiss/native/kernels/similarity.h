// The score of two rows: products of float32, or squares of differences, summed in float64, in one order at every
// level.
//
// The order of the sums decides the bits, as products of two float32 numbers are exact in float64: 16 partial sums, the
// upper eight added to the lower, then a tree, then the last numbers of the rows one by one.
//
// Scores of Metric::kCosine are in [-1, 1], and exactly 1 for equal unit rows. Screening products of equal
// rows are smaller, so screening thresholds have an upper limit; see screening_threshold.
#pragma once

#include <cmath>

#include "core/common.h"
#include "core/metric.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kDoubles = kWidth / 2;      // in a register
inline constexpr int kSums = kLanes / kDoubles;  // registers of partial sums

CFE_INLINE Wide widened(const float* from) {
  Half v;
  std::memcpy(&v, from, sizeof v);
  return widened(v);
}

CFE_INLINE Wide widened(const double* from) {
  Wide v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// The sum of the eight numbers in the given registers, by a tree that starts with neighbours.
CFE_INLINE double tree_sum(const Wide* sums) {
  double eight[kLanes / 2];
  std::memcpy(eight, sums, sizeof eight);
  return ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]));
}

// One number. Like `widened`, it may be unaligned: in a mapped file vectors may have odd addresses.
template <class Number>
CFE_INLINE double number_at(const Number* from) {
  Number value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The product of two numbers or, for distances, the square of their difference.
template <bool kDistance, class Numbers>
CFE_INLINE Numbers term_of(const Numbers& a, const Numbers& b) {
  if constexpr (!kDistance) return a * b;
  const Numbers difference = a - b;
  return difference * difference;
}

// The inner product of x, in float32 or float64 (of float32 numbers), and y, both of length d; or their squared
// distance.
template <bool kDistance, class Number>
CFE_INLINE double sum_of_terms(const Number* x, const float* y, std::size_t d) {
  Wide sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kLanes <= d; i += kLanes)
    for (int p = 0; p < kSums; ++p)
      sums[p] += term_of<kDistance>(widened(x + i + p * kDoubles), widened(y + i + p * kDoubles));
  for (int p = 0; p < kSums / 2; ++p) sums[p] += sums[p + kSums / 2];
  double total = tree_sum(sums);
  for (; i < d; ++i) total += term_of<kDistance>(number_at(x + i), number_at(y + i));
  return total;
}

template <class Number>
CFE_INLINE double sum_of_products(const Number* x, const float* y, std::size_t d) {
  return sum_of_terms<false>(x, y, d);
}

// Rounds a sum to a similarity: 0 where a negative sum underflows, not -0.
CFE_INLINE float rounded_similarity(double sum) { return static_cast<float>(sum) + 0.0f; }

CFE_INLINE float similarity(const float* x, const float* y, std::size_t d) {
  return rounded_similarity(sum_of_products(x, y, d));
}

// Least rounded product of a unit row with itself: with u = 2^-24, |x| >= 1 - 3e-7 > 1 - 5.04 u (see normalise.h), so
// that |x|^2 > 1 - 10.1 u.
inline constexpr float kLeastOfEqual = 1 - 11 * 0x1p-24f;

// The cosine of unit rows x and y with this rounded product. Rows of codes may have other lengths: theirs is clamped,
// but less than 1 if the squared length is less than kLeastOfEqual.
template <class Number>
CFE_INLINE float cosine_of(float product, const Number* x, const float* y, std::size_t d) {
  if (!(product >= kLeastOfEqual)) return product < -1 ? -1.0f : product;
  if (product >= 1) return 1;
  for (std::size_t i = 0; i < d; ++i)
    if (number_at(x + i) != number_at(y + i)) return product;
  return 1;
}

// Returns the threshold for screening scores that err by at most `margin`, from the wanted score less that margin. A
// product of at least kLeastOfEqual may have the score 1, so no threshold exceeds it less the margin; a product below
// -1 has the score -1, so thresholds below -1 exclude nothing.
CFE_INLINE float screening_threshold(Metric metric, float margin, float lowered) {
  if (metric != Metric::kCosine) return lowered;
  if (!(lowered >= -1)) return kPadding;
  const float most = kLeastOfEqual - margin;
  return lowered < most ? lowered : most;
}

// The Tanimoto similarity of rows of 0 and 1 with `common` ones in both and `different` numbers: 1 for two rows of
// zeros. Both counts are exact, and a quotient in float64 rounds to that of the exact numbers.
CFE_INLINE float tanimoto_of(double common, double different) {
  const double all = common + different;
  return all == 0 ? 1.0f : static_cast<float>(common / all);
}

template <class Number>
CFE_INLINE float score_of(Metric metric, const Number* x, const float* y, std::size_t d) {
  if (metric == Metric::kL2) return rounded_similarity(-sum_of_terms<true>(x, y, d));
  if (metric == Metric::kTanimoto) return tanimoto_of(sum_of_products(x, y, d), sum_of_terms<true>(x, y, d));
  const float product = rounded_similarity(sum_of_products(x, y, d));
  return metric == Metric::kCosine ? cosine_of(product, x, y, d) : product;
}

// The length of x, in float64.
double norm(std::span<const float> x) { return std::sqrt(sum_of_products(x.data(), x.data(), x.size())); }

// Writes the score of each X[first[p]] with Y[second[p]].
void row_scores(Metric metric, Matrix<const float> X, Matrix<const float> Y, std::span<const std::int64_t> first,
                std::span<const std::int64_t> second, std::span<float> result) {
  for (std::size_t p = 0; p < result.size(); ++p)
    result[p] = score_of(metric, X.data + static_cast<std::size_t>(first[p]) * X.columns,
                         Y.data + static_cast<std::size_t>(second[p]) * Y.columns, X.columns);
}

}  // namespace cfe::CFE_LEVEL
