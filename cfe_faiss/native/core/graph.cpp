#include "core/graph.h"

#include <algorithm>
#include <atomic>
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

// Calls `visit` with the ends of each edge that joins two nodes.
template <class Visit>
void for_each_edge(const Matrix<const std::int64_t>& edges, std::size_t num_nodes, const Visit& visit) {
  if (edges.rows != 2) refuse("edges must have shape (2, m), got " + std::to_string(edges.rows) + " rows");
  const std::span<const std::int64_t> sources = edges[0], targets = edges[1];
  for (std::size_t e = 0; e < edges.columns; ++e) {
    const auto source = static_cast<std::size_t>(sources[e]), target = static_cast<std::size_t>(targets[e]);
    if (source >= num_nodes || target >= num_nodes)
      refuse("edges must lie in 0.." + std::to_string(num_nodes - 1) + ", got " + std::to_string(sources[e]) + " to " +
             std::to_string(targets[e]));
    if (source != target) visit(source, target);
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
    std::size_t low = first, high = n;  // the first row with as much work before it
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

CsrGraph::CsrGraph(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices, int threads,
                   const Watch& watch)
    : indptr_(indptr), indices_(indices) {
  check_offsets(indptr, indices.size());
  const std::vector<Range> ranges = balanced_ranges(indptr);
  std::vector<std::size_t> wrong(ranges.size(), num_nodes());  // the first wrong node of each range
  const auto check = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v)
      if (!is_right(v, neighbors(v), static_cast<std::int64_t>(num_nodes()))) {
        wrong[task] = v;
        return;
      }
  };
  parallel_for(ranges.size(), threads, check, watch);
  for (const std::size_t v : wrong)
    if (v < num_nodes()) refuse_neighbors(v, neighbors(v), num_nodes());
}

std::int64_t CsrGraph::count_same_label(std::span<const std::int32_t> labels, int threads, const Watch& watch) const {
  if (labels.size() != num_nodes())
    refuse("labels must have length " + std::to_string(num_nodes()) + ", got " + std::to_string(labels.size()));
  const std::vector<Range> ranges = balanced_ranges(indptr_);
  std::atomic<std::int64_t> total{0};
  const auto count = [&](std::size_t task) {
    std::int64_t same = 0;
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v)
      for (const std::int32_t u : neighbors(v)) same += labels[u] == labels[v];
    total += same;
  };
  parallel_for(ranges.size(), threads, count, watch);
  return total;
}

GraphBuilder::GraphBuilder(std::size_t num_nodes, bool directed) : num_nodes_(num_nodes), directed_(directed) {
  if (num_nodes > kMaxNodes)
    refuse("graph must have at most " + std::to_string(kMaxNodes) + " nodes, got " + std::to_string(num_nodes));
  counts_.resize(num_nodes);
}

void GraphBuilder::count(const Matrix<const std::int64_t>& edges) {
  if (!starts_.empty()) refuse("edges must be counted before any are placed");
  for_each_edge(edges, num_nodes_, [this](std::size_t source, std::size_t target) {
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
  placed_.resize(static_cast<std::size_t>(starts_.back()));
}

void GraphBuilder::place(const Matrix<const std::int64_t>& edges) {
  if (starts_.empty()) start_placing();
  const auto add = [this](std::size_t v, std::size_t neighbor) {
    if (cursor_[v] == starts_[v + 1]) refuse("edges to be placed must be those that were counted");
    placed_[cursor_[v]++] = static_cast<std::int32_t>(neighbor);
  };
  for_each_edge(edges, num_nodes_, [&](std::size_t source, std::size_t target) {
    add(target, source);
    if (!directed_) add(source, target);
  });
}

GraphBuilder::Csr GraphBuilder::finish(int threads, const Watch& watch) {
  if (starts_.empty()) start_placing();
  if (!std::equal(cursor_.begin(), cursor_.end(), starts_.begin() + 1))
    refuse("all edges that were counted must be placed");
  const std::vector<Range> ranges = balanced_ranges(starts_);
  const auto sort_and_merge = [&](std::size_t task) {
    for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v) {
      const auto begin = placed_.begin() + starts_[v], end = placed_.begin() + starts_[v + 1];
      std::sort(begin, end);
      counts_[v] = std::unique(begin, end) - begin;
    }
  };
  parallel_for(ranges.size(), threads, sort_and_merge, watch);
  Csr csr{offsets(counts_), {}};
  if (csr.indptr.back() == starts_.back()) {
    csr.indices = std::move(placed_);
  } else {
    csr.indices.resize(static_cast<std::size_t>(csr.indptr.back()));
    const auto gather = [&](std::size_t task) {
      for (std::size_t v = ranges[task].first; v < ranges[task].stop; ++v)
        std::copy_n(placed_.begin() + starts_[v], counts_[v], csr.indices.begin() + csr.indptr[v]);
    };
    parallel_for(ranges.size(), threads, gather, watch);
  }
  *this = GraphBuilder(0, directed_);
  return csr;
}

}  // namespace cfe
