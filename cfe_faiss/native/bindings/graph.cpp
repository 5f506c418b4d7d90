#include "core/graph.h"

#include <utility>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"

namespace cfe {

namespace {

void make_graph(CsrGraph* graph, const Array1<const std::int64_t>& indptr, const Array1<const std::int32_t>& indices,
                int threads, const Weights& weights, const nb::object& release) {
  if (weights) check_length("weights", weights->shape(0), indices.shape(0));
  const Watch between = watch(nb::none(), release);
  const nb::gil_scoped_release released;
  new (graph) CsrGraph(as_span(indptr), as_span(indices), span_of(weights), threads, between);
}

void count(GraphBuilder& builder, const Array2<const std::int64_t>& edges) {
  const nb::gil_scoped_release released;
  builder.count(as_matrix(edges));
}

void place(GraphBuilder& builder, const Array2<const std::int64_t>& edges, const Weights& weights) {
  const nb::gil_scoped_release released;
  builder.place(as_matrix(edges), span_of(weights));
}

nb::tuple finish(GraphBuilder& builder, int threads) {
  GraphBuilder::Csr csr;
  {
    const Watch between = watch();
    const nb::gil_scoped_release released;
    csr = builder.finish(threads, between);
  }
  return nb::make_tuple(as_array(std::move(csr.indptr)), as_array(std::move(csr.indices)),
                        as_array(std::move(csr.weights)));
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
      .def("finish", finish, nb::arg("threads"));
}

}  // namespace cfe
