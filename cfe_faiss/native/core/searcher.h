// Searches of queries one by one, or in groups of near queries: ranks lists, scans them, and widens the search while
// results are missing, in one call.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "core/blocks.h"
#include "core/class_centroids.h"
#include "core/common.h"
#include "core/list_scan.h"
#include "core/parallel.h"

namespace cfe {

// Number of rows of each class.
class ClassCounts {
 public:
  ClassCounts(std::span<const std::int32_t> labels, std::span<const bool> allowed);
  // Number of rows that a query of this label may find.
  std::size_t eligible(std::int32_t label, Policy policy) const;

 private:
  std::map<std::int32_t, std::size_t> counts_;
  std::size_t total_ = 0;
};

// Effort of a search: `nprobe` lists; with `complete`, four times as many, and so on, until k or all eligible rows are
// found.
struct SearchOptions {
  std::size_t nprobe;
  bool complete;
  FilterView filter = {};
};

// Queries in groups of one list, whose lists are ranked for one label.
struct LargeGroups {
  Matrix<const float> X;                       // the queries; empty if they are stored rows
  std::span<const std::int64_t> rows;          // these rows; or empty
  std::span<const std::int32_t> labels;        // of each query
  std::span<const std::int64_t> order;         // numbers of queries, group by group, each at most once
  std::span<const std::int64_t> starts;        // offsets of the groups in `order`
  std::span<const std::int32_t> group_labels;  // of each group, for ranking lists
  std::span<const std::int64_t> tasks;         // offsets of the groups of each task
};

// Small groups of near queries, and the lists that each probes.
struct RoutedGroups {
  std::vector<std::int64_t> order, starts;  // numbers of queries, and offsets of the groups in these
  std::vector<std::int32_t> labels;         // of each group
  std::size_t width = 0;                    // lists of a group
  std::vector<std::int64_t> lists;          // (groups, width), nearest first; -1 for none
};

// Refers to lists, centroids and blocks, which must outlive it. A search is exact within the probed lists. If blocks
// hold bits, however, it may miss a row with a small probability, unless all lists are searched: then it reads rows.
class Searcher {
 public:
  // `margin` bounds the error of a float32 product. `blocks` may be null, or blocks of all lists; queries among all
  // rows use them. `changed`, one for each list or empty, marks lists that changed after the blocks were made.
  Searcher(const ListScan& lists, const ClassCentroids& centroids, double margin, const Blocks* blocks,
           std::span<const bool> changed);

  std::size_t d() const { return rows_.d(); }
  std::size_t size() const { return rows_.size(); }
  std::size_t lists() const { return centroids_.size(); }  // of all partitions

  // Searches a query without conversion. Returns false if the query is not finite or too long, or its label is
  // not valid.
  bool search_single(std::span<const float> x, std::int64_t label, const SearchOptions& options, TopK best) const;

  // Searches queries, for kCosine of length 1, and writes D and I, (nq, k): each finds what it finds by itself. A query
  // with an unknown label finds nothing.
  void search(const Matrix<const float>& X, std::span<const std::int32_t> labels, const SearchOptions& options,
              const Matrix<float>& D, const Matrix<std::int64_t>& I, const Watch& watch) const;

  // Halves groups until they are small, and ranks the `nprobe` lists nearest to the mean of each. From lists() on,
  // these are all lists of the first partition.
  RoutedGroups route_groups(const LargeGroups& groups, std::size_t nprobe, int threads, const Watch& watch) const;
  // Writes the best rows in blocks, which must be there, of these lists for each query: a row of D and I.
  void search_groups(const LargeGroups& groups, std::size_t nprobe, const Matrix<float>& D,
                     const Matrix<std::int64_t>& I, const FilterView& filter, int threads, const Watch& watch) const;

 private:
  struct Query;
  struct Scratch;

  struct Routed {
    RoutedGroups groups;
    AlignedVector<float> X;  // the queries, in order
  };

  void check(const LargeGroups& groups) const;
  template <class Take>
  void for_each_task(const LargeGroups& groups, int threads, const Watch& watch, const Take& take) const;
  Routed route_task(const LargeGroups& groups, std::size_t task, std::size_t nprobe, int threads,
                    const Watch& watch) const;
  void search_unit(const Query& query, const SearchOptions& options, Scratch& scratch, TopK best) const;
  void scan(const Query& query, std::span<const std::int64_t> lists, bool exact, Scratch& scratch, TopK best) const;
  void scan_rows(const Query& query, std::span<const std::int64_t> lists, Scratch& scratch, TopK best) const;
  bool holds_all(const Query& query, TopK best) const;
  const ClassCounts& counts() const;  // of all rows

  const ListScan& lists_;
  const Rows& rows_;
  const ClassCentroids& centroids_;
  double margin_;
  const Blocks* blocks_;
  std::vector<bool> changed_;
  mutable std::once_flag counting_;
  mutable std::atomic<bool> counted_{false};
  mutable std::unique_ptr<const ClassCounts> counts_;  // only incomplete queries need them
};

}  // namespace cfe
