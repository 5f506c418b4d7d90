#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "core/kernels.h"

namespace cfe {

namespace {

void pair_similarities(const Array2<const float>& X, const Array2<const float>& Y, const Array1<float>& result) {
  check_length("Y", Y.size(), X.size());
  check_length("result", result.shape(0), X.shape(0));
  const nb::gil_scoped_release released;
  kernels().pair_similarities(X.data(), Y.data(), X.shape(1), as_span(result));
}

}  // namespace

void bind_similarity(nb::module_& module) {
  module.def("pair_similarities", pair_similarities, as_is("X"), as_is("Y"), as_is("result"));
}

}  // namespace cfe
