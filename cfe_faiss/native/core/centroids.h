// The sums behind the centroids of lists, and of lists without one class: (list, class) centroids.
#pragma once

#include "core/scan.h"

namespace cfe {

// The sums behind the centroids of one list. The outputs are zero at first.
struct ListCentroids {
  ListsView lists;
  std::size_t list;
  std::span<const std::int32_t> labels;  // distinct
  float* mean;                           // sum over rows with a known label, (d,)
  float* const* class_means;             // sums over rows with another known label, (d,) for each of the labels
};

}  // namespace cfe
