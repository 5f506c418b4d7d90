// A single query: rotated, rounded to bytes and compared with means along its dimensions. Several queries are in 16
// lanes instead.
#pragma once

#include "kernels/block_queries.h"

namespace cfe::CFE_LEVEL::block {

// The product of two rows, or their squared distance, for screening only; `kFixed`: with the same bits at every level.
template <bool kDistance = false, bool kFixed = false>
CFE_INLINE float dot(const float* x, const float* y, std::size_t d) {
  F32x16 sums[4] = {F32x16::all(0), F32x16::all(0), F32x16::all(0), F32x16::all(0)};
  const auto add = [&](std::size_t at, F32x16& to) CFE_LAMBDA {
    const F32x16 a = F32x16::load(x + at), b = F32x16::load(y + at), difference = a - b;
    if constexpr (kFixed)
      to += kDistance ? difference * difference : a * b;
    else
      to = kDistance ? fused(difference, difference, to) : fused(a, b, to);
  };
  std::size_t i = 0;
  for (; i + 4 * kLanes <= d; i += 4 * kLanes)
    for (int c = 0; c < 4; ++c) add(i + c * kLanes, sums[c]);
  for (; i + kLanes <= d; i += kLanes) add(i, sums[0]);
  float total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < d; ++i) total += kDistance ? (x[i] - y[i]) * (x[i] - y[i]) : x[i] * y[i];
  return total;
}

// Whether no product with the vector can overflow. Rows of a damaged file may hold anything.
CFE_INLINE bool is_sound(const float* x, std::size_t d) { return dot(x, x, d) <= kLongest; }

// Writes x times the rotation, (columns,).
CFE_INLINE void rotate_single(const BlocksView& blocks, const float* x, float* rotated) {
  constexpr std::size_t kAtOnce = 4;
  for (std::size_t j = 0; j < blocks.columns; j += kAtOnce * kLanes) {
    const std::size_t parts = blocks.columns - j < kAtOnce * kLanes ? (blocks.columns - j) / kLanes : kAtOnce;
    F32x16 sums[kAtOnce] = {F32x16::all(0), F32x16::all(0), F32x16::all(0), F32x16::all(0)};
    for (std::size_t i = 0; i < blocks.rows.d; ++i)
      for (std::size_t p = 0; p < parts; ++p)
        sums[p] =
            fused(F32x16::all(x[i]), F32x16::load(blocks.rotation + i * blocks.columns + j + p * kLanes), sums[p]);
    for (std::size_t p = 0; p < parts; ++p) sums[p].store(rotated + j + p * kLanes);
  }
}

struct Rounding {
  float scale, error;  // error: the square of the length
};

// Rounds n numbers, and zeros after them up to a multiple of 16, to codes of at most `most`; write(codes, i) takes 16.
template <class Write>
CFE_INLINE Rounding round_numbers(const float* x, std::size_t n, float most, const Write& write) {
  F32x16 largest = F32x16::all(0), error = largest;
  for (std::size_t i = 0; i < n; i += kLanes) largest = larger(absolute(F32x16::load(x + i)), largest);
  const float scale = largest_lane(largest) > kTiny ? largest_lane(largest) / most : 1;
  const F32x16 scales = F32x16::all(scale), inverse = F32x16::all(1) / scales;
  for (std::size_t i = 0; i < n; i += kLanes) {
    const F32x16 numbers = F32x16::load(x + i);
    const I32x16 code = rounded(numbers * inverse);
    const F32x16 difference = numbers - to_float(code) * scales;
    error += difference * difference;
    std::int32_t codes[kLanes];
    code.store(codes);
    write(codes, i);
  }
  return {scale, sum(error)};
}

// Statistics of the bytes of a query.
struct SingleCodes {
  float scale, norm, error, tail_norm;
};

// Writes x as words of four bytes, kLanes apart, each with `zero` added. Zeros follow `x` up to a multiple of 16.
CFE_INLINE SingleCodes encode_single(const BlocksView& blocks, const float* x, int largest_code, int zero,
                                     std::int32_t* words) {
  const std::size_t d = blocks.rows.d, prefix = 4 * blocks.prefix;
  const float tail = prefix < d ? dot(x + prefix, x + prefix, d - prefix) : 0;
  const auto write = [&](const std::int32_t* codes, std::size_t i) CFE_LAMBDA {
    for (std::size_t w = 0; w < 4 && i / 4 + w < blocks.words; ++w) {
      std::uint32_t word = 0;
      for (std::size_t b = 0; b < 4 && i + 4 * w + b < d; ++b)
        word |= (static_cast<std::uint32_t>(codes[4 * w + b] + zero) & 255) << (8 * b);
      words[(i / 4 + w) * kLanes] = static_cast<std::int32_t>(word);
    }
  };
  const Rounding rounding = round_numbers(x, d, static_cast<float>(largest_code), write);
  return {rounding.scale, __builtin_sqrtf(dot(x, x, d)), __builtin_sqrtf(rounding.error), __builtin_sqrtf(tail)};
}

}  // namespace cfe::CFE_LEVEL::block
