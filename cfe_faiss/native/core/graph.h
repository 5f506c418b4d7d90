// Graphs in compressed sparse rows (CSR): checks, and construction from edges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/matrix.h"
#include "core/parallel.h"

namespace cfe {

struct Range {
  std::size_t first, stop;
  std::size_t size() const { return stop - first; }
};

// Ranges of CSR rows of about equal work, as tasks for `parallel_for`. Rows without entries count, too.
std::vector<Range> balanced_ranges(std::span<const std::int64_t> indptr);

// Offsets of rows, if row i has counts[i] entries.
std::vector<std::int64_t> offsets(std::span<const std::int64_t> counts);

// Throws std::invalid_argument unless the neighbours of the nodes first, first + 1, ... are valid for a CsrGraph.
void check_neighbors(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices, std::size_t first,
                     std::size_t num_nodes);

// For each of some nodes, the largest weight, and the sum of all weights divided by it.
struct SumsOfWeights {
  std::vector<float> largest;
  std::vector<double> totals;
};

// The sums for nodes first, first + 1, ...: node first + i has weights[indptr[i]] to weights[indptr[i + 1] - 1]. Throws
// std::invalid_argument if a weight is not positive and finite, or their number is not indptr.back().
SumsOfWeights sums_of_weights(std::span<const std::int64_t> indptr, std::span<const float> weights, std::size_t first);

// A checked view of a graph's arrays: the neighbours of v are indices[indptr[v]] to indices[indptr[v + 1] - 1],
// ascending, without v, all below the number of nodes. `weights`, one per neighbour or none, are positive and finite.
// The arrays must outlive the view, unchanged.
class CsrGraph {
 public:
  // Throws std::invalid_argument if the arrays do not describe a graph.
  CsrGraph(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices, std::span<const float> weights,
           int threads, const Watch& watch);

  std::size_t num_nodes() const { return indptr_.size() - 1; }
  std::size_t num_edges() const { return indices_.size(); }
  std::span<const std::int64_t> indptr() const { return indptr_; }
  std::span<const std::int32_t> indices() const { return indices_; }
  std::span<const std::int32_t> neighbors(std::size_t v) const {
    return indices_.subspan(indptr_[v], indptr_[v + 1] - indptr_[v]);
  }
  std::span<const float> weights() const { return weights_; }
  // See SumsOfWeights; empty without weights.
  std::span<const float> largest() const { return sums_.largest; }
  std::span<const double> totals() const { return sums_.totals; }

 private:
  bool sum_weights(std::size_t v);  // false if a weight is not positive and finite

  std::span<const std::int64_t> indptr_;
  std::span<const std::int32_t> indices_;
  std::span<const float> weights_;
  SumsOfWeights sums_;
};

// Makes a graph from blocks of edges: all are counted, then placed, then sorted and merged. Weights of repeated edges
// are summed. An edge given in both directions gets the mean of the two sums in both, unless the graph is directed. The
// order of the edges does not change a bit.
class GraphBuilder {
 public:
  struct Csr {
    std::vector<std::int64_t> indptr;
    std::vector<std::int32_t> indices;
    std::vector<float> weights;
  };

  // Throws std::invalid_argument if there are more nodes than int32 can number.
  GraphBuilder(std::size_t num_nodes, bool directed, bool weighted);

  // Both take edges as sources above targets, (2, m), and ignore loops. They throw std::invalid_argument if a node does
  // not exist, if edges are counted after others have been placed, if more are placed than counted, or if weights, one
  // per edge, are not positive and finite.
  void count(const Matrix<const std::int64_t>& edges);
  void place(const Matrix<const std::int64_t>& edges, std::span<const float> weights);

  // The number of neighbours of all nodes, with repeated ones.
  std::int64_t num_counted() const;

  // Returns the graph and empties the builder. Throws std::invalid_argument unless all counted edges are placed.
  Csr finish(int threads, const Watch& watch);

 private:
  void start_placing();
  void check_weights(std::span<const float> weights, std::size_t edges) const;
  std::int64_t place_of_next(std::size_t v);
  Csr gather(int threads, const Watch& watch);
  Csr gather_weighted(int threads, const Watch& watch);

  std::size_t num_nodes_;
  bool directed_, weighted_;
  std::vector<std::int64_t> counts_, starts_, cursor_;  // cursor: index of the next neighbour of each node
  std::vector<std::int32_t> placed_;
  std::vector<std::uint64_t> placed_weighted_;  // neighbour, direction and bits of the weight, from the highest bit
};

}  // namespace cfe
