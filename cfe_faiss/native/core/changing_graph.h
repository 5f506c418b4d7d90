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

// Neighbour lists of all nodes. They lie in one array, in any order, and later lists follow earlier ones.
class NeighborLists {
 public:
  NeighborLists(GraphBuilder::Csr csr, bool weighted);

  std::size_t size() const { return lists_.size(); }
  std::size_t num_edges() const { return num_edges_; }
  // Number of neighbours; none for a node that does not exist yet.
  std::size_t count(std::size_t v) const { return v < size() ? lists_[v].size() : 0; }
  std::span<const std::int32_t> operator[](std::size_t v) const {
    return std::span(entries_->indices).subspan(lists_[v].first, lists_[v].size());
  }
  // All lists in the order of their nodes. The vectors have room for some entries more.
  GraphBuilder::Csr all(std::size_t room = 0) const;
  SomeLists some(std::span<const std::int64_t> nodes) const;

  // Makes new lists from ascending entries, of which removed ones exist; `exchange` puts them in place. Throws
  // std::invalid_argument if an added entry with a weight exists.
  void prepare(std::size_t num_nodes, std::span<const Entry> removed, std::span<const Entry> added);
  // Exchanges the prepared lists and those in place: this applies or undoes a change. Nothing can fail.
  void exchange();
  // The nodes of the prepared lists, ascending.
  std::vector<std::int64_t> changed() const;

 private:
  void store(GraphBuilder::Csr csr);
  bool append_list(std::int64_t node, Range old, std::span<const Entry> removed, std::span<const Entry> added);
  void append(std::size_t first, std::size_t stop);

  std::vector<Range> lists_;
  std::shared_ptr<Entries> entries_;  // with room, so that they never move
  bool weighted_;
  std::size_t num_edges_;
  std::vector<std::pair<std::int64_t, Range>> others_;  // the prepared lists, or those that they have replaced
  std::size_t other_size_ = 0, other_edges_ = 0;
};

// Edges are sources above targets, (2, m). What is removed leaves before the rest comes.
struct GraphChange {
  std::size_t num_nodes;  // after the change
  std::span<const std::int64_t> removed_nodes;
  Matrix<const std::int64_t> removed, added;
  std::span<const float> weights;  // of the added edges; 0 adds none
};

// Nodes, ascending, and the number of hops to each.
struct Reached {
  std::vector<std::int64_t> nodes;
  std::vector<std::int32_t> hops;
};

// The neighbours of every node, and for a directed graph also the nodes that it is a neighbour of.
class ChangingGraph : Fixed {
 public:
  ChangingGraph(const CsrGraph& graph, bool directed, bool weighted);

  const NeighborLists& incoming() const { return lists_.front(); }
  const NeighborLists& outgoing() const { return lists_.back(); }
  std::int64_t version() const { return version_; }

  // Changes the graph, makes its version the next one, and returns the nodes whose lists differ. Throws
  // std::invalid_argument, without a change, if a node or an edge to remove does not exist, or if an edge with a weight
  // exists already.
  std::vector<std::int64_t> change(const GraphChange& change);
  // Undoes the last change if it is later than a version.
  void roll_back(std::int64_t version);

  // Nodes at most `hops` steps away from `first`, or one step fewer from `later`; none at all if those before the last
  // step have more than `most` neighbours together.
  std::optional<Reached> reach(std::span<const std::int64_t> first, std::span<const std::int64_t> later, int hops,
                               double most, bool outgoing) const;

 private:
  std::vector<Entry> removed_entries(const GraphChange& change) const;
  std::vector<Entry> added_entries(const GraphChange& change) const;

  bool directed_;
  std::vector<NeighborLists> lists_;  // incoming ones; if the graph is directed, also outgoing ones
  std::int64_t version_ = 0;
};

}  // namespace cfe
