#include "core/graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace cfe {

namespace {

constexpr std::size_t kMaxNodes = std::numeric_limits<std::int32_t>::max() - 1;
constexpr std::int64_t kEntriesPerTask = 1 << 14;
constexpr std::int64_t kMaxTasks = 1024;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

void check_offsets(std::span<const std::int64_t> indptr, std::size_t entries) {
  if (indptr.empty() || indptr.front() != 0 || indptr.back() != static_cast<std::int64_t>(entries))
    refuse("indptr must run from 0 to " + std::to_string(entries) + ", the length of indices");
  if (!std::is_sorted(indptr.begin(), indptr.end())) refuse("indptr must not decrease");
  if (indptr.size() - 1 > kMaxNodes)
    refuse("graph must have at most " + std::to_string(kMaxNodes) + " nodes, got " + std::to_string(indptr.size() - 1));
}

bool is_right(std::size_t v, std::span<const std::int32_t> row, std::int64_t n) {
  std::int64_t before = -1;
  for (const std::int64_t u : row) {
    if (u <= before || u >= n || u == static_cast<std::int64_t>(v)) return false;
    before = u;
  }
  return true;
}

std::string written(std::span<const std::int32_t> row) {
  std::string text = "[";
  for (const std::int32_t u : row) {
    if (text.size() > 1) text += ' ';
    text += std::to_string(u);
  }
  return text + "]";
}

[[noreturn]] void refuse_neighbors(std::size_t v, std::span<const std::int32_t> row, std::size_t n) {
  const auto [least, most] = std::minmax_element(row.begin(), row.end());
  const std::string node = " for node " + std::to_string(v);
  if (*least < 0 || *most >= static_cast<std::int64_t>(n))
    refuse("indices must lie in 0.." + std::to_string(n - 1) + ", got " + std::to_string(*least) + ".." +
           std::to_string(*most) + node);
  refuse("indices must ascend within each node, without the node itself, got " +
         written(row.first(std::min<std::size_t>(row.size(), 8))) + node);
}

// A neighbour with the positive weight of an edge. Numbers sort by neighbour, then edges to the node first, then by
// weight.
std::uint64_t packed(std::size_t neighbor, bool outgoing, float weight) {
  return static_cast<std::uint64_t>(neighbor) << 33 | static_cast<std::uint64_t>(outgoing) << 32 |
         std::bit_cast<std::uint32_t>(weight);
}
std::int32_t neighbor_of(std::uint64_t edge) { return static_cast<std::int32_t>(edge >> 33); }
bool is_outgoing(std::uint64_t edge) { return (edge >> 32 & 1) != 0; }
float weight_of(std::uint64_t edge) { return std::bit_cast<float>(static_cast<std::uint32_t>(edge)); }

// Sorts the edges of a node and moves one per neighbour to the front; returns their number.
std::size_t merge(std::span<std::uint64_t> edges) {
  std::sort(edges.begin(), edges.end());
  std::size_t merged = 0;
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

bool is_weight(float weight) { return weight > 0 && std::isfinite(weight); }

// Writes the sums of the weights of node v. Returns whether all weights are positive and finite.
bool sum_of_node(std::span<const float> weights, std::size_t v, SumsOfWeights& sums) {
  if (!std::ranges::all_of(weights, is_weight)) return false;
  for (const float weight : weights) sums.largest[v] = std::max(sums.largest[v], weight);
  for (const float weight : weights) sums.totals[v] += static_cast<double>(weight / sums.largest[v]);
  return true;
}

void check_number(std::span<const float> weights, std::size_t edges) {
  if (weights.size() != edges)
    refuse("weights must have length " + std::to_string(edges) + ", got " + std::to_string(weights.size()));
}

[[noreturn]] void refuse_weights(std::size_t v) {
  refuse("weights must be positive and finite, which those for node " + std::to_string(v) + " are not");
}

// Calls `visit` with the ends and the number of each edge that is no loop.
template <class Visit>
void for_each_edge(const Matrix<const std::int64_t>& edges, std::size_t num_nodes, const Visit& visit) {
  if (edges.rows != 2) refuse("edges must have shape (2, m), got " + std::to_string(edges.rows) + " rows");
  const std::span<const std::int64_t> sources = edges[0], targets = edges[1];
  for (std::size_t e = 0; e < edges.columns; ++e) {
    const auto source = static_cast<std::size_t>(sources[e]), target = static_cast<std::size_t>(targets[e]);
    if (source >= num_nodes || target >= num_nodes)
      refuse("edges must lie in 0.." + std::to_string(num_nodes - 1) + ", got " + std::to_string(sources[e]) + " to " +
             std::to_string(targets[e]));
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
    std::size_t low = first, high = n;  // the first row with at least this work before it
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (indptr[middle] - indptr[0] + static_cast<std::int64_t>(middle) < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    const std::size_t stop = task == tasks ? n : low;
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

void check_neighbors(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices, std::size_t first,
                     std::size_t num_nodes) {
  check_offsets(indptr, indices.size());
  if (first > num_nodes || indptr.size() - 1 > num_nodes - first)
    refuse("nodes must lie in 0.." + std::to_string(num_nodes - 1));
  for (std::size_t i = 0; i + 1 < indptr.size(); ++i) {
    const auto row = indices.subspan(indptr[i], indptr[i + 1] - indptr[i]);
    if (!is_right(first + i, row, static_cast<std::int64_t>(num_nodes))) refuse_neighbors(first + i, row, num_nodes);
  }
}

SumsOfWeights sums_of_weights(std::span<const std::int64_t> indptr, std::span<const float> weights, std::size_t first) {
  check_number(weights, static_cast<std::size_t>(indptr.back()));
  const std::size_t count = indptr.size() - 1;
  SumsOfWeights sums{std::vector<float>(count), std::vector<double>(count)};
  for (std::size_t i = 0; i < count; ++i)
    if (!sum_of_node(weights.subspan(indptr[i], indptr[i + 1] - indptr[i]), i, sums)) refuse_weights(first + i);
  return sums;
}

CsrGraph::CsrGraph(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices,
                   std::span<const float> weights, int threads, const Watch& watch)
    : indptr_(indptr), indices_(indices), weights_(weights) {
  check_offsets(indptr, indices.size());
  if (!weights.empty()) {
    check_number(weights, indices.size());
    sums_ = {std::vector<float>(num_nodes()), std::vector<double>(num_nodes())};
  }
  const std::vector<Range> ranges = balanced_ranges(indptr);
  std::vector<std::size_t> wrong(ranges.size(), num_nodes());  // the first wrong node of each range
  const auto check = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v)
      if (!is_right(v, neighbors(v), static_cast<std::int64_t>(num_nodes())) || !sum_weights(v)) {
        wrong[task] = v;
        return;
      }
  };
  parallel_for(ranges.size(), threads, check, watch);
  for (const std::size_t v : wrong)
    if (v < num_nodes()) {
      if (!is_right(v, neighbors(v), static_cast<std::int64_t>(num_nodes())))
        refuse_neighbors(v, neighbors(v), num_nodes());
      refuse_weights(v);
    }
}

bool CsrGraph::sum_weights(std::size_t v) {
  return weights_.empty() || sum_of_node(weights_.subspan(indptr_[v], indptr_[v + 1] - indptr_[v]), v, sums_);
}

GraphBuilder::GraphBuilder(std::size_t num_nodes, bool directed, bool weighted)
    : num_nodes_(num_nodes), directed_(directed), weighted_(weighted) {
  if (num_nodes > kMaxNodes)
    refuse("graph must have at most " + std::to_string(kMaxNodes) + " nodes, got " + std::to_string(num_nodes));
  counts_.resize(num_nodes);
}

void GraphBuilder::count(const Matrix<const std::int64_t>& edges) {
  if (!starts_.empty()) refuse("edges must be counted before any are placed");
  for_each_edge(edges, num_nodes_, [this](std::size_t source, std::size_t target, std::size_t) {
    ++counts_[target];
    if (!directed_) ++counts_[source];
  });
}

std::int64_t GraphBuilder::num_counted() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
}

void GraphBuilder::start_placing() {
  starts_ = offsets(counts_);
  cursor_.assign(starts_.begin(), starts_.end() - 1);
  if (weighted_)
    placed_weighted_.resize(static_cast<std::size_t>(starts_.back()));
  else
    placed_.resize(static_cast<std::size_t>(starts_.back()));
}

void GraphBuilder::check_weights(std::span<const float> weights, std::size_t edges) const {
  check_number(weights, weighted_ ? edges : 0);
  for (const float weight : weights)
    if (!is_weight(weight)) refuse("weights must be positive and finite, got " + std::to_string(weight));
}

std::int64_t GraphBuilder::place_of_next(std::size_t v) {
  if (cursor_[v] == starts_[v + 1]) refuse("edges to be placed must be those that were counted");
  return cursor_[v]++;
}

void GraphBuilder::place(const Matrix<const std::int64_t>& edges, std::span<const float> weights) {
  check_weights(weights, edges.columns);
  if (starts_.empty()) start_placing();
  for_each_edge(edges, num_nodes_, [&](std::size_t source, std::size_t target, std::size_t e) {
    const auto add = [&](std::size_t v, std::size_t neighbor, bool outgoing) {
      const std::int64_t at = place_of_next(v);
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
  if (!std::equal(cursor_.begin(), cursor_.end(), starts_.begin() + 1))
    refuse("all edges that were counted must be placed");
  Csr csr = weighted_ ? gather_weighted(threads, watch) : gather(threads, watch);
  *this = GraphBuilder(0, directed_, weighted_);
  return csr;
}

GraphBuilder::Csr GraphBuilder::gather(int threads, const Watch& watch) {
  const std::vector<Range> ranges = balanced_ranges(starts_);
  const auto sort_and_merge = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v) {
      const auto begin = placed_.begin() + starts_[v], end = placed_.begin() + starts_[v + 1];
      std::sort(begin, end);
      counts_[v] = std::unique(begin, end) - begin;
    }
  };
  parallel_for(ranges.size(), threads, sort_and_merge, watch);
  Csr csr{offsets(counts_), {}, {}};
  if (csr.indptr.back() == starts_.back()) {
    csr.indices = std::move(placed_);
  } else {
    csr.indices.resize(static_cast<std::size_t>(csr.indptr.back()));
    const auto copy = [&](std::size_t task) {
      for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v)
        std::copy_n(placed_.begin() + starts_[v], counts_[v], csr.indices.begin() + csr.indptr[v]);
    };
    parallel_for(ranges.size(), threads, copy, watch);
  }
  return csr;
}

GraphBuilder::Csr GraphBuilder::gather_weighted(int threads, const Watch& watch) {
  const std::vector<Range> ranges = balanced_ranges(starts_);
  const auto edges_of = [&](std::size_t v) {
    return std::span(placed_weighted_).subspan(starts_[v], starts_[v + 1] - starts_[v]);
  };
  const auto sort_and_merge = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v)
      counts_[v] = static_cast<std::int64_t>(merge(edges_of(v)));
  };
  parallel_for(ranges.size(), threads, sort_and_merge, watch);
  Csr csr{offsets(counts_), {}, {}};
  csr.indices.resize(static_cast<std::size_t>(csr.indptr.back()));
  csr.weights.resize(csr.indices.size());
  const auto unpack = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v)
      for (std::int64_t i = 0; i < counts_[v]; ++i) {
        const std::uint64_t edge = placed_weighted_[starts_[v] + i];
        csr.indices[csr.indptr[v] + i] = neighbor_of(edge);
        csr.weights[csr.indptr[v] + i] = weight_of(edge);
      }
  };
  parallel_for(ranges.size(), threads, unpack, watch);
  return csr;
}

}  // namespace cfe
