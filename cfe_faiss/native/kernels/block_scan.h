// A list-major scan: a group of queries is compared with the rows of its lists, block by block, and keeps the best.
//
// Products of a few queries and the 16 rows of a block stay in registers, and what cannot reach a query's threshold, or
// has its label, never leaves them. What could reach it becomes a candidate, and the candidates that are left are
// scored by `similarity` from the vectors themselves: how rows are screened changes the time, never the result.
#pragma once

#include "kernels/block_candidates.h"
#include "kernels/block_single.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr int kTile = kWidth == kLanes ? 8 : kWidth == 8 ? 4 : 2;  // queries that registers hold sums for

// --- queries ---

CFE_INLINE const std::int32_t* query_words(const Scan& scan, std::size_t q) {
  const std::size_t block = q / kLanes * scan.blocks.words * kLanes;
  const auto* words = scan.blocks.element == Element::kByte ? scan.memory.words
                                                            : reinterpret_cast<const std::int32_t*>(scan.memory.block);
  return words + block + q % kLanes;
}

// Where the numbers of a block of queries begin: floats take `words` each, as they are searched with.
CFE_INLINE float* query_lanes(const Scan& scan, std::size_t block) {
  return scan.memory.block + block * scan.blocks.rows.d * kLanes;
}

CFE_INLINE void encode_queries(const Scan& scan, std::size_t block) {
  const BlocksView& blocks = scan.blocks;
  const float* lanes = query_lanes(scan, block);
  if (blocks.rotation != nullptr) {
    rotate(blocks, lanes, scan.memory.rotated);
    lanes = scan.memory.rotated;
  }
  std::int32_t* words = scan.memory.words + block * blocks.words * kLanes;
  const Codes codes = encode(blocks, lanes, kLargestCode, kZeroCode, words);
  const QueryStatistics& queries = scan.memory.queries;
  const std::size_t q = block * kLanes;
  const F16 rotation_error = codes.norm * F16::all(blocks.rotation_error), inverse = F16::all(1) / codes.scale;
  ((codes.norm + rotation_error) * inverse).store(queries.norm + q);
  ((codes.error + rotation_error) * inverse).store(queries.error + q);
  ((codes.tail_norm + rotation_error) * inverse).store(queries.tail + q);
  inverse.store(queries.inverse_scale + q);
  codes.scale.store(queries.scale + q);
}

// Bytes of a query that is searched alone.
CFE_INLINE void encode_single_query(const Scan& scan) {
  const BlocksView& blocks = scan.blocks;
  float* x = scan.memory.block;
  for (std::size_t i = 0; i < blocks.columns; ++i) x[i] = i < blocks.rows.d ? scan.group.X[i] : 0;
  if (blocks.rotation != nullptr) {
    rotate_single(blocks, x, scan.memory.rotated);
    x = scan.memory.rotated;
  }
  const SingleCodes codes = encode_single(blocks, x, kLargestCode, kZeroCode, scan.memory.words);
  const QueryStatistics& queries = scan.memory.queries;
  const float rotation_error = codes.norm * blocks.rotation_error, inverse = 1 / codes.scale;
  queries.norm[0] = (codes.norm + rotation_error) * inverse;
  queries.error[0] = (codes.error + rotation_error) * inverse;
  queries.tail[0] = (codes.tail_norm + rotation_error) * inverse;
  queries.inverse_scale[0] = inverse;
  queries.scale[0] = codes.scale;
}

// Prepares the results of a query, and its threshold.
CFE_INLINE void begin_results(const Scan& scan, std::size_t q) {
  const std::size_t k = scan.group.k;
  const TopK heap{scan.D(q), scan.I(q), k};
  std::size_t found = 0;
  if (scan.group.resume)
    while (found < k && heap.I[found] >= 0) ++found;
  scan.memory.candidates.found[q] = found;
  scan.memory.candidates.counts[q] = 0;
  if (!scan.ranked) {
    for (std::size_t place = found; place < k; ++place) heap.D[place] = kPadding, heap.I[place] = kNoId;
    for (std::size_t place = 0; place < k / 2; ++place) {  // in the other order it is a heap
      const float s = heap.D[place];
      const std::int64_t i = heap.I[place];
      heap.D[place] = heap.D[k - 1 - place], heap.I[place] = heap.I[k - 1 - place];
      heap.D[k - 1 - place] = s, heap.I[k - 1 - place] = i;
    }
  }
  const float last = last_result(scan, q);
  scan.memory.queries.threshold[q] = last > kPadding ? last - scan.blocks.margin : kPadding;
}

CFE_INLINE void begin_queries(const Scan& scan) {
  const std::size_t d = scan.blocks.rows.d, size = scan.group.size;
  if (size == 1 && scan.blocks.element == Element::kByte && is_finite(scan.group.X, d)) {
    begin_results(scan, 0);
    encode_single_query(scan);
    return;
  }
  for (std::size_t block = 0; block * kLanes < size; ++block) {
    float* lanes = query_lanes(scan, block);
    clear(lanes, d);
    for (std::size_t q = block * kLanes; q < (block + 1) * kLanes; ++q) {
      scan.memory.queries.threshold[q] = kInfinite;  // nothing is a candidate
      if (q >= size) continue;
      begin_results(scan, q);
      const float* x = scan.group.X + q * d;
      if (is_finite(x, d))
        put_lane(x, d, static_cast<int>(q % kLanes), lanes);
      else
        scan.memory.queries.threshold[q] = kInfinite;
    }
    if (scan.blocks.element == Element::kByte) encode_queries(scan, block);
  }
}

// Writes the results of a query in their final order.
CFE_INLINE void end_results(const Scan& scan, std::size_t q) {
  drop_candidates(scan, q);
  score_candidates(scan, q);
  const TopK results{scan.D(q), scan.I(q), scan.group.k};
  if (!scan.ranked) {
    results.sort();
    return;
  }
  for (std::size_t place = scan.memory.candidates.found[q]; place < results.k; ++place)
    results.D[place] = kPadding, results.I[place] = -1;
}

// --- labels ---

// The lanes of a block that hold a row of another label than a query's.
CFE_INLINE Mask eligible_lanes(const BlocksView& blocks, std::size_t b, std::int32_t label) {
  const LabelRange& range = blocks.ranges[b];
  if (label < range.smallest || label > range.largest) return range.lanes;
  if (range.smallest == range.largest) return 0;
  return range.lanes & ~bits(I16::load(blocks.labels + b * kLanes) == I16::all(label));
}

// --- products ---

CFE_INLINE void add_candidates(const Scan& scan, std::size_t q, std::size_t b, Mask mask, const F16& lower,
                               const F16& upper) {
  mask &= at_least(F16::all(kMost), upper);
  if (scan.mixed) mask &= eligible_lanes(scan.blocks, b, scan.group.labels[q]);
  if (mask == 0) return;
  const CandidateBuffer& buffer = scan.memory.candidates;
  std::size_t& count = buffer.counts[q];
  const std::size_t end = q * buffer.capacity + count;
  compress(lower, mask, buffer.lower + end);
  if (scan.blocks.element == Element::kByte) compress(upper, mask, buffer.upper + end);
  I16 lanes = I16::all(static_cast<std::int32_t>(b) * kLanes);
  for (int p = 0; p < kParts; ++p)
    for (int lane = 0; lane < kWidth; ++lane) lanes.part[p][lane] += p * kWidth + lane;
  compress(lanes, mask, buffer.lanes + end);
  count += count_bits(mask);
  if (count + kLanes > buffer.capacity) make_room(scan, q);
}

template <int Q>
CFE_INLINE void scan_floats(const Scan& scan, std::size_t q, std::size_t b, Mask lanes) {
  const std::size_t words = scan.blocks.words;
  const auto* rows = reinterpret_cast<const float*>(query_words(scan, q));
  const auto* data = reinterpret_cast<const float*>(scan.blocks.data + b * words * kLanes);
  F16 sums[Q];
  float_products<Q>(rows, kLanes, data, words, sums);
  Mask reach[Q], any_reaches = 0;
  for (int r = 0; r < Q; ++r) {
    reach[r] = at_least(sums[r], F16::all(scan.memory.queries.threshold[q + r])) & lanes;
    any_reaches |= reach[r];
  }
  if (any_reaches == 0) return;
  for (int r = 0; r < Q; ++r)
    if (reach[r] != 0) add_candidates(scan, q + r, b, reach[r], sums[r], sums[r]);
}

// Sums of the products of the words from `first` to `stop` of Q queries and a block.
template <int Q>
CFE_INLINE void add_byte_products(const std::int32_t* rows, const std::int32_t* data, std::size_t first,
                                  std::size_t stop, I16* sums) {
  constexpr int kChains = Q >= 8 ? 1 : 8 / Q < 4 ? 8 / Q : 4;
  I16 chains[kChains][Q];
  for (int c = 0; c < kChains; ++c)
    for (int r = 0; r < Q; ++r) chains[c][r] = c == 0 ? sums[r] : I16::all(0);
  std::size_t i = first;
  for (; i + kChains <= stop; i += kChains)
    for (int c = 0; c < kChains; ++c) {
      const I16 column = I16::load(data + (i + c) * kLanes);
      for (int r = 0; r < Q; ++r)
        chains[c][r] = add_products(chains[c][r], I16::all(rows[(i + c) * kLanes + r]), column);
    }
  for (; i < stop; ++i) {
    const I16 column = I16::load(data + i * kLanes);
    for (int r = 0; r < Q; ++r) chains[0][r] = add_products(chains[0][r], I16::all(rows[i * kLanes + r]), column);
  }
  for (int r = 0; r < Q; ++r) {
    sums[r] = chains[0][r];
    for (int c = 1; c < kChains; ++c) sums[r] = sums[r] + chains[c][r];
  }
}

// The row statistics of a block.
struct BlockStatistics {
  I16 correction, tail_correction;
  F16 scale, error, norm, tail;

  CFE_INLINE explicit BlockStatistics(const std::int32_t* from) {
    const auto* floats = reinterpret_cast<const float*>(from);
    correction = I16::load(from + kCorrection * kLanes);
    tail_correction = I16::load(from + kTailCorrection * kLanes);
    scale = F16::load(floats + kScale * kLanes);
    error = F16::load(floats + kError * kLanes);
    norm = F16::load(floats + kNormBound * kLanes);
    tail = F16::load(floats + kTailNorm * kLanes);
  }
  // How far the product with query q is, at most, from that of the bytes; in units of the query's scale.
  CFE_INLINE F16 bound(const QueryStatistics& queries, std::size_t q) const {
    return fused(error, F16::all(queries.norm[q]), norm * F16::all(queries.error[q]));
  }
};

// Which lanes may reach the thresholds of Q queries by their prefix and the length of their tail.
template <int Q>
CFE_INLINE Mask reaching_by_prefix(const Scan& scan, std::size_t q, const BlockStatistics& rows, const I16* sums) {
  const QueryStatistics& queries = scan.memory.queries;
  Mask reach = 0;
  for (int r = 0; r < Q; ++r) {
    const F16 bound = fused(rows.tail, F16::all(queries.tail[q + r]), rows.bound(queries, q + r));
    reach |= at_least(fused(to_float(sums[r]), rows.scale, bound), F16::all(queries.wanted[q + r]));
  }
  return reach;
}

template <int Q>
CFE_INLINE void scan_bytes(const Scan& scan, std::size_t q, std::size_t b, Mask lanes) {
  const std::size_t words = scan.blocks.words, prefix = scan.blocks.prefix;
  const QueryStatistics& queries = scan.memory.queries;
  const std::int32_t* query = query_words(scan, q);
  const std::int32_t* data = scan.blocks.data + b * words * kLanes;
  const BlockStatistics rows(scan.blocks.statistics + b * kRowStatistics * kLanes);
  I16 sums[Q];
  for (int r = 0; r < Q; ++r) sums[r] = rows.correction - rows.tail_correction;
  add_byte_products<Q>(query, data, 0, prefix, sums);
  if (prefix < words) {
    if ((reaching_by_prefix<Q>(scan, q, rows, sums) & lanes) == 0) return;
    for (int r = 0; r < Q; ++r) sums[r] = sums[r] + rows.tail_correction;
    add_byte_products<Q>(query, data, prefix, words, sums);
  }
  Mask reach[Q], any_reaches = 0;
  F16 products[Q], bounds[Q];
  for (int r = 0; r < Q; ++r) {
    products[r] = to_float(sums[r]) * rows.scale;
    bounds[r] = rows.bound(queries, q + r);
    reach[r] = at_least(products[r] + bounds[r], F16::all(queries.wanted[q + r])) & lanes;
    any_reaches |= reach[r];
  }
  if (any_reaches == 0) return;
  for (int r = 0; r < Q; ++r) {
    if (reach[r] == 0) continue;
    const F16 scale = F16::all(queries.scale[q + r]), along = F16::all(queries.along[q + r]);
    add_candidates(scan, q + r, b, reach[r], fused(products[r] - bounds[r], scale, along),
                   fused(products[r] + bounds[r], scale, along));
  }
}

// Compares the queries from q on with a block; Q at a time, fewer at the end.
template <bool Bytes, int Q>
CFE_INLINE void scan_tiles(const Scan& scan, std::size_t q, std::size_t b, Mask lanes) {
  const std::size_t size = scan.group.size;
  if constexpr (Q == kTile)
    for (; q + Q <= size; q += Q) {
      if constexpr (Bytes)
        scan_bytes<Q>(scan, q, b, lanes);
      else
        scan_floats<Q>(scan, q, b, lanes);
    }
  if (q >= size) return;
  if constexpr (Q > 1)
    if (size - q <= Q / 2) return scan_tiles<Bytes, Q / 2>(scan, q, b, lanes);
  if constexpr (Bytes)
    scan_bytes<Q>(scan, q, b, lanes);
  else
    scan_floats<Q>(scan, q, b, lanes);
}

// Writes the products of the queries with the mean of a list, and what its rows have to reach without it.
CFE_INLINE void begin_list(const Scan& scan, std::int64_t list) {
  const std::size_t d = scan.blocks.rows.d;
  const QueryStatistics& queries = scan.memory.queries;
  const float* mean = scan.blocks.means + static_cast<std::size_t>(list) * d;
  if (scan.group.size == 1) {
    queries.along[0] = row_product(scan.group.X, mean, d);
    queries.wanted[0] = (queries.threshold[0] - queries.along[0]) * queries.inverse_scale[0];
    return;
  }
  for (std::size_t q = 0; q < scan.group.size; q += kLanes) {
    F16 along;
    float_products<1>(mean, 1, query_lanes(scan, q / kLanes), d, &along);
    along.store(queries.along + q);
    const F16 inverse = F16::load(queries.inverse_scale + q);
    ((F16::load(queries.threshold + q) - along) * inverse).store(queries.wanted + q);
  }
}

template <bool Bytes>
CFE_INLINE void scan_lists(const Scan& scan) {
  for (std::size_t t = 0; t < scan.group.nprobe; ++t) {
    const std::int64_t list = scan.group.lists[t];
    if (list < 0) continue;
    const auto first = static_cast<std::size_t>(scan.blocks.starts[list]);
    const auto stop = static_cast<std::size_t>(scan.blocks.starts[list + 1]);
    if (first == stop) continue;
    if constexpr (Bytes) begin_list(scan, list);
    for (std::size_t b = first; b < stop; ++b) {
      const Mask lanes = scan.mixed ? scan.blocks.ranges[b].lanes : eligible_lanes(scan.blocks, b, scan.label);
      if (lanes != 0) scan_tiles<Bytes, kTile>(scan, 0, b, lanes);
    }
  }
}

CFE_INLINE Scan scan_of(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory) {
  bool mixed = false;
  for (std::size_t q = 1; q < group.size; ++q) mixed |= group.labels[q] != group.labels[0];
  return {blocks, group, memory, !group.deduplicate && group.k <= kMostRanked, group.labels[0], mixed};
}

// Finds the best rows of a group's lists for each of its queries.
void scan_group(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory) {
  const Scan scan = scan_of(blocks, group, memory);
  begin_queries(scan);
  if (blocks.element == Element::kFloat)
    scan_lists<false>(scan);
  else if constexpr (kHasBytes)
    scan_lists<true>(scan);
  for (std::size_t q = 0; q < group.size; ++q) end_results(scan, q);
}

}  // namespace cfe::CFE_LEVEL::block
