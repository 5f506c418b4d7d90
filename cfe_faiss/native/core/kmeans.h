// k-means on the unit sphere.
#pragma once

#include "core/common.h"
#include "core/parallel.h"

namespace cfe {

// For the kernels: centroids one after the other, (number, d), and in blocks of 16, dimension-major, (blocks, d, 16).
struct CentroidBlocks {
  std::size_t d, number;
  std::span<const float> rows, blocks;
  std::span<const float> start;  // initial value of the product of each lane, (blocks, 16): 0, or -inf for no centroid
  float margin;                  // bounds how far a product in float32 is from the similarity
  bool extended;                 // whether they are extended centroids; see `lloyd`
};

// The list of each vector, and its weight, both (n,).
struct WeightedLists {
  std::span<const std::int32_t> lists;
  std::span<const float> weights;
};

// Writes which of the centroids, one at least, has the largest similarity with each unit vector, of equals the first;
// and that similarity, (n,) or empty. The same for every number of threads and at every instruction set. See
// `lloyd` for extended vectors and centroids.
void assign(const Matrix<const float>& X, const Matrix<const float>& centroids, std::span<float> similarities,
            std::span<std::int32_t> nearest, int threads, const Watch& watch, bool extended = false);

// Moves unit centroids, or extended ones, by up to `iterations` of Lloyd's iterations to the normalised weighted means
// of their nearest vectors. A centroid without vectors gets half of the heaviest one's. Extended vectors are (x, 1 / 2)
// and extended centroids (c, -|c|^2), of length up to 1: the most similar centroid is the nearest one, and moves to the
// mean. Returns the sum of the similarities of the vectors and the centroids before the last move, or 0 unless
// `total_wanted`.
double lloyd(const Matrix<const float>& X, std::span<const float> weights, const Matrix<float>& centroids,
             std::size_t iterations, bool total_wanted, int threads, const Watch& watch, bool extended = false);

}  // namespace cfe
