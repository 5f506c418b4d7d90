// Small groups of near queries.
#pragma once

#include "core/common.h"
#include "core/metric.h"
#include "core/parallel.h"

namespace cfe {

struct NearGroups {
  std::vector<std::int64_t> order;     // rows, group by group
  std::vector<std::int64_t> starts;    // offsets of the groups in `order`
  std::vector<std::int64_t> of_group;  // the original group of each group
};

// Halves groups of rows, X[borders[g] : borders[g + 1]], until none has more than `largest`: along the line between two
// distant rows. The result is the same at every instruction set and with any number of threads. The watch is called
// after each half.
NearGroups halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest, int threads,
                 const Watch& watch);

// Writes the rows of X in an order, and the mean of each group, (groups, d): for Metric::kCosine normalised, or zero if
// its rows cancel. Group g is starts[g] : starts[g + 1] in that order.
void arrange(const Matrix<const float>& X, std::span<const std::int64_t> order, std::span<const std::int64_t> starts,
             const Matrix<float>& arranged, const Matrix<float>& means, int threads, const Watch& watch,
             Metric metric = Metric::kCosine);

}  // namespace cfe
