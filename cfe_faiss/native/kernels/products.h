// Products in float32 that have the same bits at every level, and for one vector or several: products and sums are
// rounded separately.
//
// Lists are ranked by products of a few queries with vectors in blocks of 16, dimension-major: number i of all 16, then
// number i + 1; or with the same vectors as rows. There are four partial sums (of the dimensions 0, 4, 8, ..., of 1, 5,
// 9, ..., and so on), the sum of the first two plus that of the others, then the last dimensions one by one.
//
// Groups of near rows are found by products with 16 partial sums: sums that are four apart added, a tree of four, then
// the last dimensions one by one.
#pragma once

#include "core/common.h"
#include "simd/load.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kChains = 4;
inline constexpr int kQueriesAtOnce = kWidth == kLanes ? 4 : 2;  // limited by registers
inline constexpr int kBlocksAtOnce = kWidth == kLanes ? 4 : 1;   // for one query

// Q queries with B registers, parts of a block or of several, `stride` apart in `scores`.
template <int Q, int B>
CFE_INLINE void multiply_part(const float* X, std::size_t d, const float* blocks, float* scores, std::size_t stride) {
  const std::size_t next = kParts == 1 ? d * kLanes : kWidth;  // register
  FloatRegister sums[kChains][Q][B] = {};
  std::size_t i = 0;
  for (; i + kChains <= d; i += kChains)
    for (int chain = 0; chain < kChains; ++chain)
      for (int b = 0; b < B; ++b) {
        const FloatRegister column = load_register(blocks + b * next + (i + chain) * kLanes);
        for (int q = 0; q < Q; ++q) sums[chain][q][b] += X[q * d + i + chain] * column;
      }
  for (int q = 0; q < Q; ++q)
    for (int b = 0; b < B; ++b) {
      FloatRegister total = (sums[0][q][b] + sums[1][q][b]) + (sums[2][q][b] + sums[3][q][b]);
      for (std::size_t rest = i; rest < d; ++rest)
        total += X[q * d + rest] * load_register(blocks + b * next + rest * kLanes);
      std::memcpy(scores + q * stride + b * kWidth, &total, sizeof total);
    }
}

template <int Q, int B>
CFE_INLINE void multiply(const float* X, std::size_t d, const float* blocks, float* scores, std::size_t stride) {
  // One query reads two parts of a block at once, as a long block does not stay in the first cache.
  constexpr int kRegisters = kParts == 1 ? B : Q == 1 ? 2 : 1;
  for (int p = 0; p < kParts; p += kRegisters)
    multiply_part<Q, kRegisters>(X, d, blocks + p * kWidth, scores + p * kWidth, stride);
}

// Writes the products of each row of X with the 16 vectors of each block, (nq, 16 * blocks) or wider.
void dot_blocks(const Matrix<const float>& X, std::span<const float> blocks, const Matrix<float>& scores) {
  const std::size_t d = X.columns, number = blocks.size() / (d * kLanes), stride = scores.columns;
  std::size_t q = 0;
  for (; q + kQueriesAtOnce <= X.rows; q += kQueriesAtOnce)
    for (std::size_t b = 0; b < number; ++b)
      multiply<kQueriesAtOnce, 1>(X.data + q * d, d, blocks.data() + b * d * kLanes,
                                  scores.data + q * stride + b * kLanes, stride);
  for (; q < X.rows; ++q) {
    const float* x = X.data + q * d;
    float* own = scores.data + q * stride;
    std::size_t b = 0;
    for (; b + kBlocksAtOnce <= number; b += kBlocksAtOnce)
      multiply<1, kBlocksAtOnce>(x, d, blocks.data() + b * d * kLanes, own + b * kLanes, stride);
    for (; b < number; ++b) multiply<1, 1>(x, d, blocks.data() + b * d * kLanes, own + b * kLanes, stride);
  }
}

// Four sums, from partial sums in the order in which `sums_of` adds them.
CFE_INLINE Float4 partial_sums(const F32x16& sums) { return in_four(sums); }
CFE_INLINE Float4 partial_sums(const Float4& sums) { return __builtin_shufflevector(sums, sums, 0, 2, 1, 3); }

// Writes the products of x with some rows of X, with a partial sum for each of the numbers in `Numbers`.
template <class Numbers>
CFE_INLINE void multiply_rows(const float* x, const Matrix<const float>& X, std::span<const std::int64_t> rows,
                              std::span<float> result) {
  constexpr std::size_t kAtOnce = 4, kNumbers = sizeof(Numbers) / sizeof(float);
  const std::size_t d = X.columns, number = rows.size();
  for (std::size_t first = 0; first < number; first += kAtOnce) {
    const float* row[kAtOnce];
    Numbers own, other, sums[kAtOnce] = {};
    for (std::size_t r = 0; r < kAtOnce; ++r)
      row[r] = X.data + static_cast<std::size_t>(rows[first + r < number ? first + r : number - 1]) * d;
    std::size_t i = 0;
    for (; i + kNumbers <= d; i += kNumbers) {
      std::memcpy(&own, x + i, sizeof own);
      for (std::size_t r = 0; r < kAtOnce; ++r) {
        std::memcpy(&other, row[r] + i, sizeof other);
        sums[r] += own * other;
      }
    }
    Float4 totals = sums_of(partial_sums(sums[0]), partial_sums(sums[1]), partial_sums(sums[2]), partial_sums(sums[3]));
    for (; i < d; ++i)
      for (std::size_t r = 0; r < kAtOnce; ++r) totals[r] += x[i] * row[r][i];
    for (std::size_t r = 0; r < kAtOnce && first + r < number; ++r) result[first + r] = totals[r];
  }
}

// For finding groups of near rows.
void dot_rows(const float* x, const Matrix<const float>& X, std::span<const std::int64_t> rows,
              std::span<float> result) {
  multiply_rows<F32x16>(x, X, rows, result);
}

// With the bits of `dot_blocks`.
void dot_rows_as_blocks(const float* x, const Matrix<const float>& X, std::span<const std::int64_t> rows,
                        std::span<float> result) {
  static_assert(kChains == 4);
  multiply_rows<Float4>(x, X, rows, result);
}

}  // namespace cfe::CFE_LEVEL
