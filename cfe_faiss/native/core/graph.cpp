#include "core/graph.h"

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <numeric>
#include <ranges>
#include <type_traits>

#include "core/common.h"

namespace cfe {

namespace {

constexpr std::size_t kMaxNodes = std::numeric_limits<std::int32_t>::max() - 1;
constexpr std::int64_t kEntriesPerTask = 1 << 14;
constexpr std::int64_t kMaxTasks = 1024;

void check_num_nodes(std::size_t nodes) {
  if (nodes > kMaxNodes) refuse("graph must have at most ", kMaxNodes, " nodes, got ", nodes);
}

void check_offsets(std::span<const std::int64_t> indptr, std::size_t entries) {
  if (indptr.empty() || indptr.front() != 0 || indptr.back() != static_cast<std::int64_t>(entries))
    refuse("indptr must run from 0 to ", entries, ", the length of indices");
  require(std::is_sorted(indptr.begin(), indptr.end()), "indptr must not decrease");
  check_num_nodes(indptr.size() - 1);
}

[[noreturn]] void refuse_neighbors(std::size_t v, std::span<const std::int32_t> row, std::size_t n) {
  const auto [least, most] = std::ranges::minmax(row);
  if (least < 0 || most >= static_cast<std::int64_t>(n))
    refuse("indices must lie in 0..", n - 1, ", got ", least, "..", most, " for node ", v);
  std::ostringstream some;
  for (std::size_t i = 0; i < std::min<std::size_t>(row.size(), 8); ++i) some << (i > 0 ? " " : "") << row[i];
  refuse("indices must ascend within each node, without the node itself, got [", some.str(), "] for node ", v);
}

// A neighbour with the positive weight of an edge. Numbers sort by neighbour, then edges to the node first, then by
// weight.
std::uint64_t packed(std::size_t neighbor, bool outgoing, float weight) {
  return static_cast<std::uint64_t>(neighbor) << 33 | static_cast<std::uint64_t>(outgoing) << 32 |
         std::bit_cast<std::uint32_t>(weight);
}
std::int32_t neighbor_of(std::uint64_t edge) { return static_cast<std::int32_t>(edge >> 33); }
float weight_of(std::uint64_t edge) { return std::bit_cast<float>(static_cast<std::uint32_t>(edge)); }
bool is_weight(float weight) { return weight > 0 && std::isfinite(weight); }

std::int32_t neighbor_of(std::int32_t edge) { return edge; }
bool is_outgoing(std::uint64_t edge) { return (edge >> 32 & 1) != 0; }

std::int64_t merge_edges(std::span<std::int32_t> edges) {
  std::ranges::sort(edges);
  return std::ranges::unique(edges).begin() - edges.begin();
}

// Sorts the edges of a node and moves one per neighbour to the front; returns their number.
std::int64_t merge_edges(std::span<std::uint64_t> edges) {
  std::ranges::sort(edges);
  std::int64_t merged = 0;
  for (std::size_t first = 0; first < edges.size();) {
    const std::int32_t neighbor = neighbor_of(edges[first]);
    std::array<double, 2> sums{};
    for (; first < edges.size() && neighbor_of(edges[first]) == neighbor; ++first)
      sums[is_outgoing(edges[first])] += static_cast<double>(weight_of(edges[first]));
    const double sum = sums[0] + sums[1], weight = sums[0] > 0 && sums[1] > 0 ? sum / 2 : sum;
    edges[merged++] = packed(static_cast<std::size_t>(neighbor), false, static_cast<float>(weight));
  }
  return merged;
}

void check_number(std::span<const float> weights, std::size_t edges) {
  if (weights.size() != edges) refuse("weights must have length ", edges, ", got ", weights.size());
}

// Calls `visit` with the ends and the number of each edge that is no loop.
template <class Visit>
void for_each_edge(const Matrix<const std::int64_t>& edges, std::size_t num_nodes, const Visit& visit) {
  if (edges.rows != 2) refuse("edges must have shape (2, m), got ", edges.rows, " rows");
  const std::span<const std::int64_t> sources = edges[0], targets = edges[1];
  for (std::size_t e = 0; e < edges.columns; ++e) {
    const auto source = static_cast<std::size_t>(sources[e]), target = static_cast<std::size_t>(targets[e]);
    if (source >= num_nodes || target >= num_nodes)
      refuse("edges must lie in 0..", num_nodes - 1, ", got ", sources[e], " to ", targets[e]);
    if (source != target) visit(source, target, e);
  }
}

}  // namespace

std::vector<Range> balanced_ranges(std::span<const std::int64_t> indptr) {
  const std::size_t n = indptr.size() - 1;
  const std::int64_t work = indptr[n] - indptr[0] + static_cast<std::int64_t>(n);
  const std::int64_t tasks = std::clamp<std::int64_t>(work / kEntriesPerTask, 1, kMaxTasks);
  std::vector<Range> ranges;
  std::size_t first = 0;
  for (std::int64_t task = 1; task <= tasks; ++task) {
    const auto wanted = static_cast<std::int64_t>(static_cast<double>(work) * static_cast<double>(task) / tasks);
    const auto is_before = [&](std::size_t v) { return indptr[v] - indptr[0] + static_cast<std::int64_t>(v) < wanted; };
    const std::size_t stop = task == tasks ? n : *std::ranges::partition_point(std::views::iota(first, n), is_before);
    if (stop > first) ranges.push_back({first, stop});
    first = stop;
  }
  return ranges;
}

std::vector<std::int64_t> offsets(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> starts(counts.size() + 1);
  std::partial_sum(counts.begin(), counts.end(), starts.begin() + 1);
  return starts;
}

CsrGraph::CsrGraph(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices,
                   std::span<const float> weights, const Place& place, int threads, const Watch& watch)
    : all_nodes_(place.all_nodes), nodes_{indptr, indices, weights, {}, {}, place.numbers} {
  check_offsets(indptr, indices.size());
  const auto& [first, all_nodes, numbers] = place;
  const bool exist = numbers.empty() ? first <= all_nodes && num_nodes() <= all_nodes - first
                                     : numbers.size() == num_nodes() && all_below(numbers, all_nodes);
  if (!exist) refuse("nodes must lie in 0..", all_nodes - 1);
  check(first, threads, watch);
}

// Checks the neighbours of all nodes and sums their weights.
void CsrGraph::check(std::size_t first, int threads, const Watch& watch) {
  const std::size_t count = num_nodes();
  if (!nodes_.weights.empty()) {
    check_number(nodes_.weights, num_edges());
    largest_.resize(count);
    totals_.resize(count);
    nodes_.largest = largest_, nodes_.totals = totals_;
  }
  std::atomic<bool> all_right{true};
  const auto check_node = [&](std::size_t v) {
    if (all_right && !(is_right(v, first + nodes_.number(v)) && sum_weights(v))) all_right = false;
  };
  for_each_node(nodes_.indptr, threads, check_node, watch);
  for (std::size_t v = 0; v < count && !all_right; ++v) {  // the first node that is wrong
    const std::size_t number = first + nodes_.number(v);
    if (!is_right(v, number)) refuse_neighbors(number, neighbors(v), all_nodes_);
    if (!sum_weights(v)) refuse("weights must be positive and finite, which those for node ", number, " are not");
  }
}

// Whether the neighbours of node v, whose number in the graph is given, are valid.
bool CsrGraph::is_right(std::size_t v, std::size_t number) const {
  std::int64_t before = -1;
  for (const std::int32_t u : neighbors(v)) {
    if (u <= before || u >= static_cast<std::int64_t>(all_nodes_) || u == static_cast<std::int64_t>(number))
      return false;
    before = u;
  }
  return true;
}

bool CsrGraph::sum_weights(std::size_t v) {
  if (nodes_.weights.empty()) return true;
  const auto weights = nodes_.weights.subspan(nodes_.first(v), nodes_.stop(v) - nodes_.first(v));
  if (!std::ranges::all_of(weights, is_weight)) return false;
  for (const float weight : weights) largest_[v] = std::max(largest_[v], weight);
  for (const float weight : weights) totals_[v] += static_cast<double>(weight / largest_[v]);
  return true;
}

GraphBuilder::GraphBuilder(std::size_t num_nodes, bool directed, bool weighted)
    : num_nodes_(num_nodes), directed_(directed), weighted_(weighted) {
  check_num_nodes(num_nodes);
  counts_.resize(num_nodes);
}

void GraphBuilder::count(const Matrix<const std::int64_t>& edges) {
  require(starts_.empty(), "edges must be counted before any are placed");
  for_each_edge(edges, num_nodes_, [this](std::size_t source, std::size_t target, std::size_t) {
    ++counts_[target];
    if (!directed_) ++counts_[source];
  });
}

void GraphBuilder::start_placing() {
  starts_ = offsets(counts_);
  cursor_.assign(starts_.begin(), starts_.end() - 1);
  if (weighted_)
    placed_weighted_.resize(static_cast<std::size_t>(starts_.back()));
  else
    placed_.resize(static_cast<std::size_t>(starts_.back()));
}

void GraphBuilder::place(const Matrix<const std::int64_t>& edges, std::span<const float> weights) {
  check_number(weights, weighted_ ? edges.columns : 0);
  for (const float weight : weights)
    if (!is_weight(weight)) refuse("weights must be positive and finite, got ", weight);
  if (starts_.empty()) start_placing();
  for_each_edge(edges, num_nodes_, [&](std::size_t source, std::size_t target, std::size_t e) {
    const auto add = [&](std::size_t v, std::size_t neighbor, bool outgoing) {
      require(cursor_[v] < starts_[v + 1], "edges to be placed must be those that were counted");
      const std::int64_t at = cursor_[v]++;
      if (weighted_)
        placed_weighted_[at] = packed(neighbor, outgoing, weights[e]);
      else
        placed_[at] = static_cast<std::int32_t>(neighbor);
    };
    add(target, source, false);
    if (!directed_) add(source, target, true);
  });
}

GraphBuilder::Csr GraphBuilder::finish(int threads, const Watch& watch) {
  if (starts_.empty()) start_placing();
  require(std::equal(cursor_.begin(), cursor_.end(), starts_.begin() + 1),
          "all edges that were counted must be placed");
  Csr csr = weighted_ ? merge(placed_weighted_, threads, watch) : merge(placed_, threads, watch);
  *this = GraphBuilder(0, directed_, weighted_);
  return csr;
}

template <class Edge>
GraphBuilder::Csr GraphBuilder::merge(std::vector<Edge>& placed, int threads, const Watch& watch) {
  constexpr bool kWeighted = std::is_same_v<Edge, std::uint64_t>;
  const auto merge_node = [&](std::size_t v) {
    counts_[v] = merge_edges(std::span(placed).subspan(starts_[v], starts_[v + 1] - starts_[v]));
  };
  for_each_node(starts_, threads, merge_node, watch);
  Csr csr{offsets(counts_), {}, {}};
  if constexpr (!kWeighted) {
    if (csr.indptr.back() == starts_.back()) {
      csr.indices = std::move(placed);
      return csr;
    }
  }
  csr.indices.resize(static_cast<std::size_t>(csr.indptr.back()));
  csr.weights.resize(kWeighted ? csr.indices.size() : 0);
  const auto copy_node = [&](std::size_t v) {
    for (std::int64_t i = 0; i < counts_[v]; ++i) {
      const Edge edge = placed[starts_[v] + i];
      csr.indices[csr.indptr[v] + i] = neighbor_of(edge);
      if constexpr (kWeighted) csr.weights[csr.indptr[v] + i] = weight_of(edge);
    }
  };
  for_each_node(starts_, threads, copy_node, watch);
  return csr;
}

}  // namespace cfe
