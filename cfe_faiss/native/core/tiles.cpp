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
  const std::size_t k = of_y == nullptr ? of_x.k : of_y->k, most = std::max(kFewestColumns, kCandidates / (4 * k + 64));
  const std::size_t columns = of_y == nullptr ? 0 : std::min(tile.y.size(), most);
  kernels().scan_tile(tile, of_x, of_y, memory.of(1, {tile.d, of_x.k, 1}), of_columns.of(columns, {tile.d, k, 1}),
                      columns);
}

}  // namespace cfe
