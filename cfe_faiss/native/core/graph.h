// Graphs in compressed sparse rows (CSR), checked.
#pragma once

#include "core/common.h"
#include "core/parallel.h"

namespace cfe {

struct Range {
  std::size_t first, stop;
  std::size_t size() const { return stop - first; }
};

// Ranges of CSR rows of about equal work, as tasks for `parallel_for`. Rows without entries count, too.
std::vector<Range> balanced_ranges(std::span<const std::int64_t> indptr);

// Calls `task` once for each row of a CSR matrix, in tasks of about equal work.
template <class Task>
void for_each_node(std::span<const std::int64_t> indptr, int threads, const Task& task, const Watch& watch) {
  const std::vector<Range> ranges = balanced_ranges(indptr);
  const auto some = [&](std::size_t number) {
    for (std::size_t v = ranges[number].first; v < ranges[number].stop; ++v) task(v);
  };
  parallel_for(ranges.size(), threads, some, watch);
}

// Consecutive nodes of a graph, numbered from 0 on: the neighbours of v are indices[first(v)] to indices[stop(v) - 1].
// Without weights `weights`, `largest` and `totals` are empty.
struct Nodes {
  std::span<const std::int64_t> indptr;
  std::span<const std::int32_t> indices;
  std::span<const float> weights;         // of each neighbour
  std::span<const float> largest;         // of each node, the largest weight
  std::span<const double> totals;         // of each node, the sum of all weights divided by the largest
  std::span<const std::int64_t> numbers;  // of chosen nodes only, in their graph

  std::size_t size() const { return indptr.size() - 1; }
  CFE_INLINE std::size_t first(std::size_t v) const { return static_cast<std::size_t>(indptr[v]); }
  CFE_INLINE std::size_t stop(std::size_t v) const { return static_cast<std::size_t>(indptr[v + 1]); }
  CFE_INLINE std::size_t number(std::size_t v) const {
    return numbers.empty() ? v : static_cast<std::size_t>(numbers[v]);
  }
  Nodes part(std::size_t begin, std::size_t end) const {
    const auto cut = [&](auto values) { return values.empty() ? values : values.subspan(begin, end - begin); };
    return {indptr.subspan(begin, end - begin + 1), indices, weights, cut(largest), cut(totals), {}};
  }
};

// The checked arrays of a graph, or of some of its nodes: neighbours ascend, without the node itself, all below the
// number of nodes. `weights`, one per neighbour or none, are positive and finite. The arrays must outlive the graph,
// unchanged.
class CsrGraph : Fixed {
 public:
  // The nodes of a graph with `all_nodes`: `numbers`, or if there are none first, first + 1, ...
  struct Place {
    std::size_t first, all_nodes;
    std::span<const std::int64_t> numbers;
  };

  CsrGraph(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices, std::span<const float> weights,
           const Place& place, int threads, const Watch& watch);

  const Nodes& nodes() const { return nodes_; }
  std::size_t num_nodes() const { return nodes_.size(); }
  std::size_t all_nodes() const { return all_nodes_; }  // of the graph that the nodes belong to
  std::size_t num_edges() const { return static_cast<std::size_t>(nodes_.indptr.back()); }
  std::span<const std::int32_t> neighbors(std::size_t v) const {
    return nodes_.indices.subspan(nodes_.first(v), nodes_.stop(v) - nodes_.first(v));
  }

 private:
  void check(std::size_t first, int threads, const Watch& watch);
  bool is_right(std::size_t v, std::size_t number) const;
  bool sum_weights(std::size_t v);  // false if a weight is not positive and finite

  std::vector<float> largest_;
  std::vector<double> totals_;
  std::size_t all_nodes_;
  Nodes nodes_;
};

}  // namespace cfe
