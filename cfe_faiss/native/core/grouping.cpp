#include "core/grouping.h"

#include <cassert>
#include <cmath>
#include <numeric>

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

// Halves groups of rows. Its memory is for the largest group.
struct Halving {
  const Matrix<const float>& X;
  const std::size_t largest;  // rows of a small group
  NearGroups& made;
  std::vector<float> along, others;
  std::vector<std::int64_t> memory;

  // Halves the rows from `first` to `last` - 1 of the order, and writes the starts of the parts.
  void halve(std::size_t first, std::size_t last) {
    if (last - first <= largest) return made.starts.push_back(static_cast<std::int64_t>(first));
    const auto rows = std::span(made.order).subspan(first, last - first);
    const auto to_one = std::span(along).first(rows.size()), to_other = std::span(others).first(rows.size());
    const std::int64_t one = farthest(X, rows, rows[0], to_one), other = farthest(X, rows, one, to_one);
    compare(X, rows, other, to_other);
    for (std::size_t place = 0; place < rows.size(); ++place) to_one[place] = to_other[place] - to_one[place];
    sort(rows, to_one);
    const std::size_t middle = first + rows.size() / 2;
    halve(first, middle);
    halve(middle, last);
  }
  // Sorts rows by a number each, the largest first, of equals the smallest row; NaN and -inf come last.
  void sort(std::span<std::int64_t> rows, std::span<float> by) {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    for (float& number : by) number = number >= kLowest ? number : kLowest;
    kernels().best_scores(by.data(), rows.data(), rows.size(), rows.size(), 1, memory.data(), nullptr, rows.data());
  }
};

}  // namespace

NearGroups halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest,
                 const Watch& watch) {
  assert(largest > 0 && !borders.empty());
  NearGroups made;
  made.order.resize(X.rows);
  std::iota(made.order.begin(), made.order.end(), std::int64_t{0});
  std::int64_t most = 0;
  for (std::size_t g = 0; g + 1 < borders.size(); ++g) most = std::max(most, borders[g + 1] - borders[g]);
  const auto rows = static_cast<std::size_t>(most);
  Halving halving{X,
                  largest,
                  made,
                  std::vector<float>(padded(rows)),
                  std::vector<float>(rows),
                  std::vector<std::int64_t>(memory_of_best(rows))};
  const auto halve_group = [&](std::size_t g) {
    halving.halve(static_cast<std::size_t>(borders[g]), static_cast<std::size_t>(borders[g + 1]));
    made.of_group.resize(made.starts.size(), static_cast<std::int64_t>(g));
  };
  parallel_for(borders.size() - 1, 1, halve_group, watch);
  made.starts.push_back(static_cast<std::int64_t>(X.rows));
  return made;
}

void arrange(const Matrix<const float>& X, std::span<const std::int64_t> order, std::span<const std::int64_t> starts,
             const Matrix<float>& arranged, const Matrix<float>& means, const Watch& watch, Metric metric) {
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
  parallel_for(means.rows, 1, arrange_group, watch);
}

}  // namespace cfe
