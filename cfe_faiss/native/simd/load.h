// Vectors of 16 floats from float32, float16 and bytes, complete or the first few numbers, and sums of their lanes.
#pragma once

#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

#if defined(CFE_LEVEL_avx512)
inline constexpr __mmask16 kAllLanes = 0xFFFF;  // GCC 12 takes results of intrinsics without a mask for uninitialised
#endif

// The first n < 16 numbers of a type, then zeros.
template <class Number>
struct FirstOf {
  Number values[kLanes] = {};
  CFE_INLINE FirstOf(const std::uint8_t* from, std::size_t n) { std::memcpy(values, from, n * sizeof(Number)); }
};

// Byte addresses, as vectors in a file that FAISS has mapped may be unaligned.
CFE_INLINE F32x16 load_floats(const std::uint8_t* from) { return F32x16::load(reinterpret_cast<const float*>(from)); }

CFE_INLINE F32x16 load_floats(const std::uint8_t* from, std::size_t n) {
  return load_first(reinterpret_cast<const float*>(from), n);
}

// The values of 16 float16, NaN and infinities included.
CFE_INLINE F32x16 load_halves(const std::uint8_t* from) {
  F32x16 v;
#if defined(CFE_LEVEL_avx512)
  v.part[0] =
      (FloatRegister)_mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(CFE_LEVEL_avx2)
  for (int p = 0; p < kParts; ++p)
    v.part[p] = (FloatRegister)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + p));
#else
  using Halves = std::uint16_t __attribute__((vector_size(2 * kWidth)));
  using Unsigned = std::uint32_t __attribute__((vector_size(4 * kWidth)));
  for (int p = 0; p < kParts; ++p) {
    Halves halves;
    std::memcpy(&halves, from + p * sizeof halves, sizeof halves);
    // The fields of a float16 at the positions of a float32. The exponent is too small by 112 then.
    const Unsigned bits = __builtin_convertvector(halves, Unsigned);
    const Unsigned magnitude = (bits & 0x7FFFu) << 13;
    const Unsigned finite = (Unsigned)((FloatRegister)magnitude * 0x1p112f);
    const Unsigned largest = 0x7F800000u | magnitude;  // infinite, or a quiet NaN
    const Unsigned quiet = (Unsigned)(magnitude > 0x0F800000u) & 0x00400000u;
    const Unsigned is_finite = (Unsigned)(magnitude < 0x0F800000u);
    const Unsigned value = (finite & is_finite) | ((largest | quiet) & ~is_finite);
    v.part[p] = (FloatRegister)(value | ((bits & 0x8000u) << 16));
  }
#endif
  return v;
}

CFE_INLINE F32x16 load_halves(const std::uint8_t* from, std::size_t n) {
  const FirstOf<std::uint16_t> first(from, n);
  return load_halves(reinterpret_cast<const std::uint8_t*>(first.values));
}

CFE_INLINE F32x16 load_bytes(const std::uint8_t* from) {
  F32x16 v;
#if defined(CFE_LEVEL_avx512)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  v.part[0] = (FloatRegister)_mm512_maskz_cvtepi32_ps(kAllLanes, _mm512_maskz_cvtepu8_epi32(kAllLanes, bytes));
#elif defined(CFE_LEVEL_avx2)
  for (int p = 0; p < kParts; ++p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + p * kWidth));
    v.part[p] = (FloatRegister)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
#else
  using Bytes = std::uint8_t __attribute__((vector_size(kWidth)));
  for (int p = 0; p < kParts; ++p) {
    Bytes bytes;
    std::memcpy(&bytes, from + p * kWidth, sizeof bytes);
    v.part[p] = __builtin_convertvector(__builtin_convertvector(bytes, IntRegister), FloatRegister);
  }
#endif
  return v;
}

CFE_INLINE F32x16 load_bytes(const std::uint8_t* from, std::size_t n) {
#if defined(CFE_LEVEL_avx512)
  const __m128i bytes = _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1), from);
  return {{(FloatRegister)_mm512_maskz_cvtepi32_ps(kAllLanes, _mm512_maskz_cvtepu8_epi32(kAllLanes, bytes))}};
#else
  return load_bytes(FirstOf<std::uint8_t>(from, n).values);
#endif
}

using Float4 = float __attribute__((vector_size(16)));

// The sums of numbers four apart.
CFE_INLINE Float4 in_four(const F32x16& v) {
  float numbers[kLanes];
  v.store(numbers);
  Float4 four[4];
  std::memcpy(four, numbers, sizeof four);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

// The sum of all lanes.
CFE_INLINE float sum(const F32x16& v) {
  const Float4 four = in_four(v);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

CFE_INLINE float largest_lane(const F32x16& v) {
  float numbers[kLanes];
  v.store(numbers);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane)
      numbers[lane] = numbers[lane + width] > numbers[lane] ? numbers[lane + width] : numbers[lane];
  return numbers[0];
}

// The sum of each of four vectors.
CFE_INLINE Float4 sums_of(const Float4& a, const Float4& b, const Float4& c, const Float4& d) {
  const Float4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Float4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// The numbers of four vectors, one after the other.
CFE_INLINE F32x16 joined(const Float4 (&four)[4]) {
  F32x16 v;
#if CFE_WIDTH == 4
  for (int p = 0; p < kParts; ++p) v.part[p] = four[p];
#else
  const auto low = __builtin_shufflevector(four[0], four[1], 0, 1, 2, 3, 4, 5, 6, 7);
  const auto high = __builtin_shufflevector(four[2], four[3], 0, 1, 2, 3, 4, 5, 6, 7);
#if CFE_WIDTH == 8
  v.part[0] = low, v.part[1] = high;
#else
  v.part[0] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
#endif
  return v;
}

// Adds the lower halves of all blocks of 2 * half numbers in registers x and y to the upper halves.
template <int half>
CFE_INLINE FloatRegister halves_of_registers(const FloatRegister& x, const FloatRegister& y) {
  return [&]<int... lane>(std::integer_sequence<int, lane...>) CFE_LAMBDA {
    return __builtin_shufflevector(x, y, (lane / half * 2 * half + lane % half)...) +
           __builtin_shufflevector(x, y, (lane / half * 2 * half + lane % half + half)...);
  }
  (std::make_integer_sequence<int, kWidth>{});
}

// The same for two vectors.
template <int half>
CFE_INLINE F32x16 halves_added(const F32x16& a, const F32x16& b) {
  const auto part = [&](int p) CFE_LAMBDA { return p < kParts ? a.part[p] : b.part[p - kParts]; };
  F32x16 v;
  for (int p = 0; p < kParts; ++p) {
    constexpr int registers = half / kWidth;
    if constexpr (registers > 0) {
      const int low = p / registers * 2 * registers + p % registers;
      v.part[p] = part(low) + part(low + registers);
    } else {
      v.part[p] = halves_of_registers<half>(part(2 * p), part(2 * p + 1));
    }
  }
  return v;
}

template <int half>
CFE_INLINE void halve(F32x16* v, int count) {
  for (int i = 0; i < count / 2; ++i) v[i] = halves_added<half>(v[2 * i], v[2 * i + 1]);
}

// Lane j of the result is the sum of the 16 lanes of v[j], for j < 8: four times, the upper half is added to the lower.
CFE_INLINE F32x16 sums_of_8(F32x16 (&v)[8]) {
  halve<8>(v, 8);
  halve<4>(v, 4);
  halve<2>(v, 2);
  return halves_added<1>(v[0], v[0]);
}

// a * b + c rounded once, at every level.
CFE_INLINE F32x16 rounded_once(const F32x16& a, const F32x16& b, const F32x16& c) {
#if defined(CFE_LEVEL_generic)
  F32x16 v;
  for (int p = 0; p < kParts; ++p)
    for (int lane = 0; lane < kWidth; ++lane)
      v.part[p][lane] = __builtin_fmaf(a.part[p][lane], b.part[p][lane], c.part[p][lane]);
  return v;
#else
  return fused(a, b, c);
#endif
}

}  // namespace cfe::CFE_LEVEL
