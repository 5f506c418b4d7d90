#include "core/join.h"

#include <bit>
#include <numeric>

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

std::size_t largest_block(const JoinTree& tree) {
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < tree.blocks(); ++i) largest = std::max(largest, tree.starts[i + 1] - tree.starts[i]);
  return static_cast<std::size_t>(largest);
}

constexpr std::size_t kRootDepth = 1;  // depth 0 holds all rows of the block

}  // namespace

void JoinTree::check() const {
  const std::size_t n = labels.size();
  require(starts.size() > 1 && starts.front() == 0 && starts.back() == static_cast<std::int64_t>(n),
          "starts must run from 0 to the number of labels");
  require(std::ranges::is_sorted(starts), "starts must ascend");
  require(std::has_single_bit(blocks()), "the number of blocks must be a power of two");
  const std::size_t nodes = 2 * blocks() - 1;
  require(coarse.rows == n && coarse.columns == kSketch, "coarse must have the shape (n, 16)");
  require(fine.rows == n, "fine must have a row for each label");
  require(low.rows == nodes && low.columns == kSketch && high.rows == nodes && high.columns == kSketch,
          "low and high must have the shape (2 * blocks - 1, 16)");
  require(node_labels.size() == nodes, "node_labels must have length 2 * blocks - 1");
}

BlockJoin::BlockJoin(const JoinTree& tree, std::size_t block, const JoinTree& others)
    : tree_(tree),
      others_(others),
      within_(&tree == &others),
      block_(block),
      leaf_room_(largest_block(others)),
      stack_{{0, kRootDepth}},
      near_(kRootDepth) {
  require(block < tree.blocks(), "there is no such block");
  require(tree.fine.columns == others.fine.columns, "both trees must have sketches of one length");
  near_[0].resize(static_cast<std::size_t>(tree.starts[block + 1] - tree.starts[block]));
  std::iota(near_[0].begin(), near_[0].end(), tree.starts[block]);
  close_.resize(leaf_room_);
  scores_.resize(padded(leaf_room_));
  columns_.resize(kSketch * scores_.size());  // stale columns can only cause further tests
}

bool BlockJoin::excludes(std::size_t node, double distance) const {
  const std::size_t inner = tree_.blocks() - 1, own = inner + block_;
  if (within_) {
    std::size_t last = node;
    while (last < inner) last = 2 * last + 2;
    if (last < own) return true;
  }
  const std::int32_t label = tree_.node_labels[own];
  if (label != kUnknown && others_.node_labels[node] == label) return true;
  return kernels().box_distance(tree_.low[own].data(), tree_.high[own].data(), others_.low[node].data(),
                                others_.high[node].data()) > distance;
}

void BlockJoin::find(const JoinLimits& limits, JoinPairs& pairs) {
  require(pairs.first.size() == pairs.second.size() && pairs.first.size() >= least_room(), "too little room for pairs");
  pairs.count = 0;
  while (!stack_.empty()) {
    const Visit next = stack_.back();
    const bool leaf = next.node >= others_.blocks() - 1;
    if (leaf && pairs.count + least_room() > pairs.first.size()) return;
    stack_.pop_back();
    if (!excludes(next.node, limits.distance)) visit(next, limits, pairs);
  }
}

void BlockJoin::visit(Visit at, const JoinLimits& limits, JoinPairs& pairs) {
  if (near_.size() <= at.depth) near_.resize(at.depth + 1);
  const std::vector<std::int64_t>& above = near_[at.depth - 1];
  std::vector<std::int64_t>& rows = near_[at.depth];
  counts_.tested += static_cast<std::int64_t>(above.size());
  rows.resize(above.size());
  rows.resize(kernels().close_rows(above, tree_.coarse.data, others_.low[at.node].data(), others_.high[at.node].data(),
                                   limits.distance, rows.data()));
  if (rows.empty()) return;
  const std::size_t inner = others_.blocks() - 1;
  if (at.node < inner) {
    stack_.push_back({2 * at.node + 2, at.depth + 1});
    stack_.push_back({2 * at.node + 1, at.depth + 1});
    return;
  }
  const std::size_t other = at.node - inner;
  const JoinLeaf leaf{rows,
                      others_,
                      others_.starts[other],
                      others_.starts[other + 1],
                      within_ && other == block_,
                      close_.data(),
                      columns_.data(),
                      scores_.data(),
                      scores_.size()};
  kernels().join_leaf(tree_, leaf, limits, pairs, counts_);
}

}  // namespace cfe
