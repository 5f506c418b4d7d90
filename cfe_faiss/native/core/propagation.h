// One step of the KS propagation, in memory or by blocks of rows of matrices in files.
//
// A node's vector is kept as its unit row and its length. Over neighbours u of v, cos(x_v, x_u) x_u is summed in
// float32 in groups of kGroup neighbours, and the groups in float64. So the rounding error of a node with a million
// neighbours stays that of a node with a few hundred. With edge weights, each term is multiplied by the weight divided
// by the largest weight of v. Nothing overflows, and equal weights give the same bits as none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph.h"
#include "core/matrix.h"
#include "core/parallel.h"

namespace cfe {

inline constexpr std::size_t kGroup = 256;

// The unit rows of nodes low, low + 1, ... and the lengths of all nodes' vectors.
struct UnitRows {
  Matrix<const float> rows;
  std::size_t low;
  std::span<const float> lengths;
};

// The sums of one node, padded to a multiple of 16: of the current group, and of the groups before.
struct Sums {
  std::span<float> group;
  std::span<double> total;
};

// Neighbours of one node whose terms are added in one call: nodes[first] to nodes[stop - 1]. Later nodes may be
// prefetched. `done` neighbours of the node came before. `weights` has one weight per node, or none; `largest` is the
// node's largest weight.
struct Neighbors {
  std::span<const std::int32_t> nodes;
  std::size_t first, stop, done;
  std::span<const float> weights;
  float largest;
};

// A node's new vector is keep * its unit row + share * the sum over its neighbours.
struct Shares {
  double keep, share;
};

// `total` is the number of a node's neighbours, or the sum of their weights divided by the largest one. Inlined, since
// it is compiled for each instruction set.
inline __attribute__((always_inline)) Shares shares_of(double alpha, float length, double total) {
  return {alpha * static_cast<double>(length), (1.0 - alpha) / (total > 0 ? total : 1.0)};
}

// Output of a step for one node, in addition to its length.
struct NewRow {
  std::span<float> aggregate, unit;
};

// Input and output of a step.
struct Step {
  Matrix<const float> unit;
  std::span<const float> lengths;
  Matrix<float> aggregate, new_unit;  // sums of the vectors of all steps; the new unit rows
  std::span<float> new_lengths;
};

// Some nodes of a graph, and its arrays; without weights the last three are empty.
struct Nodes {
  Range range;
  std::span<const std::int64_t> indptr;
  std::span<const std::int32_t> indices;
  std::span<const float> weights, largest;
  std::span<const double> totals;
};

// The sums of some nodes.
class SumsOfNodes {
 public:
  SumsOfNodes(std::size_t nodes, std::size_t d);

  Sums operator[](std::size_t node) {
    return {std::span(groups_).subspan(node * width_, width_), std::span(totals_).subspan(node * width_, width_)};
  }

 private:
  std::size_t width_;
  std::vector<float> groups_;
  std::vector<double> totals_;
};

// Lengths and outputs of some nodes.
struct NewRows {
  std::span<const float> lengths;
  Matrix<float> aggregate, new_unit;
  std::span<float> new_lengths;
};

// A step of some nodes that receives the rows of all nodes in blocks, one after the other. It gives the same bits as
// one block.
class BlockStep {
 public:
  // `nodes` are numbered from 0 on, `indices` hold numbers of all nodes. The arrays must outlive the step.
  BlockStep(const Nodes& nodes, std::size_t d);

  // The nodes' own unit rows. Fill them before the first `gather`.
  std::span<float> own() { return own_; }
  // Adds the neighbours in the next block. Throws std::invalid_argument if it is not the next one.
  void gather(const UnitRows& others, int threads, const Watch& watch);
  // Writes the rows. Throws std::invalid_argument if some neighbours have not been gathered.
  void finish(double alpha, const NewRows& rows, int threads, const Watch& watch);

 private:
  Nodes nodes_;
  std::size_t d_, next_ = 0;
  std::vector<float> own_;
  std::vector<std::size_t> read_;  // index of the next neighbour of each node
  SumsOfNodes sums_;
};

class Propagation {
 public:
  // With `memory`, a step takes about that many bytes for blocks of the matrices, which may be in files; 0 means all in
  // memory. The graph must outlive the propagation.
  Propagation(const CsrGraph& graph, double alpha, std::size_t memory, int threads)
      : graph_(graph), alpha_(alpha), memory_(memory), threads_(threads) {}

  const CsrGraph& graph() const { return graph_; }

  // Takes a step of all nodes, with the same bits for any memory and number of threads. The watch gets the number of
  // entries of the graph's indices read so far. Throws std::invalid_argument if the matrices do not fit the graph.
  void step(const Step& step, const Watch& watch) const;

 private:
  void check(const Step& step) const;
  void step_in_memory(const Step& step, const Watch& watch) const;
  void step_by_blocks(const Step& step, const Watch& watch) const;
  Nodes nodes_of(std::size_t first, std::size_t count) const;

  const CsrGraph& graph_;
  double alpha_;
  std::size_t memory_;
  int threads_;
};

// Divides each row by its norm in place; zero rows stay zero. Writes the norms; a row that is not finite has a norm
// that is not finite.
void normalise_rows(const Matrix<float>& rows, std::span<double> norms, int threads, const Watch& watch);

}  // namespace cfe
