// k-means on the unit sphere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/matrix.h"
#include "core/parallel.h"

namespace cfe {

// Writes which of the centroids, one at least, has the largest similarity with each unit vector, of equals the first;
// and that similarity, (n,) or empty. The same for every number of threads and at every instruction set.
void assign(const Matrix<const float>& X, const Matrix<const float>& centroids, std::span<float> similarities,
            std::span<std::int32_t> nearest, int threads, const Watch& watch);

// Moves unit centroids by up to `iterations` of Lloyd's iterations to the normalised weighted means of their nearest
// vectors. A centroid without vectors gets half of the heaviest one's. Returns the sum of the similarities of the
// vectors and the centroids before the last move, or 0 unless `total_wanted`.
double lloyd(const Matrix<const float>& X, std::span<const float> weights, const Matrix<float>& centroids,
             std::size_t iterations, bool total_wanted, int threads, const Watch& watch);

}  // namespace cfe
