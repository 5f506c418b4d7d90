// A step of the KS propagation, node by node. The order of all sums is fixed: a cosine in 16 partial sums, then a tree
// of halves; the sum over neighbours in their order.
#include "core/propagation.h"

#include <cmath>
#include <span>

#include "simd/shuffle.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

// Cosines taken together. Rows of later neighbours are prefetched if the cache cannot hold all rows: on random graphs
// the pass is bound by memory latency.
inline constexpr std::size_t kChunk = 8;
inline constexpr std::size_t kRun = 128;  // neighbours whose cosines are kept until their rows are added
inline constexpr std::size_t kAhead = 16;
inline constexpr std::size_t kBlock = 4;         // vectors of a long row that are summed in registers
inline constexpr std::size_t kShort = 4;         // vectors of the longest row that is kept in registers
inline constexpr std::size_t kCacheLine = 64;    // bytes
inline constexpr std::size_t kCached = 4 << 20;  // bytes of rows that a cache holds, so that no prefetch is needed

// std::min would be compiled once for all levels.
CFE_INLINE std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

CFE_INLINE std::size_t vectors_of(std::size_t d) { return (d + kLanes - 1) / kLanes; }

// Numbers of a row of d in its last vector of 16: 1 to 16.
CFE_INLINE std::size_t last_of(std::size_t d) { return d - (vectors_of(d) - 1) * kLanes; }

// Prefetches the rows kAhead after a chunk. `Count` vectors make a row, or any number if it is 0.
template <std::size_t Count>
CFE_INLINE void fetch(const UnitRows& others, std::span<const std::int32_t> nodes, std::size_t first) {
  const std::size_t d = others.rows.columns;
  if (first + kChunk > nodes.size()) return;
  for (std::size_t j = 0; j < kChunk; ++j) {
    // The row of another block; any row will do.
    const std::size_t row = least(static_cast<std::size_t>(nodes[first + j]) - others.low, others.rows.rows - 1);
    const char* from = reinterpret_cast<const char*>(others.rows.data + row * d);
    const std::size_t end = sizeof(float) * (Count > 0 ? (Count - 1) * kLanes : d);
    for (std::size_t at = 0; at < end; at += kCacheLine) __builtin_prefetch(from + at);
    __builtin_prefetch(from + sizeof(float) * d - 1);
  }
}

// A chunk of neighbours: addresses of their rows, lengths of their vectors, and cosines.
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

// Number of neighbours that may be taken together, at most `most`: within the group and the list.
CFE_INLINE std::size_t run_size(std::size_t most, const Neighbors& neighbors) {
  const std::size_t of_group = kGroup - neighbors.done % kGroup;
  return least(least(most, of_group), neighbors.stop - neighbors.first);
}

// Multiplies the cosines of the next neighbours by their weights.
CFE_INLINE void weigh(const Neighbors& neighbors, std::size_t size, float* cosines) {
  for (std::size_t j = 0; j < size; ++j) cosines[j] *= neighbors.weights[neighbors.first + j] / neighbors.largest;
}

CFE_INLINE void flush(const Sums& sums) {
  for (std::size_t i = 0; i < sums.group.size(); ++i) {
    sums.total[i] += static_cast<double>(sums.group[i]);
    sums.group[i] = 0.0f;
  }
}

CFE_INLINE void clear(const Sums& sums) {
  for (double& number : sums.total) number = 0.0;
  for (float& number : sums.group) number = 0.0f;
}

// Layout of a row of d numbers: `Full` vectors of 16, then a rest of 1 to 16 numbers. The rest is a vector of 4, 8 or
// 16: the last ones of the row. So after a full vector the rest may repeat some numbers; for products, v's own row has
// zeros there.
template <std::size_t kFull, std::size_t kRest, bool kMasked>
struct Shape {
  static constexpr bool Masked = kMasked;  // whether the row is shorter than its only vector
  static constexpr std::size_t Full = kFull, Rest = kRest, kVectors = kFull + 1;
};

// Rows that do not fit into registers.
struct LongShape {
  static constexpr std::size_t Rest = 0, kVectors = 0;
};

inline constexpr std::int32_t kLane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// A row in registers.
template <class Shape>
struct Row {
  static constexpr std::size_t kOfRest = (Shape::Rest + kWidth - 1) / kWidth, kFirst = Shape::Full * kParts;
  static constexpr std::size_t kRegisters = kFirst + kOfRest;
  FloatRegister part[kRegisters];

  static CFE_INLINE Row load(const float* from, std::size_t d) {
    Row row;
    row.load_full(from);
    if constexpr (!Shape::Masked) {
      for (std::size_t r = 0; r < kOfRest; ++r)
        row.part[kFirst + r] = load_low<Shape::Rest>(from + rest_of(d) + r * kWidth);
    } else {
      const F32x16 rest = load_first(from, d);
      for (std::size_t r = 0; r < kOfRest; ++r) row.part[r] = rest.part[r];
    }
    return row;
  }
  // v's own row, without repeated numbers.
  static CFE_INLINE Row load_own(const float* from, std::size_t d) {
    Row row = load(from, d);
    if constexpr (Shape::Full > 0) {
      const I32x16 once = lanes_once(d);
      for (std::size_t r = 0; r < kOfRest; ++r)
        row.part[kFirst + r] = (FloatRegister)((IntRegister)row.part[kFirst + r] & once.part[r]);
    }
    return row;
  }
  // From sums, which have room for at least 16 numbers.
  static CFE_INLINE Row load_sums(const float* from, std::size_t d) {
    Row row;
    row.load_full(from);
    for (std::size_t r = 0; r < kOfRest; ++r)
      row.part[kFirst + r] = load_low<Shape::Rest>(from + rest_of(d) + r * kWidth);
    return row;
  }
  CFE_INLINE void store_sums(float* to, std::size_t d) const {
    for (std::size_t r = 0; r < kFirst; ++r) std::memcpy(to + r * kWidth, &part[r], sizeof part[r]);
    for (std::size_t r = 0; r < kOfRest; ++r) store_low<Shape::Rest>(part[kFirst + r], to + rest_of(d) + r * kWidth);
  }
  static CFE_INLINE Row zero() {
    Row row;
    for (FloatRegister& numbers : row.part) numbers = FloatRegister{};
    return row;
  }
  CFE_INLINE void store(float* to, std::size_t d) const {
    if constexpr (!Shape::Masked) return store_sums(to, d);
    F32x16 rest = F32x16::all(0.0f);
    for (std::size_t r = 0; r < kOfRest; ++r) rest.part[r] = part[r];
    store_first(rest, to, d);
  }
  CFE_INLINE Row operator+(const Row& other) const {
    Row row;
    for (std::size_t r = 0; r < kRegisters; ++r) row.part[r] = part[r] + other.part[r];
    return row;
  }
  // The products of two rows in 16 partial sums: number i in lane i % 16, the rest in the first lanes.
  CFE_INLINE F32x16 products(const Row& other) const {
    F32x16 sum = F32x16::all(0.0f);
    for (std::size_t r = 0; r < kRegisters; ++r) {
      const FloatRegister product = part[r] * other.part[r];
      sum.part[r % kParts] = r < kParts ? product : sum.part[r % kParts] + product;
    }
    return sum;
  }
  CFE_INLINE void add(float weight, const Row& other) {
    const FloatRegister weights = F32x16::all(weight).part[0];
    for (std::size_t r = 0; r < kRegisters; ++r) part[r] = part[r] + weights * other.part[r];
  }

  // All bits set in the lanes of the rest whose numbers are in no full vector.
  static CFE_INLINE I32x16 lanes_once(std::size_t d) {
    return I32x16::load(kLane) > I32x16::all(static_cast<std::int32_t>(Shape::Rest + Shape::Full * kLanes - d) - 1);
  }
  static CFE_INLINE std::size_t rest_of(std::size_t d) { return Shape::Full > 0 ? d - Shape::Rest : 0; }

 private:
  CFE_INLINE void load_full(const float* from) {
    for (std::size_t r = 0; r < kFirst; ++r) std::memcpy(&part[r], from + r * kWidth, sizeof part[r]);
  }
};

// A row in float64.
template <class Shape>
struct WideRow {
  using Floats = Row<Shape>;
  static constexpr std::size_t kFirst = 2 * Floats::kFirst, kOfRest = (Shape::Rest + F64x16::kWide - 1) / F64x16::kWide;
  static constexpr std::size_t kRegisters = kFirst + kOfRest;
  Wide part[kRegisters];

  static CFE_INLINE WideRow widened(const Floats& row) {
    WideRow wide;
    for (std::size_t r = 0; r < kRegisters; ++r)
      wide.part[r] = r % 2 == 0 ? widened_lower(row.part[r / 2]) : widened_upper(row.part[r / 2]);
    return wide;
  }
  // From sums, which have room for at least 16 numbers.
  static CFE_INLINE WideRow load_sums(const double* from, std::size_t d) {
    double rest[kLanes] = {};
    for (std::size_t i = 0; i < Shape::Rest; ++i) rest[i] = from[Floats::rest_of(d) + i];
    WideRow wide;
    for (std::size_t r = 0; r < kRegisters; ++r) {
      const double* at = r < kFirst ? from + r * F64x16::kWide : rest + (r - kFirst) * F64x16::kWide;
      std::memcpy(&wide.part[r], at, sizeof(Wide));
    }
    return wide;
  }
  CFE_INLINE Floats rounded() const {
    Floats row;
    for (std::size_t r = 0; r < Floats::kRegisters; ++r)
      row.part[r] = rounded_pair(part[2 * r], 2 * r + 1 < kRegisters ? part[2 * r + 1] : Wide{});
    return row;
  }
  CFE_INLINE WideRow operator+(const WideRow& other) const {
    WideRow wide;
    for (std::size_t r = 0; r < kRegisters; ++r) wide.part[r] = part[r] + other.part[r];
    return wide;
  }
  CFE_INLINE WideRow operator*(double factor) const {
    WideRow wide;
    for (std::size_t r = 0; r < kRegisters; ++r) wide.part[r] = part[r] * factor;
    return wide;
  }
  // The sum of the squares in 16 partial sums, like `products`; each number once.
  CFE_INLINE double sum_of_squares(std::size_t d) const {
    WideRow once = *this;
    if constexpr (Shape::Full > 0) {
      const I32x16 lanes = Floats::lanes_once(d);
      for (std::size_t r = 0; r < kOfRest; ++r) {
        // 1 or 0 for each number of the rest.
        const FloatRegister ones = (FloatRegister)(lanes.part[r / 2] & (IntRegister)F32x16::all(1.0f).part[0]);
        once.part[kFirst + r] *= r % 2 == 0 ? widened_lower(ones) : widened_upper(ones);
      }
    }
    F64x16 squares = {};
    for (std::size_t r = 0; r < kRegisters; ++r) squares.part[r % F64x16::kWideParts] += once.part[r] * once.part[r];
    return squares.sum();
  }
};

// Writes the cosines of kChunk neighbours from `first` on. An incomplete chunk is filled with the last neighbour, whose
// cosine is then written several times.
template <class Shape, bool kFull>
CFE_INLINE void take_cosines(const UnitRows& others, std::span<const std::int32_t> nodes, std::size_t first,
                             const Row<Shape>& own, float* cosines) {
  const std::size_t d = others.rows.columns;
  F32x16 products[kChunk];
  for (std::size_t j = 0; j < kChunk; ++j) {
    const auto u = static_cast<std::size_t>(nodes[kFull ? first + j : least(first + j, nodes.size() - 1)]);
    products[j] = own.products(Row<Shape>::load(others.rows.data + (u - others.low) * d, d));
  }
  const F32x16 sums = sums_of_8(products);
  for (std::size_t r = 0; r < (kChunk + kWidth - 1) / kWidth; ++r)
    store_low<kChunk>(sums.part[r], cosines + first + r * kWidth);
}

// Short rows: v's own row and the group's sum stay in registers. Adds to `group`; a full group is added to sums.total.
template <class Shape>
CFE_INLINE void gather_short(const UnitRows& others, Neighbors neighbors, std::span<const float> own_row,
                             const Sums& sums, Row<Shape>& group) {
  const std::size_t d = own_row.size();
  const bool fetched = others.rows.size() * sizeof(float) > kCached;
  const Row<Shape> own = Row<Shape>::load_own(own_row.data(), d);
  while (neighbors.first < neighbors.stop) {
    const std::size_t size = run_size(kRun, neighbors);
    const auto nodes = neighbors.nodes.subspan(neighbors.first, size);
    float cosines[kRun];
    std::size_t i = 0;
    for (; i + kChunk <= size; i += kChunk) {
      if (fetched) fetch<Shape::kVectors>(others, neighbors.nodes, neighbors.first + i + kAhead);
      take_cosines<Shape, true>(others, nodes, i, own, cosines);
    }
    if (i < size) take_cosines<Shape, false>(others, nodes, i, own, cosines);
    if (!neighbors.weights.empty()) weigh(neighbors, size, cosines);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < size; ++j) {
      const auto u = static_cast<std::size_t>(nodes[j]);
      group.add(cosines[j] * others.lengths[u], Row<Shape>::load(others.rows.data + (u - others.low) * d, d));
    }
    neighbors.first += size;
    neighbors.done += size;
    if (neighbors.done % kGroup == 0) {
      group.store_sums(sums.group.data(), d);
      flush(sums);
      group = Row<Shape>::zero();
    }
  }
}

// Computes v's new row from the sum over its neighbours, writes it and adds it to `aggregate`. Returns its length.
template <class Shape>
CFE_INLINE float finish_short(std::span<const float> own, const Shares& shares, const WideRow<Shape>& sum,
                              const NewRow& row) {
  const std::size_t d = own.size();
  const WideRow<Shape> old = WideRow<Shape>::widened(Row<Shape>::load(own.data(), d));
  const WideRow<Shape> value = old * shares.keep + sum * shares.share;
  const double norm = std::sqrt(value.sum_of_squares(d));
  const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
  float* aggregate = row.aggregate.data();
  (Row<Shape>::load(aggregate, d) + value.rounded()).store(aggregate, d);
  (value * scale).rounded().store(row.unit.data(), d);
  return static_cast<float>(norm);
}

// The products of two rows in 16 partial sums.
CFE_INLINE F32x16 long_products(const float* x, const float* y, std::size_t d) {
  const std::size_t full = vectors_of(d) - 1, last = last_of(d);
  F32x16 sum = F32x16::load(x) * F32x16::load(y);
  for (std::size_t v = 1; v < full; ++v) sum = sum + F32x16::load(x + v * kLanes) * F32x16::load(y + v * kLanes);
  return sum + load_first(x + full * kLanes, last) * load_first(y + full * kLanes, last);
}

// Adds `Count` vectors of the rows of a chunk, from column `first` on; `last` numbers of the last vector.
template <std::size_t Count>
CFE_INLINE void add_columns(const Chunk& chunk, std::size_t size, std::size_t first, std::size_t last, float* group) {
  F32x16 sum[Count];
  for (std::size_t v = 0; v < Count; ++v) sum[v] = F32x16::load(group + first + v * kLanes);
  for (std::size_t j = 0; j < size; ++j) {
    const F32x16 weight = F32x16::all(chunk.cosine[j] * chunk.length[j]);
    const float* row = chunk.row[j] + first;
    for (std::size_t v = 0; v + 1 < Count; ++v) sum[v] += weight * F32x16::load(row + v * kLanes);
    sum[Count - 1] += weight * load_first(row + (Count - 1) * kLanes, last);
  }
  for (std::size_t v = 0; v < Count; ++v) sum[v].store(group + first + v * kLanes);
}

CFE_INLINE void gather_long(const UnitRows& others, Neighbors neighbors, std::span<const float> own, const Sums& sums) {
  const std::size_t d = own.size(), end = (vectors_of(d) - 1) * kLanes;
  float* group = sums.group.data();
  while (neighbors.first < neighbors.stop) {
    const std::size_t size = run_size(kChunk, neighbors);
    fetch<0>(others, neighbors.nodes, neighbors.first + kAhead);
    Chunk chunk;
    F32x16 products[kChunk];
    for (std::size_t j = 0; j < size; ++j) {
      chunk.set(j, others, neighbors.nodes[neighbors.first + j]);
      products[j] = long_products(own.data(), chunk.row[j], d);
    }
    for (std::size_t j = size; j < kChunk; ++j) products[j] = F32x16::all(0.0f);
    sums_of_8(products).store(chunk.cosine);
    if (!neighbors.weights.empty()) weigh(neighbors, size, chunk.cosine);
    std::size_t i = 0;
    for (; i + kBlock * kLanes <= end; i += kBlock * kLanes) add_columns<kBlock>(chunk, size, i, kLanes, group);
    for (; i < end; i += kLanes) add_columns<1>(chunk, size, i, kLanes, group);
    add_columns<1>(chunk, size, end, last_of(d), group);
    neighbors.first += size;
    neighbors.done += size;
    if (neighbors.done % kGroup == 0) flush(sums);
  }
}

// The same for a long row.
CFE_INLINE float finish_long(std::span<const float> own, const Shares& shares, const Sums& sums, const NewRow& row) {
  const std::size_t d = own.size(), last = last_of(d), count = vectors_of(d);
  F64x16 squares = {};
  for (std::size_t v = 0; v < count; ++v) {
    const std::size_t i = v * kLanes, size = v + 1 < count ? kLanes : last;
    float* aggregate = row.aggregate.data() + i;
    const F64x16 sum = F64x16::load(sums.total.data() + i) + F64x16::widened(F32x16::load(sums.group.data() + i));
    const F64x16 value = F64x16::widened(load_first(own.data() + i, size)) * shares.keep + sum * shares.share;
    value.store(sums.total.data() + i);
    squares = squares + value * value;
    store_first(load_first(aggregate, size) + value.rounded(), aggregate, size);
  }
  const double norm = std::sqrt(squares.sum());
  const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
  for (std::size_t v = 0; v < count; ++v) {
    const std::size_t i = v * kLanes;
    const F64x16 value = F64x16::load(sums.total.data() + i) * scale;
    store_first(value.rounded(), row.unit.data() + i, v + 1 < count ? kLanes : last);
  }
  return static_cast<float>(norm);
}

// Takes the step of node v. Its sums stay in registers unless it has a full group of neighbours.
template <class Shape>
CFE_INLINE float step_node(const UnitRows& others, const Neighbors& neighbors, std::span<const float> own,
                           const Shares& shares, const Sums& sums, const NewRow& row) {
  const bool groups = neighbors.stop - neighbors.first >= kGroup;
  if constexpr (Shape::Rest == 0) {
    clear(sums);
    gather_long(others, neighbors, own, sums);
    return finish_long(own, shares, sums, row);
  } else {
    if (groups) clear(sums);
    Row<Shape> group = Row<Shape>::zero();
    gather_short<Shape>(others, neighbors, own, sums, group);
    WideRow<Shape> sum = WideRow<Shape>::widened(group);
    if (groups) sum = WideRow<Shape>::load_sums(sums.total.data(), own.size()) + sum;
    return finish_short<Shape>(own, shares, sum, row);
  }
}

template <class Shape>
void step_nodes(const Nodes& nodes, double alpha, const Step& step, const Sums& sums) {
  const UnitRows others{step.unit, 0, step.lengths};
  for (std::size_t v = nodes.range.first; v < nodes.range.stop; ++v) {
    const auto first = static_cast<std::size_t>(nodes.indptr[v]), stop = static_cast<std::size_t>(nodes.indptr[v + 1]);
    const bool weighted = !nodes.weights.empty();
    const Shares shares =
        shares_of(alpha, step.lengths[v], weighted ? nodes.totals[v] : static_cast<double>(stop - first));
    const NewRow row{step.aggregate[v], step.new_unit[v]};
    const Neighbors neighbors{nodes.indices, first, stop, 0, nodes.weights, weighted ? nodes.largest[v] : 1.0f};
    step.new_lengths[v] = step_node<Shape>(others, neighbors, step.unit[v], shares, sums, row);
  }
}

template <class Shape>
void gather_any(const UnitRows& others, const Neighbors& neighbors, std::span<const float> own, const Sums& sums) {
  if constexpr (Shape::Rest == 0) {
    gather_long(others, neighbors, own, sums);
  } else {
    Row<Shape> group = Row<Shape>::load_sums(sums.group.data(), own.size());
    gather_short<Shape>(others, neighbors, own, sums, group);
    group.store_sums(sums.group.data(), own.size());
  }
}

template <class Shape>
float finish_any(std::span<const float> own, const Shares& shares, const Sums& sums, const NewRow& row) {
  if constexpr (Shape::Rest == 0) {
    return finish_long(own, shares, sums, row);
  } else {
    const std::size_t d = own.size();
    const auto group = WideRow<Shape>::widened(Row<Shape>::load_sums(sums.group.data(), d));
    return finish_short<Shape>(own, shares, WideRow<Shape>::load_sums(sums.total.data(), d) + group, row);
  }
}

template <std::size_t Full, std::size_t Rest, class Call>
CFE_INLINE void for_rest(std::size_t d, const Call& call) {
  if (Full > 0 || d == Rest) return call(Shape<Full, Rest, false>{});
  if constexpr (Full == 0) return call(Shape<Full, Rest, true>{});
}

template <std::size_t Full, class Call>
CFE_INLINE void for_vectors(std::size_t d, const Call& call) {
  const std::size_t rest = last_of(d);
  if (rest <= 4) return for_rest<Full, 4>(d, call);
  if (rest <= 8) return for_rest<Full, 8>(d, call);
  return for_rest<Full, 16>(d, call);
}

// Calls `call` with the layout of rows of d numbers.
template <class Call>
CFE_INLINE void for_length(std::size_t d, const Call& call) {
  static_assert(kShort == 4);
  switch (vectors_of(d)) {
    case 1:
      return for_vectors<0>(d, call);
    case 2:
      return for_vectors<1>(d, call);
    case 3:
      return for_vectors<2>(d, call);
    case 4:
      return for_vectors<3>(d, call);
    default:
      return call(LongShape{});
  }
}

// Takes the step of some nodes; `sums` is scratch.
void step(const Nodes& nodes, double alpha, const Step& step, const Sums& sums) {
  for_length(step.unit.columns, [&]<class Shape>(Shape) { step_nodes<Shape>(nodes, alpha, step, sums); });
}

// Adds cos(x_v, x_u) x_u to the sums of v for some of its neighbours u.
void gather(const UnitRows& others, const Neighbors& neighbors, std::span<const float> own, const Sums& sums) {
  for_length(own.size(), [&]<class Shape>(Shape) { gather_any<Shape>(others, neighbors, own, sums); });
}

float finish(std::span<const float> own, const Shares& shares, const Sums& sums, const NewRow& row) {
  float length = 0.0f;
  for_length(own.size(), [&]<class Shape>(Shape) { length = finish_any<Shape>(own, shares, sums, row); });
  return length;
}

}  // namespace cfe::CFE_LEVEL
