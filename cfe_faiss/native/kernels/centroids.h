// The sums behind the centroids of lists, and of lists without one class.
#pragma once

#include "core/centroids.h"
#include "kernels/codecs.h"

namespace cfe::CFE_LEVEL {

CFE_INLINE void add_to(float* total, const float* x, std::size_t d) {
  std::size_t i = 0;
  for (; i + kLanes <= d; i += kLanes) (F16::load(total + i) + F16::load(x + i)).store(total + i);
  for (; i < d; ++i) total[i] += x[i];
}

CFE_INLINE void normalise(float* x, std::size_t d) {
  const double norm = __builtin_sqrt(sum_of_products(x, x, d));
  if (!(norm > 0)) return;
  for (std::size_t i = 0; i < d; ++i) x[i] = static_cast<float>(x[i] / norm);
}

template <Codec codec>
void list_centroids_of(const CentroidSums& sums, std::size_t list, float* x) {
  const RowsView& rows = sums.lists.rows;
  const std::size_t d = rows.d;
  float* mean = sums.means + list * d;
  const std::int64_t first = sums.entry_starts[list], stop = sums.entry_starts[list + 1];
  const auto known = [&](std::int64_t row) CFE_LAMBDA { return rows.labels[row] != kUnknown; };
  for_each_member(sums.lists, list, known, [&](std::size_t home, std::size_t place) CFE_LAMBDA {
    const std::int32_t label = rows.labels[rows.starts[home] + static_cast<std::int64_t>(place)];
    decode_row<codec>(rows, rows.codes[home] + rows.row_size * place, x);
    add_to(mean, x, d);
    for (std::int64_t e = first; e < stop; ++e)
      if (sums.entry_labels[sums.entries[e]] == label) {
        add_to(sums.entry_means + static_cast<std::size_t>(sums.entries[e]) * d, x, d);
        break;
      }
  });
  for (std::int64_t e = first; e < stop; ++e) {
    float* other = sums.entry_means + static_cast<std::size_t>(sums.entries[e]) * d;
    for (std::size_t i = 0; i < d; ++i) other[i] = mean[i] - other[i];
    normalise(other, d);
  }
  normalise(mean, d);
}

// Writes the normalised mean of a list, and those of its (list, class) centroids; `x`, (d,), is written over.
void list_centroids(const CentroidSums& sums, std::size_t list, float* x) {
  CFE_WITH_CODEC(sums.lists.rows.codec, list_centroids_of, sums, list, x)
}

}  // namespace cfe::CFE_LEVEL
