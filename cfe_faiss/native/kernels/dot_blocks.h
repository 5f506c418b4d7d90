// Products of a query with vectors in blocks of 16, dimension-major: number i of all 16, then number i + 1.
//
// Lists are ranked by them, so they have the same bits at every level. Products and sums are rounded separately, in
// float32: four partial sums (of the dimensions 0, 4, 8, ..., of 1, 5, 9, ..., and so on), the sum of the first two
// plus that of the others, then the last dimensions one by one.
#pragma once

#include "core/common.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kChains = 4;
inline constexpr int kBlocksAtOnce = kWidth == kLanes ? 4 : 2;  // limited by registers

// One register-wide part of each of B blocks.
template <int B>
CFE_INLINE void multiply_part(const float* x, std::size_t d, const float* blocks, float* scores) {
  FloatRegister sums[kChains][B] = {};
  std::size_t i = 0;
  for (; i + kChains <= d; i += kChains)
    for (int chain = 0; chain < kChains; ++chain)
      for (int b = 0; b < B; ++b)
        sums[chain][b] += x[i + chain] * load_register(blocks + (static_cast<std::size_t>(b) * d + i + chain) * kLanes);
  for (int b = 0; b < B; ++b) {
    FloatRegister total = (sums[0][b] + sums[1][b]) + (sums[2][b] + sums[3][b]);
    for (std::size_t rest = i; rest < d; ++rest)
      total += x[rest] * load_register(blocks + (static_cast<std::size_t>(b) * d + rest) * kLanes);
    std::memcpy(scores + b * kLanes, &total, sizeof total);
  }
}

template <int B>
CFE_INLINE void multiply(const float* x, std::size_t d, const float* blocks, float* scores) {
  for (int p = 0; p < kParts; ++p) multiply_part<B>(x, d, blocks + p * kWidth, scores + p * kWidth);
}

// Writes the products of x with the 16 vectors of each block.
void dot_blocks(std::span<const float> x, std::span<const float> blocks, float* scores) {
  const std::size_t d = x.size(), number = blocks.size() / (d * kLanes);
  std::size_t b = 0;
  for (; b + kBlocksAtOnce <= number; b += kBlocksAtOnce)
    multiply<kBlocksAtOnce>(x.data(), d, blocks.data() + b * d * kLanes, scores + b * kLanes);
  for (; b < number; ++b) multiply<1>(x.data(), d, blocks.data() + b * d * kLanes, scores + b * kLanes);
}

}  // namespace cfe::CFE_LEVEL
