// Vectors of 16 numbers, in as many registers as the instruction set needs for them. A kernel is written once, in
// these.
//
// Sums and products are rounded after each operation, at every level alike. `fused` is the exception: it rounds once
// where the processor can, so it is for screening only, where a bound covers the difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/inline.h"
#include "simd/level.h"

namespace cfe::CFE_LEVEL {

inline constexpr int kLanes = 16;
inline constexpr int kWidth = CFE_WIDTH;        // floats in a register
inline constexpr int kParts = kLanes / kWidth;  // registers of 16 floats

using FloatRegister = float __attribute__((vector_size(4 * kWidth)));
using IntRegister = std::int32_t __attribute__((vector_size(4 * kWidth)));
using DoubleRegister = double __attribute__((vector_size(8 * kWidth)));  // of kWidth doubles: one or two registers

template <class Register, class Number>
struct Vector {
  Register part[kParts];

  static CFE_INLINE Vector load(const Number* from) {
    Vector v;
    for (int p = 0; p < kParts; ++p) std::memcpy(&v.part[p], from + p * kWidth, sizeof(Register));
    return v;
  }
  static CFE_INLINE Vector all(Number value) {
    Vector v;
    for (int p = 0; p < kParts; ++p) v.part[p] = Register{} + value;
    return v;
  }
  CFE_INLINE void store(Number* to) const {
    for (int p = 0; p < kParts; ++p) std::memcpy(to + p * kWidth, &part[p], sizeof(Register));
  }
  CFE_INLINE Vector operator+(const Vector& other) const {
    Vector v;
    for (int p = 0; p < kParts; ++p) v.part[p] = part[p] + other.part[p];
    return v;
  }
  CFE_INLINE Vector operator-(const Vector& other) const {
    Vector v;
    for (int p = 0; p < kParts; ++p) v.part[p] = part[p] - other.part[p];
    return v;
  }
  CFE_INLINE Vector operator*(const Vector& other) const {
    Vector v;
    for (int p = 0; p < kParts; ++p) v.part[p] = part[p] * other.part[p];
    return v;
  }
};

using F16 = Vector<FloatRegister, float>;
using I16 = Vector<IntRegister, std::int32_t>;

// One bit for each of 16 lanes.
using Mask = std::uint32_t;

// Integers that are all ones where something holds, all zeros elsewhere: what comparisons give.
CFE_INLINE I16 select(const I16& where, const I16& a, const I16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = (where.part[p] & a.part[p]) | (~where.part[p] & b.part[p]);
  return v;
}

CFE_INLINE F16 select(const I16& where, const F16& a, const F16& b) {
  F16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = where.part[p] ? a.part[p] : b.part[p];
  return v;
}

CFE_INLINE I16 operator>(const F16& a, const F16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = a.part[p] > b.part[p];
  return v;
}
CFE_INLINE I16 operator>=(const F16& a, const F16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = a.part[p] >= b.part[p];
  return v;
}
CFE_INLINE I16 operator==(const F16& a, const F16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = a.part[p] == b.part[p];
  return v;
}
CFE_INLINE I16 operator==(const I16& a, const I16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = a.part[p] == b.part[p];
  return v;
}
CFE_INLINE I16 operator>(const I16& a, const I16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = a.part[p] > b.part[p];
  return v;
}
CFE_INLINE I16 operator&(const I16& a, const I16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = a.part[p] & b.part[p];
  return v;
}
CFE_INLINE I16 operator|(const I16& a, const I16& b) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = a.part[p] | b.part[p];
  return v;
}
CFE_INLINE I16 operator~(const I16& a) {
  I16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = ~a.part[p];
  return v;
}

// The larger of each two; the second where one is NaN, as the processor's own instruction gives.
CFE_INLINE F16 larger(const F16& a, const F16& b) { return select(a > b, a, b); }
CFE_INLINE F16 smaller(const F16& a, const F16& b) { return select(b > a, a, b); }

CFE_INLINE F16 to_float(const I16& a) {
  F16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = __builtin_convertvector(a.part[p], FloatRegister);
  return v;
}

// a * b + c, for screening.
CFE_INLINE F16 fused(const F16& a, const F16& b, const F16& c) {
  F16 v;
  for (int p = 0; p < kParts; ++p) {
#if defined(CFE_LEVEL_avx512)
    v.part[p] = (FloatRegister)_mm512_fmadd_ps((__m512)a.part[p], (__m512)b.part[p], (__m512)c.part[p]);
#elif defined(CFE_LEVEL_avx2)
    v.part[p] = (FloatRegister)_mm256_fmadd_ps((__m256)a.part[p], (__m256)b.part[p], (__m256)c.part[p]);
#elif defined(CFE_LEVEL_neon)
    v.part[p] = (FloatRegister)vfmaq_f32((float32x4_t)c.part[p], (float32x4_t)a.part[p], (float32x4_t)b.part[p]);
#else
    v.part[p] = a.part[p] * b.part[p] + c.part[p];
#endif
  }
  return v;
}

// A comparison's result as one bit for each lane.
CFE_INLINE Mask bits(const I16& where) {
  Mask mask = 0;
  for (int p = 0; p < kParts; ++p) {
#if defined(CFE_LEVEL_avx512)
    mask |= static_cast<Mask>(_mm512_movepi32_mask((__m512i)where.part[p]));
#elif defined(CFE_LEVEL_avx2)
    mask |= static_cast<Mask>(_mm256_movemask_ps((__m256)where.part[p])) << (p * kWidth);
#else
    for (int lane = 0; lane < kWidth; ++lane) mask |= static_cast<Mask>(where.part[p][lane] & 1) << (p * kWidth + lane);
#endif
  }
  return mask;
}

CFE_INLINE bool any(const I16& where) {
  IntRegister together = where.part[0];
  for (int p = 1; p < kParts; ++p) together |= where.part[p];
#if defined(CFE_LEVEL_avx512)
  return _mm512_movepi32_mask((__m512i)together) != 0;
#elif defined(CFE_LEVEL_avx2)
  return _mm256_movemask_ps((__m256)together) != 0;
#elif defined(CFE_LEVEL_neon)
  return vmaxvq_u32((uint32x4_t)together) != 0;
#else
  return (together[0] | together[1] | together[2] | together[3]) != 0;
#endif
}

}  // namespace cfe::CFE_LEVEL
