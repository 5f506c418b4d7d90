#include "core/grouping.h"

#include <algorithm>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"

namespace cfe {

namespace {

using Ints = Array1<const std::int64_t>;

void check_borders(const char* name, const Ints& borders, std::size_t rows) {
  const auto all = as_span(borders);
  if (all.empty() || all.front() != 0 || all.back() != static_cast<std::int64_t>(rows) ||
      !std::is_sorted(all.begin(), all.end()))
    throw nb::value_error((std::string(name) + " must run from 0 to the number of rows").c_str());
}

nb::tuple halve_groups(const Array2<const float>& X, const Ints& borders, std::size_t largest, int threads) {
  check_borders("borders", borders, X.shape(0));
  if (largest == 0) throw nb::value_error("largest must be at least 1");
  const auto noticed = watch();
  NearGroups made;
  {
    const nb::gil_scoped_release released;
    made = halve(as_matrix(X), as_span(borders), largest, threads, noticed);
  }
  return nb::make_tuple(as_array(std::move(made.order)), as_array(std::move(made.starts)),
                        as_array(std::move(made.of_group)));
}

void arrange_groups(const Array2<const float>& X, const Ints& order, const Ints& starts, const Array2<float>& arranged,
                    const Array2<float>& means, int threads) {
  check_borders("starts", starts, order.shape(0));
  check_length("arranged", arranged.shape(0), order.shape(0));
  check_length("means", means.shape(0) + 1, starts.shape(0));
  check_length("a row of arranged", arranged.shape(1), X.shape(1));
  check_length("a row of means", means.shape(1), X.shape(1));
  for (const std::int64_t row : as_span(order))
    if (row < 0 || row >= static_cast<std::int64_t>(X.shape(0))) throw nb::value_error("order must hold rows of X");
  const auto noticed = watch();
  const nb::gil_scoped_release released;
  arrange(as_matrix(X), as_span(order), as_span(starts), as_matrix(arranged), as_matrix(means), threads, noticed);
}

}  // namespace

void bind_grouping(nb::module_& module) {
  module.def("halve_groups", halve_groups, as_is("X"), as_is("borders"), nb::arg("largest"), nb::arg("threads"));
  module.def("arrange_groups", arrange_groups, as_is("X"), as_is("order"), as_is("starts"), as_is("arranged"),
             as_is("means"), nb::arg("threads"));
}

}  // namespace cfe
