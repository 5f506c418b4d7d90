// The candidates of a query: how they are cut by counting, scored, and put in order.
//
// Nothing here depends on a comparison of two scores by a branch. What k lower bounds reach is reached by the k-th best
// similarity, too; candidates whose upper bound does not reach that are dropped. The few that are left are scored, and
// the rank of each is how many are better.
#pragma once

#include "core/topk.h"
#include "kernels/block_queries.h"
#include "kernels/similarity.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr int kHalvings = 7;
inline constexpr std::size_t kMostRanked = 128;  // for more results, heaps are as good
inline constexpr std::size_t kCacheLine = 64;

CFE_INLINE std::size_t count_bits(Mask mask) { return static_cast<std::size_t>(__builtin_popcount(mask)); }

CFE_INLINE std::size_t padded(std::size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// For each of a few queries, the range in which a number lies that at least k of its numbers reach.
struct Brackets {
  float low[kLanes], high[kLanes];
};

// Rows of numbers, `stride` apart, of so many numbers each: a multiple of 16, -inf where there is none.
struct NumberRows {
  const float* numbers;
  std::size_t stride;
  std::size_t sizes[kLanes];
};

CFE_INLINE std::size_t count_reaching(const float* numbers, std::size_t size, float bound) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; i += kLanes) count += count_bits(at_least(F16::load(numbers + i), F16::all(bound)));
  return count;
}

// The smallest and the largest of numbers that are not -inf; none, the other way round, if there are fewer than k.
CFE_INLINE void bracket(const float* numbers, std::size_t size, std::size_t k, float* low, float* high) {
  F16 least = F16::all(kInfinite), most = F16::all(-kInfinite);
  const F16 nothing = most;
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; i += kLanes) {
    const F16 some = F16::load(numbers + i);
    const I16 there = some > nothing;
    least = smaller(select(there, some, least), least);
    most = larger(some, most);
    count += count_bits(bits(there));
  }
  float lows[kLanes], highs[kLanes];
  least.store(lows), most.store(highs);
  *low = lows[0], *high = highs[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    *low = lows[lane] < *low ? lows[lane] : *low;
    *high = highs[lane] > *high ? highs[lane] : *high;
  }
  if (count < k) *low = *high = -kInfinite;
}

// Finds for each of up to 16 rows a number that at least k of its numbers reach, and not many more: -inf if there are
// fewer. The rows take their steps in turn, so that none waits for its last one.
CFE_OUTLINE void kth_bounds(const NumberRows& rows, std::size_t number, std::size_t k, Brackets& brackets) {
  for (std::size_t r = 0; r < number; ++r)
    bracket(rows.numbers + r * rows.stride, rows.sizes[r], k, brackets.low + r, brackets.high + r);
  for (int halving = 0; halving < kHalvings; ++halving)
    for (std::size_t r = 0; r < number; ++r) {
      const float middle = 0.5f * brackets.low[r] + 0.5f * brackets.high[r];
      const bool enough = count_reaching(rows.numbers + r * rows.stride, rows.sizes[r], middle) >= k;
      brackets.low[r] = enough ? middle : brackets.low[r];
      brackets.high[r] = enough ? brackets.high[r] : middle;
    }
}

// Scores and ids, with room for a multiple of 16.
struct ScoredIds {
  float* scores;
  std::int64_t* ids;
};

// Writes the k best of m scores, or all if there are fewer, best first and of equals the smallest id. In `ranked` there
// is room for all: where each is to go is not known before, and a branch on whether it is among the best would often be
// mispredicted.
CFE_OUTLINE void rank(const ScoredIds& from, std::size_t m, std::size_t k, const ScoredIds& ranked, float* D,
                      std::int64_t* I) {
  const std::size_t end = padded(m);
  for (std::size_t c = m; c < end; ++c) from.scores[c] = -kInfinite;
  for (std::size_t c = 0; c < m; ++c) {
    const F16 score = F16::all(from.scores[c]);
    std::size_t not_better = 0, not_worse = 0;
    for (std::size_t i = 0; i < end; i += kLanes) {
      const F16 others = F16::load(from.scores + i);
      not_better += count_bits(at_least(score, others));
      not_worse += count_bits(at_least(others, score));
    }
    std::size_t place = end - not_better;
    if (not_worse > place + 1)
      for (std::size_t e = 0; e < m; ++e) place += from.scores[e] == from.scores[c] && from.ids[e] < from.ids[c];
    ranked.scores[place] = from.scores[c];
    ranked.ids[place] = from.ids[c];
  }
  const std::size_t number = m < k ? m : k;
  for (std::size_t place = 0; place < number; ++place) D[place] = ranked.scores[place];
  for (std::size_t place = 0; place < number; ++place) I[place] = ranked.ids[place];
}

// What a group's scan works with.
struct Scan {
  const BlocksView& blocks;
  const GroupView& group;
  const SearchMemory& memory;
  bool ranked;         // results are ranked by counting; else they are heaps
  std::int32_t label;  // of all queries of the group
  bool mixed;          // or they have several

  CFE_INLINE float* D(std::size_t q) const { return group.D + static_cast<std::size_t>(group.order[q]) * group.k; }
  CFE_INLINE std::int64_t* I(std::size_t q) const {
    return group.I + static_cast<std::size_t>(group.order[q]) * group.k;
  }
};

CFE_INLINE StoredRow candidate_row(const BlocksView& blocks, std::int32_t lane) {
  if (blocks.runs == nullptr) return stored_row(blocks.rows, blocks.lane_rows[lane]);
  const RowRun& run = blocks.runs[lane / kLanes];
  return {run.codes + blocks.rows.row_size * static_cast<std::size_t>(lane % kLanes), run.ids[lane % kLanes]};
}

CFE_INLINE float score_row(const BlocksView& blocks, const double* wide, const std::uint8_t* code, float* x) {
  const bool in_place = blocks.rows.codec == Codec::kFlat && reinterpret_cast<std::uintptr_t>(code) % 4 == 0;
  if (!in_place) decode(blocks.rows, code, x);
  const float* row = in_place ? reinterpret_cast<const float*>(code) : x;
  return static_cast<float>(sum_of_products(wide, row, blocks.rows.d));
}

CFE_INLINE void prefetch_candidates(const BlocksView& blocks, const std::int32_t* lanes, std::size_t count) {
  if (blocks.runs == nullptr) return;
  for (std::size_t c = 0; c < count; ++c) {
    const std::uint8_t* code = candidate_row(blocks, lanes[c]).code;
    for (std::size_t i = 0; i < blocks.rows.row_size; i += kCacheLine) __builtin_prefetch(code + i);
  }
}

CFE_INLINE void raise_threshold(const Scan& scan, std::size_t q, float threshold) {
  const QueryStatistics& queries = scan.memory.queries;
  if (!(threshold > queries.threshold[q])) return;
  queries.threshold[q] = threshold;
  if (scan.blocks.element == Element::kByte)
    queries.wanted[q] = (threshold - queries.along[q]) * queries.inverse_scale[q];
}

// What the last result of a query reaches: the least float while there are fewer than k.
CFE_INLINE float last_result(const Scan& scan, std::size_t q) {
  const std::size_t k = scan.group.k;
  if (!scan.ranked) return scan.D(q)[0];
  return scan.memory.candidates.found[q] == k ? scan.D(q)[k - 1] : kPadding;
}

// Scores all candidates of a query, and keeps the best of them and of its results.
CFE_OUTLINE void score_candidates(const Scan& scan, std::size_t q) {
  const CandidateBuffer buffer = scan.memory.candidates;
  const std::size_t d = scan.blocks.rows.d, k = scan.group.k, count = buffer.counts[q];
  if (count == 0) return;
  const std::int32_t* lanes = buffer.lanes + q * buffer.capacity;
  prefetch_candidates(scan.blocks, lanes, count);
  for (std::size_t i = 0; i < d; ++i) scan.memory.wide[i] = scan.group.X[q * d + i];
  float *D = scan.D(q), *scores = scan.memory.scores;
  std::int64_t *I = scan.I(q), *ids = scan.memory.ids;
  std::size_t m = 0;
  for (; scan.ranked && m < buffer.found[q]; ++m) scores[m] = D[m], ids[m] = I[m];
  const TopK heap{D, I, k};
  for (std::size_t c = 0; c < count; ++c) {
    const StoredRow row = candidate_row(scan.blocks, lanes[c]);
    const float score = score_row(scan.blocks, scan.memory.wide, row.code, scan.memory.row);
    if (scan.ranked)
      scores[m] = score, ids[m++] = row.id;
    else if (scan.group.deduplicate)
      heap.push_once(score, row.id);
    else
      heap.push(score, row.id);
  }
  if (scan.ranked) {
    const ScoredIds ranked{scores + scan.memory.scored, ids + scan.memory.scored};
    rank({scores, ids}, m, k, ranked, D, I);
    buffer.found[q] = m < k ? m : k;
  }
  buffer.counts[q] = 0;
  const float last = last_result(scan, q);
  if (last > kPadding) raise_threshold(scan, q, last - scan.blocks.margin);
}

// Keeps the candidates whose upper bound reaches the threshold.
CFE_INLINE void keep_reaching(const Scan& scan, std::size_t q) {
  const CandidateBuffer& buffer = scan.memory.candidates;
  const std::size_t count = buffer.counts[q];
  const bool bytes = scan.blocks.element == Element::kByte;
  float *lower = buffer.lower + q * buffer.capacity, *upper = bytes ? buffer.upper + q * buffer.capacity : lower;
  std::int32_t* lanes = buffer.lanes + q * buffer.capacity;
  const F16 threshold = F16::all(scan.memory.queries.threshold[q]);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += kLanes) {
    const F16 lows = F16::load(lower + i), highs = F16::load(upper + i);
    const I16 some = I16::load(lanes + i);
    Mask mask = at_least(highs, threshold);
    if (count - i < kLanes) mask &= (1u << (count - i)) - 1;
    compress(some, mask, lanes + kept);
    compress(lows, mask, lower + kept);
    if (bytes) compress(highs, mask, upper + kept);
    kept += count_bits(mask);
  }
  buffer.counts[q] = kept;
}

// Drops candidates of up to 16 queries that cannot be among their results, as at least k others are better; not those
// of queries that have no more than `least`, which is at least k.
CFE_OUTLINE void drop_candidates(const Scan& scan, std::size_t first, std::size_t number, std::size_t least) {
  const CandidateBuffer& buffer = scan.memory.candidates;
  if (scan.group.deduplicate) return;
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
  kth_bounds(rows, number, scan.group.k, brackets);
  for (std::size_t r = 0; r < number; ++r) {
    if (rows.sizes[r] == 0) continue;
    raise_threshold(scan, first + r, brackets.low[r] - 2 * scan.blocks.margin);
    keep_reaching(scan, first + r);
  }
}

// Makes room for 16 candidates.
CFE_OUTLINE void make_room(const Scan& scan, std::size_t q) {
  drop_candidates(scan, q, 1, scan.group.k);
  if (scan.memory.candidates.counts[q] > scan.memory.candidates.enough / 2) score_candidates(scan, q);
}

CFE_INLINE I16 lane_numbers(std::size_t b) {
  alignas(64) static constexpr std::int32_t kNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return I16::load(kNumbers) + I16::all(static_cast<std::int32_t>(b) * kLanes);
}

// Takes the lanes of a block that are in the mask.
CFE_INLINE void add_candidates(const Scan& scan, std::size_t q, std::size_t b, Mask mask, const F16& lower,
                               const F16& upper) {
  const CandidateBuffer buffer = scan.memory.candidates;
  std::size_t& count = buffer.counts[q];
  const std::size_t end = q * buffer.capacity + count;
  compress(lower, mask, buffer.lower + end);
  if (scan.blocks.element == Element::kByte) compress(upper, mask, buffer.upper + end);
  compress(lane_numbers(b), mask, buffer.lanes + end);
  count += count_bits(mask);
  if (count > buffer.enough) make_room(scan, q);
}

}  // namespace cfe::CFE_LEVEL::block
