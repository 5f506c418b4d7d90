#include "core/changing_graph.h"

#include <ranges>

namespace cfe {

namespace {

constexpr std::size_t kSpare = 4;  // arrays that are stored anew get room for 1/4 of their entries more
constexpr std::size_t kMany = 16;  // from 1/16 of the nodes on, entries are sorted by counting
constexpr std::int32_t kNoNode = std::numeric_limits<std::int32_t>::max();

Entry entry(std::size_t node, std::size_t neighbor) {
  return {static_cast<std::int64_t>(node), packed(neighbor, false, 1.0f)};
}

// Sorts entries; many of them are sorted by node first, in one pass over the numbers of entries of all nodes.
void sort_entries(std::vector<Entry>& entries, std::size_t num_nodes) {
  if (entries.size() * kMany < num_nodes) {
    std::ranges::sort(entries);
    return;
  }
  std::vector<std::int64_t> counts(num_nodes);
  for (const Entry& one : entries) ++counts[one.node];
  const std::vector<std::int64_t> starts = offsets(counts);
  std::vector<std::int64_t> cursor = starts;
  std::vector<Entry> sorted(entries.size());
  for (const Entry& one : entries) sorted[cursor[one.node]++] = one;
  for (std::size_t v = 0; v < num_nodes; ++v)
    if (counts[v] > 1) std::sort(sorted.begin() + starts[v], sorted.begin() + starts[v + 1]);
  entries = std::move(sorted);
}

// The entries of the same edges in the lists of the other ends, without weights.
std::vector<Entry> reversed(std::span<const Entry> entries, std::size_t num_nodes) {
  std::vector<Entry> others;
  others.reserve(entries.size());
  for (const auto& [node, edge] : entries)
    others.push_back(entry(static_cast<std::size_t>(neighbor_of(edge)), static_cast<std::size_t>(node)));
  sort_entries(others, num_nodes);
  return others;
}

// The graph whose edges are reversed, without weights.
GraphBuilder::Csr transposed(const CsrGraph& graph) {
  std::vector<std::int64_t> counts(graph.num_nodes());
  for (const std::int32_t u : graph.nodes().indices) ++counts[u];
  GraphBuilder::Csr result{offsets(counts), std::vector<std::int32_t>(graph.num_edges()), {}};
  std::vector<std::int64_t> cursor = result.indptr;
  for (std::size_t v = 0; v < graph.num_nodes(); ++v)
    for (const std::int32_t u : graph.neighbors(v)) result.indices[cursor[u]++] = static_cast<std::int32_t>(v);
  return result;
}

// The entries of one node at the front, which are taken away.
std::span<const Entry> take_node(std::span<const Entry>& entries, std::int64_t node) {
  const auto end = std::ranges::find_if(entries, [node](const Entry& one) { return one.node != node; });
  const auto own = entries.first(static_cast<std::size_t>(end - entries.begin()));
  entries = entries.subspan(own.size());
  return own;
}

}  // namespace

// Replaces all lists, and leaves the vectors their room.
void NeighborLists::store(GraphBuilder::Csr csr) {
  size_ = csr.indptr.size() - 1, num_edges_ = csr.indices.size();
  entries_ = std::make_shared<Entries>(Entries{std::move(csr.indices), std::move(csr.weights)});
  lists_.resize(std::max(size_, lists_.size()));
  for (std::size_t v = 0; v < size_; ++v)
    lists_[v] = {static_cast<std::size_t>(csr.indptr[v]), static_cast<std::size_t>(csr.indptr[v + 1])};
}

GraphBuilder::Csr NeighborLists::all(std::size_t room) const {
  GraphBuilder::Csr csr{{0}, {}, {}};
  csr.indices.reserve(num_edges_ + room);
  if (weighted_) csr.weights.reserve(num_edges_ + room);
  for (const Range& list : std::span(lists_).first(size_)) {
    const auto add = [&list](auto& to, const auto& from) {
      to.insert(to.end(), from.begin() + list.first, from.begin() + list.stop);
    };
    add(csr.indices, entries_->indices);
    if (weighted_) add(csr.weights, entries_->weights);
    csr.indptr.push_back(static_cast<std::int64_t>(csr.indices.size()));
  }
  return csr;
}

SomeLists NeighborLists::some(std::span<const std::int64_t> nodes) const {
  SomeLists some{{nodes.begin(), nodes.end()}, {0}, {}, entries_, size()};
  for (const std::int64_t v : nodes) {
    const std::int64_t before = some.indptr.back();
    some.shifts.push_back(static_cast<std::int64_t>(lists_[v].first) - before);
    some.indptr.push_back(before + static_cast<std::int64_t>(lists_[v].size()));
  }
  return some;
}

// Appends the new list of a node, for which there is room. Returns whether it differs from the old one.
bool NeighborLists::merge(std::int64_t node, std::span<const Entry> removed, std::span<const Entry> added) {
  std::vector<std::int32_t>& indices = entries_->indices;
  std::vector<float>& weights = entries_->weights;
  const auto next_of = [](std::span<const Entry> entries) {
    return entries.empty() ? kNoNode : neighbor_of(entries.front().edge);
  };
  std::int32_t gone = next_of(removed), fresh = next_of(added);
  bool differs = !removed.empty();
  const auto take_fresh = [&] { fresh = next_of(added = added.subspan(1)); };
  const auto add_below = [&](std::int32_t end) {
    for (; fresh < end; take_fresh()) {
      indices.push_back(fresh);
      if (weighted_) weights.push_back(weight_of(added.front().edge));
      differs = true;
    }
  };
  for (std::size_t i = lists_[node].first; i < lists_[node].stop; ++i) {
    const std::int32_t old = indices[i];
    if (fresh < old) add_below(old);
    if (old == gone) {
      gone = next_of(removed = removed.subspan(1));
      continue;
    }
    if (old == fresh && weighted_)
      refuse("add_edges must hold new edges of a graph with weights, got (", old, ", ", node, "): remove it first");
    if (old == fresh) take_fresh();
    indices.push_back(old);
    if (weighted_) weights.push_back(weights[i]);
  }
  add_below(kNoNode);
  return differs;
}

std::vector<std::int64_t> NeighborLists::prepare(std::size_t num_nodes, std::span<const Entry> removed,
                                                 std::span<const Entry> added) {
  others_.clear();
  lists_.resize(std::max(num_nodes, lists_.size()));
  std::size_t needed = added.size();
  std::int64_t last = -1;
  for (const auto& entries : {removed, added})
    for (const Entry& one : entries)
      if (std::exchange(last, one.node) != one.node) needed += lists_[one.node].size();
  if (entries_->indices.capacity() - entries_->indices.size() < needed) store(all(num_edges_ / kSpare + needed));
  other_size_ = num_nodes, other_edges_ = num_edges_;
  std::vector<std::int64_t> changed;
  while (!removed.empty() || !added.empty()) {
    const std::int64_t node = removed.empty() || (!added.empty() && added.front() < removed.front())
                                  ? added.front().node
                                  : removed.front().node;
    const std::size_t first = entries_->indices.size();
    const auto gone = take_node(removed, node), fresh = take_node(added, node);
    if (!merge(node, gone, fresh)) continue;
    others_.emplace_back(node, Range{first, entries_->indices.size()});
    other_edges_ += others_.back().second.size() - lists_[node].size();
    changed.push_back(node);
  }
  return changed;
}

void NeighborLists::exchange() {
  for (auto& [node, list] : others_) std::swap(lists_[node], list);
  std::swap(size_, other_size_);
  std::swap(num_edges_, other_edges_);
}

ChangingGraph::ChangingGraph(const CsrGraph& graph, bool directed, bool weighted) : directed_(directed) {
  const auto copied = [](const auto& values) { return std::vector(values.begin(), values.end()); };
  const Nodes& nodes = graph.nodes();
  lists_.emplace_back(GraphBuilder::Csr{copied(nodes.indptr), copied(nodes.indices), copied(nodes.weights)}, weighted);
  if (directed) lists_.emplace_back(transposed(graph), false);
}

// The entries of removed edges and nodes, ascending, each once.
std::vector<Entry> ChangingGraph::removed_entries(std::span<const std::int64_t> nodes,
                                                  const Matrix<const std::int64_t>& edges) const {
  std::vector<Entry> entries;
  for (std::size_t e = 0; e < edges.columns; ++e) {
    const std::int64_t source = edges[0][e], target = edges[1][e];
    if (!std::ranges::binary_search(incoming()[target], source))
      refuse("remove_edges must hold edges of the graph, got (", source, ", ", target, ")");
    entries.push_back(entry(target, source));
    if (!directed_) entries.push_back(entry(source, target));
  }
  for (const std::int64_t v : nodes) {
    for (const std::int32_t u : incoming()[v]) entries.push_back(entry(v, u));
    for (const std::int32_t u : outgoing()[v]) entries.push_back(entry(u, v));
  }
  sort_entries(entries, incoming().size());
  const auto repeated = std::ranges::unique(entries);
  entries.erase(repeated.begin(), repeated.end());
  return entries;
}

// The entries of added edges, ascending, merged as in a new graph.
std::vector<Entry> ChangingGraph::added_entries(std::size_t num_nodes, const Matrix<const std::int64_t>& edges,
                                                std::span<const float> weights) const {
  std::vector<Entry> entries, merged;
  for (std::size_t e = 0; e < edges.columns; ++e) {
    const std::int64_t source = edges[0][e], target = edges[1][e];
    const float weight = weights.empty() ? 1.0f : weights[e];
    if (source == target || weight == 0.0f) continue;
    entries.push_back({target, packed(source, false, weight)});
    if (!directed_) entries.push_back({source, packed(target, true, weight)});
  }
  sort_entries(entries, num_nodes);
  std::vector<std::uint64_t> of_node;
  for (std::span<const Entry> rest(entries); !rest.empty();) {
    const std::int64_t node = rest.front().node;
    of_node.clear();
    for (const Entry& one : take_node(rest, node)) of_node.push_back(one.edge);
    of_node.resize(merge_edges(of_node));
    for (const std::uint64_t edge : of_node) {
      if (!is_weight(weight_of(edge))) refuse("weights must be positive and finite, got ", weight_of(edge));
      merged.push_back({node, edge});
    }
  }
  return merged;
}

std::vector<std::int64_t> ChangingGraph::change(std::size_t num_nodes, std::span<const std::int64_t> removed_nodes,
                                                const Matrix<const std::int64_t>& removed,
                                                const Matrix<const std::int64_t>& added,
                                                std::span<const float> weights) {
  const std::size_t before = incoming().size();
  const auto are_below = [](const Matrix<const std::int64_t>& edges, std::size_t end) {
    return all_below(std::span(edges.data, edges.size()), end);
  };
  require(num_nodes >= before && all_below(removed_nodes, before) && are_below(removed, before) &&
              are_below(added, num_nodes),
          "nodes must exist");
  const std::vector<Entry> gone = removed_entries(removed_nodes, removed);
  const std::vector<Entry> fresh = added_entries(num_nodes, added, weights);
  std::vector<std::int64_t> changed = lists_.front().prepare(num_nodes, gone, fresh);
  if (directed_) lists_.back().prepare(num_nodes, reversed(gone, num_nodes), reversed(fresh, num_nodes));
  for (NeighborLists& lists : lists_) lists.exchange();
  ++version_;
  return changed;
}

void ChangingGraph::roll_back(std::int64_t version) {
  if (version_ == version) return;
  require(version_ == version + 1, "only the last change can be undone");
  for (NeighborLists& lists : lists_) lists.exchange();
  version_ = version;
}

std::optional<std::pair<std::vector<std::int64_t>, std::vector<std::int32_t>>> ChangingGraph::reach(
    std::span<const std::int64_t> first, std::span<const std::int64_t> later, int hops, double most,
    bool is_outgoing) const {
  const NeighborLists& lists = is_outgoing ? outgoing() : incoming();
  require(all_below(first, lists.size()) && all_below(later, lists.size()), "nodes must exist");
  std::vector<std::int32_t> hops_to(lists.size(), -1);
  std::vector<std::int64_t> found;
  double edges = 0;
  const auto add = [&](std::int64_t v, std::int32_t hop) {
    if (hops_to[v] >= 0) return;
    hops_to[v] = hop;
    found.push_back(v);
    edges += static_cast<double>(lists[v].size());
  };
  for (const std::int64_t v : first) add(v, 0);
  std::size_t next = 0;
  for (std::int32_t hop = 1; hop <= hops; ++hop) {
    if (edges > most) return {};
    for (const std::size_t stop = found.size(); next < stop; ++next)
      for (const std::int32_t u : lists[found[next]]) add(u, hop);
    for (const std::int64_t v : hop == 1 ? later : later.first(0)) add(v, 1);
  }
  std::ranges::copy_if(std::views::iota(std::int64_t{0}, std::int64_t(lists.size())), found.begin(),
                       [&](std::int64_t v) { return hops_to[v] >= 0; });
  std::erase(hops_to, -1);
  return std::pair(std::move(found), std::move(hops_to));
}

}  // namespace cfe
