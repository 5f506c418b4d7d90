#include "core/join.h"

#include <memory>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "core/kernels.h"

namespace cfe {

namespace {

std::size_t find(BlockJoin& join, float product, double distance, const Array2<std::int64_t>& found) {
  check_length("found", found.shape(0), 2);
  const std::size_t size = found.shape(1);
  JoinPairs pairs{{found.data(), size}, {found.data() + size, size}};
  const nb::gil_scoped_release released;
  join.find({product, distance}, pairs);
  return pairs.count;
}

void rows_scores(const Array2<const float>& X, const Array2<const float>& Y, const Array1<const std::int64_t>& first,
                 const Array1<const std::int64_t>& second, const Array1<float>& result) {
  check_length("Y[0]", Y.shape(1), X.shape(1));
  check_length("second", second.shape(0), first.shape(0));
  check_length("result", result.shape(0), first.shape(0));
  const auto rows = as_span(first), others = as_span(second);
  for (std::size_t p = 0; p < rows.size(); ++p)
    if (rows[p] < 0 || others[p] < 0 || static_cast<std::size_t>(rows[p]) >= X.shape(0) ||
        static_cast<std::size_t>(others[p]) >= Y.shape(0))
      throw nb::index_error("there is no such row");
  const nb::gil_scoped_release released;
  kernels().row_similarities(as_matrix(X), as_matrix(Y), rows, others, as_span(result));
}

}  // namespace

void bind_join(nb::module_& module) {
  nb::class_<JoinTree>(module, "JoinTree")
      .def(
          "__init__",
          [](JoinTree* tree, const Array1<const std::int64_t>& starts, const Array1<const std::int32_t>& labels,
             const Array2<const float>& coarse, const Array2<const float>& fine, const Array2<const float>& low,
             const Array2<const float>& high, const Array1<const std::int32_t>& node_labels) {
            const JoinTree made{as_span(starts), as_span(labels), as_matrix(coarse),   as_matrix(fine),
                                as_matrix(low),  as_matrix(high), as_span(node_labels)};
            made.check();
            new (tree) JoinTree(made);
          },
          as_is("starts"), as_is("labels"), as_is("coarse"), as_is("fine"), as_is("low"), as_is("high"),
          as_is("node_labels"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(),
          nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(), nb::keep_alive<1, 8>());
  nb::class_<BlockJoin>(module, "BlockJoin")
      .def(nb::init<const JoinTree&, std::size_t, const JoinTree&>(), nb::arg("tree"), nb::arg("block"),
           nb::arg("others"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>())
      .def_prop_ro("done", &BlockJoin::done)
      .def_prop_ro("least_room", &BlockJoin::least_room)
      .def_prop_ro("counts",
                   [](const BlockJoin& join) {
                     const JoinCounts& counts = join.counts();
                     return nb::make_tuple(counts.tested, counts.coarse, counts.fine, counts.found);
                   })
      .def("find", find, nb::arg("product"), nb::arg("distance"), as_is("found"));
  module.def("row_similarities", rows_scores, as_is("X"), as_is("Y"), as_is("first"), as_is("second"), as_is("result"));
}

}  // namespace cfe
