// The centroid of each list, and of each list's members of other classes: (list, class) centroids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/scan.h"

namespace cfe {

// (list, class) centroid e is of `entry_labels[e]`; those of list j are `entries[entry_starts[j]:entry_starts[j + 1]]`,
// with labels that differ. Means are zeros first, then sums.
struct CentroidSums {
  ListsView lists;
  const std::int64_t* entries;
  const std::int64_t* entry_starts;
  const std::int32_t* entry_labels;
  float* means;        // (lists, d)
  float* entry_means;  // (entries, d)
};

}  // namespace cfe
