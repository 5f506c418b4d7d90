// Graphs, KS propagation, and unit rows.
#include "core/graph.h"

#include <algorithm>
#include <utility>

#include "bindings/bindings.h"
#include "core/kernels.h"
#include "core/propagation.h"

namespace cfe {

namespace {

void make_graph(CsrGraph* graph, const Ints& indptr, const Labels& indices, int threads, const Weights& weights,
                const nb::object& release) {
  if (weights) check_length("weights", weights->shape(0), indices.shape(0));
  const LongCall call(nb::none(), release);
  new (graph) CsrGraph(as_span(indptr), as_span(indices), as_span(weights), threads, call.watch);
}

void count(GraphBuilder& builder, const Array2<const std::int64_t>& edges) {
  const nb::gil_scoped_release released;
  builder.count(as_matrix(edges));
}

void place(GraphBuilder& builder, const Array2<const std::int64_t>& edges, const Weights& weights) {
  const nb::gil_scoped_release released;
  builder.place(as_matrix(edges), as_span(weights));
}

nb::tuple finish_graph(GraphBuilder& builder, int threads) {
  GraphBuilder::Csr csr;
  {
    const LongCall call;
    csr = builder.finish(threads, call.watch);
  }
  return nb::make_tuple(as_array(std::move(csr.indptr)), as_array(std::move(csr.indices)),
                        as_array(std::move(csr.weights)));
}

void take_step(const Propagation& propagation, const Vectors& unit, const Floats& lengths,
               const Array2<float>& aggregate, const Array2<float>& new_unit, const Array1<float>& new_lengths,
               const nb::object& progress, const nb::object& release) {
  const Step step{as_matrix(unit), as_span(lengths), as_matrix(aggregate), as_matrix(new_unit), as_span(new_lengths)};
  const LongCall call(progress, release);
  propagation.step(step, call.watch);
}

// A step of some nodes. It keeps its arrays alive.
struct KeptBlockStep {
  Ints indptr;
  Labels indices;
  Weights weights;
  SumsOfWeights sums;
  BlockStep step;
  std::size_t count, d, num_nodes;
  int threads;
};

void make_block_step(KeptBlockStep* place, const Ints& indptr, const Labels& indices, std::size_t first,
                     const Vectors& own, std::size_t num_nodes, int threads, const Weights& weights) {
  const std::size_t count = own.shape(0), d = own.shape(1);
  check_length("indptr", indptr.shape(0), count + 1);
  const nb::gil_scoped_release released;
  check_neighbors(as_span(indptr), as_span(indices), first, num_nodes);
  SumsOfWeights sums;
  if (weights) sums = sums_of_weights(as_span(indptr), as_span(weights), first);
  BlockStep step({{0, count}, as_span(indptr), as_span(indices), as_span(weights), sums.largest, sums.totals}, d);
  std::copy_n(own.data(), own.size(), step.own().begin());
  const nb::gil_scoped_acquire held;
  new (place) KeptBlockStep{indptr, indices, weights, std::move(sums), std::move(step), count, d, num_nodes, threads};
}

void gather(KeptBlockStep& kept, const Vectors& rows, std::size_t low, const Floats& lengths) {
  check_length("lengths", lengths.shape(0), kept.num_nodes);
  check_length("the last row", std::min(low + rows.shape(0), kept.num_nodes), low + rows.shape(0));
  const LongCall call;
  kept.step.gather({as_matrix(rows), low, as_span(lengths)}, kept.threads, call.watch);
}

void finish_step(KeptBlockStep& kept, double alpha, const Floats& lengths, const Array2<float>& aggregate,
                 const Array2<float>& new_unit, const Array1<float>& new_lengths) {
  check_length("lengths", lengths.shape(0), kept.count);
  check_length("new_lengths", new_lengths.shape(0), kept.count);
  for (const auto* rows : {&aggregate, &new_unit}) {
    check_length("rows", rows->shape(0), kept.count);
    check_length("a row", rows->shape(1), kept.d);
  }
  const LongCall call;
  kept.step.finish(alpha, {as_span(lengths), as_matrix(aggregate), as_matrix(new_unit), as_span(new_lengths)},
                   kept.threads, call.watch);
}

std::ptrdiff_t first_not_finite(const Vectors& X) {
  const nb::gil_scoped_release released;
  return kernels().first_not_finite(as_matrix(X));
}

std::ptrdiff_t unit_rows(const Vectors& X, const Array2<float>& unit) {
  check_length("unit", unit.shape(0), X.shape(0));
  check_length("each row of unit", unit.shape(1), X.shape(1));
  const nb::gil_scoped_release released;
  return kernels().unit_rows(as_matrix(X), as_matrix(unit));
}

void divide_by_norms(const Array2<float>& rows, const Array1<double>& norms, int threads, const nb::object& release) {
  const LongCall call(nb::none(), release);
  normalise_rows(as_matrix(rows), as_span(norms), threads, call.watch);
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<CsrGraph>(module, "CsrGraph")
      .def("__init__", make_graph, as_is("indptr"), as_is("indices"), nb::arg("threads"), as_is("weights") = nb::none(),
           nb::arg("release") = nb::none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 5>());
  nb::class_<GraphBuilder>(module, "GraphBuilder")
      .def(nb::init<std::size_t, bool, bool>(), nb::arg("num_nodes"), nb::arg("directed"), nb::arg("weighted") = false)
      .def_prop_ro("num_counted", &GraphBuilder::num_counted)
      .def("count", count, as_is("edges"))
      .def("place", place, as_is("edges"), as_is("weights") = nb::none())
      .def("finish", finish_graph, nb::arg("threads"));
  nb::class_<Propagation>(module, "Propagation")
      .def(nb::init<const CsrGraph&, double, std::size_t, int>(), nb::arg("graph"), nb::arg("alpha"), nb::arg("memory"),
           nb::arg("threads"), nb::keep_alive<1, 2>())
      .def("step", take_step, as_is("unit"), as_is("lengths"), as_is("aggregate"), as_is("new_unit"),
           as_is("new_lengths"), nb::arg("progress") = nb::none(), nb::arg("release") = nb::none());
  nb::class_<KeptBlockStep>(module, "BlockStep")
      .def("__init__", make_block_step, as_is("indptr"), as_is("indices"), nb::arg("first"), as_is("own"),
           nb::arg("num_nodes"), nb::arg("threads"), as_is("weights") = nb::none())
      .def("gather", gather, as_is("rows"), nb::arg("low"), as_is("lengths"))
      .def("finish", finish_step, nb::arg("alpha"), as_is("lengths"), as_is("aggregate"), as_is("new_unit"),
           as_is("new_lengths"));
  module.def("first_not_finite", first_not_finite, as_is("X"));
  module.def("unit_rows", unit_rows, as_is("X"), as_is("unit"));
  module.def("normalise_rows", divide_by_norms, as_is("rows"), as_is("norms"), nb::arg("threads"),
             nb::arg("release") = nb::none());
}

}  // namespace cfe
