// The candidates of a query. If k lower bounds reach a number, the k-th best similarity reaches it, too, so candidates
// whose upper bound does not reach it are dropped. The others are scored.
#pragma once

#include "kernels/block_queries.h"
#include "kernels/select.h"
#include "kernels/similarity.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kRowsInTurn = 8;
inline constexpr std::size_t kFewCandidates = 5;     // more than results: scoring them is as fast as dropping them
inline constexpr std::size_t kMostPrefetched = 128;  // results
inline constexpr std::size_t kFirstBytes = 256;      // of a row that are prefetched with other rows
inline constexpr std::size_t kRowsAhead = 2;         // of a row that is prefetched as a whole

// Bounds the error of a screening score: `absolute` + `relative` times the size of the score.
struct Margin {
  float absolute, relative;
};

// Exceeds what underflow takes from a sum of d terms, for each term.
inline constexpr float kUnderflow = 0x1p-125f;

// The margin of a group. That of the blocks is the error for vectors of length 1: of inner products it grows with the
// length of the query, and that of distances is relative, as no differences of large numbers are formed. Bounds by
// bytes contain their errors, unless vectors have length 1, so that only thresholds and results are rounded.
CFE_INLINE Margin margin_of(const BlocksView& blocks, const GroupView& group) {
  const std::size_t d = blocks.rows.d;
  if (blocks.rows.metric == Metric::kCosine || blocks.rows.metric == Metric::kTanimoto) return {blocks.margin, 0};
  const float least = static_cast<float>(d + 2) * kUnderflow;
  if (blocks.rows.metric == Metric::kL2 || blocks.element != Element::kFloat) return {least, blocks.margin};
  double longest = 0;
  for (std::size_t q = 0; q < group.size; ++q) {
    const double square = sum_of_products(group.X + q * d, group.X + q * d, d);
    longest = square > longest ? square : longest;
  }
  return {blocks.margin * static_cast<float>(__builtin_sqrt(longest)) + least, 0};
}

// Arguments of a group's scan.
struct Scan {
  const BlocksView& blocks;
  const GroupView& group;
  const SearchMemory& memory;
  std::int32_t label;  // of all queries of the group, unless `mixed`
  bool mixed;          // whether the queries have several labels
  Margin margin;
  const std::int64_t* first_blocks = nullptr;  // of the lists: with their rows of unknown label, or without
  // Rows outside of blocks have lanes, too: row r has lane r - first_row.
  std::int64_t first_row = 0;

  CFE_INLINE std::size_t row(std::size_t q) const { return group.order != nullptr ? group.order[q] : q; }
  CFE_INLINE float* D(std::size_t q) const { return group.D + row(q) * group.k; }
  CFE_INLINE std::int64_t* I(std::size_t q) const { return group.I + row(q) * group.k; }
};

// A score less `errors` times the margin.
CFE_INLINE float lowered(const Scan& scan, float score, float errors = 1) {
  return score - errors * (scan.margin.absolute + scan.margin.relative * __builtin_fabsf(score));
}

CFE_INLINE float screening_threshold(const Scan& scan, float lowered) {
  return CFE_LEVEL::screening_threshold(scan.blocks.rows.metric, scan.margin.absolute, lowered);
}

CFE_INLINE StoredRow candidate_row(const Scan& scan, std::int32_t lane) {
  const BlocksView& blocks = scan.blocks;
  if (blocks.runs == nullptr)
    return stored_row(blocks.rows, blocks.lane_rows != nullptr ? blocks.lane_rows[lane] : scan.first_row + lane);
  const RowRun& run = blocks.runs[lane / kLanes];
  return {run.codes + blocks.rows.row_size * static_cast<std::size_t>(lane % kLanes), run.ids[lane % kLanes]};
}

// The number of a candidate's row in the index, or in its side of a tile.
CFE_INLINE std::size_t candidate_number(const Scan& scan, std::int32_t lane) {
  const BlocksView& blocks = scan.blocks;
  if (blocks.runs != nullptr) return static_cast<std::size_t>(blocks.runs[lane / kLanes].row + lane % kLanes);
  return static_cast<std::size_t>(blocks.lane_rows != nullptr ? blocks.lane_rows[lane] : scan.first_row + lane);
}

CFE_INLINE std::int32_t candidate_label(const Scan& scan, std::int32_t lane) {
  return scan.blocks.labels != nullptr ? scan.blocks.labels[lane] : scan.blocks.rows.labels[scan.first_row + lane];
}

CFE_INLINE float score_row(const BlocksView& blocks, const double* wide, const std::uint8_t* code, float* x) {
  const bool in_place = blocks.rows.codec == Codec::kFlat && reinterpret_cast<std::uintptr_t>(code) % 4 == 0;
  if (!in_place) decode(blocks.rows, code, x);
  const float* row = in_place ? reinterpret_cast<const float*>(code) : x;
  return score_of(blocks.rows.metric, wide, row, blocks.rows.d);
}

// Prefetches at most `most` bytes of each row.
CFE_INLINE void prefetch_candidates(const Scan& scan, const std::int32_t* lanes, std::size_t count, std::size_t most) {
  if (scan.blocks.runs == nullptr) return;
  const std::size_t size = scan.blocks.rows.row_size < most ? scan.blocks.rows.row_size : most;
  for (std::size_t c = 0; c < count; ++c) {
    const std::uint8_t* code = candidate_row(scan, lanes[c]).code;
    for (std::size_t i = 0; i < size; i += kCacheLine) __builtin_prefetch(code + i);
  }
}

CFE_INLINE void raise_threshold(const Scan& scan, std::size_t q, float threshold) {
  const QueryStatistics& queries = scan.memory.queries;
  threshold = screening_threshold(scan, threshold);
  if (!(threshold > queries.threshold[q])) return;
  queries.threshold[q] = threshold;
  if (scan.blocks.element == Element::kByte)
    queries.wanted[q] = (threshold - queries.high[q]) * queries.inverse_scale[q];
}

// Writes the scores and ids of some candidates. The sum over a short row is one chain of additions, so several short
// rows take turns.
template <bool kDistance>
CFE_INLINE void score_rows(const Scan& scan, const std::int32_t* lanes, std::size_t count, float* scores,
                           std::int64_t* ids) {
  const BlocksView& blocks = scan.blocks;
  const double* wide = scan.memory.wide;
  const std::size_t d = blocks.rows.d;
  std::size_t c = 0;
  const bool is_sum = blocks.rows.metric != Metric::kTanimoto;
  if (is_sum && blocks.rows.codec == Codec::kFlat && d < static_cast<std::size_t>(kLanes)) {
    for (; c + kRowsInTurn <= count; c += kRowsInTurn) {
      const std::uint8_t* codes[kRowsInTurn];
      double totals[kRowsInTurn] = {};
      for (std::size_t r = 0; r < kRowsInTurn; ++r) {
        const StoredRow row = candidate_row(scan, lanes[c + r]);
        codes[r] = row.code, ids[c + r] = row.id;
      }
      for (std::size_t i = 0; i < d; ++i)
        for (std::size_t r = 0; r < kRowsInTurn; ++r)
          totals[r] += term_of<kDistance>(wide[i], number_at(reinterpret_cast<const float*>(codes[r]) + i));
      for (std::size_t r = 0; r < kRowsInTurn; ++r) {
        scores[c + r] = rounded_similarity(kDistance ? -totals[r] : totals[r]);
        if (blocks.rows.metric == Metric::kCosine)
          scores[c + r] = cosine_of(scores[c + r], wide, reinterpret_cast<const float*>(codes[r]), d);
      }
    }
  }
  for (; c < count; ++c) {
    const bool ahead = blocks.rows.row_size > kFirstBytes && c + kRowsAhead < count;
    if (ahead) prefetch_candidates(scan, lanes + c + kRowsAhead, 1, blocks.rows.row_size);
    const StoredRow row = candidate_row(scan, lanes[c]);
    scores[c] = score_row(blocks, wide, row.code, scan.memory.row), ids[c] = row.id;
  }
}

// Whether query q may find the row of a lane. An exact score is computed only if its upper bound exceeds the range.
CFE_OUTLINE bool admits(const Scan& scan, std::size_t q, std::int32_t lane, float upper) {
  const FilterView& filter = scan.group.filter;
  const std::size_t query = scan.row(q), d = scan.blocks.rows.d;
  if (filter.allowed != nullptr && !filter.allowed[candidate_number(scan, lane)]) return false;
  if (filter.columns > 0 && !filter.fits(query, candidate_number(scan, lane))) return false;
  if (filter.labels_each > 0 && filter.excludes_label(query, candidate_label(scan, lane))) return false;
  const bool may_be_equal = filter.high < 1 && upper >= screening_threshold(scan, 1);
  const bool may_exceed = may_be_equal || !(-lowered(scan, -upper, 2) <= filter.high);
  if (filter.ids_each == 0 && !may_exceed) return true;
  const StoredRow row = candidate_row(scan, lane);
  if (filter.excludes_id(query, row.id)) return false;
  if (!may_exceed) return true;
  for (std::size_t i = 0; i < d; ++i) scan.memory.wide[i] = scan.group.X[q * d + i];
  return score_row(scan.blocks, scan.memory.wide, row.code, scan.memory.row) <= filter.high;
}

// The lanes of the mask whose rows query q may find. Only these become candidates, because k candidates raise the
// threshold: a row that the rules exclude must never do so. (A warm-up, which sees bounds only, raises it by rank
// k + m, where m ids are excluded, and not at all under other rules; see warms_up.)
CFE_OUTLINE Mask admitted(const Scan& scan, std::size_t q, const I32x16& lanes, Mask mask, const F32x16& upper) {
  std::int32_t numbers[kLanes];
  float bounds[kLanes];
  lanes.store(numbers);
  upper.store(bounds);
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = __builtin_ctz(left);
    if (!admits(scan, q, numbers[i], bounds[i])) mask &= ~(Mask{1} << i);
  }
  return mask;
}

// Keeps the scores within the range of a filter, from `first` to `stop` - 1. Returns the end of those kept.
CFE_INLINE std::size_t keep_in_range(const FilterView& filter, std::size_t first, std::size_t stop, float* scores,
                                     std::int64_t* ids) {
  std::size_t kept = first;
  for (std::size_t i = first; i < stop; ++i)
    if (filter.holds(scores[i])) scores[kept] = scores[i], ids[kept++] = ids[i];
  return kept;
}

// Scores all candidates of a query. The k best of these and of its results so far become its results.
CFE_OUTLINE void score_candidates(const Scan& scan, std::size_t q) {
  const CandidateBuffer buffer = scan.memory.candidates;
  const std::size_t d = scan.blocks.rows.d, k = scan.group.k, count = buffer.counts[q], found = buffer.found[q];
  if (count == 0) return;
  const std::int32_t* lanes = buffer.lanes + q * buffer.capacity;
  prefetch_candidates(scan, lanes, count, kFirstBytes);
  for (std::size_t i = 0; i < d; ++i) scan.memory.wide[i] = scan.group.X[q * d + i];
  float *D = scan.D(q), *scores = scan.memory.scores;
  std::int64_t *I = scan.I(q), *ids = scan.memory.ids;
  std::memcpy(scores, D, found * sizeof *scores);
  std::memcpy(ids, I, found * sizeof *ids);
  if (scan.blocks.rows.metric == Metric::kL2)
    score_rows<true>(scan, lanes, count, scores + found, ids + found);
  else
    score_rows<false>(scan, lanes, count, scores + found, ids + found);
  const FilterView& filter = scan.group.filter;
  const std::size_t stop = filter.in_range ? keep_in_range(filter, found, found + count, scores, ids) : found + count;
  buffer.found[q] = best_scores(scores, ids, stop, k, scan.group.copies, scan.memory.selection, D, I);
  buffer.counts[q] = 0;
  if (buffer.found[q] == k) raise_threshold(scan, q, lowered(scan, D[k - 1]));
}

// Keeps the candidates whose upper bound reaches the threshold.
CFE_INLINE void keep_reaching(const Scan& scan, std::size_t q) {
  const CandidateBuffer& buffer = scan.memory.candidates;
  const std::size_t count = buffer.counts[q];
  const bool coded = scan.blocks.element != Element::kFloat;
  float *lower = buffer.lower + q * buffer.capacity, *upper = coded ? buffer.upper + q * buffer.capacity : lower;
  std::int32_t* lanes = buffer.lanes + q * buffer.capacity;
  const F32x16 threshold = F32x16::all(scan.memory.queries.threshold[q]);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += kLanes) {
    const F32x16 lows = F32x16::load(lower + i), highs = F32x16::load(upper + i);
    const I32x16 some = I32x16::load(lanes + i);
    Mask mask = at_least(highs, threshold);
    if (count - i < kLanes) mask &= (1u << (count - i)) - 1;
    compress(some, mask, lanes + kept);
    compress(lows, mask, lower + kept);
    if (coded) compress(highs, mask, upper + kept);
    kept += count_bits(mask);
  }
  buffer.counts[q] = kept;
}

// Drops candidates of up to 16 queries that at least k others exceed. Skips queries with up to `least` candidates;
// `least` is at least k times the copies of a row.
CFE_OUTLINE void drop_candidates(const Scan& scan, std::size_t first, std::size_t number, std::size_t least) {
  const CandidateBuffer& buffer = scan.memory.candidates;
  NumberRows rows{buffer.lower + first * buffer.capacity, buffer.capacity, {}};
  Brackets brackets;
  bool too_many = false;
  for (std::size_t r = 0; r < number; ++r) {
    float* lower = buffer.lower + (first + r) * buffer.capacity;
    const std::size_t count = buffer.counts[first + r];
    rows.sizes[r] = count > least ? padded(count) : 0;
    for (std::size_t i = count; i < rows.sizes[r]; ++i) lower[i] = -kInfinite;
    too_many |= count > least;
  }
  if (!too_many) return;
  kth_bounds(rows, number, scan.group.k * scan.group.copies, brackets);
  for (std::size_t r = 0; r < number; ++r) {
    if (rows.sizes[r] == 0) continue;
    raise_threshold(scan, first + r, lowered(scan, brackets.low[r], 2));
    keep_reaching(scan, first + r);
  }
}

// Makes room for 16 candidates. Copies of rows lower the bound that enough candidates reach. Outside of blocks all
// candidates are then scored, as results hold each row once.
CFE_OUTLINE void make_room(const Scan& scan, std::size_t q) {
  drop_candidates(scan, q, 1, scan.group.k * scan.group.copies);
  const bool repeated = scan.group.copies > 1 && scan.blocks.data == nullptr;
  if (repeated || scan.memory.candidates.counts[q] > scan.memory.candidates.enough / 2) score_candidates(scan, q);
}

CFE_INLINE I32x16 lanes_from(std::size_t first) {
  alignas(64) static constexpr std::int32_t kNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return I32x16::load(kNumbers) + I32x16::all(static_cast<std::int32_t>(first));
}
CFE_INLINE I32x16 lanes_of_block(std::size_t b) { return lanes_from(b * kLanes); }

// Adds the candidates of the lanes in the mask.
CFE_INLINE void add_candidates(const Scan& scan, std::size_t q, const I32x16& lanes, Mask mask, const F32x16& lower,
                               const F32x16& upper) {
  if (scan.group.filter.tests) {
    mask = admitted(scan, q, I32x16{lanes}, mask, F32x16{upper});  // copies, so that the others stay in registers
    if (mask == 0) return;
  }
  const CandidateBuffer buffer = scan.memory.candidates;
  std::size_t& count = buffer.counts[q];
  const std::size_t end = q * buffer.capacity + count;
  compress(lower, mask, buffer.lower + end);
  if (scan.blocks.element != Element::kFloat) compress(upper, mask, buffer.upper + end);
  compress(lanes, mask, buffer.lanes + end);
  count += count_bits(mask);
  if (count > buffer.enough) make_room(scan, q);
}

CFE_INLINE void add_candidate(const Scan& scan, std::size_t q, std::int32_t lane, float product) {
  if (scan.group.filter.tests && !admits(scan, q, lane, product)) return;
  const CandidateBuffer buffer = scan.memory.candidates;
  const std::size_t end = q * buffer.capacity + buffer.counts[q];
  buffer.lower[end] = product, buffer.lanes[end] = lane;
  if (++buffer.counts[q] > buffer.enough) make_room(scan, q);
}

// Counts the results that a query has already, and sets its threshold.
CFE_INLINE void begin_results(const Scan& scan, std::size_t q) {
  const std::size_t k = scan.group.k;
  const TopK best{scan.D(q), scan.I(q), k};
  const std::size_t found = scan.group.resume ? best.found() : 0;
  scan.memory.candidates.found[q] = found;
  scan.memory.candidates.counts[q] = 0;
  for (std::size_t i = 0; i < k && i < kMostPrefetched; i += kCacheLine / sizeof *best.I) {
    __builtin_prefetch(best.D + i, 1);
    __builtin_prefetch(best.I + i, 1);
  }
  float& threshold = scan.memory.queries.threshold[q];
  threshold = found == k ? lowered(scan, best.D[k - 1]) : kPadding;
  const FilterView& filter = scan.group.filter;
  if (filter.in_range && lowered(scan, filter.low) > threshold) threshold = lowered(scan, filter.low);
  threshold = screening_threshold(scan, threshold);
}

// Scores the last candidates of a query and fills up its results.
CFE_INLINE void end_results(const Scan& scan, std::size_t q) {
  score_candidates(scan, q);
  float* D = scan.D(q);
  std::int64_t* I = scan.I(q);
  for (std::size_t i = scan.memory.candidates.found[q]; i < scan.group.k; ++i) D[i] = kPadding, I[i] = -1;
}

// The same for all queries of the group. Drops some candidates first.
CFE_INLINE void end_all_results(const Scan& scan) {
  const GroupView& group = scan.group;
  for (std::size_t q = 0; q < group.size; q += kLanes)
    drop_candidates(scan, q, group.size - q < kLanes ? group.size - q : kLanes,
                    group.k * group.copies + kFewCandidates);
  for (std::size_t q = 0; q < group.size; ++q) end_results(scan, q);
}

}  // namespace cfe::CFE_LEVEL::block
