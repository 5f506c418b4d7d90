// Plain views for the k-means kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cfe {

// Centroids one after the other, (number, d), and in blocks of 16, dimension-major, (blocks, d, 16).
struct CentroidBlocks {
  std::size_t d, number;
  std::span<const float> rows, blocks;
  std::span<const float> start;  // initial value of the product of each lane, (blocks, 16): 0, or -inf for no centroid
  float margin;                  // bounds how far a product in float32 is from the similarity
};

// The list of each vector, and its weight, both (n,).
struct WeightedLists {
  std::span<const std::int32_t> lists;
  std::span<const float> weights;
};

// Sums of the vectors of each list, (lists, d), and of their weights, (lists,).
struct ListSums {
  std::size_t d;
  std::span<float> sums, weights;
};

}  // namespace cfe
