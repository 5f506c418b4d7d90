// The nearest centroid, exactly: products in any order screen the centroids, and if several come near the largest
// product, scores decide.
#pragma once

#include "core/kmeans.h"
#include "kernels/block_queries.h"
#include "kernels/similarity.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kVectorsAtOnce = 4;
inline constexpr int kCentroidBlocksAtOnce = kWidth == kLanes ? 4 : 1;  // limited by registers

// Writes the products of Q vectors with B blocks of centroids, to which each centroid adds its start.
template <int Q, int B>
CFE_INLINE void multiply_blocks(const float* X, const CentroidBlocks& centroids, std::size_t block, float* products) {
  const float* blocks[B];
  for (int b = 0; b < B; ++b) blocks[b] = centroids.blocks.data() + (block + b) * centroids.d * kLanes;
  F32x16 sums[Q * B];
  block::dot_block<Q, B>(X, 1, blocks, centroids.d, sums, centroids.d);
  for (int b = 0; b < B; ++b) {
    const std::size_t first = (block + b) * kLanes;
    const F32x16 start = F32x16::load(centroids.start.data() + first);
    for (int q = 0; q < Q; ++q) (sums[b * Q + q] + start).store(products + q * centroids.start.size() + first);
  }
}

template <int B>
CFE_INLINE void multiply_tile(const float* X, std::size_t rows, const CentroidBlocks& centroids, std::size_t block,
                              float* products) {
  const std::size_t width = centroids.start.size();
  std::size_t r = 0;
  for (; r + kVectorsAtOnce <= rows; r += kVectorsAtOnce)
    multiply_blocks<kVectorsAtOnce, B>(X + r * centroids.d, centroids, block, products + r * width);
  for (; r < rows; ++r) multiply_blocks<1, B>(X + r * centroids.d, centroids, block, products + r * width);
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

// The number of the nearest centroid, given the products of all with a vector, and its score if `wanted`.
CFE_INLINE std::int32_t choose(const float* x, const CentroidBlocks& centroids, const float* products, bool wanted,
                               float& best) {
  const auto score = [&](std::int32_t number) CFE_LAMBDA {
    return score_of(centroids.metric, x, centroids.rows.data() + static_cast<std::size_t>(number) * centroids.d,
                    centroids.d);
  };
  const std::size_t width = centroids.start.size();
  F32x16 most = F32x16::load(products);
  for (std::size_t c = kLanes; c < width; c += kLanes) most = larger(most, F32x16::load(products + c));
  const float largest = largest_lane(most);
  const F32x16 bound = F32x16::all(largest - 2 * margin_of(x, centroids, largest));
  std::int32_t nearest = 0;
  int near = 0;
  for (std::size_t c = 0; c < width; c += kLanes)
    for (Mask mask = at_least(F32x16::load(products + c), bound); mask != 0; mask &= mask - 1) {
      const std::int32_t number = static_cast<std::int32_t>(c) + __builtin_ctz(mask);
      if (++near == 1) {
        nearest = number;
        continue;
      }
      if (near == 2) best = score(nearest);
      const float other = score(number);
      if (other > best) best = other, nearest = number;
    }
  if (wanted && near < 2) best = score(nearest);
  return nearest;
}

// Writes the centroid with the best score with each vector, (n,) of length d; of equals the first. Also writes that
// score, (n,), unless the span is empty. `products` is scratch, (kVectorsOfTile, 16 * blocks).
void nearest_centroids(const float* X, const CentroidBlocks& centroids, std::span<float> products,
                       std::span<float> scores, std::span<std::int32_t> nearest) {
  const std::size_t width = centroids.start.size(), blocks = width / kLanes;
  const bool wanted = !scores.empty();
  for (std::size_t start = 0; start < nearest.size(); start += kVectorsOfTile) {
    const std::size_t rows = nearest.size() - start < kVectorsOfTile ? nearest.size() - start : kVectorsOfTile;
    const float* tile = X + start * centroids.d;
    std::size_t block = 0;
    for (; block + kCentroidBlocksAtOnce <= blocks; block += kCentroidBlocksAtOnce)
      multiply_tile<kCentroidBlocksAtOnce>(tile, rows, centroids, block, products.data());
    for (; block < blocks; ++block) multiply_tile<1>(tile, rows, centroids, block, products.data());
    for (std::size_t r = 0; r < rows; ++r) {
      float best = 0;
      nearest[start + r] = choose(tile + r * centroids.d, centroids, products.data() + r * width, wanted, best);
      if (wanted) scores[start + r] = best;
    }
  }
}

// Adds the weighted vectors of the lists `first` to `last` - 1 to their sums, (lists, d), in the order of the vectors,
// and their weights. Products and sums are rounded separately.
void add_weighted(const float* X, const WeightedLists& of, std::size_t first, std::size_t last,
                  const Matrix<float>& sums, std::span<float> weights) {
  const std::size_t d = sums.columns;
  for (std::size_t r = 0; r < of.lists.size(); ++r) {
    const auto j = static_cast<std::size_t>(of.lists[r]);
    if (j < first || j >= last) continue;
    const float weight = of.weights[r];
    weights[j] += weight;
    const float* x = X + r * d;
    float* sum = sums.data + j * d;
    std::size_t i = 0;
    for (; i + kLanes <= d; i += kLanes) (F32x16::load(sum + i) + F32x16::load(x + i) * weight).store(sum + i);
    for (; i < d; ++i) sum[i] += weight * x[i];
  }
}

}  // namespace cfe::CFE_LEVEL
