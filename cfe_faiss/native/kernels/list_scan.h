// The scan of a query's lists: float products screen the rows, and rows that may be results are scored.
#pragma once

#include "core/scan.h"
#include "kernels/codecs.h"

namespace cfe::CFE_LEVEL {

// Calls take(list, first, stop) for consecutive rows of a query's lists that may be its evidence. A row in several
// lists is visited several times.
template <class Take>
CFE_INLINE void for_each_run(const ListsView& lists, const ListQuery& query, const Take& take) {
  const RowsView& rows = lists.rows;
  for (std::size_t t = 0; t < query.lists.size(); ++t) {
    if (query.lists[t] < 0) continue;
    const auto list = static_cast<std::size_t>(query.lists[t]);
    if (list < rows.nlist) {
      const auto start = static_cast<std::size_t>(rows.starts[list]);
      const std::size_t size = static_cast<std::size_t>(rows.starts[list + 1]) - start;
      const EligiblePlaces places = eligible_places(rows.labels[list], size, query.label);
      for (int side = 0; side < 2; ++side)
        for (std::size_t first = places.first[side], stop; first < places.stop[side]; first = stop + 1) {
          stop = places.stop[side];
          if (query.allowed != nullptr)
            for (stop = first; stop < places.stop[side] && query.allows(start + stop);) ++stop;
          if (first < stop) take(list, first, stop);
        }
      continue;
    }
    for_each_member(
        lists, list,
        [&](std::size_t home, std::size_t place) CFE_LAMBDA {
          const std::int32_t label = rows.labels[home][place];
          return label != query.label && label != kUnknown &&
                 query.allows(static_cast<std::size_t>(rows.starts[home]) + place);
        },
        [&](std::size_t home, std::size_t place) CFE_LAMBDA { take(home, place, place + 1); });
  }
}

// Rows gathered until there are enough for screening.
template <Codec codec>
struct RowScreen {
  const RowsView& rows;
  const float* x;
  const float* weights;
  F32x16 last;  // of the weights
  float* buffer;
  float offset;   // added to products, so that they bound similarities
  IdTable* held;  // null if no row is in two lists
  TopK best;
  std::size_t gathered = 0;
  const std::uint8_t* codes[kScreened] = {};
  std::int64_t ids[kScreened] = {};

  // Consecutive rows.
  CFE_INLINE void add(const std::uint8_t* row, const std::int64_t* id, std::size_t count) {
    for (; count >= kScreened; count -= kScreened, row += kScreened * rows.row_size, id += kScreened) {
      const std::uint8_t* side_by_side[kScreened];
      for (std::size_t r = 0; r < kScreened; ++r) side_by_side[r] = row + r * rows.row_size;
      const Float4 bounds = upper_bounds(side_by_side);
      if (reach(bounds))
        for (std::size_t r = 0; r < kScreened; ++r) score(bounds[r], side_by_side[r], id[r]);
    }
    for (; count > 0; --count, row += rows.row_size, ++id) {
      codes[gathered] = row, ids[gathered] = *id;
      if (++gathered == kScreened) finish();
    }
  }
  // The same; only the eligible rows are taken, although all are read.
  CFE_INLINE void add_eligible(const std::uint8_t* row, const std::int64_t* id, std::size_t count,
                               const bool* eligible) {
    std::size_t first = 0;
    for (; first + kScreened <= count; first += kScreened) {
      const std::uint8_t* side_by_side[kScreened];
      for (std::size_t r = 0; r < kScreened; ++r) side_by_side[r] = row + (first + r) * rows.row_size;
      const Float4 bounds = upper_bounds(side_by_side);
      if (reach(bounds))
        for (std::size_t r = 0; r < kScreened; ++r)
          if (eligible[first + r]) score(bounds[r], side_by_side[r], id[first + r]);
    }
    for (; first < count; ++first)
      if (eligible[first]) add(row + first * rows.row_size, id + first, 1);
  }
  void finish() {
    for (std::size_t r = gathered; gathered > 0 && r < kScreened; ++r) codes[r] = codes[0];
    if (gathered == 0) return;
    const Float4 bounds = upper_bounds(codes);
    if (reach(bounds))
      for (std::size_t r = 0; r < gathered; ++r) score(bounds[r], codes[r], ids[r]);
    gathered = 0;
  }

 private:
  CFE_INLINE Float4 upper_bounds(const std::uint8_t* const* four) const {
    return screen_rows<codec>(weights, last, rows.d, four) + offset;
  }
  // NaN excludes nothing: a damaged row may hold anything.
  CFE_INLINE bool reach(const Float4& bounds) const {
    const auto below = bounds < best.worst();
    return (below[0] & below[1] & below[2] & below[3]) == 0;
  }
  void score(float bound, const std::uint8_t* row, std::int64_t id) const {
    if (bound < best.worst()) return;
    const float s = score_row<codec>(rows, x, row, buffer);
    if (held != nullptr)
      best.push_once(s, id, *held);
    else
      best.push(s, id);
  }
};

inline constexpr std::size_t kTested = 64;        // rows whose labels are tested together
inline constexpr std::size_t kWorthReading = 4;   // all rows are read if one in so many is eligible
inline constexpr std::size_t kInCache = 4 << 20;  // bytes of rows that a cache holds

// Adds the eligible rows of the only list, whose labels may have any order. Beyond the cache, memory is read in one
// stream rather than in many short ones.
template <Codec codec>
void add_unsorted(const RowsView& rows, const ListQuery& query, RowScreen<codec>& screen) {
  const auto n = static_cast<std::size_t>(rows.starts[1]);
  const bool in_cache = n * rows.row_size <= kInCache;
  for (std::size_t first = 0; first < n; first += kTested) {
    const std::size_t size = std::min(kTested, n - first);
    const std::uint8_t* codes = rows.codes[0] + rows.row_size * first;
    const std::int64_t* ids = rows.ids[0] + first;
    bool eligible[kTested];
    std::size_t places[kTested], count = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::int32_t label = rows.labels[0][first + i];
      eligible[i] = (label != query.label) & (label != kUnknown) & query.allows(first + i);
      places[count] = i;
      count += eligible[i];
    }
    if (count == size)
      screen.add(codes, ids, size);
    else if (!in_cache && count * kWorthReading >= size)
      screen.add_eligible(codes, ids, size, eligible);
    else
      for (std::size_t i = 0; i < count; ++i) screen.add(codes + rows.row_size * places[i], ids + places[i], 1);
  }
}

template <Codec codec>
void scan_lists_of(const ListsView& lists, const ListQuery& query, double margin, const ScanMemory& memory, TopK best) {
  const RowsView& rows = lists.rows;
  float* weights = memory.buffer + rows.d;
  IdTable held{memory.held.data(), memory.held.size(), 0};
  if (lists.deduplicate()) held.fill(best.I, best.k);
  // Twice the margin also covers the rounding of the sum with it.
  const float offset = screening_weights<codec>(rows, query.x, weights) + static_cast<float>(2 * margin);
  const F32x16 last = last_weights(weights, rows.d);
  RowScreen<codec> screen{rows, query.x, weights, last, memory.buffer, offset, lists.deduplicate() ? &held : nullptr,
                          best};
  if (rows.sorted) {
    for_each_run(lists, query, [&](std::size_t list, std::size_t first, std::size_t stop) CFE_LAMBDA {
      screen.add(rows.codes[list] + rows.row_size * first, rows.ids[list] + first, stop - first);
    });
  } else {
    add_unsorted(rows, query, screen);
  }
  screen.finish();
}

// Pushes the eligible rows of a query's lists. `margin` bounds the error of a screening product.
void scan_lists(const ListsView& lists, const ListQuery& query, double margin, const ScanMemory& memory,
                TopK best){CFE_WITH_CODEC(lists.rows.codec, scan_lists_of, lists, query, margin, memory, best)}

// --- by product-quantizer codes ---

// Writes the inner product of each part of x with each of its codewords.
CFE_INLINE void codeword_products(const float* x, const PqView& pq, float* table) {
  for (std::size_t part = 0; part < pq.parts; ++part)
    for (std::size_t c = 0; c < kCodewords; c += kLanes) {
      F32x16 total = F32x16::all(0);
      for (std::size_t i = part * pq.width; i < (part + 1) * pq.width; ++i)
        total = total + F32x16::all(x[i]) * F32x16::load(pq.codewords + i * kCodewords + c);
      total.store(table + part * kCodewords + c);
    }
}

// The sum of the table's entries for a code, in a fixed order, so that equal codes have equal sums.
CFE_INLINE float looked_up(const float* table, const std::uint8_t* code, std::size_t parts) {
  float sums[4] = {};
  std::size_t part = 0;
  for (; part + 4 <= parts; part += 4)
    for (std::size_t i = 0; i < 4; ++i) sums[i] += table[(part + i) * kCodewords + code[part + i]];
  for (; part < parts; ++part) sums[0] += table[part * kCodewords + code[part]];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The best rows by their codes: a heap, worst first.
struct NearestRows {
  NearRow* heap;
  std::int64_t* ids;  // of the same rows
  std::size_t size;

  CFE_INLINE static bool worse_row(const NearRow& a, const NearRow& b) { return worse(a.score, a.id, b.score, b.id); }
  CFE_INLINE void push(const NearRow& row, IdTable* held) const {
    if (!worse_row(heap[0], row) || (held != nullptr && !held->add(row.id, ids, size))) return;
    std::size_t place = 0;
    for (;;) {
      std::size_t child = 2 * place + 1;
      if (child >= size) break;
      if (child + 1 < size && worse_row(heap[child + 1], heap[child])) ++child;
      if (!worse_row(heap[child], row)) break;
      put(place, heap[child]);
      place = child;
    }
    put(place, row);
  }
  CFE_INLINE void put(std::size_t place, const NearRow& row) const { heap[place] = row, ids[place] = row.id; }
};

// Pushes the rows of a query's lists that are best by their codes, scored by their float32 vectors. Of equal codes,
// smaller ids are preferred.
void scan_codes(const ListsView& lists, const PqView& pq, const ListQuery& query, const PqScratch& scratch, TopK best) {
  const RowsView& rows = lists.rows;
  float *table = scratch.table.data(), *to_centroids = scratch.to_centroids.data();
  codeword_products(query.x, pq, table);
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t list = 0; list < rows.nlist; ++list) to_centroids[list] = unknown;
  const NearestRows nearest{scratch.nearest.data(), scratch.ids.data(), scratch.nearest.size()};
  for (std::size_t place = 0; place < nearest.size; ++place) nearest.put(place, {kPadding, kNoId, nullptr});
  IdTable table_of_ids{scratch.held.data(), scratch.held.size(), 0};
  IdTable* const held = lists.deduplicate() ? &table_of_ids : nullptr;
  if (held != nullptr) held->fill(scratch.ids.data(), scratch.ids.size());
  for_each_run(lists, query, [&](std::size_t list, std::size_t first, std::size_t stop) CFE_LAMBDA {
    float& along = to_centroids[list];
    if (along != along) along = similarity(query.x, pq.centroids + list * rows.d, rows.d);
    for (std::size_t place = first; place < stop; ++place) {
      const float s = along + looked_up(table, rows.pq_codes[list] + place * pq.parts, pq.parts);
      if (s >= nearest.heap[0].score)
        nearest.push({s, rows.ids[list][place], rows.codes[list] + rows.row_size * place}, held);
    }
  });
  for (std::size_t place = 0; place < nearest.size; ++place) {
    const NearRow& row = nearest.heap[place];
    if (row.codes == nullptr) continue;
    best.push(similarity(query.x, reinterpret_cast<const float*>(row.codes), rows.d), row.id);
  }
}

}  // namespace cfe::CFE_LEVEL
