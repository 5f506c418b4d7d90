#include "core/tiles.h"

#include "core/kernels.h"
#include "core/scan_memory.h"

namespace cfe {

namespace {

constexpr std::size_t kFewestColumns = 16;
constexpr std::size_t kCandidates = std::size_t{1} << 18;  // of all columns at once

}  // namespace

void scan_tile(const Tile& tile, const TileResults& of_x, const TileResults* of_y) {
  static thread_local ScanMemory memory, of_columns;
  const SearchMemory& of_row = memory.of(1, {tile.d, of_x.k, 1});
  if (of_y == nullptr) return kernels().scan_tile(tile, of_x, of_row);
  const std::size_t columns = std::min(tile.y.size(), std::max(kFewestColumns, kCandidates / (4 * of_y->k + 64)));
  kernels().scan_tile_both(tile, of_x, *of_y, of_row, of_columns.of(columns, {tile.d, of_y->k, 1}), columns);
}

}  // namespace cfe
