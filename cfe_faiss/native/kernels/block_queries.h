// Rows and queries in 16 lanes, dimension-major: reading, rotating and rounding them to bytes.
//
// Rows are screened in bytes. With c the mean of the rows of a list and x' = x - c,
//
//   q·x = q·c + q·x',    |q·x' - q^·x^| <= |q - q^| |x^| + |q| |x' - x^|    (Cauchy-Schwarz)
//
// where q^ and x^ are q and x' rounded to 8-bit integers times a scale for each. The norms are known, so the bound is
// rigorous. It is tight, since x' is short if the rows of a list are near each other.
//
// In many dimensions, queries and rows are rotated first, to the principal directions of x'. The part after the prefix,
// the first of these directions, is short. By its length alone most rows are out of reach (Cauchy-Schwarz again). The
// rounding error of the rotation is added to the errors |q - q^| and |x' - x^|.
//
// For squared distances, with m near the mean of all rows,
//
//   -|q - x|^2 = -|q - c|^2 + 2 (q - m)·x' + a,    a = -2 (c - m)·x' - |x'|^2
//
// where a is computed in float64 from the row, and rounded once. So q - m is rounded to bytes, with twice the scale,
// and -|q - c|^2 + a takes the place of q·c.
//
// Float32 rounding errors of these bounds are relative to the lengths of the vectors. Unit vectors have one margin for
// all; see core/blocks.cpp. For others, with u = 2^-24, w = q or 2 (q - m), r the longest x' of the list, and d <=
// 2^13, so that errors of a rotation are at most 1/16 and higher orders at most 1/1000,
//
//   x' and w, each component rounded once              2 u |w| r
//   norms and errors, sums of d squares                4.6 (d + 12) u |w| r    as |x^| <= 2.1 |x'|, |q^| <= 2.1 |w|
//   the differences in |q - q^| and |x' - x^|          7 u |w| r
//   four roundings of q^·x^ and its bound              36 u |w| r
//   their sum with the others                          6 u |q·c|, or 8 u (|q - c|^2 + |a|)
//   q·c, or |q - c|^2 by differences                   d u |q| |c|, or (d + 2) u |q - c|^2
//
// As |a| <= 2 r^2 + |q - c|^2 + |w| r, the sum is less than 8 (d + 16) u (|w| r + |q| |c|) for products, and less than
// 8 (d + 16) u (|w| r + r^2 + |q - c|^2) for distances. Squares below 2^-126 may be lost, so that each norm, of d of
// them, may be too small by e = (d + 16)^(1/2) 2^-63: that adds less than 16 e (|w| + r + 16 e). Rounding of thresholds
// and results is relative to them; see margin_of.
#pragma once

#include "core/block_view.h"
#include "kernels/codecs.h"
#include "kernels/select.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL::block {

inline constexpr float kTiny = 1e-30f;    // below, the inverse of a scale may be infinite
inline constexpr float kLongest = 1e30f;  // squared norm; 1 for a unit vector

// --- stored rows ---

CFE_INLINE void decode(const RowsView& rows, const std::uint8_t* code, float* x) {
  CFE_WITH_CODEC(rows.codec, decode_row, rows, code, x)
}

struct StoredRow {
  const std::uint8_t* code;
  std::int64_t id;
};

CFE_INLINE StoredRow stored_row(const RowsView& rows, std::int64_t row) {
  const std::size_t list = rows.list_of(row);
  const auto place = static_cast<std::size_t>(row - rows.starts[list]);
  return {rows.codes[list] + rows.row_size * place, rows.ids[list][place]};
}

// --- 16 lanes ---

CFE_INLINE void clear(float* lanes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) F32x16::all(0).store(lanes + i * kLanes);
}

CFE_INLINE void put_lane(const float* x, std::size_t d, int lane, float* lanes) {
  for (std::size_t i = 0; i < d; ++i) lanes[i * kLanes + lane] = x[i];
}

// Number of partial sums per product. About eight registers hide the latency of additions; more would be spilled.
constexpr int chains_of(int products) {
  const int registers = products * kParts;
  return registers >= 8 ? 1 : registers > 2 ? 8 / registers : 4;
}

// Products of Q rows with 16 lanes of each of B blocks, or minus their squared distances. Number i of row q is at
// i * stride + q * step; the product of row q and block b is sums[b * Q + q].
template <int Q, int B, bool kDistance = false>
CFE_INLINE void dot_block(const float* rows, std::size_t stride, const float* const (&lanes)[B], std::size_t d,
                          F32x16* sums, std::size_t step = 1) {
  constexpr int kChains = chains_of(Q * B);
  F32x16 chains[kChains][B][Q];
  for (int c = 0; c < kChains; ++c)
    for (int b = 0; b < B; ++b)
      for (int q = 0; q < Q; ++q) chains[c][b][q] = F32x16::all(0);
  const auto add = [&](std::size_t i, F32x16(&to)[B][Q]) CFE_LAMBDA {
    F32x16 columns[B];
    for (int b = 0; b < B; ++b) columns[b] = F32x16::load(lanes[b] + i * kLanes);
    for (int q = 0; q < Q; ++q) {
      const F32x16 number = F32x16::all(rows[i * stride + q * step]);
      for (int b = 0; b < B; ++b) {
        if constexpr (kDistance) {
          const F32x16 difference = number - columns[b];
          to[b][q] = fused(difference, difference, to[b][q]);
        } else {
          to[b][q] = fused(number, columns[b], to[b][q]);
        }
      }
    }
  };
  std::size_t i = 0;
  for (; i + kChains <= d; i += kChains)
    for (int c = 0; c < kChains; ++c) add(i + c, chains[c]);
  for (; i < d; ++i) add(i, chains[0]);
  for (int b = 0; b < B; ++b)
    for (int q = 0; q < Q; ++q) {
      sums[b * Q + q] = chains[0][b][q];
      for (int c = 1; c < kChains; ++c) sums[b * Q + q] += chains[c][b][q];
      if constexpr (kDistance) sums[b * Q + q] = F32x16::all(0) - sums[b * Q + q];
    }
}

CFE_INLINE void rotate(const BlocksView& blocks, const float* lanes, float* rotated) {
  constexpr int kColumns = kWidth == kLanes ? 8 : kWidth == 8 ? 4 : 2;
  for (std::size_t j = 0; j < blocks.columns; j += kColumns) {
    F32x16 sums[kColumns];
    dot_block<kColumns, 1>(blocks.rotation + j, blocks.columns, {lanes}, blocks.rows.d, sums);
    for (int c = 0; c < kColumns; ++c) sums[c].store(rotated + (j + c) * kLanes);
  }
}

CFE_INLINE F32x16 square_root(const F32x16& a) {
  float numbers[kLanes];
  a.store(numbers);
  for (float& number : numbers) number = __builtin_sqrtf(number);
  return F32x16::load(numbers);
}

struct Codes {
  F32x16 scale, norm, error, tail_norm;
  I32x16 sum, tail_sum;  // of the bytes
};

// Writes 16 lanes as words of four bytes, each with `zero` added. Returns their statistics.
CFE_INLINE Codes encode(const BlocksView& blocks, const float* lanes, int largest_code, int zero, std::int32_t* words) {
  const std::size_t d = blocks.rows.d, prefix = 4 * blocks.prefix;
  Codes codes;
  F32x16 largest = F32x16::all(0), squares = F32x16::all(0), tail = F32x16::all(0), error = F32x16::all(0);
  for (std::size_t i = 0; i < d; ++i) {
    const F32x16 x = F32x16::load(lanes + i * kLanes);
    largest = larger(absolute(x), largest);
    squares += x * x;
    if (i >= prefix) tail += x * x;
  }
  const F32x16 tiny = F32x16::all(kTiny);
  codes.scale = select(largest > tiny, largest / F32x16::all(static_cast<float>(largest_code)), F32x16::all(1));
  const F32x16 inverse = F32x16::all(1) / codes.scale;
  codes.sum = codes.tail_sum = I32x16::all(0);
  for (std::size_t w = 0; w < blocks.words; ++w) {
    I32x16 word = I32x16::all(0);
    for (std::size_t i = 4 * w; i < d && i < 4 * w + 4; ++i) {
      const F32x16 x = F32x16::load(lanes + i * kLanes);
      const I32x16 code = rounded(x * inverse);
      const F32x16 difference = x - to_float(code) * codes.scale;
      error += difference * difference;
      codes.sum += code;
      if (w >= blocks.prefix) codes.tail_sum += code;
      for (int p = 0; p < kParts; ++p) word.part[p] |= ((code.part[p] + zero) & 255) << (8 * (i % 4));
    }
    word.store(words + w * kLanes);
  }
  codes.norm = square_root(squares);
  codes.tail_norm = square_root(tail);
  codes.error = square_root(error);
  return codes;
}

}  // namespace cfe::CFE_LEVEL::block
