#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"
#include "core/kernels.h"
#include "core/propagation.h"

namespace cfe {

namespace {

std::ptrdiff_t first_not_finite(const Array2<const float>& X) {
  const nb::gil_scoped_release released;
  return kernels().first_not_finite(as_matrix(X));
}

std::ptrdiff_t unit_rows(const Array2<const float>& X, const Array2<float>& unit) {
  check_length("unit", unit.shape(0), X.shape(0));
  check_length("each row of unit", unit.shape(1), X.shape(1));
  const nb::gil_scoped_release released;
  return kernels().unit_rows(as_matrix(X), as_matrix(unit));
}

void divide_by_norms(const Array2<float>& rows, const Array1<double>& norms, int threads, const nb::object& release) {
  const Watch between = watch(nb::none(), release);
  const nb::gil_scoped_release released;
  normalise_rows(as_matrix(rows), as_span(norms), threads, between);
}

}  // namespace

void bind_checks(nb::module_& module) {
  module.def("first_not_finite", first_not_finite, as_is("X"));
  module.def("unit_rows", unit_rows, as_is("X"), as_is("unit"));
  module.def("normalise_rows", divide_by_norms, as_is("rows"), as_is("norms"), nb::arg("threads"),
             nb::arg("release") = nb::none());
}

}  // namespace cfe
