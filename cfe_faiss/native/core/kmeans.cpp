#include "core/kmeans.h"

#include <cassert>
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
  Blocks(const Matrix<const float>& centroids, Metric metric) {
    const std::size_t number = (centroids.rows + kLanes - 1) / kLanes, d = centroids.columns;
    blocks_.resize(number * d * kLanes, 0.0f);
    start_.resize(number * kLanes, -std::numeric_limits<float>::infinity());
    for (std::size_t c = 0; c < centroids.rows; ++c) {
      const double norm = kernels().norm(centroids[c]);
      start_[c] = metric == Metric::kL2 ? static_cast<float>(-norm * norm / 2) : 0;
      float* column = blocks_.data() + c / kLanes * d * kLanes + c % kLanes;
      for (std::size_t i = 0; i < d; ++i) column[i * kLanes] = centroids.data[c * d + i];
    }
    view_ = {d, centroids.rows, {centroids.data, centroids.size()}, blocks_, start_, screening_error(d), metric};
  }
  const CentroidBlocks& view() const { return view_; }

 private:
  std::vector<float> blocks_, start_;
  CentroidBlocks view_;
};

// Moves each centroid to the weighted mean of the vectors nearest to it, normalised for kIp; an empty one near that of
// a heavy list.
void move(const Matrix<const float>& X, std::span<const float> weights_of, std::span<const std::int32_t> nearest,
          const Matrix<float>& centroids, int threads, const Watch& watch, Metric metric) {
  const std::size_t d = centroids.columns, lists = centroids.rows;
  std::vector<float> weights(lists);
  std::fill_n(centroids.data, centroids.size(), 0.0f);
  // Each list is added up by one thread, in the order of its vectors.
  const auto shares = static_cast<std::size_t>(std::max(1, worth(static_cast<double>(X.size()), threads)));
  const auto add_up = [&](std::size_t share) {
    const std::size_t first = lists * share / shares, last = lists * (share + 1) / shares;
    for (std::size_t r = 0; r < X.rows; ++r) {
      const auto list = static_cast<std::size_t>(nearest[r]);
      if (list < first || list >= last) continue;
      const float weight = weights_of[r];
      const std::span<const float> x = X[r];
      const std::span<float> sum = centroids[list];
      weights[list] += weight;
      for (std::size_t i = 0; i < d; ++i) sum[i] += weight * x[i];
    }
  };
  parallel_for(shares, threads, add_up, watch);
  for (std::size_t empty = 0; empty < lists; ++empty) {
    if (weights[empty] != 0) continue;
    const auto heaviest = static_cast<std::size_t>(std::ranges::max_element(weights) - weights.begin());
    weights[empty] = weights[heaviest] = weights[heaviest] / 2;
    for (std::size_t i = 0; i < d; ++i) {
      const float whole = centroids[heaviest][i], aside = i % 2 ? -kAside : kAside;
      centroids[empty][i] = whole * (1 + aside);
      centroids[heaviest][i] = whole * (1 - aside);
      if (metric == Metric::kL2) centroids[empty][i] /= 2, centroids[heaviest][i] /= 2;
    }
  }
  for (std::size_t j = 0; j < lists; ++j)
    divide_by_norm(centroids[j], metric == Metric::kL2 ? weights[j] : static_cast<float>(kernels().norm(centroids[j])));
}

// The nearest centroid of a vector. For kIp, products in float32 screen the centroids; scores decide.
void assign_one(std::span<const float> x, const Matrix<const float>& centroids, float& score, std::int32_t& nearest,
                Metric metric) {
  std::vector<std::int64_t> numbers(centroids.rows);
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  if (metric == Metric::kIp) {
    std::vector<float> products(centroids.rows);
    kernels().dot_rows(x.data(), centroids, numbers, products);
    const float bound = std::ranges::max(products) - 2 * screening_error(x.size());
    std::erase_if(numbers, [&](std::int64_t c) { return products[static_cast<std::size_t>(c)] < bound; });
  }
  std::vector<float> scores(numbers.size());
  const std::vector<std::int64_t> first(numbers.size(), 0);
  kernels().row_scores(metric, {x.data(), 1, x.size()}, centroids, first, numbers, scores);
  const auto best = std::ranges::max_element(scores);
  score = *best;
  nearest = static_cast<std::int32_t>(numbers[best - scores.begin()]);
}

}  // namespace

void assign(const Matrix<const float>& X, const Matrix<const float>& centroids, std::span<float> scores,
            std::span<std::int32_t> nearest, int threads, const Watch& watch, Metric metric) {
  assert(X.columns == centroids.columns && centroids.rows > 0);
  assert((scores.empty() || scores.size() == X.rows) && nearest.size() == X.rows);
  if (X.rows <= kFewVectors) {
    float score = 0;
    for (std::size_t r = 0; r < X.rows; ++r)
      assign_one(X[r], centroids, scores.empty() ? score : scores[r], nearest[r], metric);
    return;
  }
  const Blocks blocks(centroids, metric);
  const int useful = worth(static_cast<double>(X.size()) * static_cast<double>(centroids.rows), threads);
  const auto assign_some = [&](std::size_t first, std::size_t stop) {
    const auto own = scores.empty() ? scores : scores.subspan(first, stop - first);
    kernels().nearest_centroids(X[first].data(), blocks.view(), own, nearest.subspan(first, stop - first));
  };
  parallel_runs(X.rows, kVectorsOfTask, useful, assign_some, watch);
}

double lloyd(const Matrix<const float>& X, std::span<const float> weights, const Matrix<float>& centroids,
             std::size_t iterations, bool total_wanted, int threads, const Watch& watch, Metric metric) {
  assert(weights.size() == X.rows);
  std::vector<float> scores(total_wanted ? X.rows : 0);
  std::vector<std::int32_t> nearest(X.rows), before;
  double total = 0;
  for (std::size_t iteration = 0; iteration < iterations; ++iteration) {
    assign(X, centroids, scores, nearest, threads, watch, metric);
    total = std::accumulate(scores.begin(), scores.end(), 0.0);
    if (iteration > 0 && nearest == before) break;
    before = nearest;
    move(X, weights, nearest, centroids, threads, watch, metric);
  }
  return total;
}

}  // namespace cfe
