// A graph that changes: the lists of some nodes are replaced, and the last change can be undone.
#pragma once

#include <optional>

#include "core/common.h"
#include "core/graph.h"

namespace cfe {

// An entry of a neighbour list: the node, and its neighbour and the weight as `packed`.
struct Entry {
  std::int64_t node;
  std::uint64_t edge;

  auto operator<=>(const Entry&) const = default;
};

// Neighbour lists of all nodes. One array holds them in any order, and later lists follow earlier ones.
class NeighborLists {
 public:
  NeighborLists(GraphBuilder::Csr csr, bool weighted) : weighted_(weighted) { store(std::move(csr)); }

  std::size_t size() const { return size_; }
  std::size_t num_edges() const { return num_edges_; }
  std::span<const std::int32_t> operator[](std::size_t v) const {
    return std::span(entries_->indices).subspan(lists_[v].first, lists_[v].size());
  }
  // All lists in the order of their nodes. The vectors have room for some entries more.
  GraphBuilder::Csr all(std::size_t room = 0) const;
  SomeLists some(std::span<const std::int64_t> nodes) const;

  // Makes new lists from ascending entries, of which removed ones exist; `exchange` puts them in place. Returns the
  // nodes whose lists differ. Throws std::invalid_argument if an added entry with a weight exists.
  std::vector<std::int64_t> prepare(std::size_t num_nodes, std::span<const Entry> removed,
                                    std::span<const Entry> added);
  // Exchanges the prepared lists and the lists in place: this applies or undoes a change. Nothing can fail.
  void exchange();

 private:
  void store(GraphBuilder::Csr csr);
  bool merge(std::int64_t node, std::span<const Entry> removed, std::span<const Entry> added);

  std::vector<Range> lists_;          // of all nodes and more, which have none
  std::shared_ptr<Entries> entries_;  // with room, so that they never move
  bool weighted_;
  std::size_t size_, num_edges_;
  std::vector<std::pair<std::int64_t, Range>> others_;  // prepared lists, or the lists that they have replaced
  std::size_t other_size_ = 0, other_edges_ = 0;
};

// The neighbours of every node, and for a directed graph also the nodes that it is a neighbour of.
class ChangingGraph : Fixed {
 public:
  ChangingGraph(const CsrGraph& graph, bool directed, bool weighted);

  const NeighborLists& incoming() const { return lists_.front(); }
  const NeighborLists& outgoing() const { return lists_.back(); }
  std::int64_t version() const { return version_; }

  // Removes edges, sources above targets, (2, m), and nodes, then adds edges; edges of weight 0 are left out. The
  // version becomes the next one. Returns the nodes whose lists differ. Throws std::invalid_argument, without a change,
  // if a node or an edge to remove does not exist, or if an edge with a weight exists already.
  std::vector<std::int64_t> change(std::size_t num_nodes, std::span<const std::int64_t> removed_nodes,
                                   const Matrix<const std::int64_t>& removed, const Matrix<const std::int64_t>& added,
                                   std::span<const float> weights);
  // Undoes the last change if it is later than a version.
  void roll_back(std::int64_t version);

  // The nodes at most `hops` steps away from `first`, or one step fewer from `later`, ascending, and the steps to each;
  // nothing if the nodes before the last step have more than `most` neighbours together.
  std::optional<std::pair<std::vector<std::int64_t>, std::vector<std::int32_t>>> reach(
      std::span<const std::int64_t> first, std::span<const std::int64_t> later, int hops, double most,
      bool is_outgoing) const;

 private:
  std::vector<Entry> removed_entries(std::span<const std::int64_t> nodes,
                                     const Matrix<const std::int64_t>& edges) const;
  std::vector<Entry> added_entries(std::size_t num_nodes, const Matrix<const std::int64_t>& edges,
                                   std::span<const float> weights) const;

  bool directed_;
  std::vector<NeighborLists> lists_;  // incoming ones; if the graph is directed, also outgoing ones
  std::int64_t version_ = 0;
};

}  // namespace cfe
