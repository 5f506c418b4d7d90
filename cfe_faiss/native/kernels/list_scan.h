// The scan of a query's lists where FAISS keeps them. Rows are screened by float products, 16 at a time, and the others
// become candidates, as in a scan of blocks.
#pragma once

#include "core/scan.h"
#include "kernels/block_candidates.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr std::size_t kMostLanes = std::size_t{1} << 30;  // rows numbered from the first one
// A larger score may be of a damaged row: of unit vectors, or of others.
inline constexpr float kSoundUnit = 1e15f, kSound = 1e31f;
inline constexpr float kNoOnes = 0x1p-60f;

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
      const EligiblePlaces places = eligible_places(rows.labels_of(list), size, query.label, query.filter.policy);
      for (int side = 0; side < 2; ++side)
        for (std::size_t first = places.first[side], stop; first < places.stop[side]; first = stop + 1) {
          stop = places.stop[side];
          if (query.filter.allowed != nullptr)
            for (stop = first; stop < places.stop[side] && query.filter.allows(start + stop);) ++stop;
          if (first < stop) take(list, first, stop);
        }
      continue;
    }
    for_each_member(lists, list, [&](std::size_t home, std::size_t place) CFE_LAMBDA {
      const std::int32_t label = rows.labels_of(home)[place];
      const std::size_t row = static_cast<std::size_t>(rows.starts[home]) + place;
      if (query.filter.admits(query.label, label) && query.filter.allows(row)) take(home, place, place + 1);
    });
  }
}

inline constexpr std::size_t kTested = 64;       // rows whose labels are tested together
inline constexpr std::size_t kPrefetched = 256;  // bytes of a row; the processor then fetches the rest of it by itself

// Compares consecutive rows where they are, and gathers the others. While 16 of these are compared, the next 16 are
// prefetched.
template <Codec codec, Metric kMetric>
struct RowScan {
  static constexpr bool kDistance = kMetric == Metric::kL2;
  Scan& scan;
  const float* weights;
  F32x16 last;   // of the weights
  float offset;  // added to products
  float largest = kSound;
  std::size_t gathered = 0;
  const std::uint8_t* codes[kTested + 2 * kLanes] = {};
  std::int32_t lanes[kTested + 2 * kLanes] = {};

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
        compare(side_by_side, lanes_from(static_cast<std::size_t>(lane)), some, nullptr);
        left -= some, lane += static_cast<std::int32_t>(some), code += some * row_size;
      }
      for (; left > 0; --left, ++lane, code += row_size) codes[gathered] = code, lanes[gathered++] = lane;
      if (gathered >= 2 * kLanes) compare_gathered(kLanes);
    }
  }

  // Takes the eligible rows of the only list, whose labels may have any order.
  CFE_INLINE void add_unsorted(const ListQuery& query) {
    const RowsView& rows = scan.blocks.rows;
    const auto n = static_cast<std::size_t>(rows.starts[1]);
    // Labels from `least` to `least + more` may be found, but not `skipped`.
    const bool own_class = query.filter.policy == Policy::kOwn, others = query.filter.policy == Policy::kOther;
    const std::int32_t least = own_class ? query.label : others ? kUnknown + 1 : kUnknown;
    const std::uint32_t more = own_class ? 0 : std::uint32_t{1} << 31;
    const std::int32_t skipped = others ? query.label : kNoLabel;
    for (std::size_t first = 0; first < n; first += kTested) {
      std::int32_t lane = number(static_cast<std::int64_t>(first));
      const std::size_t stop = std::min(n, first + kTested);
      for (std::size_t row = first; row < stop; ++row, ++lane) {
        const std::int32_t label = rows.labels[row];
        codes[gathered] = rows.codes[0] + rows.row_size * row, lanes[gathered] = lane;
        gathered += (static_cast<std::uint32_t>(label - least) <= more) & (label != skipped) & query.filter.allows(row);
      }
      compare_gathered(kLanes);
    }
  }

  // Compares the rows that are left.
  CFE_INLINE void finish() {
    compare_gathered(0);
    if (gathered == 0) return;
    for (std::size_t r = gathered; r < kLanes; ++r) codes[r] = codes[0];
    compare(codes, I32x16::load(lanes), gathered, nullptr);
    gathered = 0;
  }

 private:
  // Compares gathered rows, 16 at a time, while at least `others` follow.
  CFE_OUTLINE void compare_gathered(std::size_t others) {
    std::size_t first = 0;
    for (; first + kLanes + others <= gathered; first += kLanes)
      compare(codes + first, I32x16::load(lanes + first), kLanes, others > 0 ? codes + first + kLanes : nullptr);
    if (first == 0) return;
    gathered -= first;
    for (std::size_t i = 0; i < gathered; ++i) codes[i] = codes[first + i], lanes[i] = lanes[first + i];
  }
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
  // Compares the first `count` of 16 rows, and prefetches 16 others. NaN excludes nothing: a damaged row may hold
  // anything.
  CFE_INLINE void compare(const std::uint8_t* const* some, const I32x16& numbers, std::size_t count,
                          const std::uint8_t* const* next) const {
    const std::size_t row_size = scan.blocks.rows.row_size;
    Float4 four[kLanes / kScreened] = {}, different[kLanes / kScreened] = {};
    for (std::size_t r = 0; r < count; r += kScreened) {
      for (std::size_t i = r; next != nullptr && i < r + kScreened; ++i)
        for (std::size_t byte = 0; byte < row_size && byte < kPrefetched; byte += kCacheLine)
          __builtin_prefetch(next[i] + byte);
      four[r / kScreened] = screen_rows<codec, kDistance>(scan.blocks.rows, weights, last, some + r);
      if constexpr (kMetric == Metric::kTanimoto)
        different[r / kScreened] = screen_rows<codec, true>(scan.blocks.rows, weights, last, some + r);
    }
    const Mask own = 0xFFFFu >> (kLanes - count);
    F32x16 sums = kDistance ? F32x16::all(0) - joined(four) : joined(four) + F32x16::all(offset);
    if constexpr (kMetric == Metric::kTanimoto) {  // a small number makes 1 of two rows of zeros
      sums = sums + F32x16::all(kNoOnes);
      sums = sums / (sums + joined(different));
    }
    const Mask sound = at_least(F32x16::all(largest), absolute(sums));
    const Mask reach = (at_least(sums, F32x16::all(scan.memory.queries.threshold[0])) | ~sound) & own;
    if (reach == 0) return;
    const bool damaged = (~sound & own) != 0;
    if (damaged) score_candidates(scan, 0);
    add_candidates(scan, 0, numbers, reach, sums, sums);
    if (damaged) score_candidates(scan, 0);
  }
};

template <Codec codec, Metric kMetric>
CFE_INLINE void scan_all_lists(const ListsView& lists, const ListQuery& query, Scan& scan) {
  float* weights = scan.memory.block;
  const float offset = screening_weights<codec, kMetric == Metric::kL2>(lists.rows, query.x, weights);
  RowScan<codec, kMetric> rows{scan, weights, last_weights(weights, lists.rows.d), offset};
  if (lists.rows.metric == Metric::kCosine) rows.largest = kSoundUnit;
  if (lists.rows.sorted)
    for_each_run(lists, query, [&](std::size_t list, std::size_t first, std::size_t stop) CFE_LAMBDA {
      rows.add(list, first, stop);
    });
  else
    rows.add_unsorted(query);
  rows.finish();
}

template <Codec codec>
void scan_lists_of(const ListsView& lists, const ListQuery& query, Scan& scan) {
  if (lists.rows.metric == Metric::kL2) return scan_all_lists<codec, Metric::kL2>(lists, query, scan);
  if constexpr (codec == Codec::kFlat)
    if (lists.rows.metric == Metric::kTanimoto) return scan_all_lists<codec, Metric::kTanimoto>(lists, query, scan);
  scan_all_lists<codec, Metric::kIp>(lists, query, scan);
}

// Adds the best of the eligible rows of a query's lists to its results. `margin` bounds the error of a screening
// score, see margin_of.
void scan_lists(const ListsView& lists, const ListQuery& query, float margin, const SearchMemory& memory, TopK best) {
  BlocksView rows{};
  rows.rows = lists.rows;
  rows.margin = 2 * margin;  // covers the rounding of sums with it
  const GroupView group{.X = query.x,
                        .labels = &query.label,
                        .size = 1,
                        .lists = nullptr,
                        .nprobe = 0,
                        .k = best.k,
                        .copies = lists.copies,
                        .resume = true,
                        .D = best.D,
                        .I = best.I,
                        .filter = query.filter.of_allowed()};
  Scan scan{rows, group, memory, query.label, false, margin_of(rows, group)};
  begin_results(scan, 0);
  CFE_WITH_CODEC(lists.rows.codec, scan_lists_of, lists, query, scan)
  end_all_results(scan);
}

// --- by product-quantizer codes ---

// Writes the inner product of each part of x with each of its codewords, or minus their squared distance.
template <bool kDistance>
CFE_INLINE void codeword_scores(const float* x, const PqView& pq, float* table) {
  for (std::size_t part = 0; part < pq.parts; ++part)
    for (std::size_t c = 0; c < kCodewords; c += kLanes) {
      F32x16 total = F32x16::all(0);
      for (std::size_t i = part * pq.width; i < (part + 1) * pq.width; ++i) {
        const F32x16 own = F32x16::all(x[i]), codewords = F32x16::load(pq.codewords + i * kCodewords + c);
        if constexpr (kDistance)
          total = total - (own - codewords) * (own - codewords);
        else
          total = total + own * codewords;
      }
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
  const bool distance = rows.metric == Metric::kL2;
  float *table = memory.table.data(), *to_centroids = memory.to_centroids.data(), *rest = memory.rest.data();
  if (!distance) codeword_scores<false>(query.x, pq, table);
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t list = 0; list < rows.nlist; ++list) to_centroids[list] = unknown;
  NearCodes near{memory, lists.copies};
  for_each_run(lists, query, [&](std::size_t list, std::size_t first, std::size_t stop) CFE_LAMBDA {
    const float* centroid = pq.centroids + list * rows.d;
    float& along = to_centroids[list];
    if (distance && along != along) {  // the table is of a list, whose runs follow one another
      for (std::size_t i = 0; i < rows.d; ++i) rest[i] = query.x[i] - centroid[i];
      codeword_scores<true>(rest, pq, table);
    }
    if (along != along) along = distance ? 0 : similarity(query.x, centroid, rows.d);
    for (std::size_t place = first; place < stop; ++place) {
      if (query.filter.tests && (query.filter.excludes_label(0, rows.labels_of(list)[place]) ||
                                 query.filter.excludes_id(0, rows.ids[list][place])))
        continue;
      near.add(along + looked_up(table, rows.pq_codes[list] + place * pq.parts, pq.parts), rows.ids[list][place],
               rows.codes[list] + rows.row_size * place);
    }
  });
  near.keep_best();
  for (std::size_t i = 0; i < near.count; ++i)
    memory.scores[i] = score_of(rows.metric, query.x, reinterpret_cast<const float*>(memory.codes[i]), rows.d);
  if (query.filter.in_range)
    near.count = keep_in_range(query.filter, 0, near.count, memory.scores.data(), memory.ids.data());
  best.clear();
  best_scores(memory.scores.data(), memory.ids.data(), near.count, best.k, lists.copies, memory.selection.data(),
              best.D, best.I);
}

}  // namespace cfe::CFE_LEVEL::block
