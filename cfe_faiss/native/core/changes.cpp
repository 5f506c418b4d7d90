#include "core/changes.h"

#include <cassert>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <thread>

namespace cfe {

namespace {

constexpr std::size_t kBytesOfThread = std::size_t{4} << 20;
constexpr std::size_t kBulk = 8;  // with more rows per id, each id is looked up in a set of all ids

Shared new_memory(std::size_t size) { return Shared(new std::byte[size], std::default_delete<const std::byte[]>()); }

// Memory that has not been shared yet.
std::byte* writable(const Shared& memory) { return const_cast<std::byte*>(memory.get()); }

void copy_bytes(const std::byte* from, std::byte* to, std::size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

template <class Number>
std::span<const Number> numbers(const std::byte* data, std::size_t count) {
  return {reinterpret_cast<const Number*>(data), count};
}

// The order that sorts keys; equal keys keep their order.
template <class Key>
std::vector<std::size_t> stable_order(std::span<const Key> keys) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [keys](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  return order;
}

void add_run(std::vector<Run>& runs, std::size_t source, std::size_t place, std::size_t count, bool fresh) {
  if (count == 0) return;
  if (!runs.empty() && runs.back().fresh == fresh && runs.back().source + runs.back().count == source) {
    runs.back().count += count;
    return;
  }
  runs.push_back({source, place, count, fresh});
}

void move_run(const Run& run, std::byte* items, const std::byte* fresh, std::size_t item_size) {
  if (run.fresh)
    copy_bytes(fresh + run.source * item_size, items + run.place * item_size, run.count * item_size);
  else if (run.source != run.place)
    std::memmove(items + run.place * item_size, items + run.source * item_size, run.count * item_size);
}

// Moves the items of a list to their new indices. An insertion moves items backwards, so the last one moves first; a
// removal moves the first one first.
void move_items(const ListChange& change, std::byte* items, const std::byte* fresh, std::size_t item_size) {
  if (change.after >= change.before) {
    for (auto run = change.runs.rbegin(); run != change.runs.rend(); ++run) move_run(*run, items, fresh, item_size);
  } else {
    for (const Run& run : change.runs) move_run(run, items, fresh, item_size);
  }
}

// Puts items in order, along the cycles of the permutation.
void reorder(const std::vector<std::size_t>& order, std::byte* items, std::size_t item_size, std::vector<bool>& moved,
             std::byte* one_item) {
  std::fill_n(moved.begin(), order.size(), false);
  for (std::size_t first = 0; first < order.size(); ++first) {
    if (moved[first] || order[first] == first) continue;
    copy_bytes(items + first * item_size, one_item, item_size);
    std::size_t place = first;
    for (; order[place] != first; place = order[place]) {
      copy_bytes(items + order[place] * item_size, items + place * item_size, item_size);
      moved[place] = true;
    }
    copy_bytes(one_item, items + place * item_size, item_size);
    moved[place] = true;
  }
}

ListChange insertion_into(std::size_t list, std::span<const std::int32_t> stored, std::span<const std::int32_t> labels,
                          std::span<const std::size_t> rows) {
  ListChange change{list, stored.size(), stored.size() + rows.size(), {}, {}, {}};
  change.labels.reserve(change.after);
  std::size_t kept = 0;
  for (const std::size_t row : rows) {
    const auto after =
        static_cast<std::size_t>(std::upper_bound(stored.begin() + kept, stored.end(), labels[row]) - stored.begin());
    add_run(change.runs, kept, change.labels.size(), after - kept, false);
    change.labels.insert(change.labels.end(), stored.begin() + kept, stored.begin() + after);
    add_run(change.runs, row, change.labels.size(), 1, true);
    change.labels.push_back(labels[row]);
    kept = after;
  }
  add_run(change.runs, kept, change.labels.size(), stored.size() - kept, false);
  change.labels.insert(change.labels.end(), stored.begin() + kept, stored.end());
  return change;
}

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// A removed row of a list, and the new row that takes its place, or kNone.
struct Hole {
  std::size_t place, fresh;
};

// Changes of a list by a replacement: removed rows, ascending, and new rows from other lists.
struct Touched {
  std::vector<Hole> holes;
  std::vector<std::size_t> incoming;
};

void set_order(ListChange& change, std::span<const std::int32_t> labels) {
  change.order = stable_order(labels);
  change.labels.clear();
  for (const std::size_t place : change.order) change.labels.push_back(labels[place]);
  if (std::is_sorted(change.order.begin(), change.order.end())) change.order.clear();
}

// New rows fill the holes of a list. The others are appended, or the other holes closed.
ListChange replacement_in(std::size_t list, std::span<const std::int32_t> stored, const Touched& touched,
                          std::span<const std::int32_t> labels, bool sorted) {
  ListChange change{list, stored.size(), 0, {}, {}, {}};
  std::vector<std::int32_t>& own = change.labels;
  own.reserve(stored.size() + touched.incoming.size());
  std::size_t kept = 0, next = 0;
  const auto keep_until = [&](std::size_t stop) {
    add_run(change.runs, kept, own.size(), stop - kept, false);
    own.insert(own.end(), stored.begin() + kept, stored.begin() + stop);
  };
  const auto put = [&](std::size_t row) {
    add_run(change.runs, row, own.size(), 1, true);
    own.push_back(labels[row]);
  };
  for (const Hole& hole : touched.holes) {
    keep_until(hole.place);
    kept = hole.place + 1;
    if (hole.fresh != kNone)
      put(hole.fresh);
    else if (next < touched.incoming.size())
      put(touched.incoming[next++]);
  }
  keep_until(stored.size());
  while (next < touched.incoming.size()) put(touched.incoming[next++]);
  change.after = own.size();
  if (sorted) set_order(change, std::vector<std::int32_t>(own));
  return change;
}

}  // namespace

// --- columns ---

const std::byte* Column::data(std::size_t list) const {
  return lists_[list].shared != nullptr ? lists_[list].shared : lists_[list].own.data();
}

void Column::rest_on(Shared base, std::span<const std::size_t> sizes) noexcept {
  base_ = std::move(base);
  flat_ = true;
  resting_ = base_ ? lists_.size() : 0;
  const std::byte* place = base_.get();
  for (std::size_t list = 0; list < lists_.size(); ++list) {
    lists_[list].shared = place;
    lists_[list].own = {};
    place += sizes[list] * item_size_;
  }
}

Shared Column::copied(std::span<const std::size_t> sizes) const {
  Shared base = new_memory(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) * item_size_);
  std::byte* place = writable(base);
  for (std::size_t list = 0; list < lists_.size(); ++list) {
    copy_bytes(data(list), place, sizes[list] * item_size_);
    place += sizes[list] * item_size_;
  }
  return base;
}

void Column::flatten(std::span<const std::size_t> sizes) {
  if (!flat_) rest_on(copied(sizes), sizes);
}

void Column::make_room(std::size_t list, std::size_t count, std::size_t wanted) {
  List& kept = lists_[list];
  if (kept.shared == nullptr && kept.own.capacity() >= wanted * item_size_) return;
  std::vector<std::byte> own;
  own.reserve((wanted > count ? std::max(wanted, count + count / 2) : wanted) * item_size_);
  own.insert(own.end(), data(list), data(list) + count * item_size_);
  kept.own.swap(own);
  if (kept.shared != nullptr && --resting_ == 0) base_.reset();
  kept.shared = nullptr;
  flat_ = false;
}

std::byte* Column::resize(std::size_t list, std::size_t count) noexcept {
  assert(lists_[list].shared == nullptr && lists_[list].own.capacity() >= count * item_size_);
  lists_[list].own.resize(count * item_size_);
  return lists_[list].own.data();
}

// --- the table ---

Table::Table(std::span<const std::int64_t> sizes, std::size_t further, std::size_t d, std::size_t code_size)
    : further_(further),
      code_size_(code_size),
      sizes_(sizes.begin(), sizes.end()),
      labels_(sizeof(std::int32_t), sizes.size()),
      homes_(sizeof(std::int32_t) * further, sizes.size()),
      vectors_(sizeof(float) * d, sizes.size()),
      places_(sizes.size()) {
  n_ = std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{0});
}

std::vector<Place> Table::places_in(const InvertedLists& lists) const {
  std::vector<Place> places(nlist());
  for (std::size_t list = 0; list < nlist(); ++list) {
    if (lists.size(list) != sizes_[list]) throw std::domain_error("the lists are not those of the table");
    if (sizes_[list] > 0) places[list] = {lists.codes(list), lists.ids(list)};
  }
  return places;
}

void Table::locate(std::vector<Place> places) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (located_) return;
  places_ = std::move(places);
  located_ = true;
}

bool Table::is_as_left(const InvertedLists& lists) const {
  for (std::size_t list = 0; list < nlist(); ++list)
    if (lists.size(list) != sizes_[list] || (sizes_[list] > 0 && lists.ids(list) != places_[list].ids)) return false;
  return true;
}

bool Table::is_as_left(const InvertedLists& lists, const Change& change) const {
  for (const ListChange& one : change.lists)
    if (lists.size(one.list) != one.before || (one.before > 0 && lists.ids(one.list) != places_[one.list].ids))
      return false;
  return true;
}

void Table::locate(const InvertedLists& lists, const Change& change) {
  for (const ListChange& one : change.lists) places_[one.list] = {lists.codes(one.list), lists.ids(one.list)};
  located_ = true;
}

std::span<const std::int32_t> Table::labels_of(std::size_t list) const {
  return numbers<std::int32_t>(labels_.data(list), sizes_[list]);
}

std::span<const std::int64_t> Table::ids_of(std::size_t list) const {
  return numbers<std::int64_t>(places_[list].ids, sizes_[list]);
}

Rows Table::rows(const RowsFormat& format, bool sorted) {
  const std::lock_guard<std::mutex> guard(mutex_);
  assert(located_);
  require(sorted || nlist() == 1, "only the rows of a single list may be in any order");
  const bool coded = vector_size() > 0;
  if (labels_.is_scattered()) labels_.flatten(sizes_);
  RowsMemory memory{.starts = {0}, .codes = {}, .ids = {}, .labels = {}, .pq_codes = {}, .sorted = sorted};
  for (std::size_t list = 0; list < nlist(); ++list) {
    const auto* codes = reinterpret_cast<const std::uint8_t*>(places_[list].codes);
    memory.starts.push_back(memory.starts.back() + static_cast<std::int64_t>(sizes_[list]));
    memory.codes.push_back(coded ? reinterpret_cast<const std::uint8_t*>(vectors_.data(list)) : codes);
    if (coded) memory.pq_codes.push_back(codes);
    memory.ids.push_back(ids_of(list).data());
    memory.labels.push_back(labels_of(list).data());
  }
  if (coded) memory.pq_code_size = code_size_;
  if (labels_.is_flat()) memory.all_labels = {numbers<std::int32_t>(labels_.base().get(), n_), labels_.base()};
  Rows result(format, std::move(memory));
  require(result.row_size() == (coded ? vector_size() : code_size_), "the rows must have the size of their codec");
  if (!checked_) result.check_labels();  // later changes keep them in order
  checked_ = true;
  return result;
}

std::optional<References> Table::references() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (further_ > 0 && !references_) references_from_homes();
  return references_;
}

Shared Table::vectors() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (vectors_.is_flat()) return vectors_.base();
  return vectors_.copied(sizes_);  // readers may hold addresses of the vectors
}

void Table::references_from_homes() {
  struct Kept {
    std::vector<std::int32_t> rows;
    std::vector<std::int64_t> starts;
  };
  if (n_ > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::length_error("supplementary partitions hold fewer than 2**31 rows");
  auto result = std::make_shared<Kept>();
  result->rows.resize(further_ * n_);
  result->starts.assign(further_ * nlist() + 1, 0);
  const auto each_home = [this](std::size_t partition, const auto& take) {
    std::int32_t row = 0;  // n < 2**31
    for (std::size_t list = 0; list < nlist(); ++list) {
      const auto homes = numbers<std::int32_t>(homes_.data(list), sizes_[list] * further_);
      for (std::size_t place = 0; place < sizes_[list]; ++place) take(row++, homes[place * further_ + partition]);
    }
  };
  for (std::size_t partition = 0; partition < further_; ++partition) {
    std::int64_t* starts = result->starts.data() + partition * nlist();
    each_home(partition, [starts](std::int32_t, std::int32_t home) { ++starts[home + 1]; });
    for (std::size_t list = 0; list < nlist(); ++list) starts[list + 1] += starts[list];
    std::vector<std::int64_t> next(starts, starts + nlist());
    each_home(partition, [&result, &next](std::int32_t row, std::int32_t home) { result->rows[next[home]++] = row; });
  }
  references_ = References{result->rows, result->starts, result};
  homes_ = Column(homes_.item_size(), nlist());
}

void Table::homes_by_row() {
  if (further_ == 0 || !references_) return;
  Shared homes = new_memory(n_ * homes_.item_size());
  auto* by_row = reinterpret_cast<std::int32_t*>(writable(homes));
  for (std::size_t i = 0; i < further_ * nlist(); ++i)
    for (std::int64_t at = references_->starts[i]; at < references_->starts[i + 1]; ++at)
      by_row[static_cast<std::size_t>(references_->rows[at]) * further_ + i / nlist()] =
          static_cast<std::int32_t>(i % nlist());
  homes_.rest_on(std::move(homes), sizes_);
  references_.reset();
}

IdMap& Table::map_ids() {
  if (ids_) return *ids_;
  IdMap all(n_);
  for (std::size_t list = 0; list < nlist(); ++list)
    for (const std::int64_t id : ids_of(list)) all.add(id, static_cast<std::int32_t>(list));
  return ids_.emplace(std::move(all));
}

std::int64_t Table::greatest_id() {
  assert(located_);
  if (!greatest_id_) {
    std::int64_t greatest = -1;
    for (std::size_t list = 0; list < nlist(); ++list)
      for (const std::int64_t id : ids_of(list)) greatest = std::max(greatest, id);
    greatest_id_ = greatest;
  }
  return *greatest_id_;
}

// Calls take(id) for each removed row, before rows move.
template <class Take>
void Table::for_each_removed(const Change& change, const Take& take) const {
  for (const ListChange& one : change.lists) {
    if (change.removed == 0) break;
    const auto stored = ids_of(one.list);
    std::size_t kept = 0;  // stored ids before this one are in runs, or were removed
    const auto remove_until = [&](std::size_t stop) {
      for (; kept < stop; ++kept) take(stored[kept]);
    };
    for (const Run& run : one.runs) {
      if (run.fresh) continue;
      remove_until(run.source);
      kept = run.source + run.count;
    }
    remove_until(one.before);
  }
}

std::ptrdiff_t Table::first_stored(std::span<const std::int64_t> ids) {
  const std::lock_guard<std::mutex> guard(mutex_);
  assert(located_);
  if (ids.empty() || n_ == 0) return -1;
  if (*std::min_element(ids.begin(), ids.end()) > greatest_id()) return -1;
  const auto first_in = [ids](const IdMap& map) {
    const auto found = std::find_if(ids.begin(), ids.end(), [&map](std::int64_t id) { return map.holds(id); });
    return found == ids.end() ? -1 : found - ids.begin();
  };
  if (!ids_ && ids.size() >= n_ / kBulk) {  // compare stored ids with the new ones
    IdMap fresh(ids.size()), twice(ids.size());
    for (const std::int64_t id : ids) fresh.add(id);
    for (std::size_t list = 0; list < nlist(); ++list)
      for (const std::int64_t id : ids_of(list))
        if (fresh.holds(id)) twice.add(id);
    return first_in(twice);
  }
  return first_in(map_ids());
}

std::vector<std::int64_t> Table::rows_of(std::span<const std::int64_t> ids) {
  const std::lock_guard<std::mutex> guard(mutex_);
  assert(located_);
  if (ids.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::length_error("fewer than 2**31 ids can be looked up at once");
  const IdMap* map = nlist() > 1 ? &map_ids() : nullptr;
  std::vector<std::size_t> wanted(nlist(), 0);  // ids in each list
  IdMap rank(ids.size());                       // the number of each id among the distinct ones
  std::vector<std::int64_t> found;              // the row of each of these
  for (const std::int64_t id : ids) {
    const std::int32_t list = map != nullptr ? map->list_of(id) : id < 0 ? -1 : 0;
    if (list < 0 || !rank.add(id, static_cast<std::int32_t>(found.size()))) continue;
    found.push_back(-1);
    ++wanted[static_cast<std::size_t>(list)];
  }
  std::int64_t start = 0;
  for (std::size_t list = 0; list < nlist(); start += static_cast<std::int64_t>(sizes_[list++])) {
    if (wanted[list] == 0) continue;
    const auto own = ids_of(list);
    for (std::size_t place = 0; place < own.size() && wanted[list] > 0; ++place) {
      const std::int32_t number = rank.list_of(own[place]);
      if (number < 0) continue;
      found[static_cast<std::size_t>(number)] = start + static_cast<std::int64_t>(place);
      --wanted[list];
    }
  }
  std::vector<std::int64_t> rows;
  rows.reserve(ids.size());
  for (const std::int64_t id : ids) {
    const std::int32_t number = rank.list_of(id);
    rows.push_back(number < 0 ? -1 : found[static_cast<std::size_t>(number)]);
  }
  return rows;
}

// --- changes ---

Change Table::insertion(std::span<const std::int32_t> lists, std::span<const std::int32_t> labels) const {
  Change change;
  change.fresh = lists.size();
  std::vector<std::size_t> order = stable_order(labels);
  std::stable_sort(order.begin(), order.end(), [lists](std::size_t a, std::size_t b) { return lists[a] < lists[b]; });
  for (std::size_t first = 0; first < order.size();) {
    const auto list = static_cast<std::size_t>(lists[order[first]]);
    std::size_t last = first;
    while (last < order.size() && lists[order[last]] == lists[order[first]]) ++last;
    change.lists.push_back(insertion_into(list, numbers<std::int32_t>(labels_.data(list), sizes_[list]), labels,
                                          std::span(order).subspan(first, last - first)));
    first = last;
  }
  return change;
}

Change Table::appending(std::span<const std::int32_t> labels) const {
  assert(nlist() == 1);
  Change change;
  change.fresh = labels.size();
  change.lists.push_back(
      {0, n_, n_ + labels.size(), {{0, n_, labels.size(), true}}, {}, {labels.begin(), labels.end()}});
  return change;
}

// Calls take(list, first, last, start) for each list that holds rows[first] to rows[last - 1] and begins at row
// `start`.
template <class Take>
void Table::for_each_touched(std::span<const std::int64_t> rows, const Take& take) const {
  std::int64_t start = 0;
  for (std::size_t list = 0, first = 0; first < rows.size(); start += static_cast<std::int64_t>(sizes_[list++])) {
    std::size_t last = first;
    while (last < rows.size() && rows[last] < start + static_cast<std::int64_t>(sizes_[list])) ++last;
    if (first < last) take(list, first, last, start);
    first = last;
  }
}

Change Table::relabelling(std::span<const std::int64_t> rows, std::span<const std::int32_t> labels, bool sorted) const {
  assert(rows.size() == labels.size());
  Change change;
  for_each_touched(rows, [&](std::size_t list, std::size_t first, std::size_t last, std::int64_t start) {
    const auto before = labels_of(list);
    std::vector<std::int32_t> own(before.begin(), before.end());
    for (std::size_t r = first; r < last; ++r) own[static_cast<std::size_t>(rows[r] - start)] = labels[r];
    if (std::equal(own.begin(), own.end(), before.begin())) return;
    ListChange one{list, own.size(), own.size(), {}, {}, {}};
    if (sorted)
      set_order(one, own);
    else
      one.labels = std::move(own);
    change.lists.push_back(std::move(one));
  });
  return change;
}

Change Table::replacement(std::span<const std::int64_t> rows, std::span<const std::int32_t> lists,
                          std::span<const std::int32_t> labels, bool sorted) const {
  assert(labels.size() == lists.size() || (labels.empty() && rows.size() == lists.size()));
  Change change;
  change.fresh = lists.size();
  change.removed = rows.size();
  const std::vector<std::size_t> order = stable_order(rows);
  std::vector<std::int64_t> ascending(rows.begin(), rows.end());
  std::ranges::sort(ascending);
  std::vector<std::int32_t> new_labels(labels.begin(), labels.end());
  if (labels.empty()) new_labels.resize(lists.size());
  std::vector<bool> placed(lists.size(), false);
  std::map<std::size_t, Touched> touched;
  for_each_touched(ascending, [&](std::size_t list, std::size_t first, std::size_t last, std::int64_t start) {
    Touched& own = touched[list];
    for (std::size_t r = first; r < last; ++r) {
      const std::size_t number = order[r], place = static_cast<std::size_t>(ascending[r] - start);
      if (labels.empty() && number < lists.size()) new_labels[number] = labels_of(list)[place];
      const bool stays = number < lists.size() && static_cast<std::size_t>(lists[number]) == list;
      if (stays) placed[number] = true;
      own.holes.push_back({place, stays ? number : kNone});
    }
  });
  for (std::size_t number = 0; number < lists.size(); ++number)
    if (!placed[number]) touched[static_cast<std::size_t>(lists[number])].incoming.push_back(number);
  for (const auto& [list, own] : touched)
    change.lists.push_back(replacement_in(list, labels_of(list), own, new_labels, sorted));
  return change;
}

void Table::make_room(const Change& change, int threads) {
  std::size_t longest = 0, rows = 0;
  homes_by_row();
  for (const ListChange& one : change.lists) {
    labels_.make_room(one.list, one.before, one.after);
    homes_.make_room(one.list, one.before, one.after);
    vectors_.make_room(one.list, one.before, one.after);
    longest = std::max(longest, one.order.size());
    rows += std::max(one.before, one.after);
  }
  const std::size_t useful = std::min(change.lists.size(), rows * (code_size_ + vectors_.item_size()) / kBytesOfThread);
  scratch_.resize(std::clamp<std::size_t>(useful, 1, static_cast<std::size_t>(std::max(threads, 1))));
  for (Scratch& scratch : scratch_) {
    scratch.moved.resize(longest);
    scratch.one_item.resize(std::max({code_size_, sizeof(std::int64_t), homes_.item_size(), vectors_.item_size()}));
  }
  if (ids_) ids_->make_room(change.fresh);
}

// Notes the ids that lists lose and gain, before their rows move. An id may leave one list and enter another.
void Table::follow_ids(IdMap& map, const Change& change, const Fresh& fresh) noexcept {
  for_each_removed(change, [&](std::int64_t id) { map.remove(id); });
  for (const ListChange& one : change.lists)
    for (const Run& run : one.runs)
      for (std::size_t row = run.source; run.fresh && row < run.source + run.count; ++row)
        map.add(numbers<std::int64_t>(fresh.ids, change.fresh)[row], static_cast<std::int32_t>(one.list));
}

void Table::apply_to_list(const ListChange& one, const Fresh& fresh, Scratch& scratch) noexcept {
  const auto follow = [&](std::byte* items, const std::byte* new_items, std::size_t size) {
    move_items(one, items, new_items, size);
    if (!one.order.empty()) reorder(one.order, items, size, scratch.moved, scratch.one_item.data());
  };
  const auto follow_in = [&](Column& column, const std::byte* new_items) {
    if (column.item_size() == 0) return;
    follow(column.resize(one.list, std::max(one.before, one.after)), new_items, column.item_size());
    column.resize(one.list, one.after);
  };
  const Place place = places_[one.list];
  follow(place.codes, fresh.codes, code_size_);
  follow(place.ids, fresh.ids, sizeof(std::int64_t));
  follow_in(homes_, fresh.homes);
  follow_in(vectors_, fresh.vectors);
  // For rows appended to an unsorted list, these are only the new labels.
  std::byte* labels = labels_.resize(one.list, one.after);
  const std::size_t kept = one.after - one.labels.size();
  copy_bytes(reinterpret_cast<const std::byte*>(one.labels.data()), labels + kept * sizeof(std::int32_t),
             one.labels.size() * sizeof(std::int32_t));
  sizes_[one.list] = one.after;
  if (one.after == 0) places_[one.list] = {};
}

void Table::apply(Change& change, const Fresh& fresh) noexcept {
  const auto new_ids = numbers<std::int64_t>(fresh.ids, change.fresh);
  const std::int64_t greatest = new_ids.empty() ? -1 : *std::max_element(new_ids.begin(), new_ids.end());
  bool gone = false;  // the greatest id
  if (greatest_id_ && greatest < *greatest_id_)
    for_each_removed(change, [&](std::int64_t id) { gone |= id == *greatest_id_; });
  if (gone) greatest_id_.reset();
  if (ids_) follow_ids(*ids_, change, fresh);
  std::atomic<std::size_t> next{0};
  const auto take_lists = [&](Scratch& scratch) {
    for (std::size_t i = next++; i < change.lists.size(); i = next++) apply_to_list(change.lists[i], fresh, scratch);
  };
  std::vector<std::thread> helpers;
  const auto start_helper = [&](Scratch& scratch) {
    try {
      helpers.emplace_back(take_lists, std::ref(scratch));
      return true;
    } catch (const std::exception&) {
      return false;  // fewer helpers do
    }
  };
  for (std::size_t t = 1; t < scratch_.size() && start_helper(scratch_[t]); ++t) continue;
  take_lists(scratch_[0]);
  for (std::thread& helper : helpers) helper.join();
  n_ = n_ + change.fresh - change.removed;
  if (greatest_id_) greatest_id_ = std::max(*greatest_id_, greatest);
}

}  // namespace cfe
