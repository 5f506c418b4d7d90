// A list-major scan: a group of queries is compared with the rows of its lists, block by block.
//
// Products of a few queries and the 16 rows of a block stay in registers. Rows below a query's threshold, or
// excluded by their label, never leave them. The others become candidates, and the remaining candidates are scored by
// `similarity` from the stored vectors: screening changes the time, never the result.
#pragma once

#include "kernels/block_candidates.h"
#include "kernels/block_single.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr float kRoundings = 8;                                    // see kernels/block_queries.h
inline constexpr int kTile = kWidth == kLanes ? 8 : kWidth == 8 ? 4 : 2;  // queries whose sums fit into registers

// --- queries ---

CFE_INLINE const std::int32_t* query_words(const Scan& scan, std::size_t q) {
  const std::size_t block = q / kLanes * scan.blocks.words * kLanes;
  const auto* words = scan.blocks.element == Element::kByte ? scan.memory.words
                                                            : reinterpret_cast<const std::int32_t*>(scan.memory.block);
  return words + block + q % kLanes;
}

// Start of a block of queries. Each number takes 16 floats, one per query.
CFE_INLINE float* query_lanes(const Scan& scan, std::size_t block) {
  return scan.memory.block + block * scan.blocks.rows.d * kLanes;
}

// Factors of a query's scale and of its thresholds: bounds of distances are compared in the unit of distances, since
// the scale of a short query may be too small for the numbers of the rows.
CFE_INLINE float scale_factor(const BlocksView& blocks) { return blocks.center != nullptr ? 2.0f : 1.0f; }

CFE_INLINE void encode_queries(const Scan& scan, std::size_t block) {
  const BlocksView& blocks = scan.blocks;
  const float* lanes = query_lanes(scan, block);
  if (blocks.center != nullptr) {
    for (std::size_t i = 0; i < blocks.rows.d; ++i)
      (F32x16::load(lanes + i * kLanes) - F32x16::all(blocks.center[i])).store(scan.memory.centred + i * kLanes);
    lanes = scan.memory.centred;
  }
  if (blocks.rotation != nullptr) {
    rotate(blocks, lanes, scan.memory.rotated);
    lanes = scan.memory.rotated;
  }
  std::int32_t* words = scan.memory.words + block * blocks.words * kLanes;
  const Codes codes = encode(blocks, lanes, largest_code(blocks.rows.d), kZeroCode, words);
  const QueryStatistics& queries = scan.memory.queries;
  const std::size_t q = block * kLanes;
  const F32x16 rotation_error = codes.norm * F32x16::all(blocks.rotation_error), inverse = F32x16::all(1) / codes.scale;
  ((codes.norm + rotation_error) * inverse).store(queries.norm + q);
  ((codes.error + rotation_error) * inverse).store(queries.error + q);
  ((codes.tail_norm + rotation_error) * inverse).store(queries.tail + q);
  (blocks.center != nullptr ? F32x16::all(1) : inverse).store(queries.inverse_scale + q);
  (codes.scale * scale_factor(blocks)).store(queries.scale + q);
}

// Rounds a single query to bytes.
CFE_INLINE void encode_single_query(const Scan& scan) {
  const BlocksView& blocks = scan.blocks;
  float* x = scan.memory.block;
  for (std::size_t i = 0; i < blocks.columns; ++i) x[i] = i < blocks.rows.d ? scan.group.X[i] : 0;
  for (std::size_t i = 0; blocks.center != nullptr && i < blocks.rows.d; ++i) x[i] -= blocks.center[i];
  if (blocks.rotation != nullptr) {
    rotate_single(blocks, x, scan.memory.rotated);
    x = scan.memory.rotated;
  }
  const SingleCodes codes = encode_single(blocks, x, largest_code(blocks.rows.d), kZeroCode, scan.memory.words);
  const QueryStatistics& queries = scan.memory.queries;
  const float rotation_error = codes.norm * blocks.rotation_error, inverse = 1 / codes.scale;
  queries.norm[0] = (codes.norm + rotation_error) * inverse;
  queries.error[0] = (codes.error + rotation_error) * inverse;
  queries.tail[0] = (codes.tail_norm + rotation_error) * inverse;
  queries.inverse_scale[0] = blocks.center != nullptr ? 1 : inverse;
  queries.scale[0] = codes.scale * scale_factor(blocks);
}

CFE_INLINE void begin_queries(const Scan& scan) {
  const std::size_t d = scan.blocks.rows.d, size = scan.group.size;
  if (size == 1 && scan.blocks.element == Element::kByte && is_sound(scan.group.X, d)) {
    begin_results(scan, 0);
    encode_single_query(scan);
    return;
  }
  for (std::size_t block = 0; block * kLanes < size; ++block) {
    float* lanes = query_lanes(scan, block);
    clear(lanes, d);
    for (std::size_t q = block * kLanes; q < (block + 1) * kLanes; ++q) {
      scan.memory.queries.threshold[q] = kInfinite;  // no candidates
      if (q >= size) continue;
      begin_results(scan, q);
      const float* x = scan.group.X + q * d;
      if (is_sound(x, d))
        put_lane(x, d, static_cast<int>(q % kLanes), lanes);
      else
        scan.memory.queries.threshold[q] = kInfinite;
    }
    if (scan.blocks.element == Element::kByte) encode_queries(scan, block);
  }
}

// --- labels ---

// The lanes of a block whose rows have another label than `label`.
CFE_INLINE Mask lanes_of_others(const BlocksView& blocks, std::size_t b, std::int32_t label) {
  const LabelRange& range = blocks.ranges[b];
  if (label < range.smallest || label > range.largest) return range.lanes;
  if (range.smallest == range.largest) return 0;
  return range.lanes & ~bits(I32x16::load(blocks.labels + b * kLanes) == I32x16::all(label));
}

// The lanes of a block whose rows a query of a label may find.
CFE_INLINE Mask eligible_lanes(const Scan& scan, std::size_t b, std::int32_t label) {
  const Mask others = lanes_of_others(scan.blocks, b, label);
  return scan.group.filter.policy == Policy::kOwn ? scan.blocks.ranges[b].lanes & ~others : others;
}

// The same for query q of a group with several labels; 0 after the last query.
CFE_INLINE Mask own_lanes(const Scan& scan, std::size_t q, std::size_t b) {
  return q < scan.group.size ? eligible_lanes(scan, b, scan.group.labels[q]) : 0;
}

// --- products ---

// Scores of Q queries with B blocks, for screening; the score of query r and block b is sums[b * Q + r].
template <int Q, int B>
CFE_INLINE void multiply_floats(const Scan& scan, std::size_t q, const std::size_t (&numbers)[B], F32x16* sums) {
  const std::size_t words = scan.blocks.words;
  const float* data[B];
  for (int b = 0; b < B; ++b) data[b] = reinterpret_cast<const float*>(scan.blocks.data + numbers[b] * words * kLanes);
  const auto* queries = reinterpret_cast<const float*>(query_words(scan, q));
  if (scan.blocks.rows.metric == Metric::kL2)
    dot_block<Q, B, true>(queries, kLanes, data, words, sums);
  else
    dot_block<Q, B>(queries, kLanes, data, words, sums);
}

// Adds the candidates among the products with Q queries.
template <int Q>
CFE_INLINE void take_candidates(const Scan& scan, std::size_t q, std::size_t b, Mask lanes, const F32x16* sums) {
  const float* thresholds = scan.memory.queries.threshold + q;
  Mask reach[Q], any_reaches = 0;
  for (int r = 0; r < Q; ++r) {
    reach[r] = at_least(sums[r], F32x16::all(thresholds[r])) & lanes;
    any_reaches |= reach[r];
  }
  if (any_reaches == 0) return;
  for (int r = 0; r < Q; ++r) {
    const Mask mask = scan.mixed && reach[r] != 0 ? reach[r] & own_lanes(scan, q + r, b) : reach[r];
    if (mask != 0) add_candidates(scan, q + r, lanes_of_block(b), mask, sums[r], sums[r]);
  }
}

// Adds the products of the words from `first` to `stop` of Q queries and a block.
template <int Q>
CFE_INLINE void add_byte_products(const std::int32_t* rows, const std::int32_t* data, std::size_t first,
                                  std::size_t stop, I32x16* sums) {
  constexpr int kChains = chains_of(Q);
  I32x16 chains[kChains][Q];
  for (int c = 0; c < kChains; ++c)
    for (int r = 0; r < Q; ++r) chains[c][r] = c == 0 ? sums[r] : I32x16::all(0);
  std::size_t i = first;
  for (; i + kChains <= stop; i += kChains)
    for (int c = 0; c < kChains; ++c) {
      const I32x16 column = I32x16::load(data + (i + c) * kLanes);
      for (int r = 0; r < Q; ++r)
        chains[c][r] = add_products(chains[c][r], I32x16::all(rows[(i + c) * kLanes + r]), column);
    }
  for (; i < stop; ++i) {
    const I32x16 column = I32x16::load(data + i * kLanes);
    for (int r = 0; r < Q; ++r) chains[0][r] = add_products(chains[0][r], I32x16::all(rows[i * kLanes + r]), column);
  }
  for (int r = 0; r < Q; ++r) {
    sums[r] = chains[0][r];
    for (int c = 1; c < kChains; ++c) sums[r] = sums[r] + chains[c][r];
  }
}

// The row statistics of a block.
struct BlockStatistics {
  I32x16 correction, tail_correction;
  F32x16 scale, error, norm, tail;

  CFE_INLINE explicit BlockStatistics(const std::int32_t* from) {
    const auto* floats = reinterpret_cast<const float*>(from);
    correction = I32x16::load(from + kCorrection * kLanes);
    tail_correction = I32x16::load(from + kTailCorrection * kLanes);
    scale = F32x16::load(floats + kScale * kLanes);
    error = F32x16::load(floats + kError * kLanes);
    norm = F32x16::load(floats + kNormBound * kLanes);
    tail = F32x16::load(floats + kTailNorm * kLanes);
  }
  // Largest difference between the product with query q and the product of the bytes, in units of the query's scale.
  CFE_INLINE F32x16 bound(const QueryStatistics& queries, std::size_t q) const {
    return fused(error, F32x16::all(queries.norm[q]), norm * F32x16::all(queries.error[q]));
  }
};

// Numbers of the rows of a block, for squared distances.
template <bool kDistance>
CFE_INLINE F32x16 added_numbers(const Scan& scan, std::size_t b) {
  if constexpr (!kDistance) return F32x16::all(0);
  return F32x16::load(scan.blocks.added + b * kLanes);
}

// Lanes whose bounds, in units of the scale of query q, reach its threshold.
template <bool kDistance>
CFE_INLINE Mask reaching(const QueryStatistics& queries, std::size_t q, const F32x16& bounds, const F32x16& added) {
  const F32x16 wanted = F32x16::all(queries.wanted[q]);
  return at_least(kDistance ? fused(bounds, F32x16::all(queries.scale[q]), added) : bounds, wanted);
}

// A bound of query q and its list, plus numbers of the rows.
template <bool kDistance>
CFE_INLINE F32x16 with_added(float bound, const F32x16& added) {
  return kDistance ? F32x16::all(bound) + added : F32x16::all(bound);
}

// Lanes that may reach the thresholds of Q queries, judged by their prefix and the length of their tail.
template <int Q, bool kDistance>
CFE_INLINE Mask reaching_by_prefix(const Scan& scan, std::size_t q, const BlockStatistics& rows, const I32x16* sums,
                                   const F32x16& added) {
  const QueryStatistics& queries = scan.memory.queries;
  Mask reach = 0;
  for (int r = 0; r < Q; ++r) {
    const F32x16 bound = fused(rows.tail, F32x16::all(queries.tail[q + r]), rows.bound(queries, q + r));
    reach |= reaching<kDistance>(queries, q + r, fused(to_float(sums[r]), rows.scale, bound), added);
  }
  return reach;
}

template <int Q, bool kDistance>
CFE_INLINE void scan_bytes(const Scan& scan, std::size_t q, std::size_t b, Mask lanes) {
  const std::size_t words = scan.blocks.words, prefix = scan.blocks.prefix;
  const QueryStatistics& queries = scan.memory.queries;
  const std::int32_t* query = query_words(scan, q);
  const std::int32_t* data = scan.blocks.data + b * words * kLanes;
  const BlockStatistics rows(scan.blocks.statistics + b * kRowStatistics * kLanes);
  const F32x16 added = added_numbers<kDistance>(scan, b);
  I32x16 sums[Q];
  for (int r = 0; r < Q; ++r) sums[r] = rows.correction - rows.tail_correction;
  add_byte_products<Q>(query, data, 0, prefix, sums);
  if (prefix < words) {
    if ((reaching_by_prefix<Q, kDistance>(scan, q, rows, sums, added) & lanes) == 0) return;
    for (int r = 0; r < Q; ++r) sums[r] = sums[r] + rows.tail_correction;
    add_byte_products<Q>(query, data, prefix, words, sums);
  }
  Mask reach[Q], any_reaches = 0;
  F32x16 products[Q], bounds[Q];
  for (int r = 0; r < Q; ++r) {
    products[r] = to_float(sums[r]) * rows.scale;
    bounds[r] = rows.bound(queries, q + r);
    reach[r] = reaching<kDistance>(queries, q + r, products[r] + bounds[r], added) & lanes;
    any_reaches |= reach[r];
  }
  if (any_reaches == 0) return;
  for (int r = 0; r < Q; ++r) {
    const Mask mask = scan.mixed && reach[r] != 0 ? reach[r] & own_lanes(scan, q + r, b) : reach[r];
    if (mask == 0) continue;
    const F32x16 scale = F32x16::all(queries.scale[q + r]);
    const F32x16 low = with_added<kDistance>(queries.low[q + r], added);
    const F32x16 high = with_added<kDistance>(queries.high[q + r], added);
    add_candidates(scan, q + r, lanes_of_block(b), mask, fused(products[r] - bounds[r], scale, low),
                   fused(products[r] + bounds[r], scale, high));
  }
}

// Bounds of the products of Q queries and a block's rows.
template <int Q, bool kDistance>
CFE_INLINE void bound_byte_products(const Scan& scan, std::size_t q, std::size_t b, F32x16* lower, F32x16* upper) {
  const std::size_t words = scan.blocks.words;
  const QueryStatistics& queries = scan.memory.queries;
  const BlockStatistics rows(scan.blocks.statistics + b * kRowStatistics * kLanes);
  const F32x16 added = added_numbers<kDistance>(scan, b);
  I32x16 sums[Q];
  for (int r = 0; r < Q; ++r) sums[r] = rows.correction;
  add_byte_products<Q>(query_words(scan, q), scan.blocks.data + b * words * kLanes, 0, words, sums);
  for (int r = 0; r < Q; ++r) {
    const F32x16 product = to_float(sums[r]) * rows.scale, bound = rows.bound(queries, q + r);
    const F32x16 scale = F32x16::all(queries.scale[q + r]);
    lower[r] = fused(product - bound, scale, with_added<kDistance>(queries.low[q + r], added));
    upper[r] = fused(product + bound, scale, with_added<kDistance>(queries.high[q + r], added));
  }
}

// Stores the upper bounds of block number `place`, and the largest lower bound of each lane.
template <int Q>
CFE_INLINE void keep_bounds(const Scan& scan, std::size_t q, std::size_t b, Mask lanes, std::size_t place,
                            const F32x16* lower, const F32x16* upper) {
  const WarmUp memory = scan.memory.warm_up;  // a copy, as stores may change the original as far as the compiler knows
  const std::size_t left = scan.group.size - q;
  float* const uppers = memory.upper + (q * memory.blocks + place) * kLanes;
  float* const maxima = memory.maxima + q * memory.width + place * kLanes % memory.width;
  const bool mixed = scan.mixed;
  const F32x16 nothing = F32x16::all(-kInfinite);
  I32x16 eligible = lanes_of(lanes);
  for (int r = 0; r < Q; ++r) {
    if (static_cast<std::size_t>(r) >= left) break;
    if (mixed) eligible = lanes_of(own_lanes(scan, q + r, b));
    select(eligible, upper[r], nothing).store(uppers + r * memory.blocks * kLanes);
    float* own = maxima + r * memory.width;
    larger(select(eligible, lower[r], nothing), F32x16::load(own)).store(own);
  }
}

// Adds the products of the first blocks that reach the threshold of a query. Returns false if there are too many.
CFE_INLINE bool take_products(const Scan& scan, std::size_t q, std::size_t filled) {
  const WarmUp memory = scan.memory.warm_up;
  const CandidateBuffer buffer = scan.memory.candidates;
  const F32x16 threshold = F32x16::all(scan.memory.queries.threshold[q]);
  const float* products = memory.upper + q * memory.blocks * kLanes;
  std::int32_t* kept = memory.kept;
  std::size_t number = 0;
  for (std::size_t place = 0; place < filled; ++place) {
    const Mask mask = at_least(F32x16::load(products + place * kLanes), threshold);
    if (kWidth < kLanes && mask == 0) continue;  // with AVX-512 a branch takes longer
    compress(lanes_of_block(place), mask, kept + number);
    number += count_bits(mask);
  }
  if (number > buffer.enough) return false;
  float* lower = buffer.lower + q * buffer.capacity;
  std::int32_t* lanes = buffer.lanes + q * buffer.capacity;
  for (std::size_t c = 0; c < number; ++c) {
    const auto own = static_cast<std::uint32_t>(kept[c]);
    lower[c] = products[own];
    lanes[c] = memory.seen[own / kLanes] * kLanes + static_cast<std::int32_t>(own % kLanes);
  }
  buffer.counts[q] = number;
  return true;
}

// Takes the candidates of the first blocks: rows that may reach the bound that k of the maxima reach.
template <bool Bytes>
CFE_INLINE void end_warm_up(const Scan& scan, std::size_t q, float bound, std::size_t filled) {
  const WarmUp& memory = scan.memory.warm_up;
  if (!(scan.memory.queries.threshold[q] < kInfinite)) return;
  raise_threshold(scan, q, lowered(scan, bound, 2));
  if (!Bytes && !scan.group.filter.tests && take_products(scan, q, filled)) return;
  for (std::size_t place = 0; place < filled; ++place) {
    const F32x16 upper = F32x16::load(memory.upper + (q * memory.blocks + place) * kLanes);
    const F32x16 lower = Bytes ? F32x16::all(-kInfinite) : upper;  // lower bounds of bytes are not stored
    const Mask mask = at_least(upper, F32x16::all(scan.memory.queries.threshold[q]));
    if (kWidth < kLanes && mask == 0) continue;
    add_candidates(scan, q, lanes_of_block(static_cast<std::size_t>(memory.seen[place])), mask, lower, upper);
  }
  if constexpr (Bytes) score_candidates(scan, q);
}

// Kinds of comparison.
enum class Step { kWarmUp, kScan };

// A block, and its lanes that are eligible for some query of the group.
struct ChosenBlock {
  std::size_t number;
  Mask lanes;
};

// Compares Q queries with a block of bytes, number `place` of the warm-up.
template <Step What, int Q, bool kDistance>
CFE_INLINE void compare_bytes(const Scan& scan, std::size_t q, const ChosenBlock& block, std::size_t place) {
  if constexpr (What == Step::kScan) return scan_bytes<Q, kDistance>(scan, q, block.number, block.lanes);
  F32x16 lower[Q], upper[Q];
  bound_byte_products<Q, kDistance>(scan, q, block.number, lower, upper);
  keep_bounds<Q>(scan, q, block.number, block.lanes, place, lower, upper);
}

// Compares Q queries with B blocks; the first block is number `place` of the warm-up.
template <bool Bytes, Step What, int Q, int B>
CFE_INLINE void compare(const Scan& scan, std::size_t q, const ChosenBlock (&some)[B], std::size_t place) {
  if constexpr (Bytes) {
    static_assert(B == 1);
    if (scan.blocks.added != nullptr)
      compare_bytes<What, Q, true>(scan, q, some[0], place);
    else
      compare_bytes<What, Q, false>(scan, q, some[0], place);
  } else {
    std::size_t numbers[B];
    for (int b = 0; b < B; ++b) numbers[b] = some[b].number;
    F32x16 sums[B * Q];
    multiply_floats<Q, B>(scan, q, numbers, sums);
    for (int b = 0; b < B; ++b) {
      const F32x16* own = sums + b * Q;
      if constexpr (What == Step::kScan)
        take_candidates<Q>(scan, q, some[b].number, some[b].lanes, own);
      else
        keep_bounds<Q>(scan, q, some[b].number, some[b].lanes, place + b, own, own);
    }
  }
}

// Compares the queries from q on with some blocks, Q at a time, and fewer at the end.
template <bool Bytes, Step What, int B, int Q = kTile>
CFE_INLINE void compare_all(const Scan& scan, std::size_t q, const ChosenBlock (&some)[B], std::size_t place = 0) {
  const std::size_t size = scan.group.size;
  if constexpr (Q == kTile)
    for (; q + Q <= size; q += Q) compare<Bytes, What, Q, B>(scan, q, some, place);
  if (q >= size) return;
  if constexpr (Q > 1)
    if (size - q <= Q / 2) return compare_all<Bytes, What, B, Q / 2>(scan, q, some, place);
  compare<Bytes, What, Q, B>(scan, q, some, place);
}

// Bounds all rounding errors in the bounds of a list's rows: `length` times the length of a query, plus `along` times
// its product with the mean, or minus the squared distance, plus `fixed`; see kernels/block_queries.h.
struct ListSlack {
  float length = 0, along = 0, fixed = 0;
};

CFE_INLINE ListSlack slack_of_list(const BlocksView& blocks, std::size_t list) {
  if (blocks.rows.metric == Metric::kCosine) return {};  // its margin covers them
  const float longest = blocks.longest[list], rounding = kRoundings * blocks.margin;
  const float least = 16 * 0x1p-63f * __builtin_sqrtf(static_cast<float>(blocks.rows.d + 16));
  const bool distance = blocks.center != nullptr;
  return {rounding * longest + least, distance ? -rounding : 0,
          (distance ? rounding * longest * longest : 0) + least * (longest + least)};
}

// Writes the products of the queries with the mean of a list, or minus their squared distances, and the thresholds for
// its centred rows.
CFE_INLINE void begin_list(const Scan& scan, std::int64_t number) {
  const std::size_t d = scan.blocks.rows.d, list = static_cast<std::size_t>(number);
  const QueryStatistics& queries = scan.memory.queries;
  const float* mean = scan.blocks.means + list * d;
  const bool distance = scan.blocks.center != nullptr;
  const ListSlack errors = slack_of_list(scan.blocks, list);
  if (scan.group.size == 1) {
    const float along = distance ? -dot<true>(scan.group.X, mean, d) : dot(scan.group.X, mean, d);
    const float slack = queries.norm[0] * queries.scale[0] * errors.length + along * errors.along + errors.fixed;
    queries.low[0] = along - slack;
    queries.high[0] = along + slack;
    queries.wanted[0] = (queries.threshold[0] - queries.high[0]) * queries.inverse_scale[0];
    return;
  }
  for (std::size_t q = 0; q < scan.group.size; q += kLanes) {
    const float* const lanes[1] = {query_lanes(scan, q / kLanes)};
    F32x16 along;
    if (distance)
      dot_block<1, 1, true>(mean, 1, lanes, d, &along);
    else
      dot_block<1, 1>(mean, 1, lanes, d, &along);
    const F32x16 length = F32x16::load(queries.norm + q) * F32x16::load(queries.scale + q);
    const F32x16 slack = length * errors.length + along * errors.along + F32x16::all(errors.fixed);
    const F32x16 high = along + slack, inverse = F32x16::load(queries.inverse_scale + q);
    (along - slack).store(queries.low + q);
    high.store(queries.high + q);
    ((F32x16::load(queries.threshold + q) - high) * inverse).store(queries.wanted + q);
  }
}

// A position among the blocks of a group's lists.
struct Place {
  std::size_t list, block;
};

CFE_INLINE Place list_blocks(const Scan& scan, std::size_t t) {
  const std::int64_t list = scan.group.lists[t];
  if (list < 0) return {0, 0};
  return {static_cast<std::size_t>(scan.first_blocks[list]), static_cast<std::size_t>(scan.blocks.starts[list + 1])};
}

CFE_INLINE Mask group_lanes(const Scan& scan, std::size_t b) {
  return scan.mixed ? scan.blocks.ranges[b].lanes : eligible_lanes(scan, b, scan.label);
}

// Compares the queries with up to `most` eligible blocks, from `place` on. Returns the number of blocks, and sets
// `place` to the end.
template <bool Bytes, Step What>
CFE_INLINE std::size_t compare_blocks(const Scan& scan, Place& place, std::size_t most) {
  constexpr int kAtATime = !Bytes && kWidth == kLanes ? 2 : 1;
  ChosenBlock pair[2];
  std::size_t chosen = 0;
  for (; place.list < scan.group.nprobe && chosen < most; ++place.list, place.block = 0) {
    const auto [first, stop] = list_blocks(scan, place.list);
    if (first == stop) continue;
    if constexpr (Bytes) begin_list(scan, scan.group.lists[place.list]);
    for (place.block = place.block > first ? place.block : first; place.block < stop && chosen < most; ++place.block) {
      const Mask lanes = group_lanes(scan, place.block);
      if (lanes == 0) continue;
      if constexpr (What == Step::kWarmUp) scan.memory.warm_up.seen[chosen] = static_cast<std::int32_t>(place.block);
      pair[chosen % kAtATime] = {place.block, lanes};
      if (++chosen % kAtATime != 0) continue;
      if constexpr (kAtATime == 2)
        compare_all<Bytes, What, 2>(scan, 0, pair, chosen - 2);
      else
        compare_all<Bytes, What, 1>(scan, 0, {pair[0]}, chosen - 1);
    }
    if (place.block < stop) break;
  }
  if (chosen % kAtATime != 0) compare_all<Bytes, What, 1>(scan, 0, {pair[0]}, chosen - 1);
  return chosen;
}

// The number of bounds that must reach a threshold: some of the best rows may be excluded by their ids.
CFE_INLINE std::size_t warm_up_rank(const Scan& scan) {
  return (scan.group.k + scan.group.filter.ids_each) * scan.group.copies;
}

// Whether bounds of the first blocks give thresholds. Rules other than excluded ids may exclude any number of rows.
CFE_INLINE bool warms_up(const Scan& scan) {
  const FilterView& filter = scan.group.filter;
  const bool ids_only = filter.labels_each + filter.columns == 0 && filter.allowed == nullptr && !filter.in_range;
  return scan.memory.warm_up.blocks > 0 && scan.group.size > 1 && ids_only &&
         warm_up_rank(scan) <= scan.memory.warm_up.width;
}

// Compares the queries with the first blocks, to get thresholds. Returns the end of these blocks.
template <bool Bytes>
CFE_INLINE Place warm_up(const Scan& scan) {
  const WarmUp& memory = scan.memory.warm_up;
  const F32x16 nothing = F32x16::all(-kInfinite);
  for (std::size_t i = 0; i < scan.group.size * memory.width; i += kLanes) nothing.store(memory.maxima + i);
  Place place{0, 0};
  const std::size_t filled = compare_blocks<Bytes, Step::kWarmUp>(scan, place, memory.blocks);
  for (std::size_t q = 0; q < scan.group.size; q += kLanes) {
    NumberRows rows{memory.maxima + q * memory.width, memory.width, {}};
    for (std::size_t& size : rows.sizes) size = memory.width;
    const std::size_t number = scan.group.size - q < kLanes ? scan.group.size - q : kLanes;
    Brackets brackets;
    kth_bounds(rows, number, warm_up_rank(scan), brackets);
    for (std::size_t r = 0; r < number; ++r) end_warm_up<Bytes>(scan, q + r, brackets.low[r], filled);
  }
  return place;
}

template <bool Bytes>
CFE_INLINE void scan_all(const Scan& scan) {
  Place place{0, 0};
  if (warms_up(scan)) place = warm_up<Bytes>(scan);
  compare_blocks<Bytes, Step::kScan>(scan, place, std::numeric_limits<std::size_t>::max());
}

CFE_INLINE Scan scan_of(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory) {
  const Margin margin = margin_of(blocks, group);
  if (group.filter.policy == Policy::kAny) return {blocks, group, memory, kNoLabel, false, margin, blocks.starts};
  bool mixed = false;
  for (std::size_t q = 1; q < group.size; ++q) mixed |= group.labels[q] != group.labels[0];
  return {blocks, group, memory, group.labels[0], mixed, margin, blocks.known};
}

// Finds the best rows of a group's lists for each of its queries.
void scan_group(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory) {
  const Scan scan = scan_of(blocks, group, memory);
  begin_queries(scan);
  if (blocks.element == Element::kFloat)
    scan_all<false>(scan);
  else if constexpr (kHasBytes)
    scan_all<true>(scan);
  end_all_results(scan);
}

}  // namespace cfe::CFE_LEVEL::block
