// Searches of queries in groups: halved until they are small, ranked by their means, and scanned, in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/blocks.h"
#include "core/class_centroids.h"
#include "core/matrix.h"
#include "core/parallel.h"
#include "core/rows.h"

namespace cfe {

// Unit queries in groups of one list, whose lists are ranked for one label, and their results.
struct LargeGroups {
  Matrix<const float> X;                       // the queries; empty if they are stored rows
  std::span<const std::int64_t> rows;          // these rows; or empty
  std::span<const std::int32_t> labels;        // of each query
  std::span<const std::int64_t> order;         // numbers of queries, group by group, each at most once
  std::span<const std::int64_t> starts;        // offsets of the groups in `order`
  std::span<const std::int32_t> group_labels;  // of each group, for ranking lists
  std::span<const std::int64_t> tasks;         // offsets of the groups of each task
  Matrix<float> D;                             // a row for each query
  Matrix<std::int64_t> I;
};

// Refers to rows, centroids and blocks, which must outlive it.
class GroupedSearcher {
 public:
  // Throws std::invalid_argument if the arguments do not fit each other.
  GroupedSearcher(const Rows& rows, const ClassCentroids& centroids, const Blocks& blocks);

  std::size_t d() const { return rows_.d(); }
  std::size_t lists() const { return centroids_.size(); }  // of all partitions

  // Writes the best rows for each query of a group, in the `nprobe` lists nearest to the mean of its small group. From
  // lists() on, these are all lists of the first partition. `deduplicate`: a row may be in several lists. Throws
  // std::invalid_argument if the arguments do not fit each other.
  void search(const LargeGroups& groups, std::size_t nprobe, bool deduplicate, int threads, const Watch& watch) const;

 private:
  struct Scratch;

  void check(const LargeGroups& groups) const;
  void search_some(const LargeGroups& groups, std::size_t first, std::size_t last, std::size_t nprobe, bool deduplicate,
                   Scratch& scratch) const;

  const Rows& rows_;
  const ClassCentroids& centroids_;
  const Blocks& blocks_;
};

}  // namespace cfe
