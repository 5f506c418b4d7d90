// A tile: a block of queries against a block of rows, both sorted by label, with their float products.
#pragma once

#include "core/rows_view.h"

namespace cfe {

// One side of a tile. `ids` is null if the kernel does not need it.
struct TileSide {
  const float* X;  // (n, d)
  std::span<const std::int32_t> labels;
  const std::int64_t* ids;
  FilterView filter = {};  // of these rows, as queries

  CFE_INLINE std::size_t size() const { return labels.size(); }
};

// S, (x.size(), y.size()), holds scores of x and y to within `margin`, in float32, summed in any order.
struct Tile {
  Metric metric;
  std::size_t d;
  TileSide x, y;
  const float* S;
  double margin;

  CFE_INLINE const float* products(std::size_t r) const { return S + r * y.size(); }
  CFE_INLINE const float* X_of(std::size_t r) const { return x.X + r * d; }
  CFE_INLINE const float* Y_of(std::size_t j) const { return y.X + j * d; }
};

// The results of the rows of one side, (n, k) both.
struct TileResults {
  float* D;
  std::int64_t* I;
  std::size_t k;

  CFE_INLINE TopK operator[](std::size_t r) const { return {D + r * k, I + r * k, k}; }
};

// Output of pairs.
struct PairBuffer {
  std::span<std::int32_t> rows, columns;
  std::span<float> scores;
};

}  // namespace cfe
