// Graphs in compressed sparse rows (CSR): their checks, and how they are made from edges.
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

// Ranges of the rows of a CSR structure, of about equal work: as tasks for `parallel_for`. Rows without entries are
// work, too, if little.
std::vector<Range> balanced_ranges(std::span<const std::int64_t> indptr);

// Where each row starts and the last one ends, if row i has counts[i] entries.
std::vector<std::int64_t> offsets(std::span<const std::int64_t> counts);

// Throws std::invalid_argument unless the neighbours of the nodes first, first + 1, ... of a graph are as those of a
// CsrGraph are.
void check_neighbors(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices, std::size_t first,
                     std::size_t num_nodes);

// Of the weights of each of some nodes, the largest, and the sum when all are divided by it.
struct SumsOfWeights {
  std::vector<float> largest;
  std::vector<double> totals;
};

// The sums for nodes first, first + 1, ...: node first + i has weights[indptr[i]] and on, up to indptr[i + 1]. Throws
// std::invalid_argument if a weight is not positive and finite, or there are not indptr.back() of them.
SumsOfWeights sums_of_weights(std::span<const std::int64_t> indptr, std::span<const float> weights, std::size_t first);

// A view of a graph's arrays, which have been checked: the neighbours of v are indices[indptr[v]] and on, up to
// indptr[v + 1], ascending, without v, all below the number of nodes; `weights` stand beside them, positive and finite,
// or there are none. The arrays must outlive it, unchanged.
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
  bool sum_weights(std::size_t v);  // false where one is not positive and finite

  std::span<const std::int64_t> indptr_;
  std::span<const std::int32_t> indices_;
  std::span<const float> weights_;
  SumsOfWeights sums_;
};

// Makes a graph from blocks of edges: each of them is counted, then each is placed, then all are sorted and merged.
// Where edges have weights, those of repeated edges are summed. An edge that is given in both directions counts in both
// with the mean of the two sums, unless the graph is directed. The order of the edges does not change a bit.
class GraphBuilder {
 public:
  struct Csr {
    std::vector<std::int64_t> indptr;
    std::vector<std::int32_t> indices;
    std::vector<float> weights;
  };

  // Throws std::invalid_argument if there are more nodes than int32 can number.
  GraphBuilder(std::size_t num_nodes, bool directed, bool weighted);

  // Both take edges as sources above targets, (2, m), and leave out those from a node to itself. They throw
  // std::invalid_argument if a number is not that of a node, if edges are counted after others have been placed, if
  // there are more to be placed than were counted, or if weights, which go with the edges, are not positive and finite.
  void count(const Matrix<const std::int64_t>& edges);
  void place(const Matrix<const std::int64_t>& edges, std::span<const float> weights);

  // The number of neighbours of all nodes, repeated ones included.
  std::int64_t num_counted() const;

  // Hands out the graph; the builder is empty then. Throws std::invalid_argument unless all edges counted are placed.
  Csr finish(int threads, const Watch& watch);

 private:
  void start_placing();
  void check_weights(std::span<const float> weights, std::size_t edges) const;
  std::int64_t place_of_next(std::size_t v);
  Csr gather(int threads, const Watch& watch);
  Csr gather_weighted(int threads, const Watch& watch);

  std::size_t num_nodes_;
  bool directed_, weighted_;
  std::vector<std::int64_t> counts_, starts_, cursor_;  // cursor: where the next neighbour of each node goes
  std::vector<std::int32_t> placed_;
  std::vector<std::uint64_t> placed_weighted_;  // neighbour, direction and bits of the weight, from the highest bit
};

}  // namespace cfe
