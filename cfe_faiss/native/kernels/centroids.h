// The sums behind the centroids of lists, and of lists without one class.
#pragma once

#include "core/centroids.h"
#include "kernels/codecs.h"
#include "kernels/normalise.h"

namespace cfe::CFE_LEVEL {

CFE_INLINE void add_to(float* total, const float* x, std::size_t d) {
  std::size_t i = 0;
  for (; i + kLanes <= d; i += kLanes) (F32x16::load(total + i) + F32x16::load(x + i)).store(total + i);
  for (; i < d; ++i) total[i] += x[i];
}

template <Codec codec>
void list_centroids_of(const ListCentroids& of, float* x) {
  const RowsView& rows = of.lists.rows;
  const std::size_t d = rows.d;
  const auto known = [&](std::size_t home, std::size_t place)
                         CFE_LAMBDA { return rows.labels[home][place] != kUnknown; };
  for_each_member(of.lists, of.list, known, [&](std::size_t home, std::size_t place) CFE_LAMBDA {
    const std::int32_t label = rows.labels[home][place];
    decode_row<codec>(rows, rows.codes[home] + rows.row_size * place, x);
    add_to(of.mean, x, d);
    for (std::size_t c = 0; c < of.labels.size(); ++c)
      if (of.labels[c] == label) {
        add_to(of.class_means[c], x, d);
        break;
      }
  });
  for (std::size_t c = 0; c < of.labels.size(); ++c) {
    float* other = of.class_means[c];
    for (std::size_t i = 0; i < d; ++i) other[i] = of.mean[i] - other[i];
    divide_by_norm(other, d);
  }
  divide_by_norm(of.mean, d);
}

// Writes the normalised mean of a list, and that of each (list, class) centroid; `x`, (d,), is scratch.
void list_centroids(const ListCentroids& of, float* x) { CFE_WITH_CODEC(of.lists.rows.codec, list_centroids_of, of, x) }

}  // namespace cfe::CFE_LEVEL
