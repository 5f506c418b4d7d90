// Exact search in tiles of products, the similarity join, and similarities of given pairs.
#include <nanobind/stl/pair.h>

#include "bindings/bindings.h"
#include "bindings/filter.h"
#include "core/common.h"
#include "core/join.h"
#include "core/kernels.h"
#include "core/scan_memory.h"

namespace cfe {

namespace {

constexpr std::size_t kFewestColumns = 16;
constexpr std::size_t kCandidates = std::size_t{1} << 18;  // of all columns at once

Tile tile_of(int metric, Vectors S, Vectors X, Labels labels_x, Vectors Y, Labels labels_y, double margin) {
  check_length("X", X.rows, S.rows);
  check_shape("Y", Y, S.columns, X.columns);
  check_length("labels_x", labels_x.size(), X.rows);
  check_length("labels_y", labels_y.size(), Y.rows);
  return {enum_of<Metric>("metric", metric), X.columns, {X.data, labels_x, nullptr},
          {Y.data, labels_y, nullptr},       S.data,    margin};
}

// The rows of a tile are allowed, so its filters have no masks. Each side has the values that the other compares.
void set_filters(Tile& tile, const Filter* of_x, const Filter* of_y) {
  tile.x.filter = view_of(of_x, tile.x.size(), 0);
  tile.y.filter = view_of(of_y, tile.y.size(), 0);
  require(tile.x.filter.columns == tile.y.filter.columns, "both sides must have values of the same columns");
  tile.x.filter.row_values = tile.y.filter.query_values;
  tile.y.filter.row_values = tile.x.filter.query_values;
}

const std::int64_t* ids_of(const TileSide& side, Ints ids) {
  check_length("ids", ids.size(), side.size());
  return ids.data();
}

void scan(int metric, Vectors S, Vectors X, Labels labels_x, Ints ids_x, Vectors Y, Labels labels_y, Ints ids_y,
          double margin, const Filter* filter_x, const Filter* filter_y, Scores D_x, Ids I_x, Scores D_y, Ids I_y) {
  Tile tile = tile_of(metric, S, X, labels_x, Y, labels_y, margin);
  tile.x.ids = ids_of(tile.x, ids_x);
  tile.y.ids = ids_of(tile.y, ids_y);
  set_filters(tile, filter_x, filter_y);
  check_results(D_x, I_x, X.rows);
  const bool both = D_y.data != nullptr;
  if (both) check_results(D_y, I_y, Y.rows);
  const TileResults of_x{D_x.data, I_x.data, D_x.columns}, of_y{D_y.data, I_y.data, D_y.columns};
  static thread_local ScanMemory memory, of_columns;
  const std::size_t most = std::max(kFewestColumns, kCandidates / (4 * of_y.k + 64));
  const std::size_t columns = both ? std::min(Y.rows, most) : 0;
  kernels().scan_tile(tile, of_x, both ? &of_y : nullptr, memory.of(1, {tile.d, of_x.k, 1}),
                      of_columns.of(columns, {tile.d, both ? of_y.k : of_x.k, 1}), columns);
}

std::pair<std::size_t, std::size_t> collect_tile(int metric, Vectors S, Vectors X, Labels labels_x, Vectors Y,
                                                 Labels labels_y, float threshold, double margin, std::size_t first,
                                                 std::span<std::int32_t> rows, std::span<std::int32_t> columns,
                                                 std::span<float> scores, std::optional<Ints> ids_y,
                                                 const Filter* filter, const Filter* filter_y) {
  check_length("columns", columns.size(), rows.size());
  check_length("scores", scores.size(), rows.size());
  Tile tile = tile_of(metric, S, X, labels_x, Y, labels_y, margin);
  set_filters(tile, filter, filter_y);
  if (ids_y) tile.y.ids = ids_of(tile.y, *ids_y);
  require(ids_y || tile.x.filter.ids_each == 0, "ids_y must be given where ids are excluded");
  return kernels().collect_tile(tile, threshold, first, {rows, columns, scores});
}

// --- the similarity join ---

void make_tree(JoinTree* tree, Ints starts, Labels labels, Vectors coarse, Vectors fine, Vectors low, Vectors high,
               Labels node_labels) {
  new (tree) JoinTree{starts, labels, coarse, fine, low, high, node_labels};
  tree->check();
}

std::size_t find(BlockJoin& join, float product, double distance, Ids found) {
  check_length("found", found.rows, 2);
  JoinPairs pairs{found[0], found[1]};
  join.find({product, distance}, pairs);
  return pairs.count;
}

void row_scores(int metric, Vectors X, Vectors Y, Ints first, Ints second, std::span<float> result) {
  check_shape("Y", Y, Y.rows, X.columns);
  check_length("second", second.size(), first.size());
  check_length("result", result.size(), first.size());
  if (!all_below(first, X.rows) || !all_below(second, Y.rows)) throw std::out_of_range("there is no such row");
  kernels().row_scores(enum_of<Metric>("metric", metric), X, Y, first, second, result);
}

}  // namespace

void bind_pairs(nb::module_& module) {
  module.def("scan_tile", scan, "metric"_a, "S"_a, "X"_a, "labels_x"_a, "ids_x"_a, "Y"_a, "labels_y"_a, "ids_y"_a,
             "margin"_a, "rules_x"_a.none(), "rules_y"_a.none(), "D_x"_a, "I_x"_a, "D_y"_a.none() = nb::none(),
             "I_y"_a.none() = nb::none(), without_gil);
  module.def("collect_tile", collect_tile, "metric"_a, "S"_a, "X"_a, "labels_x"_a, "Y"_a, "labels_y"_a, "threshold"_a,
             "margin"_a, "first"_a, "rows"_a, "columns"_a, "scores"_a, "ids_y"_a.none() = nb::none(),
             "rules"_a.none() = nb::none(), "rules_y"_a.none() = nb::none(), without_gil);
  nb::class_<JoinTree>(module, "JoinTree")
      .def("__init__", make_tree, "starts"_a, "labels"_a, "coarse"_a, "fine"_a, "low"_a, "high"_a, "node_labels"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(),
           nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(), nb::keep_alive<1, 8>(), without_gil);
  nb::class_<BlockJoin>(module, "BlockJoin")
      .def(nb::init<const JoinTree&, std::size_t, const JoinTree&>(), "tree"_a, "block"_a, "others"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>())
      .def_prop_ro("done", &BlockJoin::done)
      .def_prop_ro("least_room", &BlockJoin::least_room)
      .def_prop_ro("counts",
                   [](const BlockJoin& join) {
                     const JoinCounts& counts = join.counts();
                     return nb::make_tuple(counts.tested, counts.coarse, counts.fine, counts.found);
                   })
      .def("find", find, "product"_a, "distance"_a, "found"_a, without_gil);
  module.def("row_scores", row_scores, "metric"_a, "X"_a, "Y"_a, "first"_a, "second"_a, "result"_a, without_gil);
}

}  // namespace cfe
