#include "core/propagation.h"

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"

namespace cfe {

namespace {

void take_step(const Propagation& propagation, const Array2<const float>& unit, const Array1<const float>& lengths,
               const Array2<float>& aggregate, const Array2<float>& new_unit, const Array1<float>& new_lengths,
               const nb::object& progress, const nb::object& release) {
  const Step step{as_matrix(unit), as_span(lengths), as_matrix(aggregate), as_matrix(new_unit), as_span(new_lengths)};
  const Watch between = watch(progress, release);
  const nb::gil_scoped_release released;
  propagation.step(step, between);
}

}  // namespace

void bind_propagation(nb::module_& module) {
  nb::class_<Propagation>(module, "Propagation")
      .def(nb::init<const CsrGraph&, double, std::size_t, int>(), nb::arg("graph"), nb::arg("alpha"), nb::arg("memory"),
           nb::arg("threads"), nb::keep_alive<1, 2>())
      .def("step", take_step, as_is("unit"), as_is("lengths"), as_is("aggregate"), as_is("new_unit"),
           as_is("new_lengths"), nb::arg("progress") = nb::none(), nb::arg("release") = nb::none());
}

}  // namespace cfe
