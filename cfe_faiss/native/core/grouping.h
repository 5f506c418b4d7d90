// Small groups of near queries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/matrix.h"
#include "core/parallel.h"

namespace cfe {

struct NearGroups {
  std::vector<std::int64_t> order;     // rows, one group after the other
  std::vector<std::int64_t> starts;    // where each group begins in the order and, last, the number of rows
  std::vector<std::int64_t> of_group;  // which of the groups before they were halved each is from
};

// Memory that is kept from one halving to the next; one for each thread.
struct HalvingScratch {
  std::vector<float> along, others;
  std::vector<std::int32_t> ranks;
  std::vector<std::int64_t> sorted;
};

// Halves groups of rows, X[borders[g] : borders[g + 1]], until none has more than `largest`: along the line between two
// rows that are far apart. The same at every instruction set and for every number of threads.
NearGroups halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest, int threads,
                 const Watch& watch);

// The same, in this thread; what `made` held is written over.
void halve(const Matrix<const float>& X, std::span<const std::int64_t> borders, std::size_t largest, NearGroups& made,
           HalvingScratch& scratch);

// Writes the rows of X in an order, and the normalised mean of each group of them, (groups, d): zero where they cancel
// out. Group g is starts[g] : starts[g + 1] in that order.
void arrange(const Matrix<const float>& X, std::span<const std::int64_t> order, std::span<const std::int64_t> starts,
             const Matrix<float>& arranged, const Matrix<float>& means, int threads, const Watch& watch);

}  // namespace cfe
