// Exchange between lanes: sums of the lanes of several vectors, in one order at every level; vectors of 16 numbers in
// float64.
#pragma once

#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

// Adds the lower halves of all blocks of 2 * half numbers in registers x and y to the upper halves.
template <int half>
CFE_INLINE FloatRegister halves_of_registers(const FloatRegister& x, const FloatRegister& y) {
#define CFE_LOW(lane) ((lane) / half * 2 * half + (lane) % half)
#if CFE_WIDTH == 16
#define CFE_EACH(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#elif CFE_WIDTH == 8
#define CFE_EACH(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)
#else
#define CFE_EACH(f) f(0), f(1), f(2), f(3)
#endif
#define CFE_HIGH(lane) (CFE_LOW(lane) + half)
  return __builtin_shufflevector(x, y, CFE_EACH(CFE_LOW)) + __builtin_shufflevector(x, y, CFE_EACH(CFE_HIGH));
#undef CFE_HIGH
#undef CFE_EACH
#undef CFE_LOW
}

// The same for two vectors.
template <int half>
CFE_INLINE F32x16 halves_added(const F32x16& a, const F32x16& b) {
  FloatRegister both[2 * kParts];
  for (int p = 0; p < kParts; ++p) {
    both[p] = a.part[p];
    both[kParts + p] = b.part[p];
  }
  F32x16 v;
  if constexpr (half >= kWidth) {
    constexpr int registers = half / kWidth;
    for (int p = 0; p < kParts; ++p) {
      const int low = p / registers * 2 * registers + p % registers;
      v.part[p] = both[low] + both[low + registers];
    }
  } else {
    for (int p = 0; p < kParts; ++p) v.part[p] = halves_of_registers<half>(both[2 * p], both[2 * p + 1]);
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

#if CFE_WIDTH == 16
#define CFE_LOWER 0, 1, 2, 3, 4, 5, 6, 7
#define CFE_UPPER 8, 9, 10, 11, 12, 13, 14, 15
#elif CFE_WIDTH == 8
#define CFE_LOWER 0, 1, 2, 3
#define CFE_UPPER 4, 5, 6, 7
#else
#define CFE_LOWER 0, 1
#define CFE_UPPER 2, 3
#endif

using Wide = double __attribute__((vector_size(4 * kWidth)));  // as wide as a register of floats
using Half = float __attribute__((vector_size(2 * kWidth)));

// The lower and the upper half of a register in float64, and back. GCC 12 needs several instructions for the portable
// form.
CFE_INLINE Wide widened_lower(const FloatRegister& from) {
#if defined(CFE_LEVEL_avx512)
  return (Wide)_mm512_maskz_cvtps_pd(0xFF, _mm512_maskz_extractf32x8_ps(0xFF, (__m512)from, 0));
#elif defined(CFE_LEVEL_avx2)
  return (Wide)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)from));
#else
  return __builtin_convertvector(__builtin_shufflevector(from, from, CFE_LOWER), Wide);
#endif
}
CFE_INLINE Wide widened_upper(const FloatRegister& from) {
#if defined(CFE_LEVEL_avx512)
  return (Wide)_mm512_maskz_cvtps_pd(0xFF, _mm512_maskz_extractf32x8_ps(0xFF, (__m512)from, 1));
#elif defined(CFE_LEVEL_avx2)
  return (Wide)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)from, 1));
#else
  return __builtin_convertvector(__builtin_shufflevector(from, from, CFE_UPPER), Wide);
#endif
}
CFE_INLINE FloatRegister rounded_pair(const Wide& lower, const Wide& upper) {
#if defined(CFE_LEVEL_avx512)
  const Half low = (Half)_mm512_maskz_cvtpd_ps(0xFF, (__m512d)lower);
  return __builtin_shufflevector(low, (Half)_mm512_maskz_cvtpd_ps(0xFF, (__m512d)upper), CFE_LOWER, CFE_UPPER);
#elif defined(CFE_LEVEL_avx2)
  return (FloatRegister)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)upper), _mm256_cvtpd_ps((__m256d)lower));
#else
  const Half low = __builtin_convertvector(lower, Half), high = __builtin_convertvector(upper, Half);
  return __builtin_shufflevector(low, high, CFE_LOWER, CFE_UPPER);
#endif
}

// 16 numbers in float64, in registers as wide as float registers.
struct F64x16 {
  static constexpr int kWide = kWidth / 2;  // doubles in a register
  static constexpr int kWideParts = 2 * kParts;
  Wide part[kWideParts];

  static CFE_INLINE F64x16 load(const double* from) {
    F64x16 v;
    for (int p = 0; p < kWideParts; ++p) std::memcpy(&v.part[p], from + p * kWide, sizeof(Wide));
    return v;
  }
  static CFE_INLINE F64x16 widened(const F32x16& from) {
    F64x16 v;
    for (int p = 0; p < kParts; ++p) {
      v.part[2 * p] = widened_lower(from.part[p]);
      v.part[2 * p + 1] = widened_upper(from.part[p]);
    }
    return v;
  }
  CFE_INLINE void store(double* to) const {
    for (int p = 0; p < kWideParts; ++p) std::memcpy(to + p * kWide, &part[p], sizeof(Wide));
  }
  CFE_INLINE F32x16 rounded() const {
    F32x16 v;
    for (int p = 0; p < kParts; ++p) v.part[p] = rounded_pair(part[2 * p], part[2 * p + 1]);
    return v;
  }
  CFE_INLINE F64x16 operator+(const F64x16& other) const {
    F64x16 v;
    for (int p = 0; p < kWideParts; ++p) v.part[p] = part[p] + other.part[p];
    return v;
  }
  CFE_INLINE F64x16 operator*(const F64x16& other) const {
    F64x16 v;
    for (int p = 0; p < kWideParts; ++p) v.part[p] = part[p] * other.part[p];
    return v;
  }
  CFE_INLINE F64x16 operator*(double factor) const {
    F64x16 v;
    for (int p = 0; p < kWideParts; ++p) v.part[p] = part[p] * factor;
    return v;
  }
  // The registers of the upper half are added to the lower half until one is left, then its lanes likewise.
  CFE_INLINE double sum() const {
    Wide sums[kWideParts];
    for (int p = 0; p < kWideParts; ++p) sums[p] = part[p];
    for (int count = kWideParts / 2; count > 0; count /= 2)
      for (int p = 0; p < count; ++p) sums[p] += sums[p + count];
    double lanes[kWide];
    std::memcpy(lanes, &sums[0], sizeof lanes);
    for (int count = kWide / 2; count > 0; count /= 2)
      for (int lane = 0; lane < count; ++lane) lanes[lane] += lanes[lane + count];
    return lanes[0];
  }
};

}  // namespace cfe::CFE_LEVEL
