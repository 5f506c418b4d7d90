// The predicate of a search as an argument.
#pragma once

#include "bindings/bindings.h"
#include "core/filter.h"

namespace cfe {

// Keeps its arrays alive.
struct Filter {
  Policy policy;
  std::optional<Array2<const std::int32_t>> excluded_labels;
  std::optional<Array2<const std::int64_t>> excluded_ids;
  float low, high;
  std::optional<Array1<const bool>> allowed;
  std::optional<Array2<const double>> values, limits;
  std::size_t most_changed;

  // For `nq` queries among `n` rows.
  FilterView view(std::size_t nq, std::size_t n) const {
    FilterView view{.policy = policy, .low = low, .high = high};
    if (excluded_labels) {
      check_length("excluded_labels", excluded_labels->shape(0), nq);
      view.labels_each = excluded_labels->shape(1);
      view.excluded_labels = excluded_labels->data();
    }
    if (excluded_ids) {
      check_length("excluded_ids", excluded_ids->shape(0), nq);
      view.ids_each = excluded_ids->shape(1);
      view.excluded_ids = excluded_ids->data();
    }
    if (allowed) {
      check_length("allowed", allowed->shape(0), n);
      view.allowed = allowed->data();
    }
    if (values) {
      check_length("values", values->shape(0), nq);
      if (!limits) throw std::invalid_argument("limits must be given with values");
      require(limits->shape(1) == 2 && limits->shape(0) <= values->shape(1), "limits must be of columns");
      view.columns = values->shape(1);
      view.limited = limits->shape(0);
      view.most_changed = most_changed;
      view.query_values = values->data();
      view.limits = limits->data();
    }
    view.finish();
    return view;
  }
};

inline FilterView view_of(const Filter* filter, std::size_t nq, std::size_t n) {
  return filter == nullptr ? FilterView{} : filter->view(nq, n);
}

}  // namespace cfe
