// A step of the KS propagation, node by node. The order of all sums is fixed: a cosine in 16 partial sums, then a tree
// of halves; the sum over neighbours in their order.
#include "core/propagation.h"

#include <cmath>
#include <type_traits>

#include "simd/load.h"

namespace cfe::CFE_LEVEL {

// Cosines taken together. Rows of later neighbours are prefetched if the cache cannot hold all rows: on random graphs
// the pass is bound by memory latency.
inline constexpr std::size_t kChunk = 8;
inline constexpr std::size_t kRun = 128;  // neighbours whose cosines are kept until their rows are added
inline constexpr std::size_t kAhead = 16;
inline constexpr std::size_t kBlock = 4;         // vectors of a long row that are summed in registers
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

// Number of neighbours that may be taken together, at most `most`: within the group and the list.
CFE_INLINE std::size_t run_size(std::size_t most, const Neighbors& neighbors) {
  const std::size_t of_group = kGroup - neighbors.done % kGroup;
  return least(least(most, of_group), neighbors.size());
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

inline constexpr std::int32_t kLane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// A row of d numbers in registers: `Full` vectors of 16, then a rest of 1 to 16 numbers. The rest is a vector of 4, 8
// or 16: the last ones of the row. So after a full vector the rest may repeat some numbers; for products, v's own row
// has zeros there. Loads are masked if the row is shorter than its only vector.
template <int Full, int Rest, bool Masked>
struct Row {
  static constexpr int kVectors = Full + 1;
  static constexpr int kRest = (Rest + kWidth - 1) / kWidth, kFirst = Full * kParts;           // registers
  static constexpr int kWideRest = (2 * Rest + kWidth - 1) / kWidth, kWideFirst = 2 * kFirst;  // in float64
  static constexpr int kWide = kWideFirst + kWideRest;
  using Floats = Vector<FloatRegister, float, kFirst + kRest>;
  using Doubles = Vector<Wide, double, kWide>;

  static CFE_INLINE std::size_t rest_of(std::size_t d) { return Full > 0 ? d - Rest : 0; }

  // From an array with room for at least 16 numbers.
  static CFE_INLINE Floats load_sums(const float* from, std::size_t d) {
    Floats row;
    for (int r = 0; r < kFirst; ++r) row.part[r] = load_register(from + r * kWidth);
    for (int r = 0; r < kRest; ++r) row.part[kFirst + r] = load_low<Rest>(from + rest_of(d) + r * kWidth);
    return row;
  }
  static CFE_INLINE void store_sums(const Floats& row, float* to, std::size_t d) {
    for (int r = 0; r < kFirst; ++r) store_low<kWidth>(row.part[r], to + r * kWidth);
    for (int r = 0; r < kRest; ++r) store_low<Rest>(row.part[kFirst + r], to + rest_of(d) + r * kWidth);
  }
  static CFE_INLINE Doubles load_sums(const double* from, std::size_t d) {
    double rest[kLanes] = {};
    for (std::size_t i = 0; i < Rest; ++i) rest[i] = from[rest_of(d) + i];
    Doubles row;
    for (int r = 0; r < kWide; ++r) {
      const double* at = r < kWideFirst ? from + r * F64x16::kOfPart : rest + (r - kWideFirst) * F64x16::kOfPart;
      std::memcpy(&row.part[r], at, sizeof(Wide));
    }
    return row;
  }
  static CFE_INLINE Floats load(const float* from, std::size_t d) {
    if constexpr (!Masked) return load_sums(from, d);
    const F32x16 all = load_first(from, d);
    Floats row;
    for (int r = 0; r < kRest; ++r) row.part[r] = all.part[r];
    return row;
  }
  static CFE_INLINE void store(const Floats& row, float* to, std::size_t d) {
    if constexpr (!Masked) return store_sums(row, to, d);
    F32x16 all = F32x16::all(0.0f);
    for (int r = 0; r < kRest; ++r) all.part[r] = row.part[r];
    store_first(all, to, d);
  }
  // v's own row, without repeated numbers.
  static CFE_INLINE Floats load_own(const float* from, std::size_t d) {
    Floats row = load(from, d);
    const I32x16 once = lanes_once(d);
    for (int r = 0; Full > 0 && r < kRest; ++r)
      row.part[kFirst + r] = (FloatRegister)((IntRegister)row.part[kFirst + r] & once.part[r]);
    return row;
  }
  // All bits set in the lanes of the rest whose numbers are in no full vector.
  static CFE_INLINE I32x16 lanes_once(std::size_t d) {
    return I32x16::load(kLane) > I32x16::all(static_cast<std::int32_t>(Rest + Full * kLanes - d) - 1);
  }
  // The products of two rows in 16 partial sums: number i in lane i % 16, the rest in the first lanes.
  static CFE_INLINE F32x16 products(const Floats& x, const Floats& y) {
    F32x16 sum = F32x16::all(0.0f);
    for (int r = 0; r < kFirst + kRest; ++r) {
      const FloatRegister product = x.part[r] * y.part[r];
      sum.part[r % kParts] = r < kParts ? product : sum.part[r % kParts] + product;
    }
    return sum;
  }
  // The sum of the squares in 16 partial sums, like `products`; each number once.
  static CFE_INLINE double sum_of_squares(Doubles row, std::size_t d) {
    if constexpr (Full > 0) {
      Vector<FloatRegister, float, kRest> ones;  // 1 or 0 for each number of the rest
      const I32x16 once = lanes_once(d);
      for (int r = 0; r < kRest; ++r)
        ones.part[r] = (FloatRegister)(once.part[r] & (IntRegister)F32x16::all(1.0f).part[0]);
      const auto wide = widened<kWideRest>(ones);
      for (int r = 0; r < kWideRest; ++r) row.part[kWideFirst + r] *= wide.part[r];
    }
    F64x16 squares = {};
    for (int r = 0; r < kWide; ++r) squares.part[r % (2 * kParts)] += row.part[r] * row.part[r];
    return sum(squares);
  }
};

// Writes the cosines of kChunk neighbours from `first` on. An incomplete chunk is filled with the last neighbour, whose
// cosine is then written several times.
template <class Row, bool kFull>
CFE_INLINE void take_cosines(const UnitRows& others, std::span<const std::int32_t> nodes, std::size_t first,
                             const typename Row::Floats& own, float* cosines) {
  const std::size_t d = others.rows.columns;
  F32x16 products[kChunk];
  for (std::size_t j = 0; j < kChunk; ++j) {
    const auto u = static_cast<std::size_t>(nodes[kFull ? first + j : least(first + j, nodes.size() - 1)]);
    products[j] = Row::products(own, Row::load(others.row(u), d));
  }
  const F32x16 sums = sums_of_8(products);
  for (std::size_t r = 0; r < (kChunk + kWidth - 1) / kWidth; ++r)
    store_low<kChunk>(sums.part[r], cosines + first + r * kWidth);
}

// Short rows: v's own row and the group's sum stay in registers. Adds to `group`; a full group is added to sums.total.
template <class Row>
CFE_INLINE void gather(const UnitRows& others, Neighbors neighbors, std::span<const float> own_row, const Sums& sums,
                       typename Row::Floats& group) {
  using Floats = Row::Floats;
  const std::size_t d = own_row.size();
  const bool fetched = others.rows.size() * sizeof(float) > kCached;
  const Floats own = Row::load_own(own_row.data(), d);
  while (neighbors.size() > 0) {
    const std::size_t size = run_size(kRun, neighbors);
    const auto nodes = neighbors.nodes.subspan(neighbors.first, size);
    float cosines[kRun];
    std::size_t i = 0;
    for (; i + kChunk <= size; i += kChunk) {
      if (fetched) fetch<Row::kVectors>(others, neighbors.nodes, neighbors.first + i + kAhead);
      take_cosines<Row, true>(others, nodes, i, own, cosines);
    }
    if (i < size) take_cosines<Row, false>(others, nodes, i, own, cosines);
    if (!neighbors.weights.empty()) weigh(neighbors, size, cosines);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < size; ++j) {
      const auto u = static_cast<std::size_t>(nodes[j]);
      group += Row::load(others.row(u), d) * (cosines[j] * others.lengths[u]);
    }
    neighbors.skip(size);
    if (neighbors.done % kGroup == 0) {
      Row::store_sums(group, sums.group.data(), d);
      flush(sums);
      group = Floats::all(0.0f);
    }
  }
}

// Computes v's new row from the sum over its neighbours, writes it and adds it to `aggregate`. Returns its length.
template <class Row>
CFE_INLINE float finish(std::span<const float> own, const typename Row::Doubles& sum, const NewRow& row) {
  using Doubles = Row::Doubles;
  const std::size_t d = own.size();
  const Doubles old = widened<Row::kWide>(Row::load(own.data(), d));
  const Doubles value = old * row.keep + sum * row.share;
  const double norm = std::sqrt(Row::sum_of_squares(value, d));
  const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
  float* aggregate = row.aggregate.data();
  Row::store(Row::load(aggregate, d) + rounded(value), aggregate, d);
  Row::store(rounded(value * scale), row.unit.data(), d);
  return static_cast<float>(norm);
}

// The products of two long rows in 16 partial sums.
CFE_INLINE F32x16 long_products(const float* x, const float* y, std::size_t d) {
  const std::size_t full = vectors_of(d) - 1, last = last_of(d);
  F32x16 sum = F32x16::load(x) * F32x16::load(y);
  for (std::size_t v = 1; v < full; ++v) sum = sum + F32x16::load(x + v * kLanes) * F32x16::load(y + v * kLanes);
  return sum + load_first(x + full * kLanes, last) * load_first(y + full * kLanes, last);
}

// Adds `Count` vectors of some rows, from column `first` on, times their weights; `last` numbers of the last vector.
template <std::size_t Count>
CFE_INLINE void add_columns(std::span<const float* const> rows, const float* weights, std::size_t first,
                            std::size_t last, float* group) {
  F32x16 sum[Count];
  for (std::size_t v = 0; v < Count; ++v) sum[v] = F32x16::load(group + first + v * kLanes);
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const F32x16 weight = F32x16::all(weights[j]);
    const float* row = rows[j] + first;
    for (std::size_t v = 0; v + 1 < Count; ++v) sum[v] += weight * F32x16::load(row + v * kLanes);
    sum[Count - 1] += weight * load_first(row + (Count - 1) * kLanes, last);
  }
  for (std::size_t v = 0; v < Count; ++v) sum[v].store(group + first + v * kLanes);
}

// Long rows.
CFE_INLINE void gather_long(const UnitRows& others, Neighbors neighbors, std::span<const float> own, const Sums& sums) {
  const std::size_t d = own.size(), end = (vectors_of(d) - 1) * kLanes;
  float* group = sums.group.data();
  while (neighbors.size() > 0) {
    const std::size_t size = run_size(kChunk, neighbors);
    fetch<0>(others, neighbors.nodes, neighbors.first + kAhead);
    const float* row[kChunk];
    F32x16 products[kChunk];
    for (std::size_t j = 0; j < size; ++j) {
      row[j] = others.row(static_cast<std::size_t>(neighbors.nodes[neighbors.first + j]));
      products[j] = long_products(own.data(), row[j], d);
    }
    for (std::size_t j = size; j < kChunk; ++j) products[j] = F32x16::all(0.0f);
    float weights[kLanes];
    sums_of_8(products).store(weights);
    if (!neighbors.weights.empty()) weigh(neighbors, size, weights);
    for (std::size_t j = 0; j < size; ++j)
      weights[j] *= others.lengths[static_cast<std::size_t>(neighbors.nodes[neighbors.first + j])];
    const std::span<const float* const> rows(row, size);
    std::size_t i = 0;
    for (; i + kBlock * kLanes <= end; i += kBlock * kLanes) add_columns<kBlock>(rows, weights, i, kLanes, group);
    for (; i < end; i += kLanes) add_columns<1>(rows, weights, i, kLanes, group);
    add_columns<1>(rows, weights, end, last_of(d), group);
    neighbors.skip(size);
    if (neighbors.done % kGroup == 0) flush(sums);
  }
}

CFE_INLINE float finish_long(std::span<const float> own, const Sums& sums, const NewRow& row) {
  const std::size_t d = own.size(), last = last_of(d), count = vectors_of(d);
  F64x16 squares = {};
  for (std::size_t v = 0; v < count; ++v) {
    const std::size_t i = v * kLanes, size = v + 1 < count ? kLanes : last;
    float* aggregate = row.aggregate.data() + i;
    const F64x16 sum = F64x16::load(sums.total.data() + i) + widened<2 * kParts>(F32x16::load(sums.group.data() + i));
    const F64x16 value = widened<2 * kParts>(load_first(own.data() + i, size)) * row.keep + sum * row.share;
    value.store(sums.total.data() + i);
    squares = squares + value * value;
    store_first(load_first(aggregate, size) + rounded(value), aggregate, size);
  }
  const double norm = std::sqrt(sum(squares));
  const double scale = norm > 0.0 ? 1.0 / norm : 0.0;
  for (std::size_t v = 0; v < count; ++v) {
    const std::size_t i = v * kLanes;
    const F64x16 value = F64x16::load(sums.total.data() + i) * scale;
    store_first(rounded(value), row.unit.data() + i, v + 1 < count ? kLanes : last);
  }
  return static_cast<float>(norm);
}

// Rows that do not fit into registers.
struct LongRow {};

// The parts of a NodeStep are separate arguments: if the structure were written to memory and read in other units, the
// processor would wait for each node.
template <class Row>
CFE_INLINE float step(const UnitRows& others, std::span<const float> own, const Neighbors& neighbors, const Sums& sums,
                      bool fresh, const NewRow* to) {
  if constexpr (std::is_same_v<Row, LongRow>) {
    if (fresh) clear(sums);
    gather_long(others, neighbors, own, sums);
    return to == nullptr ? 0 : finish_long(own, sums, *to);
  } else {
    const std::size_t d = own.size();
    const bool grouped = !fresh || neighbors.size() >= kGroup;  // else sums stay in registers
    if (fresh && grouped) clear(sums);
    auto group = fresh ? Row::Floats::all(0.0f) : Row::load_sums(sums.group.data(), d);
    gather<Row>(others, neighbors, own, sums, group);
    if (to == nullptr) {
      Row::store_sums(group, sums.group.data(), d);
      return 0;
    }
    auto sum = widened<Row::kWide>(group);
    if (grouped) sum = Row::load_sums(sums.total.data(), d) + sum;
    return finish<Row>(own, sum, *to);
  }
}

// Calls `call` with the kind of row that has d numbers, whose last vector has `rest`.
template <int Full, class Call>
CFE_INLINE auto with_row(std::size_t rest, const Call& call) {
  if constexpr (Full == 0) {
    if (rest < 4) return call(Row<0, 4, true>{});
    if (rest > 4 && rest < 8) return call(Row<0, 8, true>{});
    if (rest > 8 && rest < 16) return call(Row<0, 16, true>{});
  }
  if (rest <= 4) return call(Row<Full, 4, false>{});
  if (rest <= 8) return call(Row<Full, 8, false>{});
  return call(Row<Full, 16, false>{});
}

template <class Call>
CFE_INLINE auto with_row(std::size_t d, const Call& call) {
  switch (vectors_of(d)) {
    case 1:
      return with_row<0>(last_of(d), call);
    case 2:
      return with_row<1>(last_of(d), call);
    case 3:
      return with_row<2>(last_of(d), call);
    case 4:
      return with_row<3>(last_of(d), call);
    default:
      return call(LongRow{});
  }
}

// Copies of the views: the compiler would read the caller's views again after each store.
template <class Row>
void step_some(const Matrix<const float> unit, const Nodes nodes, const Range range, double alpha, const StepRows rows,
               const Sums scratch) {
  const UnitRows others{unit, 0, rows.lengths};
  for (std::size_t v = range.first; v < range.stop; ++v) {
    const NewRow to = new_row(nodes, alpha, rows, v);
    const Neighbors neighbors = some_neighbors(nodes, v, nodes.first(v), nodes.stop(v));
    rows.new_lengths[v] = step<Row>(others, unit[nodes.number(v)], neighbors, scratch, true, &to);
  }
}

template <class Row>
float step_part(const UnitRows& others, const NodeStep& node) {
  return step<Row>(others, node.own, node.neighbors, node.sums, node.fresh, node.to);
}

// Takes the step of some nodes of a graph whose rows are all in memory.
void step_nodes(const UnitRows& others, const Nodes& nodes, const Range& range, double alpha, const StepRows& rows,
                const Sums& scratch) {
  with_row(others.rows.columns,
           [&]<class Row>(Row) { step_some<Row>(others.rows, nodes, range, alpha, rows, scratch); });
}

// The function for nodes with rows of d numbers.
StepOfNode step_of_node(std::size_t d) {
  return with_row(d, []<class Row>(Row) -> StepOfNode { return step_part<Row>; });
}

}  // namespace cfe::CFE_LEVEL
