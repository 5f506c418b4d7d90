// Queries in groups: halved until they are small, ranked by their means, and scanned, all in one call.
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

// Unit queries, in groups of those of one list whose lists are ranked by one label, and where their results go.
struct LargeGroups {
  Matrix<const float> X;                       // the queries; or none, where they are stored rows
  std::span<const std::int64_t> rows;          // those rows; or none
  std::span<const std::int32_t> labels;        // of each query
  std::span<const std::int64_t> order;         // numbers of queries, one group after the other, each at most once
  std::span<const std::int64_t> starts;        // where each group begins in the order and, last, the length of that
  std::span<const std::int32_t> group_labels;  // of each group: lists are ranked by these
  std::span<const std::int64_t> tasks;         // the first group that a thread takes at a time; last, their number
  Matrix<float> D;                             // a row for each query
  Matrix<std::int64_t> I;
};

// Refers to rows, centroids and blocks, which have to outlive it.
class GroupedSearcher {
 public:
  // Throws std::invalid_argument if the arguments do not fit each other.
  GroupedSearcher(const Rows& rows, const ClassCentroids& centroids, const Blocks& blocks);

  std::size_t d() const { return rows_.d(); }
  std::size_t lists() const { return centroids_.size(); }  // of all partitions

  // Finds for each query of a group the best rows of the `nprobe` lists that are nearest to the mean of its small
  // group; from lists() on, of all lists of the first partition. `deduplicate` says that a row may be in several lists.
  // Throws std::invalid_argument if the arguments do not fit each other.
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
