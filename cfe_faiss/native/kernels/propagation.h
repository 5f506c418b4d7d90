// A step of the KS propagation, node by node. All sums are taken in an order that is written down here: a cosine in 16
// partial sums, then a tree of halves; the sum over neighbours as they come.
#pragma once

#include <cmath>
#include <span>

#include "core/propagation.h"
#include "simd/shuffle.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

// Neighbours are taken in chunks of this many: their rows stay in the cache between cosine and sum. The rows of the
// next ones are fetched meanwhile: on random graphs the pass is bound by the latency of memory.
inline constexpr std::size_t kChunk = 16;
inline constexpr std::size_t kAhead = 16;
inline constexpr std::size_t kBlock = 4;  // vectors of a long row that are summed in registers

// A row of d floats as vectors of 16; in the last one the numbers beyond the row are zeros.
struct RowShape {
  std::size_t vectors, last;  // how many vectors; how many floats of the last one belong to the row: 1 to 16
  explicit RowShape(std::size_t d) : vectors((d + kLanes - 1) / kLanes), last(d - (vectors - 1) * kLanes) {}
};

// Smaller of two; std::min would be compiled once for all levels.
CFE_INLINE std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

CFE_INLINE void fetch(const UnitRows& others, const Neighbors& neighbors, std::size_t e) {
  const std::size_t place = least(e + kAhead, neighbors.nodes.size() - 1);
  const std::size_t row = static_cast<std::size_t>(neighbors.nodes[place]) - others.low;
  if (row >= others.rows.rows) return;  // of another block
  const char* from = reinterpret_cast<const char*>(others.rows.data + row * others.rows.columns);
  for (std::size_t at = 0; at < sizeof(float) * others.rows.columns; at += 64) __builtin_prefetch(from + at);
}

// A chunk of neighbours: where their rows lie, and the weights of these.
struct Chunk {
  const float* row[kChunk];
  float weight[kChunk];
};

// The product of v's own row, given as vectors of 16, and another row, in 16 partial sums.
template <class Own>
CFE_INLINE F16 products(const Own& own, const float* row, const RowShape& shape) {
  const std::size_t full = shape.vectors - 1;
  if (full == 0) return own[0] * load_first(row, shape.last);
  F16 sum = own[0] * F16::load(row);
  for (std::size_t v = 1; v < full; ++v) sum = sum + own[v] * F16::load(row + v * kLanes);
  return sum + own[full] * load_first(row + full * kLanes, shape.last);
}

// Where the rows of a chunk lie, and their weights: cosines with v's own row times lengths.
template <class Own>
CFE_INLINE void weigh(const UnitRows& others, const Neighbors& neighbors, std::size_t size, const Own& own,
                      const RowShape& shape, Chunk& chunk) {
  F16 sums[kChunk];
  float lengths[kChunk] = {};
  for (std::size_t j = 0; j < size; ++j) {
    fetch(others, neighbors, neighbors.first + j);
    const auto u = static_cast<std::size_t>(neighbors.nodes[neighbors.first + j]);
    chunk.row[j] = others.rows.data + (u - others.low) * others.rows.columns;
    lengths[j] = others.lengths[u];
    sums[j] = products(own, chunk.row[j], shape);
  }
  for (std::size_t j = size; j < kChunk; ++j) sums[j] = F16::all(0.0f);
  (sums_of_16(sums) * F16::load(lengths)).store(chunk.weight);
}

// Adds the weighted rows of a chunk, or Count vectors of them, to the group's sum. Of the last vector only `last`
// numbers belong to the row.
template <std::size_t Count>
CFE_INLINE void add_rows(const Chunk& chunk, std::size_t size, std::size_t first, std::size_t last,
                         F16 (&group)[Count]) {
  for (std::size_t j = 0; j < size; ++j) {
    const F16 weight = F16::all(chunk.weight[j]);
    const float* row = chunk.row[j] + first * kLanes;
    for (std::size_t v = 0; v + 1 < Count; ++v) group[v] = group[v] + weight * F16::load(row + v * kLanes);
    const float* end = row + (Count - 1) * kLanes;
    group[Count - 1] = group[Count - 1] + weight * load_first(end, last);
  }
}

CFE_INLINE void flush(const Sums& sums) {
  for (std::size_t i = 0; i < sums.group.size(); ++i) {
    sums.total[i] += static_cast<double>(sums.group[i]);
    sums.group[i] = 0.0f;
  }
}

CFE_INLINE std::size_t next_size(const Neighbors& neighbors) {
  const std::size_t of_group = kGroup - neighbors.done % kGroup;
  return least(least(kChunk, of_group), neighbors.stop - neighbors.first);
}

// Rows of up to 16 * Vectors floats: v's own row and the group's sum stay in registers.
template <std::size_t Vectors>
CFE_INLINE void gather_short(const UnitRows& others, Neighbors neighbors, const float* own_row, std::size_t d,
                             const Sums& sums) {
  RowShape shape(d);
  shape.vectors = Vectors;
  F16 own[Vectors] = {}, group[Vectors] = {};
  for (std::size_t v = 0; v < Vectors; ++v) {
    own[v] = v + 1 < Vectors ? F16::load(own_row + v * kLanes) : load_first(own_row + v * kLanes, shape.last);
    group[v] = F16::load(sums.group.data() + v * kLanes);
  }
  Chunk chunk;
  while (neighbors.first < neighbors.stop) {
    const std::size_t size = next_size(neighbors);
    weigh(others, neighbors, size, own, shape, chunk);
    add_rows(chunk, size, 0, shape.last, group);
    neighbors.first += size;
    neighbors.done += size;
    if (neighbors.done % kGroup == 0) {
      for (std::size_t v = 0; v < Vectors; ++v) group[v].store(sums.group.data() + v * kLanes);
      flush(sums);
      for (std::size_t v = 0; v < Vectors; ++v) group[v] = F16::all(0.0f);
    }
  }
  for (std::size_t v = 0; v < Vectors; ++v) group[v].store(sums.group.data() + v * kLanes);
}

struct LongRow {
  const float* row;
  RowShape shape;
  CFE_INLINE F16 operator[](std::size_t v) const {
    return v + 1 < shape.vectors ? F16::load(row + v * kLanes) : load_first(row + v * kLanes, shape.last);
  }
};

template <std::size_t Count>
CFE_INLINE void add_long_rows(const Chunk& chunk, std::size_t size, std::size_t first, std::size_t last,
                              std::span<float> group) {
  F16 sum[Count];
  for (std::size_t v = 0; v < Count; ++v) sum[v] = F16::load(group.data() + (first + v) * kLanes);
  add_rows(chunk, size, first, last, sum);
  for (std::size_t v = 0; v < Count; ++v) sum[v].store(group.data() + (first + v) * kLanes);
}

CFE_INLINE void gather_long(const UnitRows& others, Neighbors neighbors, const float* own_row, std::size_t d,
                            const Sums& sums) {
  const RowShape shape(d);
  const LongRow own{own_row, shape};
  Chunk chunk;
  while (neighbors.first < neighbors.stop) {
    const std::size_t size = next_size(neighbors);
    weigh(others, neighbors, size, own, shape, chunk);
    std::size_t v = 0;
    for (; v + kBlock < shape.vectors; v += kBlock) add_long_rows<kBlock>(chunk, size, v, kLanes, sums.group);
    for (; v + 1 < shape.vectors; ++v) add_long_rows<1>(chunk, size, v, kLanes, sums.group);
    add_long_rows<1>(chunk, size, v, shape.last, sums.group);
    neighbors.first += size;
    neighbors.done += size;
    if (neighbors.done % kGroup == 0) flush(sums);
  }
}

// Adds cos(x_v, x_u) x_u to the sums of v for some of its neighbours u.
void gather(const UnitRows& others, const Neighbors& neighbors, std::span<const float> own, const Sums& sums) {
  const std::size_t d = own.size();
  switch ((d + kLanes - 1) / kLanes) {
    case 1:
      return gather_short<1>(others, neighbors, own.data(), d, sums);
    case 2:
      return gather_short<2>(others, neighbors, own.data(), d, sums);
    case 3:
      return gather_short<3>(others, neighbors, own.data(), d, sums);
    case 4:
      return gather_short<4>(others, neighbors, own.data(), d, sums);
    default:
      return gather_long(others, neighbors, own.data(), d, sums);
  }
}

CFE_INLINE double tree_sum(double (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

struct Shares {
  double keep, share;
};

// Makes numbers first..first+count-1 of v's new row, and adds their squares to those of their lanes.
CFE_INLINE void finish_lanes(std::size_t first, std::size_t count, std::span<const float> own, const Shares& shares,
                             const Sums& sums, const NewRow& row, double (&squares)[kLanes]) {
  const float* x = own.data() + first;
  const float* group = sums.group.data() + first;
  double* total = sums.total.data() + first;
  float* aggregate = row.aggregate.data() + first;
  for (std::size_t l = 0; l < count; ++l) {
    const double sum = total[l] + static_cast<double>(group[l]);
    const double value = shares.keep * static_cast<double>(x[l]) + shares.share * sum;
    total[l] = value;
    aggregate[l] += static_cast<float>(value);
    squares[l] += value * value;
  }
}

// Makes v's new row, keep * own + share * sums, writes it and adds it to `aggregate`; returns its length.
float finish(std::span<const float> own, double keep, double share, const Sums& sums, const NewRow& row) {
  const std::size_t d = own.size();
  const Shares shares{keep, share};
  double squares[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= d; i += kLanes) finish_lanes(i, kLanes, own, shares, sums, row, squares);
  if (i < d) finish_lanes(i, d - i, own, shares, sums, row, squares);
  const double norm = std::sqrt(tree_sum(squares));
  const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
  for (i = 0; i < d; ++i) row.unit[i] = static_cast<float>(sums.total[i] * scale);
  return static_cast<float>(norm);
}

}  // namespace cfe::CFE_LEVEL
