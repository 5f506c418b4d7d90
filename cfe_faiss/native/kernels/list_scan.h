// The scan of a query's lists: float products screen the rows, those that may matter are scored.
#pragma once

#include "core/scan.h"
#include "kernels/codecs.h"

namespace cfe::CFE_LEVEL {

// Calls take(list, place) for each row of a query's lists that may be its evidence, with where the row lies; a row that
// several lists lead to is met as often.
template <class Take>
CFE_INLINE void for_each_row(const ListsView& lists, const ListQuery& query, const Take& take) {
  const RowsView& rows = lists.rows;
  for (std::size_t t = 0; t < query.lists.size(); ++t) {
    if (query.lists[t] < 0) continue;
    const auto list = static_cast<std::size_t>(query.lists[t]);
    if (list < rows.nlist) {
      const auto start = static_cast<std::size_t>(rows.starts[list]);
      const std::size_t size = static_cast<std::size_t>(rows.starts[list + 1]) - start;
      const EligiblePlaces places = eligible_places(rows.labels + start, size, query.label);
      for (int side = 0; side < 2; ++side)
        for (std::size_t place = places.first[side]; place < places.stop[side]; ++place)
          if (query.allows(start + place)) take(list, place);
      continue;
    }
    for_each_member(
        lists, list,
        [&](std::int64_t row)
            CFE_LAMBDA { return rows.labels[row] != query.label && rows.labels[row] != kUnknown && query.allows(row); },
        take);
  }
}

// Rows that wait until there are enough of them to be screened at once.
template <Codec codec>
struct RowScreen {
  const RowsView& rows;
  const float* x;
  const float* weights;
  float* buffer;
  float offset;
  double margin;
  bool deduplicate;
  TopK best;
  std::size_t waiting = 0;
  const std::uint8_t* codes[kScreened] = {};
  const std::int64_t* ids[kScreened] = {};

  CFE_INLINE void add(const std::uint8_t* row, const std::int64_t* id) {
    codes[waiting] = row, ids[waiting] = id;
    if (++waiting == kScreened) score(kScreened);
  }
  CFE_INLINE void finish() {
    if (waiting == 0) return;
    const std::size_t count = waiting;
    for (; waiting < kScreened; ++waiting) codes[waiting] = codes[0];
    score(count);
  }

 private:
  void score(std::size_t count) {
    float products[kScreened];
    screen_rows<codec>(weights, rows.d, codes, products);
    waiting = 0;
    for (std::size_t r = 0; r < count; ++r) {
      // What is not a number tells nothing: a damaged row may hold anything.
      if (products[r] + offset < static_cast<float>(best.worst() - margin)) continue;
      const float s = score_row<codec>(rows, x, codes[r], buffer);
      if (deduplicate)
        best.push_once(s, *ids[r]);
      else
        best.push(s, *ids[r]);
    }
  }
};

template <Codec codec>
void scan_lists_of(const ListsView& lists, const ListQuery& query, double margin, float* buffer, TopK best) {
  const RowsView& rows = lists.rows;
  float* weights = buffer + rows.d;
  const float offset = screening_weights<codec>(rows, query.x, weights);
  RowScreen<codec> screen{rows, query.x, weights, buffer, offset, margin, lists.deduplicate(), best};
  for_each_row(lists, query, [&](std::size_t list, std::size_t place) CFE_LAMBDA {
    screen.add(rows.codes[list] + rows.row_size * place, rows.ids[list] + place);
  });
  screen.finish();
}

// Pushes the eligible rows of a query's lists. `margin` bounds the error of a screening product; `buffer` is (2 * d,).
void scan_lists(const ListsView& lists, const ListQuery& query, double margin, float* buffer,
                TopK best){CFE_WITH_CODEC(lists.rows.codec, scan_lists_of, lists, query, margin, buffer, best)}

// --- by product-quantizer codes ---

// Writes the inner product of each part of x with each of its codewords.
CFE_INLINE void codeword_products(const float* x, const PqView& pq, float* table) {
  for (std::size_t part = 0; part < pq.parts; ++part)
    for (std::size_t c = 0; c < kCodewords; c += kLanes) {
      F16 total = F16::all(0);
      for (std::size_t i = part * pq.width; i < (part + 1) * pq.width; ++i)
        total = total + F16::all(x[i]) * F16::load(pq.codewords + i * kCodewords + c);
      total.store(table + part * kCodewords + c);
    }
}

// The sum of what a code says to look up; its order is fixed, so that equal codes have equal sums.
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
  std::size_t size;

  CFE_INLINE static bool worse_row(const NearRow& a, const NearRow& b) { return worse(a.score, a.id, b.score, b.id); }
  CFE_INLINE bool holds(std::int64_t id) const {
    bool found = false;
    for (std::size_t place = 0; place < size; ++place) found |= heap[place].id == id;
    return found;
  }
  CFE_INLINE void push(const NearRow& row, bool deduplicate) const {
    if (!worse_row(heap[0], row) || (deduplicate && holds(row.id))) return;
    std::size_t place = 0;
    for (;;) {
      std::size_t child = 2 * place + 1;
      if (child >= size) break;
      if (child + 1 < size && worse_row(heap[child + 1], heap[child])) ++child;
      if (!worse_row(heap[child], row)) break;
      heap[place] = heap[child];
      place = child;
    }
    heap[place] = row;
  }
};

// Pushes those rows of a query's lists that are best by their codes, scored by their vectors, which are float32. Among
// rows of equal codes smaller ids are kept.
void scan_codes(const ListsView& lists, const PqView& pq, const ListQuery& query, const PqScratch& scratch, TopK best) {
  const RowsView& rows = lists.rows;
  float *table = scratch.table.data(), *to_centroids = scratch.to_centroids.data();
  codeword_products(query.x, pq, table);
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t list = 0; list < rows.nlist; ++list) to_centroids[list] = unknown;
  const NearestRows nearest{scratch.nearest.data(), scratch.nearest.size()};
  for (std::size_t place = 0; place < nearest.size; ++place) nearest.heap[place] = {kPadding, kNoId, nullptr};
  const bool deduplicate = lists.deduplicate();
  for_each_row(lists, query, [&](std::size_t list, std::size_t place) CFE_LAMBDA {
    float& along = to_centroids[list];
    if (along != along) along = similarity(query.x, pq.centroids + list * rows.d, rows.d);
    const float s = along + looked_up(table, rows.pq_codes[list] + place * pq.parts, pq.parts);
    if (s >= nearest.heap[0].score)
      nearest.push({s, rows.ids[list][place], rows.codes[list] + rows.row_size * place}, deduplicate);
  });
  for (std::size_t place = 0; place < nearest.size; ++place) {
    const NearRow& row = nearest.heap[place];
    if (row.codes == nullptr) continue;
    best.push(similarity(query.x, reinterpret_cast<const float*>(row.codes), rows.d), row.id);
  }
}

}  // namespace cfe::CFE_LEVEL
