// The sums behind the centroids of lists, and of lists without one class.
#pragma once

#include "core/scan.h"
#include "kernels/codecs.h"
#include "kernels/normalise.h"

namespace cfe::CFE_LEVEL {

inline constexpr double kLongestSquare = 1e30;  // of a row; a longer one, or NaN, is damaged

inline constexpr std::size_t kRowsOfSum = std::size_t{1} << 20;  // a float32 sum of many more loses small terms

// Makes a mean that lists are ranked by, see core/metric.h, of sums: of rows and, last, of their squared norms.
CFE_INLINE void finish_mean(Metric metric, float* mean, std::size_t d, double count) {
  if (metric == Metric::kCosine) return divide_by_norm(mean, d);
  if (!(count > 0)) return;
  for (std::size_t i = 0; i <= d; ++i) mean[i] = static_cast<float>(mean[i] / count);
  const double square = sum_of_products(mean, mean, d), rest = static_cast<double>(mean[d]) - square;
  const double variance = rest > 0 ? rest : 0;
  mean[d] = static_cast<float>(metric == Metric::kL2 ? -(square + kVarianceShare * variance) / 2
                                                     : std::sqrt(variance / static_cast<double>(d)));
}

// Moves the float32 sums of the classes and, last, of all rows to the totals.
CFE_INLINE void move_sums(const ListCentroids& of, const CentroidMemory& memory) {
  const std::size_t classes = of.labels.size(), length = of.mean.size();
  for (std::size_t c = 0; c <= classes; ++c) {
    const std::span<float> sum = c < classes ? of.class_means[c] : of.mean;
    double* total = memory.totals.data() + c * length;
    for (std::size_t i = 0; i < length; ++i) {
      total[i] += static_cast<double>(sum[i]);
      sum[i] = 0;
    }
  }
}

// Turns the totals into the means of the classes and of all rows.
CFE_INLINE void finish_means(const ListCentroids& of, const CentroidMemory& memory) {
  const RowsView& rows = of.lists.rows;
  const std::size_t classes = of.labels.size(), length = of.mean.size();
  const bool own_class = of.policy == Policy::kOwn;
  const std::span<const double> counts = memory.counts;
  const double* all = memory.totals.data() + classes * length;
  for (std::size_t i = 0; i < length; ++i) of.mean[i] = static_cast<float>(all[i]);
  for (std::size_t c = 0; c < classes; ++c) {
    float* class_mean = of.class_means[c].data();
    const double* of_class = memory.totals.data() + c * length;
    for (std::size_t i = 0; i < length; ++i)
      class_mean[i] = static_cast<float>(own_class ? of_class[i] : all[i] - of_class[i]);
    finish_mean(rows.metric, class_mean, rows.d, own_class ? counts[c] : counts[classes] - counts[c]);
  }
  finish_mean(rows.metric, of.mean.data(), rows.d, counts[classes]);
}

template <Codec codec>
void list_centroids_of(const ListCentroids& of, const CentroidMemory& memory) {
  const RowsView& rows = of.lists.rows;
  const std::size_t d = rows.d, classes = of.labels.size();
  const bool unit = rows.metric == Metric::kCosine;
  float* x = memory.row.data();
  std::size_t summed = 0;
  const auto add = [&](float* to, float square) CFE_LAMBDA {
    for (std::size_t i = 0; i < d; ++i) to[i] += x[i];
    if (!unit) to[d] += square;
  };
  for_each_member(of.lists, of.list, [&](std::size_t home, std::size_t place) CFE_LAMBDA {
    const std::int32_t label = rows.labels_of(home)[place];
    if (label == kUnknown && of.policy != Policy::kAny) return;
    decode_row<codec>(rows, rows.codes[home] + rows.row_size * place, x);
    for (std::size_t i = 0; !unit && i < d; ++i) x[i] -= of.center[i];
    const double norm_square = sum_of_products(x, x, d);
    if (!(norm_square <= kLongestSquare)) return;
    const auto square = static_cast<float>(norm_square);
    add(of.mean.data(), square);
    memory.counts[classes] += 1;
    for (std::size_t c = 0; c < classes; ++c)
      if (of.labels[c] == label) {
        add(of.class_means[c].data(), square);
        memory.counts[c] += 1;
        break;
      }
    if (++summed % kRowsOfSum == 0) move_sums(of, memory);
  });
  move_sums(of, memory);
  finish_means(of, memory);
}

// Writes the mean of a list, and that of each (list, class) centroid.
void list_centroids(const ListCentroids& of, const CentroidMemory& memory) {
  CFE_WITH_CODEC(of.lists.rows.codec, list_centroids_of, of, memory)
}

}  // namespace cfe::CFE_LEVEL
