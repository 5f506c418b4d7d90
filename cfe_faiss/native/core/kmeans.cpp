#include "core/kmeans.h"

#include <cassert>
#include <cmath>
#include <numeric>

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kVectorsOfTask = 512;
constexpr double kWorthThreads = 1 << 22;  // multiplications that take as long as starting and ending a thread
constexpr std::size_t kFewVectors = 4;  // for up to 4 vectors, packing the centroids takes longer than comparing them
constexpr float kAside = 1.0f / 1024;   // how far apart the halves of a list are moved, as a share of each component

int worth(double work, int threads) { return work >= kWorthThreads ? threads : 1; }

// Bounds |fl(x·y) - similarity(x, y)| for unit rows of length d, summed in float32 in any order: the classical bound is
// d * 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); the rest covers the rounding of the
// similarity and norms that are 1 up to rounding.
float screening_error(std::size_t d) { return static_cast<float>(d + 16) * 0x1p-24f; }

// Centroids, and the same in blocks.
class Blocks {
 public:
  Blocks(const Matrix<const float>& centroids, bool extended) {
    const std::size_t number = (centroids.rows + kLanes - 1) / kLanes, d = centroids.columns;
    blocks_.resize(number * d * kLanes, 0.0f);
    start_.resize(number * kLanes, -std::numeric_limits<float>::infinity());
    for (std::size_t c = 0; c < centroids.rows; ++c) {
      start_[c] = 0;
      float* column = blocks_.data() + c / kLanes * d * kLanes + c % kLanes;
      for (std::size_t i = 0; i < d; ++i) column[i * kLanes] = centroids.data[c * d + i];
    }
    view_ = {d, centroids.rows, {centroids.data, centroids.size()}, blocks_, start_, screening_error(d), extended};
  }
  const CentroidBlocks& view() const { return view_; }

 private:
  std::vector<float> blocks_, start_;
  CentroidBlocks view_;
};

// The norm in float32: sums of every fourth square, 16 numbers at a time from the last four to the first; see
// kernels/normalise.h.
float norm_of_mean(std::span<const float> x) {
  float sums[4] = {};
  std::size_t i = 0;
  for (; i + 16 <= x.size(); i += 16)
    for (std::size_t four = 16; four > 0; four -= 4)
      for (std::size_t lane = 0; lane < 4; ++lane) sums[lane] += x[i + four - 4 + lane] * x[i + four - 4 + lane];
  for (; i < x.size(); ++i) sums[i % 4] += x[i] * x[i];
  return std::sqrt((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Makes an extended centroid of a sum of extended vectors.
void extend(std::span<float> sum, float weight) {
  float square = 0;
  for (std::size_t i = 0; i + 1 < sum.size(); ++i) {
    sum[i] /= weight > 0 ? weight : 1.0f;
    square += sum[i] * sum[i];
  }
  sum.back() = -square;
}

// The normalised weighted mean of each list; of an empty one, one near that of a heavy list.
void move(const Matrix<const float>& X, const WeightedLists& of, const Matrix<float>& centroids, int threads,
          const Watch& watch, bool extended) {
  const std::size_t d = centroids.columns, lists = centroids.rows;
  std::vector<float> weights(lists);
  std::fill_n(centroids.data, centroids.size(), 0.0f);
  // Each list is added up by one thread, in the order of its vectors.
  const auto shares = static_cast<std::size_t>(std::max(1, worth(static_cast<double>(X.size()), threads)));
  parallel_for(
      shares, threads,
      [&](std::size_t share) {
        kernels().add_weighted(X.data, of, lists * share / shares, lists * (share + 1) / shares, centroids, weights);
      },
      watch);
  for (std::size_t empty = 0; empty < lists; ++empty) {
    if (weights[empty] != 0) continue;
    const auto heaviest = static_cast<std::size_t>(std::ranges::max_element(weights) - weights.begin());
    weights[empty] = weights[heaviest] = weights[heaviest] / 2;
    for (std::size_t i = 0; i < d; ++i) {
      const float whole = centroids[heaviest][i], aside = i % 2 ? -kAside : kAside;
      centroids[empty][i] = whole * (1 + aside);
      centroids[heaviest][i] = whole * (1 - aside);
      if (extended) centroids[empty][i] /= 2, centroids[heaviest][i] /= 2;
    }
  }
  for (std::size_t j = 0; j < lists; ++j)
    if (extended)
      extend(centroids[j], weights[j]);
    else
      divide_by_norm(centroids[j], norm_of_mean(centroids[j]));
}

// The nearest centroid of a vector: products in float32 screen the centroids, similarities decide.
void assign_one(std::span<const float> x, const Matrix<const float>& centroids, float& similarity,
                std::int32_t& nearest) {
  std::vector<std::int64_t> numbers(centroids.rows);
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  std::vector<float> products(centroids.rows);
  kernels().dot_rows(x.data(), centroids, numbers, products);
  const float largest = *std::max_element(products.begin(), products.end());
  const float bound = largest - 2 * screening_error(x.size());
  similarity = -std::numeric_limits<float>::infinity();
  nearest = 0;
  for (std::size_t c = 0; c < centroids.rows; ++c) {
    if (products[c] < bound) continue;
    float own = 0;
    kernels().pair_similarities(x.data(), centroids[c].data(), x.size(), {&own, 1});
    if (own > similarity) similarity = own, nearest = static_cast<std::int32_t>(c);
  }
}

}  // namespace

void assign(const Matrix<const float>& X, const Matrix<const float>& centroids, std::span<float> similarities,
            std::span<std::int32_t> nearest, int threads, const Watch& watch, bool extended) {
  assert(X.columns == centroids.columns && centroids.rows > 0);
  assert((similarities.empty() || similarities.size() == X.rows) && nearest.size() == X.rows);
  if (X.rows <= kFewVectors) {
    float similarity = 0;
    for (std::size_t r = 0; r < X.rows; ++r)
      assign_one(X[r], centroids, similarities.empty() ? similarity : similarities[r], nearest[r]);
    return;
  }
  const Blocks blocks(centroids, extended);
  const int useful = worth(static_cast<double>(X.size()) * static_cast<double>(centroids.rows), threads);
  const auto assign_some = [&](std::size_t first, std::size_t stop) {
    const auto own = similarities.empty() ? similarities : similarities.subspan(first, stop - first);
    kernels().nearest_centroids(X[first].data(), blocks.view(), own, nearest.subspan(first, stop - first));
  };
  parallel_runs(X.rows, kVectorsOfTask, useful, assign_some, watch);
}

double lloyd(const Matrix<const float>& X, std::span<const float> weights, const Matrix<float>& centroids,
             std::size_t iterations, bool total_wanted, int threads, const Watch& watch, bool extended) {
  assert(weights.size() == X.rows);
  std::vector<float> similarities(total_wanted ? X.rows : 0);
  std::vector<std::int32_t> nearest(X.rows), before;
  double total = 0;
  for (std::size_t iteration = 0; iteration < iterations; ++iteration) {
    assign(X, centroids, similarities, nearest, threads, watch, extended);
    total = std::accumulate(similarities.begin(), similarities.end(), 0.0);
    if (iteration > 0 && nearest == before) break;
    before = nearest;
    move(X, {nearest, weights}, centroids, threads, watch, extended);
  }
  return total;
}

}  // namespace cfe
