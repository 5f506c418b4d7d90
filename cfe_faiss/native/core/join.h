// The similarity join (see cfe_faiss/search/join.py): a tree of boxes over sketches of 16 floats.
#pragma once

#include "core/common.h"
#include "core/rows_view.h"

namespace cfe {

inline constexpr std::size_t kSketch = 16;  // length of a coarse sketch

// Rows in blocks: the leaves of a complete binary tree, whose nodes are numbered as in a heap. Arrays are referenced,
// not copied.
struct JoinTree {
  std::span<const std::int64_t> starts;       // first row of each block and, last, the number of rows
  std::span<const std::int32_t> labels;       // of each row
  Matrix<const float> coarse, fine;           // sketches: (n, 16), (n, any)
  Matrix<const float> low, high;              // boxes around the coarse sketches of each node, (nodes, 16)
  std::span<const std::int32_t> node_labels;  // the common label of all rows below a node, or kUnknown

  void check() const;
  CFE_INLINE std::size_t blocks() const { return starts.size() - 1; }
};

// Limits of a pair: least inner product of two sketches, and largest squared distance.
struct JoinLimits {
  float product;
  double distance;
};

// Numbers of comparisons so far.
struct JoinCounts {
  std::int64_t tested = 0, coarse = 0, fine = 0, found = 0;
};

// A block of rows, some of them near a leaf of the other tree, and memory for the leaf's rows near them.
struct JoinLeaf {
  std::span<const std::int64_t> rows;  // of the block
  const JoinTree& others;              // the tree of the leaf
  std::int64_t first, stop;            // of the leaf
  bool same;                           // whether the leaf is the block itself
  std::int64_t* close;                 // (room,)
  float *columns, *scores;             // (kSketch, padded), (padded,)
  std::size_t padded;                  // a multiple of kSketch, at least the rows of a leaf
};

// Pairs of rows, of the block's tree and of the other tree; `count` of them are valid.
struct JoinPairs {
  std::span<std::int64_t> first, second;
  std::size_t count = 0;
};

// Search for the pairs of one block with the rows of another tree, or with itself and all later blocks of its tree. The
// trees must outlive it.
class BlockJoin {
 public:
  // `others` is `tree` for pairs within one tree.
  BlockJoin(const JoinTree& tree, std::size_t block, const JoinTree& others);

  bool done() const { return stack_.empty(); }
  const JoinCounts& counts() const { return counts_; }
  // The least number of pairs for which `find` needs room.
  std::size_t least_room() const { return near_[0].size() * leaf_room_; }
  // Finds more pairs that may reach the limits. Limits may change between calls. `pairs` has room for `least_room`.
  void find(const JoinLimits& limits, JoinPairs& pairs);

 private:
  struct Visit {
    std::size_t node, depth;
  };
  // Whether no pair of the block and the rows below a node can be evidence that is not found elsewhere.
  bool excludes(std::size_t node, double distance) const;
  void visit(Visit visit, const JoinLimits& limits, JoinPairs& pairs);

  const JoinTree &tree_, &others_;
  const bool within_;  // whether both are the same tree
  const std::size_t block_, leaf_room_;
  std::vector<Visit> stack_;                     // nodes to visit
  std::vector<std::vector<std::int64_t>> near_;  // by depth: rows near the current node
  std::vector<std::int64_t> close_;
  std::vector<float> columns_, scores_;
  JoinCounts counts_;
};

}  // namespace cfe
