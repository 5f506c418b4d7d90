#include "core/graph.h"

#include <atomic>
#include <cmath>
#include <ranges>

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

bool is_weight(float weight) { return weight > 0 && std::isfinite(weight); }

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
    const std::size_t number = nodes_.weights.size();
    if (number != num_edges()) refuse("weights must have length ", num_edges(), ", got ", number);
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

}  // namespace cfe
