// The scan of a query's lists where FAISS keeps them. Rows are screened by float products, 16 at a time, and the others
// become candidates, as in a scan of blocks.
#pragma once

#include "core/scan.h"
#include "kernels/block_candidates.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr std::size_t kMostLanes = std::size_t{1} << 30;  // rows numbered from the first one
inline constexpr float kSound = 1e15f;                           // a larger product may be of a damaged row

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

// Rows gathered until there are 16.
template <Codec codec>
struct RowScan {
  Scan& scan;
  const float* weights;
  F32x16 last;   // of the weights
  float offset;  // added to products
  int gathered = 0;
  const std::uint8_t* codes[kLanes] = {};
  std::int32_t lanes[kLanes] = {};

  // Takes consecutive rows of a list.
  CFE_INLINE void add(std::size_t list, std::size_t first, std::size_t stop) {
    const RowsView& rows = scan.blocks.rows;
    const std::size_t row_size = rows.row_size;
    for (std::size_t end; first < stop; first = end) {
      end = stop - first < kMostLanes ? stop : first + kMostLanes;
      std::int32_t lane = number(rows.starts[list] + static_cast<std::int64_t>(first));
      const std::uint8_t* code = rows.codes[list] + row_size * first;
      std::size_t left = end - first;
      while (left >= kScreened) {
        const std::size_t some = left < kLanes ? left / kScreened * kScreened : kLanes;
        const std::uint8_t* side_by_side[kLanes];
        for (std::size_t r = 0; r < kLanes; ++r) side_by_side[r] = code + r * row_size;
        compare(side_by_side, lanes_from(static_cast<std::size_t>(lane)), static_cast<int>(some), own_of(some));
        left -= some, lane += static_cast<std::int32_t>(some), code += some * row_size;
      }
      for (; left > 0; --left, ++lane, code += row_size) {
        codes[gathered] = code, lanes[gathered] = lane;
        if (++gathered == kLanes) finish();
      }
    }
  }

  // Takes the eligible ones of consecutive rows of list 0, although all are read.
  CFE_INLINE void add_eligible(std::size_t first, std::size_t stop, const bool* eligible) {
    const RowsView& rows = scan.blocks.rows;
    for (; first < stop; first += kLanes, eligible += kLanes) {
      const std::size_t some = std::min<std::size_t>(kLanes, stop - first);
      const std::uint8_t* side_by_side[kLanes];
      Mask own = 0;
      for (std::size_t r = 0; r < kLanes; ++r) {
        side_by_side[r] = rows.codes[0] + rows.row_size * (first + std::min(r, some - 1));
        own |= static_cast<Mask>(r < some && eligible[r]) << r;
      }
      const std::int32_t lane = number(static_cast<std::int64_t>(first));
      compare(side_by_side, lanes_from(static_cast<std::size_t>(lane)), static_cast<int>(some), own);
    }
  }

  // Compares the rows that have been gathered.
  CFE_INLINE void finish() {
    if (gathered == 0) return;
    for (int r = gathered; r < kLanes; ++r) codes[r] = codes[0];
    compare(codes, I32x16::load(lanes), gathered, own_of(static_cast<std::size_t>(gathered)));
    gathered = 0;
  }

 private:
  CFE_INLINE static Mask own_of(std::size_t count) { return 0xFFFFu >> (kLanes - count); }
  // Returns the lane of a row.
  CFE_INLINE std::int32_t number(std::int64_t row) {
    if (row < scan.first_row || row - scan.first_row >= static_cast<std::int64_t>(kMostLanes)) number_from(row);
    return static_cast<std::int32_t>(row - scan.first_row);
  }
  // Numbers the rows from another one on.
  CFE_OUTLINE void number_from(std::int64_t row) {
    finish();
    score_candidates(scan, 0);
    scan.first_row = row;
  }
  // Compares its own rows among the first `count` of 16. NaN excludes nothing: a damaged row may hold anything.
  CFE_INLINE void compare(const std::uint8_t* const* some, const I32x16& numbers, int count, Mask own) const {
    Float4 four[kLanes / kScreened] = {};
    for (int r = 0; r < count; r += kScreened)
      four[r / kScreened] = screen_rows<codec>(weights, last, scan.blocks.rows.d, some + r);
    const F32x16 sums = joined(four) + F32x16::all(offset);
    const Mask sound = at_least(F32x16::all(kSound), absolute(sums));
    const Mask reach = (at_least(sums, F32x16::all(scan.memory.queries.threshold[0])) | ~sound) & own;
    if (reach == 0) return;
    if ((~sound & own) == 0) return add_candidates(scan, 0, numbers, reach, sums, sums);
    score_candidates(scan, 0);
    add_candidates(scan, 0, numbers, reach, sums, sums);
    score_candidates(scan, 0);
  }
};

inline constexpr std::size_t kTested = 64;        // rows whose labels are tested together
inline constexpr std::size_t kWorthReading = 4;   // all rows are read if one in so many is eligible
inline constexpr std::size_t kInCache = 4 << 20;  // bytes of rows that a cache holds

// Adds the eligible rows of the only list, whose labels may have any order. Beyond the cache, memory is read in one
// stream rather than in many short ones.
template <Codec codec>
void add_unsorted(const RowsView& rows, const ListQuery& query, RowScan<codec>& scan) {
  const auto n = static_cast<std::size_t>(rows.starts[1]);
  const bool in_cache = n * rows.row_size <= kInCache;
  for (std::size_t first = 0; first < n; first += kTested) {
    const std::size_t stop = std::min(n, first + kTested);
    bool eligible[kTested];
    std::size_t places[kTested], count = 0;
    for (std::size_t row = first; row < stop; ++row) {
      const std::int32_t label = rows.labels[0][row];
      eligible[row - first] = (label != query.label) & (label != kUnknown) & query.allows(row);
      places[count] = row;
      count += eligible[row - first];
    }
    if (count == stop - first)
      scan.add(0, first, stop);
    else if (!in_cache && count * kWorthReading >= stop - first)
      scan.add_eligible(first, stop, eligible);
    else
      for (std::size_t i = 0; i < count; ++i) scan.add(0, places[i], places[i] + 1);
  }
}

template <Codec codec>
void scan_lists_of(const ListsView& lists, const ListQuery& query, Scan& scan) {
  float* weights = scan.memory.block;
  const float offset = screening_weights<codec>(lists.rows, query.x, weights);
  RowScan<codec> rows{scan, weights, last_weights(weights, lists.rows.d), offset};
  if (lists.rows.sorted)
    for_each_run(lists, query, [&](std::size_t list, std::size_t first, std::size_t stop) CFE_LAMBDA {
      rows.add(list, first, stop);
    });
  else
    add_unsorted(lists.rows, query, rows);
  rows.finish();
}

// Adds the best of the eligible rows of a query's lists to its results. `margin` bounds the error of a screening
// product.
void scan_lists(const ListsView& lists, const ListQuery& query, float margin, const SearchMemory& memory, TopK best) {
  BlocksView rows{};
  rows.rows = lists.rows;
  rows.margin = 2 * margin;  // covers the rounding of sums with it
  const GroupView group{query.x, &query.label, 1, nullptr, 0, best.k, lists.copies, true, nullptr, best.D, best.I};
  Scan scan{rows, group, memory, query.label, false};
  begin_results(scan, 0);
  CFE_WITH_CODEC(lists.rows.codec, scan_lists_of, lists, query, scan)
  end_all_results(scan);
}

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

// The rows that are best by their codes so far, and some others. Of equal codes, smaller ids are preferred.
struct NearCodes {
  const PqMemory& memory;
  std::size_t copies;
  std::size_t count = 0;
  float threshold = kPadding;

  CFE_INLINE void add(float score, std::int64_t id, const std::uint8_t* code) {
    if (!(score >= threshold)) return;
    memory.scores[count] = score, memory.ids[count] = id, memory.codes[count] = code;
    if (++count == memory.scores.size()) keep_best();
  }
  CFE_OUTLINE void keep_best() {
    const TopK& kept = memory.kept;
    if (best_scores(memory.scores.data(), memory.ids.data(), count, kept.k, copies, memory.selection.data(), kept.D,
                    kept.I) < kept.k)
      return;
    threshold = kept.D[kept.k - 1];
    std::size_t number = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float score = memory.scores[i];
      if (score < threshold || (score == threshold && memory.ids[i] > kept.I[kept.k - 1])) continue;
      memory.scores[number] = score, memory.ids[number] = memory.ids[i], memory.codes[number++] = memory.codes[i];
    }
    count = number;
  }
};

// Writes the best of the rows of a query's lists that are best by their codes, scored by their float32 vectors.
void scan_codes(const ListsView& lists, const PqView& pq, const ListQuery& query, const PqMemory& memory, TopK best) {
  const RowsView& rows = lists.rows;
  float *table = memory.table.data(), *to_centroids = memory.to_centroids.data();
  codeword_products(query.x, pq, table);
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t list = 0; list < rows.nlist; ++list) to_centroids[list] = unknown;
  NearCodes near{memory, lists.copies};
  for_each_run(lists, query, [&](std::size_t list, std::size_t first, std::size_t stop) CFE_LAMBDA {
    float& along = to_centroids[list];
    if (along != along) along = similarity(query.x, pq.centroids + list * rows.d, rows.d);
    for (std::size_t place = first; place < stop; ++place)
      near.add(along + looked_up(table, rows.pq_codes[list] + place * pq.parts, pq.parts), rows.ids[list][place],
               rows.codes[list] + rows.row_size * place);
  });
  near.keep_best();
  for (std::size_t i = 0; i < near.count; ++i)
    memory.scores[i] = similarity(query.x, reinterpret_cast<const float*>(memory.codes[i]), rows.d);
  best.clear();
  best_scores(memory.scores.data(), memory.ids.data(), near.count, best.k, lists.copies, memory.selection.data(),
              best.D, best.I);
}

}  // namespace cfe::CFE_LEVEL::block
