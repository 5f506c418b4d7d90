// The sums behind the centroids of lists, and of lists without one class: (list, class) centroids.
#pragma once

#include "core/scan.h"

namespace cfe {

// The centroids of one list: of its rows with a known label, and of those with another known label than each of some;
// for kOwn, of those with this label; for kAny, of rows of unknown label, too.
// The outputs are zero at first, and have ranking_length(metric, d) numbers.
struct ListCentroids {
  ListsView lists;
  std::size_t list;
  std::span<const std::int32_t> labels;  // distinct
  const float* center;                   // subtracted from rows, (d,); not for unit vectors
  float* mean;
  float* const* class_means;  // for each of the labels
  double* counts;             // scratch: rows of each label, and of all
  double* totals;             // sums of each label, and of all, (labels + 1, ranking_length(metric, d)); zero at first
  Policy policy = Policy::kOther;
};

}  // namespace cfe
