// All kernels, for one instruction set; compiled once for each (see CMakeLists.txt).
#include "core/kernels.h"

#include "kernels/block_bits.h"
#include "kernels/block_pack.h"
#include "kernels/block_scan.h"
#include "kernels/byte_means.h"
#include "kernels/centroids.h"
#include "kernels/codecs.h"
#include "kernels/join.h"
#include "kernels/list_scan.h"
#include "kernels/nearest_centroid.h"
#include "kernels/normalise.h"
#include "kernels/products.h"
#include "kernels/select.h"
#include "kernels/similarity.h"
#include "kernels/tiles.h"

namespace cfe {

namespace CFE_LEVEL {  // kernels/propagation.cpp: a separate file, as it takes long to compile

void step_nodes(const UnitRows& others, const Nodes& nodes, const Range& range, double alpha, const StepRows& rows,
                const Sums& scratch);
StepOfNode step_of_node(std::size_t d);

}  // namespace CFE_LEVEL

#define CFE_JOINED(name, level) name##_##level
#define CFE_TABLE(level) CFE_JOINED(kernels, level)

const Kernels& CFE_TABLE(CFE_LEVEL)() {
  static constexpr Kernels table{
      .has_bytes = CFE_LEVEL::kHasBytes,
      .pack_list = CFE_LEVEL::block::pack_list,
      .scan_group = CFE_LEVEL::block::scan_group,
      .pack_bits = CFE_LEVEL::block::pack_bits,
      .scan_bits = CFE_LEVEL::block::scan_bits,
      .norm = CFE_LEVEL::norm,
      .row_scores = CFE_LEVEL::row_scores,
      .first_not_finite = CFE_LEVEL::first_not_finite,
      .unit_rows = CFE_LEVEL::unit_rows,
      .normalise = CFE_LEVEL::normalise,
      .step_nodes = CFE_LEVEL::step_nodes,
      .step_of_node = CFE_LEVEL::step_of_node,
      .nearest_centroids = CFE_LEVEL::nearest_centroids,
      .near_best = CFE_LEVEL::near_best,
      .best_scores = CFE_LEVEL::best_scores,
      .dot_blocks = CFE_LEVEL::dot_blocks,
      .dot_rows = CFE_LEVEL::dot_rows,
      .dot_rows_as_blocks = CFE_LEVEL::dot_rows_as_blocks,
      .encode_means = CFE_LEVEL::encode_means,
      .encode_query = CFE_LEVEL::encode_query,
      .bound_means = CFE_LEVEL::bound_means,
      .gather_rows = CFE_LEVEL::gather,
      .list_centroids = CFE_LEVEL::list_centroids,
      .scan_lists = CFE_LEVEL::block::scan_lists,
      .scan_codes = CFE_LEVEL::block::scan_codes,
      .scan_tile = CFE_LEVEL::block::scan_tile,
      .collect_tile = CFE_LEVEL::block::collect_tile,
      .box_distance = CFE_LEVEL::box_distance,
      .close_rows = CFE_LEVEL::close_rows,
      .join_leaf = CFE_LEVEL::join_leaf,
  };
  return table;
}

}  // namespace cfe
