// One step of the KS propagation, in memory or by blocks of rows.
//
// A node's vector is kept as its unit row and its length. Over neighbours u of v, cos(x_v, x_u) x_u is summed in
// float32 in groups of kGroup neighbours, and the groups in float64. So the rounding error of a node with a million
// neighbours stays that of a node with a few hundred. With edge weights, each term is multiplied by the weight divided
// by the largest weight of v. Nothing overflows, and equal weights give the same bits as none.
#pragma once

#include "core/common.h"
#include "core/graph.h"
#include "core/parallel.h"

namespace cfe {

inline constexpr std::size_t kGroup = 256;

// The unit rows of nodes low, low + 1, ... and the lengths of all nodes' vectors.
struct UnitRows {
  Matrix<const float> rows;
  std::size_t low;
  std::span<const float> lengths;

  CFE_INLINE const float* row(std::size_t node) const { return rows.data + (node - low) * rows.columns; }
};

// The sums of one node, padded to a multiple of 16: of the current group, and of the groups before.
struct Sums {
  std::span<float> group;
  std::span<double> total;
};

// The sums of some nodes; zero at first.
class SumsOfNodes {
 public:
  SumsOfNodes(std::size_t nodes, std::size_t d) : width_(padded(d)), groups_(nodes * width_), totals_(nodes * width_) {}

  Sums operator[](std::size_t node) {
    return {std::span(groups_).subspan(node * width_, width_), std::span(totals_).subspan(node * width_, width_)};
  }

 private:
  std::size_t width_;
  std::vector<float> groups_;
  std::vector<double> totals_;
};

// Neighbours of one node whose terms are added in one call: nodes[first] to nodes[stop - 1]. Later nodes may be
// prefetched. `done` neighbours of the node came before. `weights` has one weight per node, or none; `largest` is the
// node's largest weight.
struct Neighbors {
  std::span<const std::int32_t> nodes;
  std::size_t first, stop, done;
  std::span<const float> weights;
  float largest;

  CFE_INLINE std::size_t size() const { return stop - first; }
  CFE_INLINE void skip(std::size_t number) { first += number, done += number; }
};

// Output of a step for one node, in addition to its length. The new vector is keep * the unit row + share * the sum
// over neighbours.
struct NewRow {
  double keep, share;
  std::span<float> aggregate, unit;
};

// A step of one node, or a part of it.
struct NodeStep {
  std::span<const float> own;  // the unit row
  Neighbors neighbors;
  Sums sums;         // over the neighbours before, and then over all
  bool fresh;        // no neighbours came before, and none come later: `sums` is scratch memory
  const NewRow* to;  // null if more neighbours come later
};

// Returns the length of the new vector.
using StepOfNode = float (*)(const UnitRows& others, const NodeStep& node);

// Lengths of the vectors of some nodes, the sums of their vectors of all steps, and the new rows.
struct StepRows {
  std::span<const float> lengths;
  Matrix<float> aggregate, new_unit;
  std::span<float> new_lengths;
};

// For the kernels, too: compiled for each instruction set.

// The neighbours of a node with indices first .. stop - 1.
CFE_INLINE Neighbors some_neighbors(const Nodes& nodes, std::size_t v, std::size_t first, std::size_t stop) {
  return {.nodes = nodes.indices,
          .first = first,
          .stop = stop,
          .done = first - nodes.first(v),
          .weights = nodes.weights,
          .largest = nodes.weights.empty() ? 1.0f : nodes.largest[v]};
}

CFE_INLINE NewRow new_row(const Nodes& nodes, double alpha, const StepRows& rows, std::size_t v) {
  const double total = nodes.weights.empty() ? static_cast<double>(nodes.stop(v) - nodes.first(v)) : nodes.totals[v];
  return {alpha * static_cast<double>(rows.lengths[nodes.number(v)]), (1.0 - alpha) / (total > 0 ? total : 1.0),
          rows.aggregate[v], rows.new_unit[v]};
}

// A step of some nodes that receives the rows of all nodes in blocks, one after the other. It gives the same bits as
// one block.
class BlockStep {
 public:
  // `own` has the unit rows of the nodes of the step, which are nodes of `graph` from `first` on. The graph must
  // outlive the step.
  BlockStep(const CsrGraph& graph, std::size_t first, const Matrix<const float>& own, int threads);

  // Adds the neighbours in the next block.
  void gather(const UnitRows& others, const Watch& watch);
  // Writes the rows, once all neighbours have been gathered. `rows.lengths` are those of the nodes.
  void finish(double alpha, const StepRows& rows, const Watch& watch);

 private:
  Nodes nodes_;
  std::size_t all_nodes_, d_, next_ = 0;
  int threads_;
  std::vector<float> own_;
  std::vector<std::size_t> read_;  // index of the next neighbour of each node
  SumsOfNodes sums_;
};

// Takes a step of the nodes of a graph whose rows are all in memory, from the unit rows and lengths of all nodes of
// their graph, with the same bits for any number of threads. The other rows belong to the nodes. The watch gets the
// number of entries of the graph's indices read so far.
void step(const CsrGraph& graph, double alpha, const Matrix<const float>& unit, const StepRows& rows, int threads,
          const Watch& watch);

// Divides each row by its norm in place; zero rows stay zero. Writes the norms; a row that is not finite has a norm
// that is not finite.
void normalise_rows(const Matrix<float>& rows, std::span<double> norms, int threads, const Watch& watch);

}  // namespace cfe
