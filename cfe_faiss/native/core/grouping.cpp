#include "core/grouping.h"

#include <cassert>
#include <numeric>

#include "core/aligned.h"
#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

// Writes the products of some rows of X with one row.
void compare(const Matrix<const float>& X, std::span<const std::int64_t> rows, std::int64_t row, std::span<float> out) {
  kernels().dot_rows(X[static_cast<std::size_t>(row)].data(), X, rows, out);
}

// Returns the row with the least product with one row, the first of equals. Writes all products.
std::int64_t farthest(const Matrix<const float>& X, std::span<const std::int64_t> rows, std::int64_t row,
                      std::span<float> out) {
  compare(X, rows, row, out);
  std::int64_t found = row;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t place = 0; place < rows.size(); ++place)
    if (out[place] < least) {
      least = out[place];
      found = rows[place];
    }
  return found;
}

// Sorts the rows of a group along the line between two distant rows: the largest number first, of equals the smallest
// row; NaN and -inf come last.
void sort_along(const Matrix<const float>& X, std::span<std::int64_t> rows) {
  AlignedVector<float> along(padded(rows.size())), others(rows.size());
  AlignedVector<std::int64_t> memory(memory_of_best(rows.size()));
  const auto to_one = std::span(along).first(rows.size());
  const std::int64_t one = farthest(X, rows, rows[0], to_one), other = farthest(X, rows, one, to_one);
  compare(X, rows, other, others);
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (std::size_t place = 0; place < rows.size(); ++place) {
    const float number = others[place] - to_one[place];
    to_one[place] = number >= kLowest ? number : kLowest;
  }
  kernels().best_scores(along.data(), rows.data(), rows.size(), rows.size(), 1, memory.data(), nullptr, rows.data());
}

}  // namespace

NearGroups halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest, int threads,
                 const Watch& watch) {
  assert(largest > 0 && !borders.empty());
  NearGroups near{std::vector<std::int64_t>(X.rows),
                  {borders.begin(), borders.end()},
                  std::vector<std::int64_t>(borders.size() - 1)};
  std::iota(near.order.begin(), near.order.end(), std::int64_t{0});
  std::iota(near.of_group.begin(), near.of_group.end(), std::int64_t{0});
  const auto group = [&near](std::size_t g) {
    return std::span(near.order).subspan(near.starts[g], near.starts[g + 1] - near.starts[g]);
  };
  for (std::vector<std::size_t> large;; large.clear()) {
    for (std::size_t g = 0; g < near.of_group.size(); ++g)
      if (group(g).size() > largest) large.push_back(g);
    if (large.empty()) return near;
    parallel_for(
        large.size(), threads, [&](std::size_t i) { sort_along(X, group(large[i])); }, watch);
    std::vector<std::int64_t> starts, of_group;
    for (std::size_t g = 0; g < near.of_group.size(); ++g) {
      starts.push_back(near.starts[g]);
      of_group.push_back(near.of_group[g]);
      if (group(g).size() <= largest) continue;
      starts.push_back(near.starts[g] + static_cast<std::int64_t>(group(g).size() / 2));
      of_group.push_back(near.of_group[g]);
    }
    starts.push_back(near.starts.back());
    near.starts = std::move(starts);
    near.of_group = std::move(of_group);
  }
}

void arrange(const Matrix<const float>& X, std::span<const std::int64_t> order, std::span<const std::int64_t> starts,
             const Matrix<float>& arranged, const Matrix<float>& means, int threads, const Watch& watch,
             Metric metric) {
  assert(arranged.rows == order.size() && means.rows + 1 == starts.size());
  const auto arrange_group = [&](std::size_t g) {
    const std::span<float> mean = means[g];
    std::ranges::fill(mean, 0.0f);
    for (auto r = static_cast<std::size_t>(starts[g]); r < static_cast<std::size_t>(starts[g + 1]); ++r) {
      const auto x = X[static_cast<std::size_t>(order[r])];
      std::ranges::copy(x, arranged[r].begin());
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += x[i];
    }
    const auto count = static_cast<float>(starts[g + 1] - starts[g]);
    divide_by_norm(mean, metric == Metric::kCosine ? static_cast<float>(kernels().norm(mean)) : count);
  };
  parallel_for(means.rows, threads, arrange_group, watch);
}

}  // namespace cfe
