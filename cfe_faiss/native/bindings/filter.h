// Rules of queries as an argument.
#pragma once

#include "bindings/bindings.h"
#include "core/filter.h"

namespace cfe {

// Keeps its arrays alive.
struct Filter {
  Policy neighbors;
  Array2<const std::int32_t> labels;
  Array2<const std::int64_t> ids;
  float low, high;
  std::optional<Array2<const double>> values, limits;
  std::size_t most_changed;

  FilterView view(std::size_t nq) const {
    check_length("labels of the filter", labels.shape(0), nq);
    check_length("ids of the filter", ids.shape(0), nq);
    const bool in_range = low > -std::numeric_limits<float>::infinity() || high < std::numeric_limits<float>::infinity();
    FilterView view{.neighbors = neighbors,
                    .labels_each = labels.shape(1),
                    .ids_each = ids.shape(1),
                    .labels = labels.data(),
                    .ids = ids.data(),
                    .low = low,
                    .high = high,
                    .in_range = in_range};
    if (values) {
      check_length("values of the filter", values->shape(0), nq);
      require(limits && limits->shape(1) == 2 && limits->shape(0) <= values->shape(1), "limits must be of columns");
      view.columns = values->shape(1), view.limited = limits->shape(0), view.most_changed = most_changed;
      view.own = values->data(), view.limits = limits->data();
    }
    view.tests = in_range || view.labels_each + view.ids_each + view.columns > 0;
    return view;
  }
};

inline FilterView view_of(const Filter* filter, std::size_t nq) {
  return filter == nullptr ? FilterView{} : filter->view(nq);
}

// Makes the filters of both sides of a tile compare their values.
inline void connect(FilterView& x, FilterView& y) {
  require(x.columns == y.columns, "both sides must have values of the same columns");
  x.of_rows = y.own, y.of_rows = x.own;
}

}  // namespace cfe
