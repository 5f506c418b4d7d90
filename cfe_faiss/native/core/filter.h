// Rules for the rows that each query may find, besides a mask of rows. Kernels test them for candidates only: rows whose
// screening score reaches the threshold.
#pragma once

#include <limits>

#include "core/common.h"

namespace cfe {

inline constexpr std::int32_t kUnknown = -1;  // label of a row without a class

// The rows that a query finds: of known labels other than its own, of its own label, or all, also of unknown label.
enum class Policy : int { kOther = 0, kOwn = 1, kAny = 2 };

struct FilterView {
  Policy neighbors = Policy::kOther;
  std::size_t labels_each = 0, ids_each = 0;
  const std::int32_t* labels = nullptr;  // excluded labels, (nq, labels_each), kUnknown for none
  const std::int64_t* ids = nullptr;     // excluded ids, (nq, ids_each), -1 for none
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();  // of scores
  // Numbers of queries and rows, (nq, columns) and (n, columns): those of a pair must be apart within the limits of each of
  // the first columns, and at most `most_changed` of the others may differ.
  std::size_t columns = 0, limited = 0, most_changed = 0;
  const double *own = nullptr, *of_rows = nullptr, *limits = nullptr;
  bool in_range = false;                 // whether scores are limited
  bool tests = false;                    // whether candidates are tested

  // The rules of query q, and of those after it, as query 0.
  CFE_INLINE FilterView from(std::size_t q) const {
    FilterView own = *this;
    own.labels += q * labels_each, own.ids += q * ids_each, own.own += q * columns;
    return own;
  }
  // Whether query q may find rows of this label.
  CFE_INLINE bool admits(std::int32_t own, std::int32_t label) const {
    if (neighbors == Policy::kAny) return true;
    return own != kUnknown && label != kUnknown && (own == label) == (neighbors == Policy::kOwn);
  }
  CFE_INLINE bool excludes_label(std::size_t q, std::int32_t label) const {
    for (std::size_t i = q * labels_each; i < (q + 1) * labels_each; ++i)
      if (labels[i] == label && label != kUnknown) return true;
    return false;
  }
  CFE_INLINE bool excludes_id(std::size_t q, std::int64_t id) const {
    for (std::size_t i = q * ids_each; i < (q + 1) * ids_each; ++i)
      if (ids[i] == id) return true;
    return false;
  }
  // Whether the numbers of a pair fit.
  CFE_INLINE bool fits(std::size_t q, std::size_t row) const {
    const double *a = own + q * columns, *b = of_rows + row * columns;
    for (std::size_t i = 0; i < limited; ++i) {
      const double apart = a[i] < b[i] ? b[i] - a[i] : a[i] - b[i];
      if (!(limits[2 * i] <= apart && apart <= limits[2 * i + 1])) return false;
    }
    std::size_t changed = 0;
    for (std::size_t i = limited; i < columns; ++i) changed += a[i] != b[i];
    return changed <= most_changed;
  }
  CFE_INLINE bool holds(float score) const { return low <= score && score <= high; }
};

}  // namespace cfe
