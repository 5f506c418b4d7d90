#include "core/grouping.h"

#include <cassert>
#include <cmath>
#include <numeric>

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kRowsOfTask = 512;
constexpr std::size_t kGroupsOfTask = 32;

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

// Sorts rows by a number each, the largest first, of equals the smallest row; NaN and -inf come last.
void sort(std::span<std::int64_t> rows, std::span<float> by, HalvingScratch& scratch) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (float& number : by) number = number >= kLowest ? number : kLowest;
  const auto memory = first_of(scratch.memory, memory_of_best(rows.size()));
  kernels().best_scores(by.data(), rows.data(), rows.size(), rows.size(), 1, memory.data(), nullptr, rows.data());
}

void halve_rows(const Matrix<const float>& X, std::span<std::int64_t> rows, std::size_t largest,
                HalvingScratch& scratch) {
  if (rows.size() <= largest) return;
  const auto along = first_of(scratch.along, padded(rows.size())).first(rows.size());
  scratch.others.resize(rows.size());
  const std::int64_t one = farthest(X, rows, rows[0], along), other = farthest(X, rows, one, along);
  compare(X, rows, other, scratch.others);
  for (std::size_t place = 0; place < rows.size(); ++place) along[place] = scratch.others[place] - along[place];
  sort(rows, along, scratch);
  const std::size_t middle = rows.size() / 2;
  halve_rows(X, rows.first(middle), largest, scratch);
  halve_rows(X, rows.subspan(middle), largest, scratch);
}

// Appends the starts of the parts into which rows first .. last - 1 are halved.
void add_starts(std::size_t first, std::size_t last, std::size_t largest, std::vector<std::int64_t>& starts) {
  if (last - first <= largest) {
    starts.push_back(static_cast<std::int64_t>(first));
    return;
  }
  const std::size_t middle = first + (last - first) / 2;
  add_starts(first, middle, largest, starts);
  add_starts(middle, last, largest, starts);
}

// Writes the offsets of the halves of all groups, and the rows in their initial order.
void lay_out(std::size_t rows, std::span<const std::int64_t> borders, std::size_t largest, NearGroups& made) {
  assert(largest > 0 && !borders.empty());
  made.order.resize(rows);
  std::iota(made.order.begin(), made.order.end(), std::int64_t{0});
  made.starts.clear();
  made.of_group.clear();
  for (std::size_t g = 0; g + 1 < borders.size(); ++g) {
    add_starts(static_cast<std::size_t>(borders[g]), static_cast<std::size_t>(borders[g + 1]), largest, made.starts);
    made.of_group.resize(made.starts.size(), static_cast<std::int64_t>(g));
  }
  made.starts.push_back(static_cast<std::int64_t>(rows));
}

// Halves the groups between `borders`.
void halve_some(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest,
                std::span<std::int64_t> order, HalvingScratch& scratch) {
  for (std::size_t g = 0; g + 1 < borders.size(); ++g) {
    const auto first = static_cast<std::size_t>(borders[g]);
    halve_rows(X, order.subspan(first, static_cast<std::size_t>(borders[g + 1]) - first), largest, scratch);
  }
}

}  // namespace

NearGroups halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest, int threads,
                 const Watch& watch) {
  NearGroups made;
  lay_out(X.rows, borders, largest, made);
  const std::vector<std::size_t> cuts = cut_groups(borders, kRowsOfTask);
  parallel_for(
      cuts.size() - 1, threads,
      [&](std::size_t task) {
        HalvingScratch scratch;
        halve_some(X, borders.subspan(cuts[task], cuts[task + 1] - cuts[task] + 1), largest, made.order, scratch);
      },
      watch);
  return made;
}

void halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest, NearGroups& made,
           HalvingScratch& scratch) {
  lay_out(X.rows, borders, largest, made);
  halve_some(X, borders, largest, made.order, scratch);
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
  const auto arrange_some = [&](std::size_t first, std::size_t stop) {
    for (std::size_t g = first; g < stop; ++g) arrange_group(g);
  };
  parallel_runs(means.rows, kGroupsOfTask, threads, arrange_some, watch);
}

}  // namespace cfe
