// Products of a few queries with vectors in blocks of 16, dimension-major: number i of all 16, then number i + 1.
//
// Lists are ranked by them, so they have the same bits at every level, and for one query or several. Products and sums
// are rounded separately, in float32: four partial sums (of the dimensions 0, 4, 8, ..., of 1, 5, 9, ..., and so on),
// the sum of the first two plus that of the others, then the last dimensions one by one.
#pragma once

#include "core/common.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kChains = 4;
inline constexpr int kQueriesAtOnce = kWidth == kLanes ? 4 : 2;  // limited by registers
inline constexpr int kBlocksAtOnce = kWidth == kLanes ? 4 : 2;   // for one query

// Q queries with B blocks, `stride` apart in `scores`. One register-wide part of each block.
template <int Q, int B>
CFE_INLINE void multiply_part(const float* X, std::size_t d, const float* blocks, float* scores, std::size_t stride) {
  FloatRegister sums[kChains][Q][B] = {};
  std::size_t i = 0;
  for (; i + kChains <= d; i += kChains)
    for (int chain = 0; chain < kChains; ++chain)
      for (int b = 0; b < B; ++b) {
        const FloatRegister column = load_register(blocks + (static_cast<std::size_t>(b) * d + i + chain) * kLanes);
        for (int q = 0; q < Q; ++q) sums[chain][q][b] += X[q * d + i + chain] * column;
      }
  for (int q = 0; q < Q; ++q)
    for (int b = 0; b < B; ++b) {
      FloatRegister total = (sums[0][q][b] + sums[1][q][b]) + (sums[2][q][b] + sums[3][q][b]);
      for (std::size_t rest = i; rest < d; ++rest)
        total += X[q * d + rest] * load_register(blocks + (static_cast<std::size_t>(b) * d + rest) * kLanes);
      std::memcpy(scores + q * stride + b * kLanes, &total, sizeof total);
    }
}

template <int Q, int B>
CFE_INLINE void multiply(const float* X, std::size_t d, const float* blocks, float* scores, std::size_t stride) {
  for (int p = 0; p < kParts; ++p) multiply_part<Q, B>(X, d, blocks + p * kWidth, scores + p * kWidth, stride);
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

}  // namespace cfe::CFE_LEVEL
