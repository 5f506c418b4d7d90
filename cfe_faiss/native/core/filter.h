// The predicate of a search: the rows that each query may find. The policy of labels is applied where rows are
// enumerated, and so is a mask of few rows. Kernels test the other rules, and a mask in blocks of all rows, for
// candidates only: rows whose screening score reaches the threshold.
#pragma once

#include <limits>

#include "core/common.h"

namespace cfe {

inline constexpr std::int32_t kUnknown = -1;                                        // label of a row without a class
inline constexpr std::int32_t kNoLabel = std::numeric_limits<std::int32_t>::min();  // of no row

// The rows that a query finds: of other known labels, of the query's label, or all, also of unknown label.
enum class Policy : int { kOther = 0, kOwn = 1, kAny = 2 };

struct FilterView {
  Policy policy = Policy::kOther;
  std::size_t labels_each = 0, ids_each = 0;
  const std::int32_t* excluded_labels = nullptr;  // (nq, labels_each), kUnknown for none
  const std::int64_t* excluded_ids = nullptr;     // (nq, ids_each), -1 for none
  const bool* allowed = nullptr;                  // rows of the index that may be found, (n,); null for all
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();  // of scores
  // Values of queries and rows, (nq, columns) and (n, columns). The values of a pair must differ within the limits of
  // each of the first `limited` columns, (limited, 2), and at most `most_changed` of the others may differ.
  std::size_t columns = 0, limited = 0, most_changed = 0;
  const double *query_values = nullptr, *row_values = nullptr, *limits = nullptr;
  bool in_range = false;  // whether scores are limited
  bool tests = false;     // whether candidates are tested

  // Sets the last two fields.
  CFE_INLINE void finish() {
    in_range = low > -std::numeric_limits<float>::infinity() || high < std::numeric_limits<float>::infinity();
    tests = in_range || allowed != nullptr || labels_each + ids_each + columns > 0;
  }
  // The rules from query q on, with q as query 0.
  CFE_INLINE FilterView from(std::size_t q) const {
    FilterView rules = *this;
    rules.excluded_labels += q * labels_each;
    rules.excluded_ids += q * ids_each;
    rules.query_values += q * columns;
    return rules;
  }
  // The rules for rows that the mask allows.
  CFE_INLINE FilterView of_allowed() const {
    FilterView rules = *this;
    rules.allowed = nullptr;
    rules.finish();
    return rules;
  }
  CFE_INLINE bool allows(std::size_t row) const { return allowed == nullptr || allowed[row]; }
  // Whether the policy lets a query of label `of_query` find rows of another label.
  CFE_INLINE bool admits(std::int32_t of_query, std::int32_t label) const {
    if (policy == Policy::kAny) return true;
    return of_query != kUnknown && label != kUnknown && (of_query == label) == (policy == Policy::kOwn);
  }
  CFE_INLINE bool excludes_label(std::size_t q, std::int32_t label) const {
    for (std::size_t i = q * labels_each; i < (q + 1) * labels_each; ++i)
      if (excluded_labels[i] == label && label != kUnknown) return true;
    return false;
  }
  CFE_INLINE bool excludes_id(std::size_t q, std::int64_t id) const {
    for (std::size_t i = q * ids_each; i < (q + 1) * ids_each; ++i)
      if (excluded_ids[i] == id) return true;
    return false;
  }
  // Whether the values of a pair meet the conditions.
  CFE_INLINE bool fits(std::size_t q, std::size_t row) const {
    const double *a = query_values + q * columns, *b = row_values + row * columns;
    for (std::size_t i = 0; i < limited; ++i) {
      const double difference = a[i] < b[i] ? b[i] - a[i] : a[i] - b[i];
      if (!(limits[2 * i] <= difference && difference <= limits[2 * i + 1])) return false;
    }
    std::size_t changed = 0;
    for (std::size_t i = limited; i < columns; ++i) changed += a[i] != b[i];
    return changed <= most_changed;
  }
  CFE_INLINE bool holds(float score) const { return low <= score && score <= high; }
};

}  // namespace cfe
