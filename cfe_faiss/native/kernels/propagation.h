// A step of the KS propagation, node by node. All sums are taken in an order that is written down here: a cosine in 16
// partial sums, then a tree of halves; the sum over neighbours as they come.
#pragma once

#include <cmath>
#include <span>

#include "core/propagation.h"
#include "simd/shuffle.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

// Neighbours are taken in chunks of this many: their rows stay in the cache between cosine and sum. The rows of later
// ones are fetched meanwhile: on random graphs the pass is bound by the latency of memory.
inline constexpr std::size_t kChunk = 8;
inline constexpr std::size_t kAhead = 16;
inline constexpr std::size_t kBlock = 4;         // vectors of a long row that are summed in registers
inline constexpr std::size_t kShort = 4;         // vectors of the longest row that is kept in registers
inline constexpr std::size_t kCacheLine = 64;    // bytes
inline constexpr std::size_t kCached = 4 << 20;  // bytes of rows that need not be fetched ahead: a cache holds them

// Smaller of two; std::min would be compiled once for all levels.
CFE_INLINE std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

CFE_INLINE std::size_t vectors_of(std::size_t d) { return (d + kLanes - 1) / kLanes; }

// How many numbers of the last vector of 16 belong to a row of d: 1 to 16.
CFE_INLINE std::size_t last_of(std::size_t d) { return d - (vectors_of(d) - 1) * kLanes; }

// Has the rows fetched that come kAhead after those of a chunk. `Count` vectors make a row, or any number if it is 0.
template <std::size_t Count>
CFE_INLINE void fetch(const UnitRows& others, const Neighbors& neighbors) {
  const std::size_t first = neighbors.first + kAhead, d = others.rows.columns;
  if (first + kChunk > neighbors.nodes.size()) return;
  const std::int32_t* nodes = neighbors.nodes.data() + first;
  for (std::size_t j = 0; j < kChunk; ++j) {
    // Of another block: any row will do.
    const std::size_t row = least(static_cast<std::size_t>(nodes[j]) - others.low, others.rows.rows - 1);
    const char* from = reinterpret_cast<const char*>(others.rows.data + row * d);
    const std::size_t end = sizeof(float) * (Count > 0 ? (Count - 1) * kLanes : d);
    for (std::size_t at = 0; at < end; at += kCacheLine) __builtin_prefetch(from + at);
    __builtin_prefetch(from + sizeof(float) * d - 1);
  }
}

// A chunk of neighbours: where their rows lie, the lengths of their vectors, and their cosines.
struct Chunk {
  const float* row[kChunk];
  float length[kChunk];
  float cosine[kLanes];

  CFE_INLINE void set(std::size_t j, const UnitRows& others, std::int32_t node) {
    const auto u = static_cast<std::size_t>(node);
    row[j] = others.rows.data + (u - others.low) * others.rows.columns;
    length[j] = others.lengths[u];
  }
};

// Up to where a chunk may go: within the group, and to the end.
CFE_INLINE std::size_t chunk_size(const Neighbors& neighbors) {
  const std::size_t of_group = kGroup - neighbors.done % kGroup;
  return least(least(kChunk, of_group), neighbors.stop - neighbors.first);
}

CFE_INLINE void flush(const Sums& sums) {
  for (std::size_t i = 0; i < sums.group.size(); ++i) {
    sums.total[i] += static_cast<double>(sums.group[i]);
    sums.group[i] = 0.0f;
  }
}

template <std::size_t Count>
CFE_INLINE void clear(const Sums& sums) {
  const std::size_t size = Count > 0 ? Count * kLanes : sums.group.size();
  for (std::size_t i = 0; i < size; ++i) sums.total[i] = 0.0;
  for (std::size_t i = 0; i < size; ++i) sums.group[i] = 0.0f;
}

// A row of `Count` vectors of 16; of the last one only `last` numbers belong to the row, the others are zeros.
template <std::size_t Count>
struct Row {
  F16 part[Count];

  static CFE_INLINE Row load(const float* from, std::size_t last) {
    Row row;
    for (std::size_t v = 0; v + 1 < Count; ++v) row.part[v] = F16::load(from + v * kLanes);
    row.part[Count - 1] = load_first(from + (Count - 1) * kLanes, last);
    return row;
  }
  static CFE_INLINE Row load(const float* from) { return load(from, kLanes); }
  CFE_INLINE void store(float* to) const {
    for (std::size_t v = 0; v < Count; ++v) part[v].store(to + v * kLanes);
  }
  CFE_INLINE F16 products(const Row& other) const {
    F16 sum = part[0] * other.part[0];
    for (std::size_t v = 1; v < Count; ++v) sum = sum + part[v] * other.part[v];
    return sum;
  }
  CFE_INLINE void add(float weight, const Row& other) {
    const F16 weights = F16::all(weight);
    for (std::size_t v = 0; v < Count; ++v) part[v] = part[v] + weights * other.part[v];
  }
};

// Zeros in all lanes but the first `count`.
CFE_INLINE F16 keep_first(const F16& v, std::size_t count) {
  static constexpr std::int32_t kLane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return select(I16::all(static_cast<std::int32_t>(count)) > I16::load(kLane), v, F16::all(0.0f));
}

// Adds a chunk of neighbours to the sum of their group. One that is not full is filled up with its last neighbour,
// whose weight is 0 then: that changes no sum, since none is ever -0.
template <std::size_t Count, bool kFull>
CFE_INLINE void add_chunk(const UnitRows& others, const std::int32_t* nodes, std::size_t size, const Row<Count>& own,
                          std::size_t last, Row<Count>& group) {
  Chunk chunk;
  F16 products[kChunk];
  for (std::size_t j = 0; j < kChunk; ++j) {
    chunk.set(j, others, nodes[kFull ? j : least(j, size - 1)]);
    products[j] = own.products(Row<Count>::load(chunk.row[j], last));
  }
  const F16 cosines = sums_of_8(products);
  (kFull ? cosines : keep_first(cosines, size)).store(chunk.cosine);
  for (std::size_t j = 0; j < kChunk; ++j)
    group.add(chunk.cosine[j] * chunk.length[j], Row<Count>::load(chunk.row[j], last));
}

// Rows of `Count` vectors: v's own row and the group's sum stay in registers.
template <std::size_t Count>
CFE_INLINE void gather_short(const UnitRows& others, Neighbors neighbors, std::span<const float> own_row,
                             const Sums& sums) {
  const std::size_t last = last_of(own_row.size());
  const bool fetched = others.rows.size() * sizeof(float) > kCached;
  const Row<Count> own = Row<Count>::load(own_row.data(), last);
  Row<Count> group = Row<Count>::load(sums.group.data());
  while (neighbors.first < neighbors.stop) {
    const std::size_t size = chunk_size(neighbors);
    if (fetched) fetch<Count>(others, neighbors);
    const std::int32_t* nodes = neighbors.nodes.data() + neighbors.first;
    if (size == kChunk)
      add_chunk<Count, true>(others, nodes, size, own, last, group);
    else
      add_chunk<Count, false>(others, nodes, size, own, last, group);
    neighbors.first += size;
    neighbors.done += size;
    if (neighbors.done % kGroup == 0) {
      group.store(sums.group.data());
      flush(sums);
      group = Row<Count>::load(sums.group.data());
    }
  }
  group.store(sums.group.data());
}

// The products of two rows in 16 partial sums.
CFE_INLINE F16 long_products(const float* x, const float* y, std::size_t d) {
  const std::size_t full = vectors_of(d) - 1, last = last_of(d);
  F16 sum = F16::load(x) * F16::load(y);
  for (std::size_t v = 1; v < full; ++v) sum = sum + F16::load(x + v * kLanes) * F16::load(y + v * kLanes);
  return sum + load_first(x + full * kLanes, last) * load_first(y + full * kLanes, last);
}

template <std::size_t Count>
CFE_INLINE void add_columns(const Chunk& chunk, std::size_t size, std::size_t first, std::size_t last, float* group) {
  Row<Count> sum = Row<Count>::load(group + first);
  for (std::size_t j = 0; j < size; ++j)
    sum.add(chunk.cosine[j] * chunk.length[j], Row<Count>::load(chunk.row[j] + first, last));
  sum.store(group + first);
}

CFE_INLINE void gather_long(const UnitRows& others, Neighbors neighbors, std::span<const float> own, const Sums& sums) {
  const std::size_t d = own.size(), end = (vectors_of(d) - 1) * kLanes;
  float* group = sums.group.data();
  while (neighbors.first < neighbors.stop) {
    const std::size_t size = chunk_size(neighbors);
    fetch<0>(others, neighbors);
    Chunk chunk;
    F16 products[kChunk];
    for (std::size_t j = 0; j < size; ++j) {
      chunk.set(j, others, neighbors.nodes[neighbors.first + j]);
      products[j] = long_products(own.data(), chunk.row[j], d);
    }
    for (std::size_t j = size; j < kChunk; ++j) products[j] = F16::all(0.0f);
    sums_of_8(products).store(chunk.cosine);
    std::size_t i = 0;
    for (; i + kBlock * kLanes <= end; i += kBlock * kLanes) add_columns<kBlock>(chunk, size, i, kLanes, group);
    for (; i < end; i += kLanes) add_columns<1>(chunk, size, i, kLanes, group);
    add_columns<1>(chunk, size, end, last_of(d), group);
    neighbors.first += size;
    neighbors.done += size;
    if (neighbors.done % kGroup == 0) flush(sums);
  }
}

// Makes v's new row, writes it and adds it to `aggregate`; returns its length.
template <std::size_t Count>
CFE_INLINE float finish_row(std::span<const float> own, const Shares& shares, const Sums& sums, const NewRow& row) {
  const std::size_t d = own.size(), last = last_of(d), count = Count > 0 ? Count : vectors_of(d);
  D16 squares = {};
  for (std::size_t v = 0; v < count; ++v) {
    const std::size_t i = v * kLanes, size = v + 1 < count ? kLanes : last;
    float* aggregate = row.aggregate.data() + i;
    const D16 sum = D16::load(sums.total.data() + i) + D16::widened(F16::load(sums.group.data() + i));
    const D16 value = D16::widened(load_first(own.data() + i, size)) * shares.keep + sum * shares.share;
    value.store(sums.total.data() + i);
    squares = squares + value * value;
    store_first(load_first(aggregate, size) + value.rounded(), aggregate, size);
  }
  const double norm = std::sqrt(squares.sum());
  const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
  for (std::size_t v = 0; v < count; ++v) {
    const std::size_t i = v * kLanes;
    const D16 value = D16::load(sums.total.data() + i) * scale;
    store_first(value.rounded(), row.unit.data() + i, v + 1 < count ? kLanes : last);
  }
  return static_cast<float>(norm);
}

// `Count` vectors make a row; 0 if it is a long one.
template <std::size_t Count>
CFE_INLINE void gather_any(const UnitRows& others, const Neighbors& neighbors, std::span<const float> own,
                           const Sums& sums) {
  if constexpr (Count == 0)
    gather_long(others, neighbors, own, sums);
  else
    gather_short<Count>(others, neighbors, own, sums);
}

template <std::size_t Count>
void step_nodes(const Nodes& nodes, double alpha, const Step& step, const Sums& sums) {
  const UnitRows others{step.unit, 0, step.lengths};
  for (std::size_t v = nodes.range.first; v < nodes.range.stop; ++v) {
    clear<Count>(sums);
    const auto first = static_cast<std::size_t>(nodes.indptr[v]), stop = static_cast<std::size_t>(nodes.indptr[v + 1]);
    gather_any<Count>(others, {nodes.indices, first, stop, 0}, step.unit[v], sums);
    const Shares shares = shares_of(alpha, step.lengths[v], stop - first);
    step.new_lengths[v] = finish_row<Count>(step.unit[v], shares, sums, {step.aggregate[v], step.new_unit[v]});
  }
}

// Calls what is made for rows of d numbers.
template <class Call>
CFE_INLINE void for_length(std::size_t d, const Call& call) {
  static_assert(kShort == 4);
  switch (vectors_of(d)) {
    case 1:
      return call.template operator()<1>();
    case 2:
      return call.template operator()<2>();
    case 3:
      return call.template operator()<3>();
    case 4:
      return call.template operator()<4>();
    default:
      return call.template operator()<0>();
  }
}

// Takes the step of some nodes; `sums` is scratch.
void step(const Nodes& nodes, double alpha, const Step& step, const Sums& sums) {
  for_length(step.unit.columns, [&]<std::size_t Count>() { step_nodes<Count>(nodes, alpha, step, sums); });
}

// Adds cos(x_v, x_u) x_u to the sums of v for some of its neighbours u.
void gather(const UnitRows& others, const Neighbors& neighbors, std::span<const float> own, const Sums& sums) {
  for_length(own.size(), [&]<std::size_t Count>() { gather_any<Count>(others, neighbors, own, sums); });
}

float finish(std::span<const float> own, const Shares& shares, const Sums& sums, const NewRow& row) {
  float length = 0.0f;
  for_length(own.size(), [&]<std::size_t Count>() { length = finish_row<Count>(own, shares, sums, row); });
  return length;
}

}  // namespace cfe::CFE_LEVEL
