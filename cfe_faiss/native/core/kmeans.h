// k-means: of unit vectors on the sphere, or of any by distances.
#pragma once

#include "core/common.h"
#include "core/metric.h"
#include "core/parallel.h"

namespace cfe {

// For the kernels: centroids one after the other, (number, d), and in blocks of 16, dimension-major, (blocks, d, 16).
struct CentroidBlocks {
  std::size_t d, number;
  std::span<const float> rows, blocks;
  std::span<const float> start;  // added to the products of each lane, (blocks, 16); -inf for no centroid
  float margin;                  // bounds how far a product of unit vectors in float32 is from the similarity
  Metric metric;                 // kIp or kL2
};

// Writes which of the centroids, one at least, has the best score with each vector, of equals the first; and that
// score, (n,) or empty. For kIp, vectors and centroids are unit vectors; for kL2, of lengths up to 1/2. The same
// for every number of threads and at every instruction set.
void assign(const Matrix<const float>& X, const Matrix<const float>& centroids, std::span<float> scores,
            std::span<std::int32_t> nearest, int threads, const Watch& watch, Metric metric = Metric::kIp);

// Moves centroids by up to `iterations` of Lloyd's iterations to the weighted means of their nearest vectors, for kIp
// normalised. A centroid without vectors gets half of the heaviest one's. Returns the sum of the scores of the vectors
// and the centroids before the last move, or 0 unless `total_wanted`.
double lloyd(const Matrix<const float>& X, std::span<const float> weights, const Matrix<float>& centroids,
             std::size_t iterations, bool total_wanted, int threads, const Watch& watch, Metric metric = Metric::kIp);

}  // namespace cfe
