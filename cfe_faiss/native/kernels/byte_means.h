// Means that lists are ranked by, first compared in bytes, which take a quarter of the memory of floats. The bounds are
// the same as for rows; see kernels/block_queries.h.
#pragma once

#include "core/byte_means.h"
#include "kernels/block_single.h"
#include "kernels/select.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kByteBlocksAtOnce = kWidth == kLanes ? 4 : 2;

// Bounds the difference between products by bytes and by floats that rounding in float32 causes, relative to the
// lengths of a query and a mean: four products of d terms, and a few roundings more; see rows/codecs.py,
// screening_error.
CFE_INLINE float rounding_of_means(std::size_t d) { return static_cast<float>(4 * d + 64) * 0x1p-24f; }

// Exceeds the error of a norm, or of a product with a query, if the squares underflow in float32.
inline constexpr float kLeastError = 1e-18f;

// A norm is a sum of d terms.
CFE_INLINE float rounded_up(std::size_t d) { return 1 + static_cast<float>(d + 32) * 0x1p-23f; }

// The parts of a BlocksView that `encode` reads.
CFE_INLINE BlocksView shape_of(std::size_t d, std::size_t words) {
  BlocksView shape{};
  shape.rows.d = d;
  shape.words = shape.prefix = words;
  return shape;
}

// Rounds means, (blocks, length, 16), to bytes, where length is d or d + 1; `buffer` is (d, 16).
void encode_means(const float* means, std::size_t length, std::span<const float> center, const ByteMeans& target,
                  float* buffer) {
  const std::size_t d = target.d;
  const F32x16 center_norm = F32x16::all(__builtin_sqrtf(block::dot(center.data(), center.data(), d)));
  const F32x16 up = F32x16::all(rounded_up(d)), rounding = F32x16::all(rounding_of_means(d));
  for (std::size_t b = 0; b < target.blocks; ++b) {
    const float* block = means + b * length * kLanes;
    F32x16 along = F32x16::all(0);
    for (std::size_t i = 0; i < d; ++i) {
      const F32x16 rest = F32x16::load(block + i * kLanes) - F32x16::all(center[i]);
      rest.store(buffer + i * kLanes);
      along += rest * F32x16::all(center[i]);
    }
    const block::Codes codes =
        block::encode(shape_of(d, target.words), buffer, kLargestRowCode, 0, target.data + b * target.words * kLanes);
    std::int32_t* statistics = target.statistics + b * kMeanStatistics * kLanes;
    auto* floats = reinterpret_cast<float*>(statistics);
    (codes.sum * I32x16::all(-kZeroCode)).store(statistics + kMeanCorrection * kLanes);
    codes.scale.store(floats + kMeanScale * kLanes);
    along.store(floats + kMeanAlong * kLanes);
    (codes.error * up).store(floats + kMeanError * kLanes);
    ((codes.norm + codes.error) * up).store(floats + kMeanNorm * kLanes);
    ((rounding * (codes.norm + center_norm) + F32x16::all(kLeastError)) * up).store(floats + kMeanRounding * kLanes);
    (length > d ? F32x16::load(block + d * kLanes) : F32x16::all(0)).store(floats + kMeanLast * kLanes);
  }
}

// Rounds a query to bytes. `rest` has room for d numbers, padded with zeros to a multiple of 16.
ByteQuery encode_query(std::span<const float> x, std::span<const float> center, std::span<float> rest,
                       std::span<std::int32_t> words) {
  const std::size_t d = x.size();
  const float along = block::dot(x.data(), center.data(), d);
  const float square = block::dot(center.data(), center.data(), d);
  const float share = square > block::kTiny ? along / square : 0;
  for (std::size_t i = 0; i < d; ++i) rest[i] = x[i] - share * center[i];
  const block::SingleCodes codes =
      block::encode_single(shape_of(d, words.size() / kLanes), rest.data(), largest_code(d), kZeroCode, words.data());
  const float up = rounded_up(d), norm = __builtin_sqrtf(block::dot(x.data(), x.data(), d)) * up;
  return {words.data(),
          along,
          share,
          norm > kLeastError ? norm : kLeastError,
          codes.scale,
          codes.error * up + kLeastError,
          codes.norm * up + kLeastError,
          0};
}

template <int B>
CFE_INLINE void bound_blocks(const ByteMeans& means, const ByteQuery& query, std::size_t first, float* lower,
                             float* upper) {
  const std::int32_t* data = means.data + first * means.words * kLanes;
  const std::int32_t* statistics = means.statistics + first * kMeanStatistics * kLanes;
  I32x16 totals[B];
  for (int b = 0; b < B; ++b) totals[b] = I32x16::load(statistics + (b * kMeanStatistics + kMeanCorrection) * kLanes);
  for (std::size_t w = 0; w < means.words; ++w) {
    const I32x16 own = I32x16::all(query.words[w * kLanes]);
    for (int b = 0; b < B; ++b)
      totals[b] = add_products(totals[b], own, I32x16::load(data + (b * means.words + w) * kLanes));
  }
  for (int b = 0; b < B; ++b) {
    const auto of = [&](MeanStatistic which) CFE_LAMBDA {
      return F32x16::load(reinterpret_cast<const float*>(statistics) + (b * kMeanStatistics + which) * kLanes);
    };
    const F32x16 rest = to_float(totals[b]) * (of(kMeanScale) * F32x16::all(query.scale));
    const F32x16 last = of(kMeanLast) * F32x16::all(query.last);
    const F32x16 product = rest + (of(kMeanAlong) * F32x16::all(query.share) + F32x16::all(query.along)) + last;
    const F32x16 error = of(kMeanError) * F32x16::all(query.rest) + of(kMeanNorm) * F32x16::all(query.error) +
                         of(kMeanRounding) * F32x16::all(query.norm) +
                         absolute(last) * F32x16::all(rounding_of_means(means.d));
    (product - error).store(lower + (first + b) * kLanes);
    (product + error).store(upper + (first + b) * kLanes);
  }
}

// Writes bounds of the results of dot_blocks for a query and some means, 16 for each block.
void bound_means(const ByteMeans& means, const ByteQuery& query, float* lower, float* upper) {
  std::size_t b = 0;
  for (; b + kByteBlocksAtOnce <= means.blocks; b += kByteBlocksAtOnce)
    bound_blocks<kByteBlocksAtOnce>(means, query, b, lower, upper);
  for (; b < means.blocks; ++b) bound_blocks<1>(means, query, b, lower, upper);
}

}  // namespace cfe::CFE_LEVEL
