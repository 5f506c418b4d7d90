#include "core/propagation.h"

#include <algorithm>
#include <utility>

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

// A step of some nodes, and the arrays that it reads, which it keeps alive.
struct KeptBlockStep {
  Array1<const std::int64_t> indptr;
  Array1<const std::int32_t> indices;
  Weights weights;
  SumsOfWeights sums;
  BlockStep step;
  std::size_t count, d, num_nodes;
  int threads;
};

void make_block_step(KeptBlockStep* place, const Array1<const std::int64_t>& indptr,
                     const Array1<const std::int32_t>& indices, std::size_t first, const Array2<const float>& own,
                     std::size_t num_nodes, int threads, const Weights& weights) {
  const std::size_t count = own.shape(0), d = own.shape(1);
  check_length("indptr", indptr.shape(0), count + 1);
  const nb::gil_scoped_release released;
  check_neighbors(as_span(indptr), as_span(indices), first, num_nodes);
  SumsOfWeights sums;
  if (weights) sums = sums_of_weights(as_span(indptr), span_of(weights), first);
  BlockStep step({{0, count}, as_span(indptr), as_span(indices), span_of(weights), sums.largest, sums.totals}, d);
  std::copy_n(own.data(), own.size(), step.own().begin());
  const nb::gil_scoped_acquire held;
  new (place) KeptBlockStep{indptr, indices, weights, std::move(sums), std::move(step), count, d, num_nodes, threads};
}

void gather(KeptBlockStep& kept, const Array2<const float>& rows, std::size_t low, const Array1<const float>& lengths) {
  check_length("lengths", lengths.shape(0), kept.num_nodes);
  check_length("the last row", std::min(low + rows.shape(0), kept.num_nodes), low + rows.shape(0));
  const Watch between = watch(nb::none(), nb::none());
  const nb::gil_scoped_release released;
  kept.step.gather({as_matrix(rows), low, as_span(lengths)}, kept.threads, between);
}

void finish(KeptBlockStep& kept, double alpha, const Array1<const float>& lengths, const Array2<float>& aggregate,
            const Array2<float>& new_unit, const Array1<float>& new_lengths) {
  check_length("lengths", lengths.shape(0), kept.count);
  check_length("new_lengths", new_lengths.shape(0), kept.count);
  for (const auto* rows : {&aggregate, &new_unit}) {
    check_length("rows", rows->shape(0), kept.count);
    check_length("a row", rows->shape(1), kept.d);
  }
  const Watch between = watch(nb::none(), nb::none());
  const nb::gil_scoped_release released;
  kept.step.finish(alpha, {as_span(lengths), as_matrix(aggregate), as_matrix(new_unit), as_span(new_lengths)},
                   kept.threads, between);
}

}  // namespace

void bind_propagation(nb::module_& module) {
  nb::class_<Propagation>(module, "Propagation")
      .def(nb::init<const CsrGraph&, double, std::size_t, int>(), nb::arg("graph"), nb::arg("alpha"), nb::arg("memory"),
           nb::arg("threads"), nb::keep_alive<1, 2>())
      .def("step", take_step, as_is("unit"), as_is("lengths"), as_is("aggregate"), as_is("new_unit"),
           as_is("new_lengths"), nb::arg("progress") = nb::none(), nb::arg("release") = nb::none());
  nb::class_<KeptBlockStep>(module, "BlockStep")
      .def("__init__", make_block_step, as_is("indptr"), as_is("indices"), nb::arg("first"), as_is("own"),
           nb::arg("num_nodes"), nb::arg("threads"), as_is("weights") = nb::none())
      .def("gather", gather, as_is("rows"), nb::arg("low"), as_is("lengths"))
      .def("finish", finish, nb::arg("alpha"), as_is("lengths"), as_is("aggregate"), as_is("new_unit"),
           as_is("new_lengths"));
}

}  // namespace cfe
