// Graphs, KS propagation, and unit rows.
#include "bindings/bindings.h"
#include "core/kernels.h"
#include "core/propagation.h"

namespace cfe {

namespace {

void check_weights(Floats weights, Labels indices) {
  check_length("weights", weights.size(), weights.data() == nullptr ? 0 : indices.size());
}

void make_graph(CsrGraph* graph, Ints indptr, Labels indices, int threads, Floats weights, const nb::object& release,
                Ints nodes, std::size_t first, std::optional<std::size_t> num_nodes) {
  check_weights(weights, indices);
  const LongCall call(nb::none(), release);
  new (graph)
      CsrGraph(indptr, indices, weights, {first, num_nodes.value_or(indptr.size() - 1), nodes}, threads, call.watch);
}

// Copies the lists of some nodes, one after the other. A list has sizes[v] entries from starts[v] on.
nb::tuple gather_lists(Ints starts, Ints sizes, Labels indices, Floats weights, Ints nodes) {
  require(starts.size() == sizes.size() && all_below(nodes, sizes.size()), "nodes must exist");
  check_weights(weights, indices);
  std::vector<std::int64_t> indptr{0};
  std::vector<std::int32_t> neighbors;
  std::vector<float> weights_of_neighbors;
  {
    const nb::gil_scoped_release released;
    for (const std::int64_t v : nodes) indptr.push_back(indptr.back() + sizes[v]);
    neighbors.reserve(static_cast<std::size_t>(indptr.back()));
    if (!weights.empty()) weights_of_neighbors.reserve(neighbors.capacity());
    for (const std::int64_t v : nodes) {
      const auto first = static_cast<std::size_t>(starts[v]), size = static_cast<std::size_t>(sizes[v]);
      require(first <= indices.size() && size <= indices.size() - first, "lists must lie in indices");
      const auto append = [&](auto& target, const auto& source) {
        if (!source.empty()) target.insert(target.end(), source.begin() + first, source.begin() + first + size);
      };
      append(neighbors, indices);
      append(weights_of_neighbors, weights);
    }
  }
  return nb::make_tuple(as_array(std::move(indptr)), as_array(std::move(neighbors)),
                        as_array(std::move(weights_of_neighbors)));
}

void take_step(const CsrGraph& graph, double alpha, int threads, Vectors unit, Floats lengths, Matrix<float> aggregate,
               Matrix<float> new_unit, std::span<float> new_lengths, const nb::object& progress,
               const nb::object& release) {
  const LongCall call(progress, release);
  step(graph, alpha, unit, {lengths, aggregate, new_unit, new_lengths}, threads, call.watch);
}

void gather(BlockStep& step, Vectors rows, std::size_t low, Floats lengths, const nb::object& release) {
  const LongCall call(nb::none(), release);
  step.gather({rows, low, lengths}, call.watch);
}

void finish_step(BlockStep& step, double alpha, Floats lengths, Matrix<float> aggregate, Matrix<float> new_unit,
                 std::span<float> new_lengths, const nb::object& release) {
  const LongCall call(nb::none(), release);
  step.finish(alpha, {lengths, aggregate, new_unit, new_lengths}, call.watch);
}

std::ptrdiff_t unit_rows(Vectors X, Matrix<float> unit) {
  check_shape("unit", unit, X.rows, X.columns);
  return kernels().unit_rows(X, unit);
}

void divide_by_norms(Matrix<float> rows, std::span<double> norms, int threads, const nb::object& release) {
  const LongCall call(nb::none(), release);
  normalise_rows(rows, norms, threads, call.watch);
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<CsrGraph>(module, "CsrGraph")
      .def("__init__", make_graph, "indptr"_a, "indices"_a, "threads"_a, "weights"_a = nb::none(),
           "release"_a = nb::none(), "nodes"_a = nb::none(), "first"_a = 0, "num_nodes"_a = nb::none(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 7>())
      .def_prop_ro("num_edges", &CsrGraph::num_edges)
      .def("step", take_step, "alpha"_a, "threads"_a, "unit"_a, "lengths"_a, "aggregate"_a, "new_unit"_a,
           "new_lengths"_a, "progress"_a = nb::none(), "release"_a = nb::none());
  nb::class_<BlockStep>(module, "BlockStep")
      .def(nb::init<const CsrGraph&, std::size_t, Vectors, int>(), "graph"_a, "first"_a, "own"_a, "threads"_a,
           nb::keep_alive<1, 2>(), without_gil)
      .def("gather", gather, "rows"_a, "low"_a, "lengths"_a, "release"_a = nb::none())
      .def("finish", finish_step, "alpha"_a, "lengths"_a, "aggregate"_a, "new_unit"_a, "new_lengths"_a,
           "release"_a = nb::none());
  module.def("gather_lists", gather_lists, "starts"_a, "sizes"_a, "indices"_a, "weights"_a.none(), "nodes"_a);
  module.def("first_not_finite", kernels().first_not_finite, "X"_a, without_gil);
  module.def("unit_rows", unit_rows, "X"_a, "unit"_a, without_gil);
  module.def("normalise_rows", divide_by_norms, "rows"_a, "norms"_a, "threads"_a, "release"_a = nb::none());
}

}  // namespace cfe
