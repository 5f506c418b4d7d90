// Rows and queries side by side in 16 lanes, dimension-major: how they are read, rotated and rounded to bytes.
//
// Rows are screened in bytes. With c the mean of the rows of a list and x' = x - c,
//
//   q·x = q·c + q·x',    |q·x' - q^·x^| <= |q - q^| |x^| + |q| |x' - x^|    (Cauchy-Schwarz)
//
// where q^ and x^ are q and x' rounded to 8-bit integers times a scale of their own. The norms are known, so the bound
// is rigorous, and tight, since x' is short where the rows of a list are near each other.
//
// In many dimensions all are rotated first, to the directions in which x' varies most. What comes after the first of
// these, the prefix, is short, and by its length alone most rows are out of reach (Cauchy-Schwarz again). Rotating in
// float32 is not exact; by how much goes into the errors |q - q^| and |x' - x^|.
#pragma once

#include <limits>

#include "core/block_view.h"
#include "kernels/codecs.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL::block {

// What is called seldom enough to stand in one place only.
#define CFE_OUTLINE inline __attribute__((noinline))

inline constexpr float kTiny = 1e-30f;    // below, the inverse of a scale may be infinite
inline constexpr float kLongest = 1e30f;  // squared norm; that of a unit vector is 1
inline constexpr float kInfinite = std::numeric_limits<float>::infinity();

// --- rows as they are kept ---

CFE_INLINE void decode(const RowsView& rows, const std::uint8_t* code, float* x) {
  switch (rows.codec) {
    case Codec::kFlat:
      return decode_row<Codec::kFlat>(rows, code, x);
    case Codec::kFp16:
      return decode_row<Codec::kFp16>(rows, code, x);
    case Codec::kSq8:
      return decode_row<Codec::kSq8>(rows, code, x);
  }
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

// Whether no product with a row can overflow: rows of a damaged file may hold anything.
CFE_INLINE bool is_sound(const float* x, std::size_t d) {
  F16 sums = F16::all(0);
  std::size_t i = 0;
  for (; i + kLanes <= d; i += kLanes) {
    const F16 some = F16::load(x + i);
    sums += some * some;
  }
  float total = 0, lanes[kLanes];
  sums.store(lanes);
  for (; i < d; ++i) total += x[i] * x[i];
  for (const float lane : lanes) total += lane;
  return total <= kLongest;
}

// --- 16 lanes ---

CFE_INLINE void clear(float* lanes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) F16::all(0).store(lanes + i * kLanes);
}

CFE_INLINE void put_lane(const float* x, std::size_t d, int lane, float* lanes) {
  for (std::size_t i = 0; i < d; ++i) lanes[i * kLanes + lane] = x[i];
}

// How many sums there are of each product: as each sum waits for its last number, there have to be about eight
// registers of them at once; more than there are registers would take longer.
constexpr int chains_of(int products) {
  const int registers = products * kParts;
  return registers >= 8 ? 1 : registers > 2 ? 8 / registers : 4;
}

// Products of Q rows, of which number i of row q is at i * stride + q, with 16 lanes of each of B blocks: that of row q
// and block b is sums[b * Q + q].
template <int Q, int B>
CFE_INLINE void float_products(const float* rows, std::size_t stride, const float* const (&lanes)[B], std::size_t d,
                               F16* sums) {
  constexpr int kChains = chains_of(Q * B);
  F16 chains[kChains][B][Q];
  for (int c = 0; c < kChains; ++c)
    for (int b = 0; b < B; ++b)
      for (int q = 0; q < Q; ++q) chains[c][b][q] = F16::all(0);
  const auto add = [&](std::size_t i, F16(&to)[B][Q]) CFE_LAMBDA {
    F16 columns[B];
    for (int b = 0; b < B; ++b) columns[b] = F16::load(lanes[b] + i * kLanes);
    for (int q = 0; q < Q; ++q) {
      const F16 number = F16::all(rows[i * stride + q]);
      for (int b = 0; b < B; ++b) to[b][q] = fused(number, columns[b], to[b][q]);
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
    }
}

// The same with one block.
template <int Q>
CFE_INLINE void float_products(const float* rows, std::size_t stride, const float* lanes, std::size_t d, F16* sums) {
  const float* const one[1] = {lanes};
  float_products<Q, 1>(rows, stride, one, d, sums);
}

CFE_INLINE void rotate(const BlocksView& blocks, const float* lanes, float* rotated) {
  constexpr int kColumns = kWidth == kLanes ? 8 : kWidth == 8 ? 4 : 2;
  for (std::size_t j = 0; j < blocks.columns; j += kColumns) {
    F16 sums[kColumns];
    float_products<kColumns>(blocks.rotation + j, blocks.columns, lanes, blocks.rows.d, sums);
    for (int c = 0; c < kColumns; ++c) sums[c].store(rotated + (j + c) * kLanes);
  }
}

CFE_INLINE F16 square_root(const F16& a) {
  float numbers[kLanes];
  a.store(numbers);
  for (float& number : numbers) number = __builtin_sqrtf(number);
  return F16::load(numbers);
}

struct Codes {
  F16 scale, norm, error, tail_norm;
  I16 sum, tail_sum;  // of the bytes
};

// Writes 16 lanes as words of four bytes, to each of which `zero` is added, and returns what is known of them.
CFE_INLINE Codes encode(const BlocksView& blocks, const float* lanes, int largest_code, int zero, std::int32_t* words) {
  const std::size_t d = blocks.rows.d, prefix = 4 * blocks.prefix;
  Codes codes;
  F16 largest = F16::all(0), squares = F16::all(0), tail = F16::all(0), error = F16::all(0);
  for (std::size_t i = 0; i < d; ++i) {
    const F16 x = F16::load(lanes + i * kLanes);
    largest = larger(absolute(x), largest);
    squares += x * x;
    if (i >= prefix) tail += x * x;
  }
  const F16 tiny = F16::all(kTiny);
  codes.scale = select(largest > tiny, largest / F16::all(static_cast<float>(largest_code)), F16::all(1));
  const F16 inverse = F16::all(1) / codes.scale;
  codes.sum = codes.tail_sum = I16::all(0);
  for (std::size_t w = 0; w < blocks.words; ++w) {
    I16 word = I16::all(0);
    for (std::size_t i = 4 * w; i < d && i < 4 * w + 4; ++i) {
      const F16 x = F16::load(lanes + i * kLanes);
      const I16 code = rounded(x * inverse);
      const F16 difference = x - to_float(code) * codes.scale;
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
