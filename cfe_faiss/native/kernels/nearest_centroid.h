// The nearest centroid, exactly: products in any order screen the centroids, 16 at a time. If several come near the
// largest product, scores decide.
#pragma once

#include "core/kmeans.h"
#include "kernels/block_queries.h"
#include "kernels/similarity.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kVectorsAtOnce = 4;
inline constexpr int kCentroidBlocksAtOnce = kWidth == kLanes ? 4 : 1;  // limited by registers
inline constexpr std::size_t kVectorsOfTile = 64;  // vectors whose maxima are kept for all centroids

// Per lane, the largest product so far, its block, and the second largest product.
struct LaneMaxima {
  F32x16 first, second;
  I32x16 block;
};

// Updates the maxima by the products of Q vectors and B blocks.
template <int Q, int B>
CFE_INLINE void raise_lanes(const float* X, const CentroidBlocks& centroids, std::size_t block, LaneMaxima* maxima) {
  const float* blocks[B];
  for (int b = 0; b < B; ++b) blocks[b] = centroids.blocks.data() + (block + b) * centroids.d * kLanes;
  F32x16 sums[Q * B];
  block::dot_block<Q, B>(X, 1, blocks, centroids.d, sums, centroids.d);
  for (int q = 0; q < Q; ++q)
    for (int b = 0; b < B; ++b) {
      const F32x16 sum = sums[b * Q + q] + F32x16::load(centroids.start.data() + (block + b) * kLanes);
      LaneMaxima& own = maxima[q];
      const I32x16 nearer = sum > own.first;
      own.second = larger(select(nearer, own.first, sum), own.second);
      own.block = select(nearer, I32x16::all(static_cast<std::int32_t>(block + b)), own.block);
      own.first = select(nearer, sum, own.first);
    }
}

template <int B>
CFE_INLINE void raise_tile(const float* X, std::size_t rows, const CentroidBlocks& centroids, std::size_t block,
                           LaneMaxima* maxima) {
  std::size_t r = 0;
  for (; r + kVectorsAtOnce <= rows; r += kVectorsAtOnce)
    raise_lanes<kVectorsAtOnce, B>(X + r * centroids.d, centroids, block, maxima + r);
  for (; r < rows; ++r) raise_lanes<1, B>(X + r * centroids.d, centroids, block, maxima + r);
}

// Takes the centroid if its score is larger than the best so far, or equal with a smaller number.
CFE_INLINE void take_nearer(const float* x, const CentroidBlocks& centroids, std::size_t number, float& best,
                            std::int32_t& nearest) {
  const float s = score_of(centroids.metric, x, centroids.rows.data() + number * centroids.d, centroids.d);
  const auto own = static_cast<std::int32_t>(number);
  if (s > best || (s == best && own < nearest)) best = s, nearest = own;
}

// Bounds the errors of the products of a vector with the centroids that may be nearest, given the largest product.
//
// For kL2 these are x·c - |c|^2 / 2. With the margin e of unit vectors, their errors are at most
// e (|x| |c| + |c|^2 / 2) and the rounding of half the score: less than 13 e |x|^2 if |c| <= 4 |x|. A longer centroid
// has a product below -|c|^2 / 4.1, so its error is less than 4 e times that. It is nearest only if no product is
// larger.
CFE_INLINE float margin_of(const float* x, const CentroidBlocks& centroids, float largest) {
  if (centroids.metric == Metric::kIp) return centroids.margin;
  constexpr float kUnderflow = 0x1p-100f;  // exceeds what it takes from the sums
  const auto square = static_cast<float>(sum_of_products(x, x, centroids.d));
  const float own = centroids.margin * (14 * square + 5 * std::abs(largest)) + kUnderflow;
  return own < centroids.margin ? own : centroids.margin;
}

// The number of the nearest centroid, and its score if `wanted`.
CFE_INLINE std::int32_t choose(const float* x, const CentroidBlocks& centroids, const LaneMaxima& maxima, bool wanted,
                               float& best) {
  const float largest = largest_lane(maxima.first);
  const F32x16 bound = F32x16::all(largest - 2 * margin_of(x, centroids, largest));
  const Mask near = bits(maxima.first >= bound);
  std::int32_t block[kLanes], nearest = 0;
  maxima.block.store(block);
  const auto number_of = [&](Mask mask) {
    const int lane = __builtin_ctz(mask);
    return static_cast<std::size_t>(block[lane]) * kLanes + lane;
  };
  best = -std::numeric_limits<float>::infinity();
  if (any(maxima.second >= bound))
    for (std::size_t c = 0; c < centroids.number; ++c) take_nearer(x, centroids, c, best, nearest);
  else if (near != 0 && (near & (near - 1)) == 0 && !wanted)
    nearest = static_cast<std::int32_t>(number_of(near));
  else
    for (Mask mask = near; mask != 0; mask &= mask - 1) take_nearer(x, centroids, number_of(mask), best, nearest);
  return nearest;
}

// Writes the centroid with the best score with each vector, (n,) of length d; of equals the first. Also writes that
// score, (n,), unless the span is empty.
void nearest_centroids(const float* X, const CentroidBlocks& centroids, std::span<float> scores,
                       std::span<std::int32_t> nearest) {
  LaneMaxima maxima[kVectorsOfTile];
  const std::size_t blocks = centroids.start.size() / kLanes;
  const bool wanted = !scores.empty();
  for (std::size_t start = 0; start < nearest.size(); start += kVectorsOfTile) {
    const std::size_t rows = nearest.size() - start < kVectorsOfTile ? nearest.size() - start : kVectorsOfTile;
    const float* tile = X + start * centroids.d;
    const F32x16 nothing = F32x16::all(-std::numeric_limits<float>::infinity());
    for (std::size_t r = 0; r < rows; ++r) maxima[r] = {nothing, nothing, I32x16::all(0)};
    std::size_t block = 0;
    for (; block + kCentroidBlocksAtOnce <= blocks; block += kCentroidBlocksAtOnce)
      raise_tile<kCentroidBlocksAtOnce>(tile, rows, centroids, block, maxima);
    for (; block < blocks; ++block) raise_tile<1>(tile, rows, centroids, block, maxima);
    for (std::size_t r = 0; r < rows; ++r) {
      float best;
      nearest[start + r] = choose(tile + r * centroids.d, centroids, maxima[r], wanted, best);
      if (wanted) scores[start + r] = best;
    }
  }
}

}  // namespace cfe::CFE_LEVEL
