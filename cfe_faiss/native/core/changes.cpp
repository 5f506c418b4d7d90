#include "core/changes.h"

#include <cassert>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <ranges>

#include "core/parallel.h"

namespace cfe {

namespace {

constexpr std::size_t kBytesOfThread = std::size_t{4} << 20;
constexpr std::size_t kBulk = 8;  // with more rows per id, each id is looked up in a set of all ids

Shared new_memory(std::size_t size) { return Shared(new std::byte[size], std::default_delete<const std::byte[]>()); }

// Memory that has not been shared yet.
std::byte* writable(const Shared& memory) { return const_cast<std::byte*>(memory.get()); }

template <class Number>
std::span<const Number> numbers(const std::byte* data, std::size_t count) {
  return {reinterpret_cast<const Number*>(data), count};
}

// Puts rows behind the rows that a change of a list has placed so far.
void place_rows(ListChange& change, std::size_t source, std::size_t count, bool is_new) {
  const std::size_t place = std::exchange(change.after, change.after + count);
  if (count == 0 || (!is_new && source == place)) return;
  if (!change.moves.empty()) {
    Move& last = change.moves.back();
    if (last.is_new == is_new && last.source + last.count == source && last.place + last.count == place) {
      last.count += count;
      return;
    }
  }
  change.moves.push_back({source, place, count, is_new});
}

// A new row of a list, and the index of the stored row before which it is inserted.
struct Arrival {
  std::size_t list, place;
  std::int32_t label;  // 0 if the list is not sorted by label
  std::size_t row;
  auto operator<=>(const Arrival&) const = default;
};

// Removes rows of a list, and inserts others.
ListChange change_of_list(std::size_t list, std::span<const std::int32_t> stored, std::vector<std::size_t> removed,
                          std::span<const Arrival> arrivals, std::span<const std::int32_t> labels) {
  ListChange change(list, stored.size());
  std::size_t next = 0;
  const auto keep_until = [&](std::size_t stop) {
    if (next != change.after || !change.labels.empty())
      change.labels.insert(change.labels.end(), stored.begin() + next, stored.begin() + stop);
    place_rows(change, next, stop - next, false);
    next = stop;
  };
  auto hole = removed.begin();
  const auto keep_before = [&](std::size_t stop) {
    for (; hole != removed.end() && *hole < stop; ++hole, ++next) keep_until(*hole);
    keep_until(stop);
  };
  for (const Arrival& arrival : arrivals) {
    keep_before(arrival.place);
    place_rows(change, arrival.row, 1, true);
    change.labels.push_back(labels[arrival.row]);
  }
  keep_before(stored.size());
  change.removed = std::move(removed);
  return change;
}

bool moves_up(const Move& move) { return !move.is_new && move.source < move.place; }
bool moves_down(const Move& move) { return !move.is_new && move.source > move.place; }
bool moves_both_ways(const ListChange& change) {
  return std::ranges::any_of(change.moves, moves_up) && std::ranges::any_of(change.moves, moves_down);
}

// Moves the items of a list and copies new ones. No item is overwritten before it has moved: items that move down go
// first to last, items that move up last to first, and if there are both, all are copied to `buffer` first.
void move_items(const ListChange& change, std::byte* items, const std::byte* new_items, std::size_t size,
                std::byte* buffer) {
  const std::byte* stored = items;
  const auto take = [&](const Move& move) {
    const std::byte* from = (move.is_new ? new_items : stored) + move.source * size;
    std::memmove(items + move.place * size, from, move.count * size);
  };
  if (moves_both_ways(change)) {
    std::copy_n(items, change.before * size, buffer);
    stored = buffer;
  } else if (std::ranges::any_of(change.moves, moves_up)) {
    std::ranges::for_each(std::views::reverse(change.moves), take);
    return;
  }
  std::ranges::for_each(change.moves, take);
}

}  // namespace

// --- columns ---

const std::byte* Column::data(std::size_t list) const {
  return lists_[list].shared != nullptr ? lists_[list].shared.get() : lists_[list].memory.data();
}

void Column::rest_on(Shared base, std::span<const std::size_t> sizes) noexcept {
  base_ = std::move(base);
  const std::byte* place = base_.get();
  for (std::size_t list = 0; list < lists_.size(); ++list) {
    lists_[list] = {Shared(base_, place), {}};
    place += sizes[list] * item_size_;
  }
}

Shared Column::copied(std::span<const std::size_t> sizes) const {
  Shared base = new_memory(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) * item_size_);
  std::byte* place = writable(base);
  for (std::size_t list = 0; list < lists_.size(); ++list)
    place = std::copy_n(data(list), sizes[list] * item_size_, place);
  return base;
}

void Column::make_room(std::size_t list, std::size_t count, std::size_t wanted) {
  auto& [shared, memory] = lists_[list];
  if (shared == nullptr && memory.capacity() >= wanted * item_size_) return;
  std::vector<std::byte> larger;
  larger.reserve((wanted > count ? std::max(wanted, count + count / 2) : wanted) * item_size_);
  larger.insert(larger.end(), data(list), data(list) + count * item_size_);
  memory.swap(larger);
  shared.reset();
  base_.reset();
}

std::byte* Column::resize(std::size_t list, std::size_t count) noexcept {
  assert(lists_[list].shared == nullptr && lists_[list].memory.capacity() >= count * item_size_);
  lists_[list].memory.resize(count * item_size_);
  return lists_[list].memory.data();
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

bool Table::is_as_left(const InvertedLists& lists, const Change* change) const {
  const auto is_there = [&](std::size_t list) {
    return lists.size(list) == sizes_[list] && (sizes_[list] == 0 || lists.ids(list) == places_[list].ids);
  };
  if (change != nullptr) return std::ranges::all_of(change->lists, is_there, &ListChange::list);
  return std::ranges::all_of(std::views::iota(std::size_t{0}, nlist()), is_there);
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
  RowsMemory memory{.starts = {0}, .codes = {}, .ids = {}, .labels = {}, .pq_codes = {}, .sorted = sorted};
  memory.labels.reserve(n_);
  for (std::size_t list = 0; list < nlist(); ++list) {
    const auto* codes = reinterpret_cast<const std::uint8_t*>(places_[list].codes);
    memory.starts.push_back(memory.starts.back() + static_cast<std::int64_t>(sizes_[list]));
    memory.codes.push_back(coded ? reinterpret_cast<const std::uint8_t*>(vectors_.data(list)) : codes);
    if (coded) memory.pq_codes.push_back(codes);
    memory.ids.push_back(ids_of(list).data());
    memory.labels.insert(memory.labels.end(), labels_of(list).begin(), labels_of(list).end());
  }
  if (coded) memory.pq_code_size = code_size_;
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
  return vectors_.base() != nullptr ? vectors_.base() : vectors_.copied(sizes_);
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
  const auto each_home = [this](const auto& take) {
    std::int32_t row = 0;  // n < 2**31
    for (std::size_t list = 0; list < nlist(); ++list) {
      const std::int32_t* homes = numbers<std::int32_t>(homes_.data(list), sizes_[list] * further_).data();
      for (std::size_t place = 0; place < sizes_[list]; ++place, ++row)
        for (std::size_t p = 0; p < further_; ++p) take(row, p * nlist() + static_cast<std::size_t>(*homes++));
    }
  };
  each_home([&](std::int32_t, std::size_t list) { ++result->starts[list + 1]; });
  std::partial_sum(result->starts.begin(), result->starts.end(), result->starts.begin());
  std::vector<std::int64_t> next = result->starts;
  each_home([&](std::int32_t row, std::size_t list) { result->rows[next[list]++] = row; });
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

Change Table::replacement(std::span<const std::int64_t> rows, std::span<const std::int32_t> lists,
                          std::span<const std::int32_t> labels, bool sorted) const {
  assert(labels.size() == lists.size() && (sorted || nlist() == 1));
  Change change;
  change.added = lists.size();
  change.removed = rows.size();
  if (!sorted && rows.empty() && !lists.empty()) {  // rows behind the others
    ListChange& one = change.lists.emplace_back(0, n_);
    one.after = n_;
    place_rows(one, 0, lists.size(), true);
    one.labels.assign(labels.begin(), labels.end());
    return change;
  }
  std::vector<std::int64_t> removed_rows(rows.begin(), rows.end());
  std::ranges::sort(removed_rows);
  const bool distinct = std::ranges::adjacent_find(removed_rows) == removed_rows.end();
  require(distinct && all_below(rows, n_), "rows must be distinct rows");
  std::vector<Arrival> arrivals;
  arrivals.reserve(lists.size());
  for (std::size_t row = 0; row < lists.size(); ++row) {
    const auto list = static_cast<std::size_t>(lists[row]);
    const auto stored = labels_of(list);
    if (sorted)
      arrivals.push_back({list,
                          static_cast<std::size_t>(std::ranges::upper_bound(stored, labels[row]) - stored.begin()),
                          labels[row], row});
    else
      arrivals.push_back({list, row < rows.size() ? static_cast<std::size_t>(rows[row]) : n_, 0, row});
  }
  if (!std::ranges::is_sorted(arrivals)) std::ranges::sort(arrivals);  // rows that are appended are in order
  std::size_t start = 0, next_row = 0, next_arrival = 0;
  for (std::size_t list = 0; list < nlist(); start += sizes_[list++]) {
    std::vector<std::size_t> removed;
    for (; next_row < rows.size() && static_cast<std::size_t>(removed_rows[next_row]) < start + sizes_[list];
         ++next_row)
      removed.push_back(static_cast<std::size_t>(removed_rows[next_row]) - start);
    const std::size_t first = next_arrival;
    while (next_arrival < arrivals.size() && arrivals[next_arrival].list == list) ++next_arrival;
    if (removed.empty() && first == next_arrival) continue;
    change.lists.push_back(change_of_list(list, labels_of(list), std::move(removed),
                                          std::span(arrivals).subspan(first, next_arrival - first), labels));
  }
  return change;
}

Change Table::relabelling(std::span<const std::int64_t> rows, std::span<const std::int32_t> labels, bool sorted) const {
  assert(rows.size() == labels.size());
  Change change;
  std::size_t start = 0, next_row = 0;
  for (std::size_t list = 0; list < nlist() && next_row < rows.size(); start += sizes_[list++]) {
    if (static_cast<std::size_t>(rows[next_row]) >= start + sizes_[list]) continue;
    const auto stored = labels_of(list);
    std::vector<std::int32_t> new_labels(stored.begin(), stored.end());
    for (; next_row < rows.size() && static_cast<std::size_t>(rows[next_row]) < start + sizes_[list]; ++next_row)
      new_labels[static_cast<std::size_t>(rows[next_row]) - start] = labels[next_row];
    if (std::ranges::equal(new_labels, stored)) continue;
    ListChange& one = change.lists.emplace_back(list, stored.size());
    if (!sorted) {
      one.after = one.before;
      one.labels = std::move(new_labels);
      continue;
    }
    std::vector<std::size_t> order(stored.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t row) { return new_labels[row]; });
    one.labels.reserve(order.size());
    for (const std::size_t row : order) {
      place_rows(one, row, 1, false);
      one.labels.push_back(new_labels[row]);
    }
  }
  return change;
}

void Table::make_room(const Change& change, int threads) {
  std::size_t longest = 0, rows = 0;  // numbers of rows: the most that a buffer must hold, and all in the lists
  homes_by_row();
  for (const ListChange& one : change.lists) {
    labels_.make_room(one.list, one.before, one.after);
    homes_.make_room(one.list, one.before, one.after);
    vectors_.make_room(one.list, one.before, one.after);
    rows += std::max(one.before, one.after);
    if (moves_both_ways(one)) longest = std::max(longest, one.before);
  }
  const std::size_t useful = std::min(change.lists.size(), rows * (code_size_ + vectors_.item_size()) / kBytesOfThread);
  buffers_.resize(std::clamp<std::size_t>(useful, 1, static_cast<std::size_t>(std::max(threads, 1))));
  const std::size_t item_size = std::max({code_size_, sizeof(std::int64_t), homes_.item_size(), vectors_.item_size()});
  for (auto& buffer : buffers_) buffer.resize(longest * item_size);
  if (ids_) ids_->make_room(change.added);
}

// Notes the ids that lists lose and gain, before their rows move. An id may leave one list and enter another.
void Table::follow_ids(const Change& change, std::span<const std::int64_t> new_ids) noexcept {
  bool removes_greatest = false;
  for (const ListChange& one : change.lists)
    for (const std::size_t place : one.removed) {
      const std::int64_t id = ids_of(one.list)[place];
      removes_greatest |= greatest_id_ == id;
      if (ids_) ids_->remove(id);
    }
  const std::int64_t greatest = new_ids.empty() ? -1 : std::ranges::max(new_ids);
  if (removes_greatest && greatest < greatest_id_) greatest_id_.reset();
  if (greatest_id_) greatest_id_ = std::max(*greatest_id_, greatest);
  if (!ids_) return;
  for (const ListChange& one : change.lists)
    for (const Move& move : one.moves)
      for (std::size_t row = move.source; move.is_new && row < move.source + move.count; ++row)
        ids_->add(new_ids[row], static_cast<std::int32_t>(one.list));
}

void Table::apply_to_list(const ListChange& change, const NewRows& rows, std::byte* buffer) noexcept {
  const auto move_in = [&](Column& column, const std::byte* new_items) {
    if (column.item_size() == 0) return;
    std::byte* items = column.resize(change.list, std::max(change.before, change.after));
    move_items(change, items, new_items, column.item_size(), buffer);
    column.resize(change.list, change.after);
  };
  move_items(change, places_[change.list].codes, rows.codes, code_size_, buffer);
  move_items(change, places_[change.list].ids, rows.ids, sizeof(std::int64_t), buffer);
  move_in(homes_, rows.homes);
  move_in(vectors_, rows.vectors);
  auto* labels = reinterpret_cast<std::int32_t*>(labels_.resize(change.list, change.after));
  std::ranges::copy(change.labels, labels + (change.after - change.labels.size()));
  sizes_[change.list] = change.after;
  if (change.after == 0) places_[change.list] = {};
}

void Table::apply(const Change& change, const NewRows& rows) noexcept {
  follow_ids(change, numbers<std::int64_t>(rows.ids, change.added));
  std::atomic<std::size_t> next{0};
  const auto take_lists = [&](std::size_t thread) {
    for (std::size_t i = next++; i < change.lists.size(); i = next++)
      apply_to_list(change.lists[i], rows, buffers_[thread].data());
  };
  parallel_for(buffers_.size(), static_cast<int>(buffers_.size()), std::ref(take_lists), {});
  for (auto& buffer : buffers_) buffer = {};
  n_ = n_ + change.added - change.removed;
}

}  // namespace cfe
