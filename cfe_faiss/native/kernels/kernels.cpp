// All kernels, for one instruction set; compiled once for each (see CMakeLists.txt).
#include "core/kernels.h"

#include "kernels/centroids.h"
#include "kernels/codecs.h"
#include "kernels/join.h"
#include "kernels/list_scan.h"
#include "kernels/similarity.h"
#include "kernels/tiles.h"

namespace cfe {

#define CFE_JOINED(name, level) name##_##level
#define CFE_TABLE(level) CFE_JOINED(kernels, level)

const Kernels& CFE_TABLE(CFE_LEVEL)() {
  static constexpr Kernels table{
      .pair_similarities = CFE_LEVEL::pair_similarities,
      .row_similarities = CFE_LEVEL::row_similarities,
      .gather = CFE_LEVEL::gather,
      .list_centroids = CFE_LEVEL::list_centroids,
      .scan_lists = CFE_LEVEL::scan_lists,
      .scan_codes = CFE_LEVEL::scan_codes,
      .scan_tile = CFE_LEVEL::scan_tile,
      .scan_tile_both = CFE_LEVEL::scan_tile_both,
      .collect_tile = CFE_LEVEL::collect_tile,
      .box_distance = CFE_LEVEL::box_distance,
      .close_rows = CFE_LEVEL::close_rows,
      .join_leaf = CFE_LEVEL::join_leaf,
  };
  return table;
}

}  // namespace cfe
