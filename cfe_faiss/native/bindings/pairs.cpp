// Exact search in tiles of products, the similarity join, and similarities of given pairs.
#include <nanobind/stl/pair.h>

#include "bindings/bindings.h"
#include "core/common.h"
#include "core/join.h"
#include "core/kernels.h"

namespace cfe {

namespace {

// --- tiles ---

Tile tile_of(const Vectors& S, const Vectors& X, const Labels& labels_x, const Vectors& Y, const Labels& labels_y,
             double margin) {
  check_length("X", X.shape(0), S.shape(0));
  check_length("Y", Y.shape(0), S.shape(1));
  check_length("Y[0]", Y.shape(1), X.shape(1));
  check_length("labels_x", labels_x.shape(0), X.shape(0));
  check_length("labels_y", labels_y.shape(0), Y.shape(0));
  return {X.shape(1), {X.data(), as_span(labels_x), nullptr}, {Y.data(), as_span(labels_y), nullptr}, S.data(), margin};
}

TileResults results_of(const TileSide& side, const Scores& D, const Ids& I) {
  check_results(D, I, side.size());
  return {D.data(), I.data(), D.shape(1)};
}

const std::int64_t* ids_of(const TileSide& side, const Ints& ids) {
  check_length("ids", ids.shape(0), side.size());
  return ids.data();
}

void scan_columns(const Vectors& S, const Vectors& X, const Labels& labels_x, const Vectors& Y, const Labels& labels_y,
                  const Ints& ids_y, const Scores& D, const Ids& I, double margin) {
  Tile tile = tile_of(S, X, labels_x, Y, labels_y, margin);
  tile.y.ids = ids_of(tile.y, ids_y);
  const TileResults of_x = results_of(tile.x, D, I);
  const nb::gil_scoped_release released;
  scan_tile(tile, of_x);
}

void scan_both_sides(const Vectors& S, const Vectors& X, const Labels& labels_x, const Ints& ids_x, const Vectors& Y,
                     const Labels& labels_y, const Ints& ids_y, const Scores& D_x, const Ids& I_x, const Scores& D_y,
                     const Ids& I_y, double margin) {
  Tile tile = tile_of(S, X, labels_x, Y, labels_y, margin);
  tile.x.ids = ids_of(tile.x, ids_x);
  tile.y.ids = ids_of(tile.y, ids_y);
  const TileResults of_x = results_of(tile.x, D_x, I_x), of_y = results_of(tile.y, D_y, I_y);
  const nb::gil_scoped_release released;
  scan_tile_both(tile, of_x, of_y);
}

std::pair<std::size_t, std::size_t> collect_tile(const Vectors& S, const Vectors& X, const Labels& labels_x,
                                                 const Vectors& Y, const Labels& labels_y, float threshold,
                                                 double margin, std::size_t first, const Array1<std::int32_t>& rows,
                                                 const Array1<std::int32_t>& columns, const Array1<float>& scores) {
  const Tile tile = tile_of(S, X, labels_x, Y, labels_y, margin);
  check_length("columns", columns.shape(0), rows.shape(0));
  check_length("scores", scores.shape(0), rows.shape(0));
  const nb::gil_scoped_release released;
  const PairsWritten written =
      kernels().collect_tile(tile, threshold, first, {as_span(rows), as_span(columns), as_span(scores)});
  return {written.count, written.next};
}

// --- the similarity join ---

void make_tree(JoinTree* tree, const Ints& starts, const Labels& labels, const Vectors& coarse, const Vectors& fine,
               const Vectors& low, const Vectors& high, const Labels& node_labels) {
  const JoinTree checked{as_span(starts), as_span(labels), as_matrix(coarse),   as_matrix(fine),
                         as_matrix(low),  as_matrix(high), as_span(node_labels)};
  const nb::gil_scoped_release released;
  checked.check();
  new (tree) JoinTree(checked);
}

std::size_t find(BlockJoin& join, float product, double distance, const Array2<std::int64_t>& found) {
  check_length("found", found.shape(0), 2);
  const std::size_t size = found.shape(1);
  JoinPairs pairs{{found.data(), size}, {found.data() + size, size}};
  const nb::gil_scoped_release released;
  join.find({product, distance}, pairs);
  return pairs.count;
}

// --- pairs ---

void pair_similarities(const Vectors& X, const Vectors& Y, const Array1<float>& result) {
  check_length("Y", Y.size(), X.size());
  check_length("result", result.shape(0), X.shape(0));
  const nb::gil_scoped_release released;
  kernels().pair_similarities(X.data(), Y.data(), X.shape(1), as_span(result));
}

void row_similarities(const Vectors& X, const Vectors& Y, const Ints& first, const Ints& second,
                      const Array1<float>& result) {
  check_length("Y[0]", Y.shape(1), X.shape(1));
  check_length("second", second.shape(0), first.shape(0));
  check_length("result", result.shape(0), first.shape(0));
  const nb::gil_scoped_release released;
  if (!all_below(as_span(first), X.shape(0)) || !all_below(as_span(second), Y.shape(0)))
    throw nb::index_error("there is no such row");
  kernels().row_similarities(as_matrix(X), as_matrix(Y), as_span(first), as_span(second), as_span(result));
}

}  // namespace

void bind_pairs(nb::module_& module) {
  module.def("scan_tile", scan_columns, as_is("S"), as_is("X"), as_is("labels_x"), as_is("Y"), as_is("labels_y"),
             as_is("ids_y"), as_is("D"), as_is("I"), nb::arg("margin"));
  module.def("scan_tile_both", scan_both_sides, as_is("S"), as_is("X"), as_is("labels_x"), as_is("ids_x"), as_is("Y"),
             as_is("labels_y"), as_is("ids_y"), as_is("D_x"), as_is("I_x"), as_is("D_y"), as_is("I_y"),
             nb::arg("margin"));
  module.def("collect_tile", collect_tile, as_is("S"), as_is("X"), as_is("labels_x"), as_is("Y"), as_is("labels_y"),
             nb::arg("threshold"), nb::arg("margin"), nb::arg("first"), as_is("rows"), as_is("columns"),
             as_is("scores"));
  nb::class_<JoinTree>(module, "JoinTree")
      .def("__init__", make_tree, as_is("starts"), as_is("labels"), as_is("coarse"), as_is("fine"), as_is("low"),
           as_is("high"), as_is("node_labels"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(),
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
  module.def("pair_similarities", pair_similarities, as_is("X"), as_is("Y"), as_is("result"));
  module.def("row_similarities", row_similarities, as_is("X"), as_is("Y"), as_is("first"), as_is("second"),
             as_is("result"));
}

}  // namespace cfe
