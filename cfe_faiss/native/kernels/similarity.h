// The score of two rows: products of float32, or squares of differences, summed in float64, in one order at every
// level.
//
// The order of the sums decides the bits, as products of two float32 numbers are exact in float64: 16 partial sums, the
// upper eight added to the lower, then a tree, then the last numbers of the rows one by one.
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
  return __builtin_convertvector(v, Wide);
}

CFE_INLINE Wide widened(const double* from) {
  Wide v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// The sum of the eight numbers in the given registers, by a tree that starts with neighbours.
CFE_INLINE double tree_sum(const Wide* sums) {
#if CFE_WIDTH == 16
  const auto pairs =
      __builtin_shufflevector(sums[0], sums[0], 0, 2, 4, 6) + __builtin_shufflevector(sums[0], sums[0], 1, 3, 5, 7);
  const auto fours = __builtin_shufflevector(pairs, pairs, 0, 2) + __builtin_shufflevector(pairs, pairs, 1, 3);
  return fours[0] + fours[1];
#elif CFE_WIDTH == 8
  const auto pairs =
      __builtin_shufflevector(sums[0], sums[1], 0, 2, 4, 6) + __builtin_shufflevector(sums[0], sums[1], 1, 3, 5, 7);
  const auto fours = __builtin_shufflevector(pairs, pairs, 0, 2) + __builtin_shufflevector(pairs, pairs, 1, 3);
  return fours[0] + fours[1];
#else
  return ((sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1])) +
         ((sums[2][0] + sums[2][1]) + (sums[3][0] + sums[3][1]));
#endif
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

template <class Number>
CFE_INLINE float score_of(Metric metric, const Number* x, const float* y, std::size_t d) {
  return rounded_similarity(metric == Metric::kL2 ? -sum_of_terms<true>(x, y, d) : sum_of_products(x, y, d));
}

// The length of x, in float64.
double norm(std::span<const float> x) { return std::sqrt(sum_of_products(x.data(), x.data(), x.size())); }

// Writes the similarity of each row of X with the same row of Y.
void pair_similarities(const float* X, const float* Y, std::size_t d, std::span<float> result) {
  for (std::size_t r = 0; r < result.size(); ++r) result[r] = similarity(X + r * d, Y + r * d, d);
}

// Writes the score of each X[first[p]] with Y[second[p]].
void row_scores(Metric metric, Matrix<const float> X, Matrix<const float> Y, std::span<const std::int64_t> first,
                std::span<const std::int64_t> second, std::span<float> result) {
  for (std::size_t p = 0; p < result.size(); ++p)
    result[p] = score_of(metric, X.data + static_cast<std::size_t>(first[p]) * X.columns,
                         Y.data + static_cast<std::size_t>(second[p]) * Y.columns, X.columns);
}

}  // namespace cfe::CFE_LEVEL
