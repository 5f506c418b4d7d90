// The table of kernels of one instruction set, and which of them is in use.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/centroids.h"
#include "core/join.h"
#include "core/scan.h"
#include "core/tiles.h"

namespace cfe {

struct Kernels {
  void (*pair_similarities)(const float* X, const float* Y, std::size_t d, std::span<float> result);
  void (*row_similarities)(Matrix<const float> X, Matrix<const float> Y, std::span<const std::int64_t> first,
                           std::span<const std::int64_t> second, std::span<float> result);

  // Rows where FAISS keeps them.
  void (*gather)(const RowsView& rows, std::span<const std::int64_t> wanted, float* X, std::int64_t* ids);
  void (*list_centroids)(const CentroidSums& sums, std::size_t list, float* x);
  void (*scan_lists)(const ListsView& lists, const ListQuery& query, double margin, float* buffer, TopK best);
  void (*scan_codes)(const ListsView& lists, const PqView& pq, const ListQuery& query, const PqScratch& scratch,
                     TopK best);

  // Exact search.
  void (*scan_tile)(const Tile& tile, const Heaps& heaps);
  void (*scan_tile_both)(const Tile& tile, const Heaps& of_x, const Heaps& of_y, std::span<float> thresholds);
  PairsWritten (*collect_tile)(const Tile& tile, float threshold, std::size_t first_row, const PairBuffer& found);

  // The similarity join.
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
