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

constexpr std::int64_t kPart = 4096;  // rows of a group that one thread halves

// A part of a group, order[first : last], and the offsets of its small groups.
struct Part {
  Part(std::size_t begin, std::size_t end, std::int64_t of_group) : first(begin), last(end), group(of_group) {}

  std::size_t first, last;
  std::int64_t group;
  std::vector<std::int64_t> starts;

  std::int64_t size() const { return static_cast<std::int64_t>(last - first); }
};

// Halves parts of groups of rows. Its memory is for the largest part.
struct Halving {
  const Matrix<const float>& X;
  const std::size_t largest;  // rows of a small group
  std::vector<std::int64_t>& order;
  std::vector<float> along, others;
  std::vector<std::int64_t> memory;

  Halving(const Matrix<const float>& rows, std::size_t small, std::vector<std::int64_t>& numbers, std::int64_t most)
      : X(rows),
        largest(small),
        order(numbers),
        along(padded(static_cast<std::size_t>(most))),
        others(static_cast<std::size_t>(most)),
        memory(memory_of_best(static_cast<std::size_t>(most))) {}

  // Halves order[first : last] until its groups are small, and writes their offsets.
  void halve(std::size_t first, std::size_t last, std::vector<std::int64_t>& starts) {
    if (last - first <= largest) return starts.push_back(static_cast<std::int64_t>(first));
    const std::size_t middle = halve_once(first, last);
    halve(first, middle, starts);
    halve(middle, last, starts);
  }
  // Sorts order[first : last] along the line between two distant rows. Returns the middle.
  std::size_t halve_once(std::size_t first, std::size_t last) {
    const auto rows = std::span(order).subspan(first, last - first);
    const auto to_one = std::span(along).first(rows.size()), to_other = std::span(others).first(rows.size());
    const std::int64_t one = farthest(X, rows, rows[0], to_one), other = farthest(X, rows, one, to_one);
    compare(X, rows, other, to_other);
    for (std::size_t place = 0; place < rows.size(); ++place) to_one[place] = to_other[place] - to_one[place];
    sort(rows, to_one);
    return first + rows.size() / 2;
  }
  // Sorts rows by a number each, the largest first, of equals the smallest row; NaN and -inf come last.
  void sort(std::span<std::int64_t> rows, std::span<float> by) {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    for (float& number : by) number = number >= kLowest ? number : kLowest;
    kernels().best_scores(by.data(), rows.data(), rows.size(), rows.size(), 1, memory.data(), nullptr, rows.data());
  }
};

// Halves parts until each is for one thread, if there are several.
std::vector<Part> parts_of(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest,
                           std::vector<std::int64_t>& order, int threads, const Watch& watch) {
  std::vector<Part> parts;
  for (std::size_t g = 0; g + 1 < borders.size(); ++g)
    parts.emplace_back(static_cast<std::size_t>(borders[g]), static_cast<std::size_t>(borders[g + 1]),
                       static_cast<std::int64_t>(g));
  const std::int64_t most = std::max(kPart, static_cast<std::int64_t>(largest));
  const auto is_large = [most](const Part& part) { return part.size() > most; };
  while (threads > 1 && std::ranges::any_of(parts, is_large)) {
    const auto halve_part = [&](std::size_t p) {
      if (is_large(parts[p])) Halving(X, largest, order, parts[p].size()).halve_once(parts[p].first, parts[p].last);
    };
    parallel_for(parts.size(), threads, halve_part, watch);
    std::vector<Part> halves;
    for (const Part& part : parts) {
      const std::size_t middle = part.first + (part.last - part.first) / 2;
      halves.emplace_back(part.first, is_large(part) ? middle : part.last, part.group);
      if (is_large(part)) halves.emplace_back(middle, part.last, part.group);
    }
    parts = std::move(halves);
  }
  return parts;
}

}  // namespace

NearGroups halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest, int threads,
                 const Watch& watch) {
  assert(largest > 0 && !borders.empty());
  NearGroups near;
  near.order.resize(X.rows);
  std::iota(near.order.begin(), near.order.end(), std::int64_t{0});
  std::vector<Part> parts = parts_of(X, borders, largest, near.order, threads, watch);
  std::int64_t most = 0;
  for (const Part& part : parts) most = std::max(most, part.size());
  Halving in_turn(X, largest, near.order, threads > 1 ? 0 : most);
  const auto halve_part = [&](std::size_t p) {
    Part& part = parts[p];
    if (threads <= 1) return in_turn.halve(part.first, part.last, part.starts);
    Halving(X, largest, near.order, part.size()).halve(part.first, part.last, part.starts);
  };
  parallel_for(parts.size(), threads, halve_part, watch);
  for (const Part& part : parts) {
    near.starts.insert(near.starts.end(), part.starts.begin(), part.starts.end());
    near.of_group.resize(near.starts.size(), part.group);
  }
  near.starts.push_back(static_cast<std::int64_t>(X.rows));
  return near;
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
