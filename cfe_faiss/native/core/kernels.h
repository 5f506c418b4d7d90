// The table of kernels of one instruction set, and which of them is in use.
#pragma once

#include "core/block_view.h"
#include "core/byte_means.h"
#include "core/common.h"
#include "core/join.h"
#include "core/kmeans.h"
#include "core/propagation.h"
#include "core/scan.h"
#include "core/tiles.h"

namespace cfe {

struct Kernels {
  // block_pack.h, block_scan.h, and the same for bits, block_bits.h
  bool has_bytes;  // whether blocks may hold bytes
  void (*pack_list)(const BlocksView& blocks, const ListRows& rows, const ListTarget& target, const PackMemory& memory);
  void (*scan_group)(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory);
  void (*pack_bits)(const BlocksView& blocks, const ListRows& rows, const ListTarget& target, const PackMemory& memory);
  void (*scan_bits)(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory);

  // similarity.h
  double (*norm)(std::span<const float> x);
  void (*row_scores)(Metric metric, Matrix<const float> X, Matrix<const float> Y, std::span<const std::int64_t> first,
                     std::span<const std::int64_t> second, std::span<float> result);

  // normalise.h
  std::ptrdiff_t (*first_not_finite)(const Matrix<const float>& X);
  std::ptrdiff_t (*unit_rows)(const Matrix<const float>& X, const Matrix<float>& unit);
  double (*normalise)(std::span<float> row);

  // propagation.cpp
  void (*step_nodes)(const UnitRows& others, const Nodes& nodes, const Range& range, double alpha, const StepRows& rows,
                     const Sums& scratch);
  StepOfNode (*step_of_node)(std::size_t d);

  // nearest_centroid.h
  void (*nearest_centroids)(const float* X, const CentroidBlocks& centroids, std::span<float> scores,
                            std::span<std::int32_t> nearest);

  // select.h
  std::size_t (*near_best)(std::span<const float> lower, std::span<const float> upper, std::size_t k,
                           std::span<float> maxima, std::span<std::int32_t> indices);
  std::size_t (*best_scores)(float* scores, const std::int64_t* ids, std::size_t number, std::size_t k,
                             std::size_t copies, std::int64_t* memory, float* D, std::int64_t* I);

  // products.h
  void (*dot_blocks)(const Matrix<const float>& X, std::span<const float> blocks, const Matrix<float>& scores);
  void (*dot_rows)(const float* x, const Matrix<const float>& X, std::span<const std::int64_t> rows,
                   std::span<float> result);
  void (*dot_rows_as_blocks)(const float* x, const Matrix<const float>& X, std::span<const std::int64_t> rows,
                             std::span<float> result);

  // byte_means.h
  void (*encode_means)(const float* means, std::size_t length, std::span<const float> center, const ByteMeans& target,
                       float* buffer);
  ByteQuery (*encode_query)(std::span<const float> x, std::span<const float> center, std::span<float> rest,
                            std::span<std::int32_t> words);
  void (*bound_means)(const ByteMeans& means, const ByteQuery& query, float* lower, float* upper);

  // codecs.h
  void (*gather_rows)(const RowsView& rows, std::span<const std::int64_t> wanted, float* X, std::int64_t* ids);

  // centroids.h
  void (*list_centroids)(const ListCentroids& of, const CentroidMemory& memory);

  // list_scan.h
  void (*scan_lists)(const ListsView& lists, const ListQuery& query, float margin, const SearchMemory& memory,
                     TopK best);
  void (*scan_codes)(const ListsView& lists, const PqView& pq, const ListQuery& query, const PqMemory& memory,
                     TopK best);

  // tiles.h
  void (*scan_tile)(const Tile& tile, const TileResults& of_x, const TileResults* of_y, const SearchMemory& memory,
                    const SearchMemory& of_columns, std::size_t columns);
  std::pair<std::size_t, std::size_t> (*collect_tile)(const Tile& tile, float threshold, std::size_t first_row,
                                                      const PairBuffer& found);

  // join.h
  float (*box_distance)(const float* low, const float* high, const float* other_low, const float* other_high);
  std::size_t (*close_rows)(std::span<const std::int64_t> rows, const float* sketches, const float* low,
                            const float* high, double limit, std::int64_t* close);
  void (*join_leaf)(const JoinTree& tree, const JoinLeaf& leaf, const JoinLimits& limits, JoinPairs& pairs,
                    JoinCounts& counts);
};

// The kernels of the level that was chosen when the module was imported.
const Kernels& kernels();

// The level in use: "generic", "avx2", "avx512" or "neon".
const std::string& level();

// The levels that this machine can run, from the plainest to the best.
std::vector<std::string> available_levels();

// Chooses the best level, or the one that the environment variable CFE_SIMD names. Throws std::runtime_error if that is
// none of `available_levels`.
void choose_level();

}  // namespace cfe
