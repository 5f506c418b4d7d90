#include <nanobind/stl/pair.h>

#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "core/kernels.h"

namespace cfe {

namespace {

using Floats = Array2<const float>;
using Labels = Array1<const std::int32_t>;
using Ids = Array1<const std::int64_t>;

Tile tile_of(const Floats& S, const Floats& X, const Labels& labels_x, const Floats& Y, const Labels& labels_y,
             double margin) {
  check_length("X", X.shape(0), S.shape(0));
  check_length("Y", Y.shape(0), S.shape(1));
  check_length("Y[0]", Y.shape(1), X.shape(1));
  check_length("labels_x", labels_x.shape(0), X.shape(0));
  check_length("labels_y", labels_y.shape(0), Y.shape(0));
  return {X.shape(1), {X.data(), as_span(labels_x), nullptr}, {Y.data(), as_span(labels_y), nullptr}, S.data(), margin};
}

Heaps heaps_of(const TileSide& side, const Array2<float>& D, const Array2<std::int64_t>& I) {
  check_length("D", D.shape(0), side.size());
  check_length("I", I.shape(0), side.size());
  check_length("I[0]", I.shape(1), D.shape(1));
  if (D.shape(1) == 0) throw nb::value_error("D and I must have at least one column");
  return {D.data(), I.data(), D.shape(1)};
}

const std::int64_t* ids_of(const TileSide& side, const Ids& ids) {
  check_length("ids", ids.shape(0), side.size());
  return ids.data();
}

void scan_tile(const Floats& S, const Floats& X, const Labels& labels_x, const Floats& Y, const Labels& labels_y,
               const Ids& ids_y, const Array2<float>& D, const Array2<std::int64_t>& I, double margin) {
  Tile tile = tile_of(S, X, labels_x, Y, labels_y, margin);
  tile.y.ids = ids_of(tile.y, ids_y);
  const Heaps heaps = heaps_of(tile.x, D, I);
  const nb::gil_scoped_release released;
  kernels().scan_tile(tile, heaps);
}

void scan_tile_both(const Floats& S, const Floats& X, const Labels& labels_x, const Ids& ids_x, const Floats& Y,
                    const Labels& labels_y, const Ids& ids_y, const Array2<float>& D_x, const Array2<std::int64_t>& I_x,
                    const Array2<float>& D_y, const Array2<std::int64_t>& I_y, double margin) {
  Tile tile = tile_of(S, X, labels_x, Y, labels_y, margin);
  tile.x.ids = ids_of(tile.x, ids_x);
  tile.y.ids = ids_of(tile.y, ids_y);
  const Heaps of_x = heaps_of(tile.x, D_x, I_x), of_y = heaps_of(tile.y, D_y, I_y);
  const nb::gil_scoped_release released;
  std::vector<float> thresholds(tile.y.size());
  kernels().scan_tile_both(tile, of_x, of_y, thresholds);
}

std::pair<std::size_t, std::size_t> collect_tile(const Floats& S, const Floats& X, const Labels& labels_x,
                                                 const Floats& Y, const Labels& labels_y, float threshold,
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

}  // namespace

void bind_exact(nb::module_& module) {
  module.def("scan_tile", scan_tile, as_is("S"), as_is("X"), as_is("labels_x"), as_is("Y"), as_is("labels_y"),
             as_is("ids_y"), as_is("D"), as_is("I"), nb::arg("margin"));
  module.def("scan_tile_both", scan_tile_both, as_is("S"), as_is("X"), as_is("labels_x"), as_is("ids_x"), as_is("Y"),
             as_is("labels_y"), as_is("ids_y"), as_is("D_x"), as_is("I_x"), as_is("D_y"), as_is("I_y"),
             nb::arg("margin"));
  module.def("collect_tile", collect_tile, as_is("S"), as_is("X"), as_is("labels_x"), as_is("Y"), as_is("labels_y"),
             nb::arg("threshold"), nb::arg("margin"), nb::arg("first"), as_is("rows"), as_is("columns"),
             as_is("scores"));
}

}  // namespace cfe
