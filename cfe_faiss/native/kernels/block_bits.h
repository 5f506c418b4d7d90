// Rows of lists in one bit a dimension, for a single query: a first stage that estimates scores, as in RaBitQ (Gao and
// Long, 2024). It is right with high probability only, so it serves searches whose recall is measured.
//
// With c the mean of a list, x' = x - c, R a rotation, s the signs of R x', and a = s·R x' / (|x'| sqrt(D)),
//
//   q·x = q·c + c·x' + (q - c)·x',    (q - c)·x' ~ f s·R(q - c),    f = |x'|^2 / s·R x'
//
// where the estimate errs by a standard deviation of |q - c| |x'| sqrt((1 / a^2 - 1) / (D - 1)). R q is rounded to a
// few bits in addition, so that sums of integers from tables of 4 dimensions give s·R q. For squared distances,
//
//   -|q - x|^2 = -|q - c|^2 - |x'|^2 + 2 (q - c)·x',
//
// and m, near the mean of all rows, is subtracted from q and c before they are rotated. Rows whose bounds, z deviations
// above their estimates, reach the threshold get narrower ones from R (x - m) in bytes, whose rounding errors add up to
// a standard deviation of |q - m| u / sqrt(12), with u the unit of a byte; R (c - m) in bytes gives q·c. The bounds of
// the k best rows so far are the threshold. Rows whose bounds reach the last threshold are scored.
//
// All sums have one order at every level, and nothing is fused, so that the same rows are scored.
#pragma once

#include "kernels/block_pack.h"
#include "kernels/block_scan.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr float kDeviations = 3;        // z
inline constexpr float kRoundingRatio = 0.6f;  // least deviation, per length of a query's rounding error, of a factor
inline constexpr float kCodeDeviation = 0.3f;  // per length of a query and unit of a byte; covers its 12 bits, too
inline constexpr std::size_t kFirstRows = 2;   // rows per result whose bytes are compared first, to get a threshold
inline constexpr std::size_t kCodesAhead = 3, kLinesAhead = 16;       // rows and cache lines that are prefetched
inline constexpr std::size_t kBytesAhead = 2048;                      // of the bits of blocks that are prefetched
inline constexpr int kLargestBitCode = 15, kLargestQueryCode = 2047;  // of a query that meets bits, or bytes

// --- rotation ---

// Sums and differences of numbers that are `step` apart, in the lower and the upper places.
template <int step>
CFE_INLINE F32x16 butterfly(const F32x16& v) {
  F32x16 sums;
  for (int p = 0; p < kParts; ++p) {
    if constexpr (step >= kWidth) {
      constexpr int distance = step / kWidth;
      sums.part[p] = p & distance ? v.part[p ^ distance] - v.part[p] : v.part[p] + v.part[p ^ distance];
    } else {
      sums.part[p] = [&]<int... lane>(std::integer_sequence<int, lane...>) CFE_LAMBDA {
        const FloatRegister signs{(lane & step ? -1.0f : 1.0f)...};
        return __builtin_shufflevector(v.part[p], v.part[p], (lane ^ step)...) + v.part[p] * signs;
      }
      (std::make_integer_sequence<int, kWidth>{});
    }
  }
  return sums;
}

// The Hadamard transform of n numbers, a power of two and at least 16.
CFE_INLINE void transform(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kLanes)
    butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(F32x16::load(x + i))))).store(x + i);
  for (std::size_t step = kLanes; step < n; step *= 2)
    for (std::size_t first = 0; first < n; first += 2 * step)
      for (std::size_t i = first; i < first + step; i += kLanes) {
        const F32x16 a = F32x16::load(x + i), b = F32x16::load(x + i + step);
        (a + b).store(x + i);
        (a - b).store(x + i + step);
      }
}

// Rotates a row of blocks.columns numbers: two times, or four for its first and last numbers in turn, signs are changed
// and the numbers transformed.
CFE_INLINE void rotate_signs(const BlocksView& blocks, float* x) {
  const std::size_t columns = blocks.columns, part = blocks.prefix;
  for (std::size_t round = 0; round < (part == columns ? 2 : kSignRounds); ++round) {
    const float* signs = blocks.rotation + round * columns;
    for (std::size_t i = 0; i < columns; i += kLanes) (F32x16::load(x + i) * F32x16::load(signs + i)).store(x + i);
    transform(round % 2 == 0 ? x : x + (columns - part), part);
  }
}

// Writes x - y, and zeros up to blocks.columns. y may be null.
CFE_INLINE void write_difference(const BlocksView& blocks, const float* x, const float* y, float* difference) {
  const std::size_t d = blocks.rows.d;
  for (std::size_t i = 0; i < d; ++i) difference[i] = y != nullptr ? x[i] - y[i] : x[i];
  for (std::size_t i = d; i < blocks.columns; ++i) difference[i] = 0;
}

// --- rows ---

// Rounds rotated numbers to codes. Returns their unit.
template <class Code>
CFE_INLINE float write_codes(const BlocksView& blocks, const float* rotated, int largest, Code* codes) {
  const auto write = [&](const std::int32_t* some, std::size_t i) CFE_LAMBDA {
    for (std::size_t lane = 0; lane < kLanes; ++lane) codes[i + lane] = static_cast<Code>(some[lane]);
  };
  return round_numbers(rotated, blocks.columns, static_cast<float>(largest), write).scale;
}

// Writes one row's bits and statistics into its lane, and its code. Adds `center` to it. `along`: c·x', or 0 for
// distances. `center`: R (c - m).
CFE_INLINE void encode_bits(const BlocksView& blocks, float* rotated, const float* center, float square, float along,
                            std::int8_t* code, std::uint8_t* bytes, float* statistics) {
  const auto columns = static_cast<float>(blocks.columns);
  const F32x16 zero = F32x16::all(0);
  F32x16 sizes = zero, products = zero;
  for (std::size_t i = 0; i < blocks.columns; i += kLanes) {
    const F32x16 x = F32x16::load(rotated + i), c = F32x16::load(center + i);
    const I32x16 positive = x >= zero;
    sizes += absolute(x);
    products += select(positive, c, zero - c);
    (x + c).store(rotated + i);
    const Mask mask = bits(positive);
    bytes[2 * i] = static_cast<std::uint8_t>(mask & 255);
    bytes[2 * i + kLanes] = static_cast<std::uint8_t>(mask >> 8);
  }
  const float size = sum(sizes), ratio = size > 0 ? columns * square / size / size - 1 : 0;
  const float factor = size > 0 ? square / size : 0;
  const float deviation = __builtin_sqrtf(square * (ratio > 0 ? ratio / (columns - 1) : 0));
  const bool distance = blocks.rows.metric == Metric::kL2;
  const float scale = distance ? 2 : 1;
  statistics[kFactor * kLanes] = scale * factor;
  statistics[kBase * kLanes] = (distance ? -square : along) - scale * factor * sum(products);
  statistics[kRest * kLanes] = distance ? -dot<false, true>(rotated, rotated, blocks.columns) : 0;
  statistics[kUnit * kLanes] = scale * write_codes(blocks, rotated, kLargestRowCode, code);
  statistics[kDeviation * kLanes] = scale * (deviation > kRoundingRatio * factor ? deviation : kRoundingRatio * factor);
}

// Packs a list.
void pack_bits(const BlocksView& blocks, const ListRows& rows, const ListTarget& target, const PackMemory& memory) {
  const std::size_t d = blocks.rows.d, columns = blocks.columns;
  float *center = memory.rotated, *mean = memory.rotated + columns, *x = memory.block;
  write_mean(blocks.rows, rows, memory.row, mean);
  write_difference(blocks, mean, blocks.center, center);
  target.mean[0] = dot<false, true>(center, center, d);
  rotate_signs(blocks, center);
  target.mean[1] = write_codes(blocks, center, kLargestRowCode, target.mean_code);
  for (std::size_t first = 0, b = 0; first < rows.size; first += kLanes, ++b) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(target.data + b * blocks.words * kLanes);
    auto* statistics = reinterpret_cast<float*>(target.statistics + b * kEstimateStatistics * kLanes);
    std::memset(bytes, 0, blocks.words * kLanes * sizeof(std::int32_t));
    clear(statistics, kEstimateStatistics);
    target.ranges[b] = read_block(blocks.rows, rows, first, memory.row, target.labels + b * kLanes, [&](int lane) {
      write_difference(blocks, memory.row, mean, x);
      const float square = dot<false, true>(x, x, d), along = dot<false, true>(x, mean, d);
      rotate_signs(blocks, x);
      std::int8_t* code = target.codes + (first + static_cast<std::size_t>(lane)) * columns;
      encode_bits(blocks, x, center, square, along, code, bytes + lane, statistics + lane);
    });
  }
}

// --- queries ---

using ByteRegister = std::uint8_t __attribute__((vector_size(4 * kWidth)));
using ShortRegister = std::uint16_t __attribute__((vector_size(4 * kWidth)));

CFE_INLINE ByteRegister in_bytes(int value) { return in_all_lanes<ByteRegister>(static_cast<std::uint8_t>(value)); }

// Writes the tables of 16 numbers, sums for each value of 4 bits: of the lower 4 bits of each byte of rows, 64 bytes
// before the tables of the upper 4. Eight sums, of one byte each, are one number: none is negative or above 255.
CFE_INLINE void write_tables(const std::int32_t* codes, std::size_t first, std::uint8_t* tables) {
  constexpr std::uint64_t kEach = 0x0101010101010101,
                          kSet[] = {0x0100010001000100, 0x0101000001010000, 0x0101010100000000};
  for (std::size_t t = 0; t < 4; ++t, codes += 4) {
    std::uint64_t sums[2] = {
        kEach * static_cast<std::uint64_t>(4 * kLargestBitCode - codes[0] - codes[1] - codes[2] - codes[3])};
    for (int bit = 0; bit < 3; ++bit) sums[0] += kSet[bit] * static_cast<std::uint64_t>(2 * codes[bit]);
    sums[1] = sums[0] + kEach * static_cast<std::uint64_t>(2 * codes[3]);
    const std::size_t byte = first / 8 + t / 2;
    std::memcpy(tables + byte / 4 * 128 + t % 2 * 64 + byte % 4 * kLanes, sums, sizeof sums);
  }
}

CFE_INLINE std::int16_t* query_codes(const Scan& scan) {
  return reinterpret_cast<std::int16_t*>(scan.memory.rotated + scan.blocks.columns);
}

// Rotates a query and writes its tables and statistics.
CFE_INLINE void encode_bit_query(const Scan& scan) {
  const BlocksView& blocks = scan.blocks;
  const QueryStatistics& query = scan.memory.queries;
  const std::size_t columns = blocks.columns, d = blocks.rows.d;
  float* x = scan.memory.rotated;
  write_difference(blocks, scan.group.X, blocks.center, x);
  query.norm[0] = dot<false, true>(x, x, d);  // squared
  rotate_signs(blocks, x);
  query.inverse_scale[0] = write_codes(blocks, x, kLargestQueryCode, query_codes(scan));
  const std::size_t fits = 0x7FFF / columns;  // sums of codes fit into 16 bits
  const auto most = static_cast<float>(fits < kLargestBitCode ? fits : kLargestBitCode);
  auto* tables = reinterpret_cast<std::uint8_t*>(scan.memory.words);
  const Rounding rounding = round_numbers(
      x, columns, most, [&](const std::int32_t* codes, std::size_t i) CFE_LAMBDA { write_tables(codes, i, tables); });
  query.scale[0] = rounding.scale;
  query.error[0] = rounding.error / (kRoundingRatio * kRoundingRatio);
}

// --- estimates ---

// Each place, below 16, replaced by the entry of a table there; a table for each 16 places.
CFE_INLINE ByteRegister looked_up(const ByteRegister& tables, const ByteRegister& places) {
#if defined(CFE_LEVEL_avx512)
  return (ByteRegister)_mm512_shuffle_epi8((__m512i)tables, (__m512i)places);
#elif defined(CFE_LEVEL_avx2)
  return (ByteRegister)_mm256_shuffle_epi8((__m256i)tables, (__m256i)places);
#elif defined(CFE_LEVEL_neon)
  return (ByteRegister)vqtbl1q_u8((uint8x16_t)tables, (uint8x16_t)places);
#else
  ByteRegister found = in_bytes(tables[0]);  // an entry is the sum of its single bits
  for (int bit = 1; bit < kLanes; bit *= 2)
    found += (ByteRegister)((places & in_bytes(bit)) != 0) & in_bytes(tables[bit] - tables[0]);
  return found;
#endif
}

// The products of the query's codes and the signs of a block's rows. Prefetches the block `next`.
CFE_INLINE I32x16 sign_products(const BlocksView& blocks, std::size_t b, std::size_t next, const std::uint8_t* tables) {
  constexpr std::size_t kWord = 64, kBytes = sizeof(ByteRegister);
  const auto* rows = reinterpret_cast<const std::uint8_t*>(blocks.data + b * blocks.words * kLanes);
  const std::int32_t* ahead = blocks.data + next * blocks.words * kLanes;
  const std::int32_t* statistics = blocks.statistics + next * kEstimateStatistics * kLanes;
  for (std::size_t i = kFactor; i <= kDeviation; ++i) __builtin_prefetch(statistics + i * kLanes);
  // Sums of rows 0, 2, ... and 1, 3, ... in 16 bits, where the first wrap around.
  ShortRegister pairs{}, odd{};
  for (std::size_t word = 0; word < blocks.words; ++word)
    for (std::size_t at = 0; at < kWord; at += kBytes) {
      ByteRegister bytes, lower, upper;
      std::memcpy(&bytes, rows + word * kWord + at, kBytes);
      if (at == 0) __builtin_prefetch(ahead + word * kLanes);
      std::memcpy(&lower, tables + 2 * word * kWord + at, kBytes);
      std::memcpy(&upper, tables + (2 * word + 1) * kWord + at, kBytes);
      const auto high = (ByteRegister)((ShortRegister)bytes >> 4) & 15;
      const auto sums = (ShortRegister)(looked_up(lower, bytes & 15) + looked_up(upper, high));
      pairs += sums;
      odd += sums >> 8;
    }
  const auto zero = static_cast<std::uint16_t>(kLargestBitCode * blocks.columns);  // of all tables
  const auto evens = parts_added<8>(pairs - (odd << 8)) - zero, odds = parts_added<8>(odd) - zero;
  using Signed = std::int16_t __attribute__((vector_size(32)));
  const auto sums = (Signed)__builtin_shufflevector(evens, odds, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  I32x16 v;
  [&]<int... p>(std::integer_sequence<int, p...>) CFE_LAMBDA {
    ((v.part[p] = __builtin_convertvector(consecutive<p * kWidth, kWidth>(sums, sums), IntRegister)), ...);
  }
  (std::make_integer_sequence<int, kParts>{});
  return v;
}

// A query and a list: the number added to each estimate, and the deviations per unit of a row.
struct ListEstimate {
  float base, width;
};

// The product of the codes of the query and of a row or a mean.
CFE_INLINE float code_product(const Scan& scan, const std::int8_t* code) {
  const std::int16_t* query = query_codes(scan);
  I32x16 even = I32x16::all(0), odd = even;  // one would wait for each product
  for (std::size_t i = 0; i < scan.blocks.columns; i += 4 * kLanes) {
    even = add_products_of_pairs(even, query + i, code + i);
    odd = add_products_of_pairs(odd, query + i + 2 * kLanes, code + i + 2 * kLanes);
  }
  return scan.memory.queries.inverse_scale[0] * static_cast<float>(sum(even + odd));
}

CFE_INLINE ListEstimate estimate_of(const Scan& scan, std::int64_t number) {
  const BlocksView& blocks = scan.blocks;
  const auto list = static_cast<std::size_t>(number);
  const QueryStatistics& query = scan.memory.queries;
  const float unit = blocks.means[2 * list + 1], lengths = query.norm[0] + blocks.means[2 * list];
  const float product = code_product(scan, blocks.mean_codes + list * blocks.columns) * unit;
  const float error = kDeviations * kCodeDeviation * __builtin_sqrtf(query.norm[0]) * unit;
  const float square = lengths - 2 * (product - error);
  const float width = kDeviations * __builtin_sqrtf((square > 0 ? square : 0) + query.error[0]);
  if (blocks.rows.metric != Metric::kL2) return {product + error, width};
  return {kRoundings * blocks.margin * lengths - lengths + 2 * (product + error), width};
}

// Writes upper bounds of the rows of up to `most` eligible blocks, from `place` on: -inf for a lane that is not
// eligible. Returns the number of blocks, and sets `place` to the end.
CFE_INLINE std::size_t bound_blocks(const Scan& scan, Place& place, std::size_t most) {
  const WarmUp memory = scan.memory.warm_up;
  const auto* tables = reinterpret_cast<const std::uint8_t*>(scan.memory.words);
  const F32x16 nothing = F32x16::all(-kInfinite), scale = F32x16::all(scan.memory.queries.scale[0]);
  const std::size_t ahead = 1 + kBytesAhead / (scan.blocks.words * kLanes * sizeof(std::int32_t));
  std::size_t chosen = 0;
  for (; place.list < scan.group.nprobe && chosen < most; ++place.list, place.block = 0) {
    const auto [first, stop] = list_blocks(scan, place.list);
    if (first == stop) continue;
    const std::size_t after = place.list + 1 < scan.group.nprobe ? list_blocks(scan, place.list + 1).list : stop;
    const ListEstimate list = estimate_of(scan, scan.group.lists[place.list]);
    const F32x16 base = F32x16::all(list.base), width = F32x16::all(list.width);
    for (place.block = place.block > first ? place.block : first; place.block < stop && chosen < most; ++place.block) {
      const std::size_t b = place.block;
      const Mask lanes = eligible_lanes(scan, b, scan.label);
      if (lanes == 0) continue;
      const auto* rows = reinterpret_cast<const float*>(scan.blocks.statistics + b * kEstimateStatistics * kLanes);
      const std::size_t next = b + ahead < stop ? b + ahead : after + (b + ahead - stop);
      const F32x16 products = to_float(sign_products(scan.blocks, b, next, tables)) * scale;
      const F32x16 estimate =
          (base + F32x16::load(rows + kBase * kLanes)) + F32x16::load(rows + kFactor * kLanes) * products;
      const F32x16 upper = estimate + F32x16::load(rows + kDeviation * kLanes) * width;
      select(lanes_of(lanes), upper, nothing).store(memory.upper + chosen * kLanes);
      memory.seen[chosen++] = static_cast<std::int32_t>(b);
    }
    if (place.block < stop) break;
  }
  return chosen;
}

// Compares the bytes of some rows: warm_up.kept holds the indices of their bounds, which become -inf. Rows become
// candidates if both bounds reach the threshold.
CFE_INLINE void compare_codes(const Scan& scan, std::size_t number) {
  const BlocksView& blocks = scan.blocks;
  const WarmUp memory = scan.memory.warm_up;
  const QueryStatistics& query = scan.memory.queries;
  const auto lane_of = [&](std::size_t n) CFE_LAMBDA {
    const auto at = static_cast<std::size_t>(memory.kept[n]);
    return static_cast<std::size_t>(memory.seen[at / kLanes]) * kLanes + at % kLanes;
  };
  const auto statistics_of = [&](std::size_t lane) CFE_LAMBDA {
    const std::int32_t* of_block = blocks.statistics + lane / kLanes * kEstimateStatistics * kLanes;
    return reinterpret_cast<const float*>(of_block) + lane % kLanes;
  };
  const auto prefetch = [&](std::size_t n) CFE_LAMBDA {
    for (std::size_t i = 0; n < number && i < blocks.columns; i += kCacheLine)
      __builtin_prefetch(blocks.codes + lane_of(n) * blocks.columns + i);
    if (n < number) __builtin_prefetch(statistics_of(lane_of(n)) + kUnit * kLanes);
  };
  const bool distance = blocks.rows.metric == Metric::kL2;
  const float width = kDeviations * kCodeDeviation * __builtin_sqrtf(query.norm[0]);
  const std::size_t ahead = kCodesAhead + kLinesAhead * kCacheLine / blocks.columns;
  for (std::size_t n = 0; n < ahead; ++n) prefetch(n);
  for (std::size_t first = 0; first < number; first += kLanes) {
    std::int32_t lanes[kLanes] = {};
    float lower[kLanes] = {}, upper[kLanes] = {};
    const std::size_t rows = number - first < kLanes ? number - first : kLanes;
    for (std::size_t i = 0; i < rows; ++i) {
      prefetch(first + i + ahead);
      const std::size_t lane = lane_of(first + i);
      const float* statistics = statistics_of(lane);
      const float unit = statistics[kUnit * kLanes], rest = distance ? statistics[kRest * kLanes] - query.norm[0] : 0;
      const float estimate = rest + unit * code_product(scan, blocks.codes + lane * blocks.columns);
      float& bound = memory.upper[memory.kept[first + i]];
      lanes[i] = static_cast<std::int32_t>(lane);
      lower[i] = estimate - width * unit;
      upper[i] = estimate + width * unit < bound ? estimate + width * unit : bound;
      bound = -kInfinite;
    }
    const F32x16 bounds = F32x16::load(upper);
    const Mask reach = at_least(bounds, F32x16::all(query.threshold[0])) & (0xFFFFu >> (kLanes - rows));
    add_candidates(scan, 0, I32x16::load(lanes), reach, smaller(F32x16::load(lower), bounds), bounds);
  }
  drop_candidates(scan, 0, 1, scan.group.k * scan.group.copies);
}

// Compares the bytes of the rows whose bounds are best, to get a threshold, then of the others whose bounds reach it.
CFE_INLINE void compare_bounded(const Scan& scan, std::size_t filled) {
  const WarmUp memory = scan.memory.warm_up;
  const std::size_t rank = (kFirstRows * scan.group.k + scan.group.filter.ids_each) * scan.group.copies;
  const std::span<const float> upper(memory.upper, filled * kLanes);
  const auto compare_best = [&](std::span<const float> lower, std::size_t number) {
    compare_codes(scan, near_best(lower, upper, number, {memory.maxima, memory.width}, {memory.kept, upper.size()}));
  };
  if (scan.memory.candidates.found[0] + scan.memory.candidates.counts[0] < scan.group.k)
    compare_best(upper, rank < memory.width ? rank : memory.width);
  float threshold[kLanes];
  F32x16::all(scan.memory.queries.threshold[0]).store(threshold);
  compare_best(threshold, 1);
}

// Finds the best rows of the lists of a group of one query, with high probability.
void scan_bits(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory) {
  const Scan scan = scan_of(blocks, group, memory);
  begin_results(scan, 0);
  if (is_sound(group.X, blocks.rows.d)) {
    encode_bit_query(scan);
    Place place{0, 0};
    for (std::size_t filled = memory.warm_up.blocks; filled == memory.warm_up.blocks;) {
      filled = bound_blocks(scan, place, memory.warm_up.blocks);
      compare_bounded(scan, filled);
    }
  }
  end_all_results(scan);
}

}  // namespace cfe::CFE_LEVEL::block
