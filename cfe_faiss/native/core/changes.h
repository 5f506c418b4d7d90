// Data that an index keeps per row in addition to FAISS's lists, and changes of rows. A change is prepared first and
// then applied by steps that neither allocate nor fail.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "core/id_map.h"
#include "core/rows.h"

namespace cfe {

// Immutable shared memory.
using Shared = std::shared_ptr<const std::byte>;

// Items of one size, list by list. A list is in shared memory until it changes, then in its own.
class Column {
 public:
  Column(std::size_t item_size, std::size_t nlist) : item_size_(item_size), lists_(nlist) {}

  std::size_t item_size() const { return item_size_; }
  const std::byte* data(std::size_t list) const;
  // All lists, consecutively; null after a change.
  const Shared& base() const { return base_; }

  // Places all lists in `base`, consecutively.
  void rest_on(Shared base, std::span<const std::size_t> sizes) noexcept;
  // Returns a copy of all lists, consecutively.
  Shared copied(std::span<const std::size_t> sizes) const;
  // Moves a list of `count` items to its own memory with room for `wanted`. Its items stay the same, also if this
  // throws.
  void make_room(std::size_t list, std::size_t count, std::size_t wanted);
  // Resizes a list within its reserved capacity; returns its data.
  std::byte* resize(std::size_t list, std::size_t count) noexcept;

 private:
  struct List {
    Shared shared;
    std::vector<std::byte> memory;
  };

  std::size_t item_size_;
  std::vector<List> lists_;
  Shared base_;
};

// Consecutive rows that a change puts at index `place` of a list: stored rows from index `source` on, or new rows.
struct Move {
  std::size_t source, place, count;
  bool is_new;
};

// Change of one list. Rows without a move stay where they are, unless they are removed.
struct ListChange {
  ListChange(std::size_t number, std::size_t size) : list(number), before(size) {}

  std::size_t list, before;
  std::size_t after = 0;
  std::vector<Move> moves;           // by place
  std::vector<std::size_t> removed;  // indices before the change, ascending
  std::vector<std::int32_t> labels;  // of the last rows after the change; the others keep theirs
};

// A change of an index. New rows are numbered in the order of their vectors.
struct Change {
  std::vector<ListChange> lists;
  std::size_t added = 0;    // number of new rows
  std::size_t removed = 0;  // number of removed rows
};

// FAISS's lists, which hold the codes and ids of the rows. A list that shrinks does not move. All methods may throw.
class InvertedLists {
 public:
  virtual ~InvertedLists() = default;
  virtual std::size_t size(std::size_t list) const = 0;
  virtual std::byte* codes(std::size_t list) const = 0;
  virtual std::byte* ids(std::size_t list) const = 0;
};

// Addresses of a list in FAISS's memory.
struct Place {
  std::byte* codes = nullptr;
  std::byte* ids = nullptr;
};

// Data of new rows; null for data that an index does not keep.
struct NewRows {
  const std::byte* codes = nullptr;
  const std::byte* ids = nullptr;
  const std::byte* homes = nullptr;
  const std::byte* vectors = nullptr;
};

// The rows of the supplementary partitions, list by list.
struct References {
  std::span<const std::int32_t> rows;    // (partitions - 1) * n
  std::span<const std::int64_t> starts;  // (partitions - 1) * nlist + 1
  std::shared_ptr<const void> owner;     // of both
};

class Table {
 public:
  // `sizes`: rows of each list. `further`: supplementary partitions. `d`: length of the vectors kept in addition to
  // FAISS's lists, 0 for none. `code_size`: bytes of a code in FAISS's lists.
  Table(std::span<const std::int64_t> sizes, std::size_t further, std::size_t d, std::size_t code_size);

  std::size_t nlist() const { return sizes_.size(); }
  std::size_t size() const { return n_; }
  std::size_t further() const { return further_; }
  std::size_t vector_size() const { return vectors_.item_size(); }
  std::size_t code_size() const { return code_size_; }

  // Initial data, in order of the lists.
  void set_labels(Shared labels) noexcept { labels_.rest_on(std::move(labels), sizes_); }
  void set_vectors(Shared vectors) noexcept { vectors_.rest_on(std::move(vectors), sizes_); }
  void set_references(References references) noexcept { references_ = std::move(references); }

  // Returns the current addresses of FAISS's lists. Throws std::domain_error if their sizes differ from this table's.
  std::vector<Place> places_in(const InvertedLists& lists) const;
  // Records addresses; several threads may do so at once.
  void locate(std::vector<Place> places) noexcept;
  bool is_located() const { return located_.load(); }
  // Whether FAISS's lists are still at their recorded addresses: the lists of a change, or all lists.
  bool is_as_left(const InvertedLists& lists, const Change* change) const;

  // Snapshots for readers; several threads may call these at once. With vectors kept in addition to FAISS's lists,
  // these hold product-quantizer codes. The rows of the only list may be `sorted` by label or not.
  Rows rows(const RowsFormat& format, bool sorted = true);
  std::optional<References> references();
  // Returns the additional vectors, consecutively. Several threads may call this at once.
  Shared vectors();

  // The largest stored id, or -1. Computed once, then kept up to date; O(n) again after it was removed.
  std::int64_t greatest_id();
  // Index of the first of these ids that is stored, or -1.
  std::ptrdiff_t first_stored(std::span<const std::int64_t> ids);
  // Returns the row of each id, or -1. Reads the ids of the lists that hold them. Several threads may call this at
  // once.
  std::vector<std::int64_t> rows_of(std::span<const std::int64_t> ids);

  // --- changes: the caller has exclusive access ---

  // Removes distinct rows, in any order, and inserts new rows into their lists: behind all rows of the same label if
  // the rows of each list are `sorted` by label. Else there is only one list; new row i takes the place of rows[i], and
  // further new rows follow the last row.
  Change replacement(std::span<const std::int64_t> rows, std::span<const std::int32_t> lists,
                     std::span<const std::int32_t> labels, bool sorted) const;
  // `rows` ascend strictly. `sorted`: the rows of each list are then sorted by label; else they stay where they are.
  Change relabelling(std::span<const std::int64_t> rows, std::span<const std::int32_t> labels, bool sorted) const;

  // Allocates the memory of a change, to be applied by up to `threads` threads. Rows stay the same, also if this
  // throws.
  void make_room(const Change& change, int threads);
  // Call this before FAISS's lists may move.
  void forget_places() noexcept { located_ = false; }
  // Records the new addresses of lists that change and have room for all rows.
  void locate(const InvertedLists& lists, const Change& change);
  // Moves rows in FAISS's lists and in this table. Works alone if there is no memory to start threads.
  void apply(const Change& change, const NewRows& rows) noexcept;

 private:
  std::span<const std::int32_t> labels_of(std::size_t list) const;
  std::span<const std::int64_t> ids_of(std::size_t list) const;
  IdMap& map_ids();
  void follow_ids(const Change& change, std::span<const std::int64_t> new_ids) noexcept;
  void apply_to_list(const ListChange& change, const NewRows& rows, std::byte* buffer) noexcept;
  void homes_by_row();
  void references_from_homes();

  std::size_t further_, code_size_, n_ = 0;
  std::vector<std::size_t> sizes_;
  Column labels_, homes_, vectors_;
  std::optional<References> references_;  // replaces homes_ between changes
  std::vector<Place> places_;
  std::atomic<bool> located_ = false;
  bool checked_ = false;  // the initial labels
  std::optional<std::int64_t> greatest_id_;
  std::optional<IdMap> ids_;                     // made when first needed
  std::vector<std::vector<std::byte>> buffers_;  // of each thread, for rows that move in both directions
  std::mutex mutex_;                             // guards data that readers derive
};

}  // namespace cfe
