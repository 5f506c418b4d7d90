#include "core/changing_graph.h"

#include <ranges>

namespace cfe {

namespace {

constexpr std::size_t kSpare = 4;  // room for this fraction of the entries more
constexpr std::size_t kMany = 16;  // entries for this fraction of the nodes are many

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

std::span<const std::int64_t> all_of(const Matrix<const std::int64_t>& edges) { return {edges.data, edges.size()}; }

// The entries of one node at the front, which are taken away.
std::span<const Entry> take_node(std::span<const Entry>& entries, std::int64_t node) {
  const auto end = std::ranges::find_if(entries, [node](const Entry& one) { return one.node != node; });
  const auto own = entries.first(static_cast<std::size_t>(end - entries.begin()));
  entries = entries.subspan(own.size());
  return own;
}

}  // namespace

NeighborLists::NeighborLists(GraphBuilder::Csr csr, bool weighted) : weighted_(weighted) { store(std::move(csr)); }

// Replaces all lists, and leaves the vectors their room.
void NeighborLists::store(GraphBuilder::Csr csr) {
  num_edges_ = csr.indices.size();
  entries_ = std::make_shared<Entries>(Entries{std::move(csr.indices), std::move(csr.weights)});
  lists_.resize(csr.indptr.size() - 1);
  for (std::size_t v = 0; v < size(); ++v)
    lists_[v] = {static_cast<std::size_t>(csr.indptr[v]), static_cast<std::size_t>(csr.indptr[v + 1])};
}

GraphBuilder::Csr NeighborLists::all(std::size_t room) const {
  GraphBuilder::Csr csr{{0}, {}, {}};
  csr.indptr.reserve(size() + 1);
  csr.indices.reserve(num_edges_ + room);
  if (weighted_) csr.weights.reserve(num_edges_ + room);
  for (const Range& list : lists_) {
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
  some.indptr.reserve(nodes.size() + 1);
  some.shifts.reserve(nodes.size());
  for (const std::int64_t v : nodes) {
    const std::int64_t before = some.indptr.back();
    some.shifts.push_back(static_cast<std::int64_t>(lists_[v].first) - before);
    some.indptr.push_back(before + static_cast<std::int64_t>(count(v)));
  }
  return some;
}

// Appends a part of the entries, which has room.
void NeighborLists::append(std::size_t first, std::size_t stop) {
  const auto copy = [&](auto& values) {
    const std::size_t end = values.size();
    values.resize(end + stop - first);
    std::copy(values.begin() + first, values.begin() + stop, values.begin() + end);
  };
  copy(entries_->indices);
  if (weighted_) copy(entries_->weights);
}

// Returns whether the new list differs from the old one; only then it is kept.
bool NeighborLists::append_list(std::int64_t node, Range old, std::span<const Entry> removed,
                                std::span<const Entry> added) {
  std::vector<std::int32_t>& indices = entries_->indices;
  const std::size_t first = indices.size();
  bool differs = !removed.empty();
  std::size_t next = old.first;  // of the old entries
  const auto place_of = [&](std::int32_t neighbor) {
    const auto place = std::lower_bound(indices.begin() + next, indices.begin() + old.stop, neighbor);
    return static_cast<std::size_t>(place - indices.begin());
  };
  // Keeps the old entries up to a neighbour; returns whether the next one is the neighbour itself.
  const auto keep_below = [&](std::int32_t neighbor) {
    for (; !removed.empty() && neighbor_of(removed.front().edge) <= neighbor; removed = removed.subspan(1)) {
      const std::size_t place = place_of(neighbor_of(removed.front().edge));
      append(next, place);
      next = place + 1;
    }
    const std::size_t place = place_of(neighbor);
    append(next, place);
    next = place;
    return next < old.stop && indices[next] == neighbor;
  };
  for (const auto& [_, edge] : added) {
    const std::int32_t neighbor = neighbor_of(edge);
    const bool is_there = keep_below(neighbor);
    if (is_there && weighted_)
      refuse("add_edges must hold new edges of a graph with weights, got (", neighbor, ", ", node,
             "): remove it first");
    if (is_there) continue;
    indices.push_back(neighbor);
    if (weighted_) entries_->weights.push_back(weight_of(edge));
    differs = true;
  }
  keep_below(std::numeric_limits<std::int32_t>::max());
  if (!differs) indices.resize(first);
  return differs;
}

void NeighborLists::prepare(std::size_t num_nodes, std::span<const Entry> removed, std::span<const Entry> added) {
  others_.clear();
  std::size_t needed = added.size();
  for (const auto& entries : {removed, added})
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (i == 0 || entries[i].node != entries[i - 1].node) needed += count(entries[i].node);
  if (entries_->indices.capacity() - entries_->indices.size() < needed) store(all(num_edges_ / kSpare + needed));
  if (lists_.capacity() < num_nodes) lists_.reserve(num_nodes + num_nodes / kSpare);
  other_size_ = num_nodes, other_edges_ = num_edges_;
  while (!removed.empty() || !added.empty()) {
    const std::int64_t node = added.empty() || (!removed.empty() && removed.front().node < added.front().node)
                                  ? removed.front().node
                                  : added.front().node;
    const Range old = count(node) > 0 ? lists_[node] : Range{0, 0};
    const std::size_t first = entries_->indices.size();
    const auto gone = take_node(removed, node), fresh = take_node(added, node);
    if (!append_list(node, old, gone, fresh)) continue;
    others_.emplace_back(node, Range{first, entries_->indices.size()});
    other_edges_ += others_.back().second.size() - old.size();
  }
}

void NeighborLists::exchange() {
  const std::size_t size = std::exchange(other_size_, lists_.size());
  lists_.resize(std::max(size, lists_.size()));
  for (auto& [node, list] : others_) std::swap(lists_[node], list);
  lists_.resize(size);
  std::swap(num_edges_, other_edges_);
}

std::vector<std::int64_t> NeighborLists::changed() const {
  std::vector<std::int64_t> nodes;
  for (const auto& [node, _] : others_) nodes.push_back(node);
  return nodes;
}

ChangingGraph::ChangingGraph(const CsrGraph& graph, bool directed, bool weighted) : directed_(directed) {
  const auto copied = [](const auto& values) { return std::vector(values.begin(), values.end()); };
  const Nodes& nodes = graph.nodes();
  lists_.emplace_back(GraphBuilder::Csr{copied(nodes.indptr), copied(nodes.indices), copied(nodes.weights)}, weighted);
  if (directed) lists_.emplace_back(transposed(graph), false);
}

// The entries of removed edges and nodes, ascending, each once.
std::vector<Entry> ChangingGraph::removed_entries(const GraphChange& change) const {
  std::vector<Entry> entries;
  for (std::size_t e = 0; e < change.removed.columns; ++e) {
    const std::int64_t source = change.removed[0][e], target = change.removed[1][e];
    if (!std::ranges::binary_search(incoming()[target], source))
      refuse("remove_edges must hold edges of the graph, got (", source, ", ", target, ")");
    entries.push_back(entry(target, source));
    if (!directed_) entries.push_back(entry(source, target));
  }
  for (const std::int64_t v : change.removed_nodes) {
    for (const std::int32_t u : incoming()[v]) entries.push_back(entry(v, u));
    for (const std::int32_t u : outgoing()[v]) entries.push_back(entry(u, v));
  }
  sort_entries(entries, incoming().size());
  const auto repeated = std::ranges::unique(entries);
  entries.erase(repeated.begin(), repeated.end());
  return entries;
}

// The entries of added edges, ascending, merged as in a new graph.
std::vector<Entry> ChangingGraph::added_entries(const GraphChange& change) const {
  std::vector<Entry> entries, merged;
  for (std::size_t e = 0; e < change.added.columns; ++e) {
    const std::int64_t source = change.added[0][e], target = change.added[1][e];
    const float weight = change.weights.empty() ? 1.0f : change.weights[e];
    if (source == target || weight == 0.0f) continue;
    entries.push_back({target, packed(source, false, weight)});
    if (!directed_) entries.push_back({source, packed(target, true, weight)});
  }
  sort_entries(entries, change.num_nodes);
  std::vector<std::uint64_t> edges;
  for (std::span<const Entry> rest(entries); !rest.empty();) {
    const std::int64_t node = rest.front().node;
    edges.clear();
    for (const Entry& one : take_node(rest, node)) edges.push_back(one.edge);
    edges.resize(merge_edges(edges));
    for (const std::uint64_t edge : edges) {
      if (!is_weight(weight_of(edge))) refuse("weights must be positive and finite, got ", weight_of(edge));
      merged.push_back({node, edge});
    }
  }
  return merged;
}

std::vector<std::int64_t> ChangingGraph::change(const GraphChange& change) {
  require(change.num_nodes >= incoming().size(), "nodes must not become fewer");
  require(all_below(change.removed_nodes, incoming().size()) && all_below(all_of(change.removed), incoming().size()) &&
              all_below(all_of(change.added), change.num_nodes),
          "nodes must exist");
  const std::vector<Entry> removed = removed_entries(change), added = added_entries(change);
  lists_.front().prepare(change.num_nodes, removed, added);
  if (directed_)
    lists_.back().prepare(change.num_nodes, reversed(removed, change.num_nodes), reversed(added, change.num_nodes));
  std::vector<std::int64_t> changed = incoming().changed();
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

std::optional<Reached> ChangingGraph::reach(std::span<const std::int64_t> first, std::span<const std::int64_t> later,
                                            int hops, double most, bool is_outgoing) const {
  const NeighborLists& lists = is_outgoing ? outgoing() : incoming();
  require(all_below(first, lists.size()) && all_below(later, lists.size()), "nodes must exist");
  std::vector<std::int32_t> hops_to(lists.size(), -1);
  std::vector<std::int64_t> found;
  double edges = 0;
  const auto add = [&](std::int64_t v, std::int32_t hop) {
    if (hops_to[v] >= 0) return;
    hops_to[v] = hop;
    found.push_back(v);
    edges += static_cast<double>(lists.count(v));
  };
  for (const std::int64_t v : first) add(v, 0);
  std::size_t next = 0;
  for (std::int32_t hop = 1; hop <= hops; ++hop) {
    if (edges > most) return {};
    for (const std::size_t stop = found.size(); next < stop; ++next)
      for (const std::int32_t u : lists[found[next]]) add(u, hop);
    for (const std::int64_t v : hop == 1 ? later : later.first(0)) add(v, 1);
  }
  Reached reached;
  for (std::size_t v = 0; v < lists.size(); ++v) {
    if (hops_to[v] < 0) continue;
    reached.nodes.push_back(static_cast<std::int64_t>(v));
    reached.hops.push_back(hops_to[v]);
  }
  return reached;
}

}  // namespace cfe
