// The predicate of a search as an argument.
#pragma once

#include "bindings/bindings.h"
#include "core/filter.h"

namespace cfe {

// Keeps its arrays alive. Those that were None are not valid.
struct Filter {
  Policy policy;
  Array2<const std::int32_t> excluded_labels;
  Array2<const std::int64_t> excluded_ids;
  float low, high;
  Array1<const bool> allowed;
  Array2<const double> values, limits;
  std::size_t most_changed;

  // For `nq` queries among `n` rows.
  FilterView view(std::size_t nq, std::size_t n) const {
    FilterView view{.policy = policy, .low = low, .high = high, .most_changed = most_changed};
    if (excluded_labels.is_valid()) {
      check_length("excluded_labels", excluded_labels.shape(0), nq);
      view.labels_each = excluded_labels.shape(1);
      view.excluded_labels = excluded_labels.data();
    }
    if (excluded_ids.is_valid()) {
      check_length("excluded_ids", excluded_ids.shape(0), nq);
      view.ids_each = excluded_ids.shape(1);
      view.excluded_ids = excluded_ids.data();
    }
    if (allowed.is_valid()) {
      check_length("allowed", allowed.shape(0), n);
      view.allowed = allowed.data();
    }
    if (values.is_valid()) {
      check_length("values", values.shape(0), nq);
      const bool fit = limits.is_valid() && limits.shape(1) == 2 && limits.shape(0) <= values.shape(1);
      require(fit, "limits must be of columns of values");
      view.columns = values.shape(1);
      view.limited = limits.shape(0);
      view.query_values = values.data();
      view.limits = limits.data();
    }
    view.finish();
    return view;
  }
};

inline FilterView view_of(const Filter* filter, std::size_t nq, std::size_t n) {
  return filter == nullptr ? FilterView{} : filter->view(nq, n);
}

}  // namespace cfe
