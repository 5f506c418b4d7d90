// Vectors of 16 numbers, in as many registers as the instruction set needs. A kernel is written once, with these.
//
// Sums and products are rounded after each operation, at every level. `fused` is the exception: it rounds once if the
// processor can. So it is for screening only, and a bound covers the difference.
//
// Files in kernels/ are compiled once for each instruction set, with CFE_LEVEL set. Everything in them is in a
// namespace of that name, so that the linker cannot mix levels.
#pragma once

#ifndef CFE_LEVEL
#error "kernels are included by kernels/kernels.cpp only"
#endif

#include <cstring>

#include "core/block_view.h"
#include "core/common.h"

#if defined(CFE_LEVEL_avx512)
#include <immintrin.h>
#define CFE_WIDTH 16
#elif defined(CFE_LEVEL_avx2)
#include <immintrin.h>
#define CFE_WIDTH 8
#else
#define CFE_WIDTH 4
#endif
#ifdef CFE_LEVEL_neon
#include <arm_neon.h>
#endif

namespace cfe::CFE_LEVEL {

inline constexpr int kLanes = 16;
inline constexpr int kWidth = CFE_WIDTH;        // floats in a register
inline constexpr int kParts = kLanes / kWidth;  // registers of 16 floats

using FloatRegister = float __attribute__((vector_size(4 * kWidth)));
using IntRegister = std::int32_t __attribute__((vector_size(4 * kWidth)));
using WordRegister = std::uint32_t __attribute__((vector_size(4 * kWidth)));
using Wide = double __attribute__((vector_size(4 * kWidth)));  // half as many float64 numbers
using Half = float __attribute__((vector_size(2 * kWidth)));   // half a register of floats

// The type in which registers are added and multiplied. Integers wrap around, as intermediate byte products may.
template <class Register>
struct Arithmetic {
  using Type = Register;
};
template <>
struct Arithmetic<IntRegister> {
  using Type = WordRegister;
};

// A number in all lanes of a register.
template <class Register, class Number>
CFE_INLINE Register in_all_lanes(Number value) {
  return value - Register{};  // x - 0 is x without an instruction; x + 0 is not, for x = -0
}

template <class Register, class Number, int kCount>
struct Vector {
  using Type = Arithmetic<Register>::Type;
  static constexpr int kOfPart = sizeof(Register) / sizeof(Number);
  Register part[kCount];

  static CFE_INLINE Vector load(const Number* from) {
    Vector v;
    for (int p = 0; p < kCount; ++p) std::memcpy(&v.part[p], from + p * kOfPart, sizeof(Register));
    return v;
  }
  static CFE_INLINE Vector all(Number value) {
    Vector v;
    for (int p = 0; p < kCount; ++p) v.part[p] = in_all_lanes<Register>(value);
    return v;
  }
  CFE_INLINE void store(Number* to) const {
    for (int p = 0; p < kCount; ++p) std::memcpy(to + p * kOfPart, &part[p], sizeof(Register));
  }
  CFE_INLINE Vector operator+(const Vector& other) const {
    Vector v;
    for (int p = 0; p < kCount; ++p) v.part[p] = (Register)((Type)part[p] + (Type)other.part[p]);
    return v;
  }
  CFE_INLINE Vector operator-(const Vector& other) const {
    Vector v;
    for (int p = 0; p < kCount; ++p) v.part[p] = (Register)((Type)part[p] - (Type)other.part[p]);
    return v;
  }
  CFE_INLINE Vector operator*(const Vector& other) const {
    Vector v;
    for (int p = 0; p < kCount; ++p) v.part[p] = (Register)((Type)part[p] * (Type)other.part[p]);
    return v;
  }
  CFE_INLINE Vector operator*(Number factor) const { return *this * all(factor); }
  CFE_INLINE Vector& operator+=(const Vector& other) { return *this = *this + other; }
};

using F32x16 = Vector<FloatRegister, float, kParts>;
using I32x16 = Vector<IntRegister, std::int32_t, kParts>;
using F64x16 = Vector<Wide, double, 2 * kParts>;

// A register of floats.
CFE_INLINE FloatRegister load_register(const float* from) {
  FloatRegister v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// The first `count` of 16 floats, 1 to 16; the others are zero and are not read.
CFE_INLINE F32x16 load_first(const float* from, std::size_t count) {
#if defined(CFE_LEVEL_avx512)
  return {(FloatRegister)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from)};
#elif defined(CFE_LEVEL_avx2)
  F32x16 v;
  const IntRegister lane{0, 1, 2, 3, 4, 5, 6, 7};
  for (int p = 0; p < kParts; ++p) {
    const IntRegister below = lane + p * kWidth < static_cast<std::int32_t>(count);
    v.part[p] = (FloatRegister)_mm256_maskload_ps(from + p * kWidth, (__m256i)below);
  }
  return v;
#else
  float lanes[kLanes] = {};
  for (std::size_t lane = 0; lane < count; ++lane) std::memcpy(lanes + lane, from + lane, sizeof(float));
  return F32x16::load(lanes);
#endif
}

// Writes the first `count` of 16 floats, 1 to 16. Without a masked store: loads of the following numbers would wait for
// it.
CFE_INLINE void store_first(const F32x16& v, float* to, std::size_t count) {
  if (count == kLanes) return v.store(to);
  float lanes[kLanes];
  v.store(lanes);
  const float* from = lanes;
  if (count & 8) {
    std::memcpy(to, from, 8 * sizeof(float));
    from += 8, to += 8;
  }
  if (count & 4) {
    std::memcpy(to, from, 4 * sizeof(float));
    from += 4, to += 4;
  }
  if (count & 2) {
    std::memcpy(to, from, 2 * sizeof(float));
    from += 2, to += 2;
  }
  if (count & 1) *to = *from;
}

// 4, 8 or 16 floats in the lower lanes of a register, or of the first of several registers; zeros in the others.
template <std::size_t count>
CFE_INLINE FloatRegister load_low(const float* from) {
#if defined(CFE_LEVEL_avx512)
  if constexpr (count == 4) return (FloatRegister)_mm512_maskz_broadcast_f32x4(0x000F, _mm_loadu_ps(from));
  if constexpr (count == 8) return (FloatRegister)_mm512_maskz_broadcast_f32x8(0x00FF, _mm256_loadu_ps(from));
#elif defined(CFE_LEVEL_avx2)
  if constexpr (count == 4) return (FloatRegister)_mm256_zextps128_ps256(_mm_loadu_ps(from));
#endif
  FloatRegister v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Stores them.
template <std::size_t count>
CFE_INLINE void store_low(const FloatRegister& v, float* to) {
  std::memcpy(to, &v, count < kWidth ? count * sizeof(float) : sizeof v);
}

// One bit for each of 16 lanes.
using Mask = std::uint32_t;

// Defines a function of each lane: `expression` in the registers x and y.
#define CFE_LANEWISE(Result, name, Operand, expression)        \
  CFE_INLINE Result name(const Operand& a, const Operand& b) { \
    Result v;                                                  \
    for (int p = 0; p < kParts; ++p) {                         \
      const auto x = a.part[p], y = b.part[p];                 \
      v.part[p] = expression;                                  \
    }                                                          \
    return v;                                                  \
  }
// Comparisons give integers with all bits set, or none.
CFE_LANEWISE(I32x16, operator>, F32x16, x > y)
CFE_LANEWISE(I32x16, operator>=, F32x16, x >= y)
CFE_LANEWISE(I32x16, operator>, I32x16, x > y)
CFE_LANEWISE(I32x16, operator==, I32x16, x == y)
CFE_LANEWISE(I32x16, operator|, I32x16, x | y)
CFE_LANEWISE(F32x16, operator/, F32x16, x / y)
// The larger number of each lane; the second if one is NaN, as in the processor's instruction.
CFE_LANEWISE(F32x16, larger, F32x16, x > y ? x : y)
CFE_LANEWISE(F32x16, smaller, F32x16, y > x ? x : y)
#undef CFE_LANEWISE

template <class Register, class Number>
CFE_INLINE Vector<Register, Number, kParts> select(const I32x16& where, const Vector<Register, Number, kParts>& a,
                                                   const Vector<Register, Number, kParts>& b) {
  Vector<Register, Number, kParts> v;
  for (int p = 0; p < kParts; ++p) v.part[p] = where.part[p] ? a.part[p] : b.part[p];
  return v;
}

CFE_INLINE F32x16 to_float(const I32x16& a) {
  F32x16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = __builtin_convertvector(a.part[p], FloatRegister);
  return v;
}

// a * b + c, for screening.
CFE_INLINE FloatRegister fused(const FloatRegister& a, const FloatRegister& b, const FloatRegister& c) {
#if defined(CFE_LEVEL_avx512)
  return (FloatRegister)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(CFE_LEVEL_avx2)
  return (FloatRegister)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(CFE_LEVEL_neon)
  return (FloatRegister)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

CFE_INLINE F32x16 fused(const F32x16& a, const F32x16& b, const F32x16& c) {
  F32x16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = fused(a.part[p], b.part[p], c.part[p]);
  return v;
}

// The result of a comparison as one bit per lane.
CFE_INLINE Mask bits(const I32x16& where) {
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

CFE_INLINE bool any(const I32x16& where) {
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

// Lanes in which a >= b, one bit each; false for NaN.
CFE_INLINE Mask at_least(const F32x16& a, const F32x16& b) {
#if defined(CFE_LEVEL_avx512)
  return _mm512_cmp_ps_mask((__m512)a.part[0], (__m512)b.part[0], _CMP_GE_OQ);
#else
  return bits(a >= b);
#endif
}

CFE_INLINE F32x16 absolute(const F32x16& a) {
  F32x16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = (FloatRegister)((IntRegister)a.part[p] & 0x7FFFFFFF);
  return v;
}

// The nearest integers of numbers below 2**22 in magnitude, ties to even.
CFE_INLINE I32x16 rounded(const F32x16& a) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2**23: the last bit of a sum with it is worth 1
  I32x16 v;
  for (int p = 0; p < kParts; ++p) v.part[p] = (IntRegister)(a.part[p] + kShift) - 0x4B400000;
  return v;
}

// Numbers first, first + 1, ... of two registers, one after the other.
template <int first, int count, class Register>
CFE_INLINE auto consecutive(const Register& x, const Register& y) {
  return [&]<int... lane>(std::integer_sequence<int, lane...>) CFE_LAMBDA {
    return __builtin_shufflevector(x, y, (first + lane)...);
  }
  (std::make_integer_sequence<int, count>{});
}

// The sums of a register's parts of `number` lanes.
template <int number, class Register>
CFE_INLINE auto parts_added(const Register& v) {
  constexpr int half = sizeof(Register) / sizeof(v[0]) / 2;
  if constexpr (2 * half == number)
    return v;
  else
    return parts_added<number>(consecutive<0, half>(v, v) + consecutive<half, half>(v, v));
}

// Half of a register in float64, and back. GCC 12 needs several instructions for the portable form.
CFE_INLINE Wide widened(const Half& from) {
#if defined(CFE_LEVEL_avx512)
  return (Wide)_mm512_maskz_cvtps_pd(0xFF, (__m256)from);
#elif defined(CFE_LEVEL_avx2)
  return (Wide)_mm256_cvtps_pd((__m128)from);
#else
  return __builtin_convertvector(from, Wide);
#endif
}
template <int half>
CFE_INLINE Wide widened_half(const FloatRegister& from) {
  return widened(consecutive<half * kWidth / 2, kWidth / 2>(from, from));
}
CFE_INLINE FloatRegister rounded_pair(const Wide& lower, const Wide& upper) {
#if defined(CFE_LEVEL_avx512)
  return consecutive<0, kWidth>((Half)_mm512_maskz_cvtpd_ps(0xFF, (__m512d)lower),
                                (Half)_mm512_maskz_cvtpd_ps(0xFF, (__m512d)upper));
#elif defined(CFE_LEVEL_avx2)
  return (FloatRegister)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)upper), _mm256_cvtpd_ps((__m256d)lower));
#else
  return consecutive<0, kWidth>(__builtin_convertvector(lower, Half), __builtin_convertvector(upper, Half));
#endif
}

// The first `count` registers in float64, and back.
template <int count, int kFloats>
CFE_INLINE Vector<Wide, double, count> widened(const Vector<FloatRegister, float, kFloats>& from) {
  Vector<Wide, double, count> v;
  for (int p = 0; p < count; ++p)
    v.part[p] = p % 2 == 0 ? widened_half<0>(from.part[p / 2]) : widened_half<1>(from.part[p / 2]);
  return v;
}
template <int count>
CFE_INLINE auto rounded(const Vector<Wide, double, count>& from) {
  Vector<FloatRegister, float, (count + 1) / 2> v;
  for (int p = 0; p < (count + 1) / 2; ++p)
    v.part[p] = rounded_pair(from.part[2 * p], 2 * p + 1 < count ? from.part[2 * p + 1] : Wide{});
  return v;
}

// The registers of the upper half are added to the lower half until one is left, then its lanes likewise.
CFE_INLINE double sum(F64x16 v) {
  for (int count = kParts; count > 0; count /= 2)
    for (int p = 0; p < count; ++p) v.part[p] += v.part[p + count];
  double lanes[F64x16::kOfPart];
  std::memcpy(lanes, &v.part[0], sizeof lanes);
  for (int count = F64x16::kOfPart / 2; count > 0; count /= 2)
    for (int lane = 0; lane < count; ++lane) lanes[lane] += lanes[lane + count];
  return lanes[0];
}

// Writes the numbers of the lanes in the mask consecutively. Overwrites up to 16 places.
template <class Register, class Number>
CFE_INLINE void compress(const Vector<Register, Number, kParts>& v, Mask mask, Number* to) {
#if defined(CFE_LEVEL_avx512)
  const __m512i packed = _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), (__m512i)v.part[0]);
  std::memcpy(to, &packed, sizeof packed);
#else
  Number numbers[kLanes];
  v.store(numbers);
  for (; mask != 0; mask &= mask - 1) *to++ = numbers[__builtin_ctz(mask)];
#endif
}

// The inverse of `bits`.
CFE_INLINE I32x16 lanes_of(Mask mask) {
  I32x16 v;
  for (int p = 0; p < kParts; ++p) {
#if defined(CFE_LEVEL_avx512)
    v.part[p] = (IntRegister)_mm512_movm_epi32(static_cast<__mmask16>(mask));
#else
    IntRegister own;
    for (int lane = 0; lane < kWidth; ++lane) own[lane] = 1 << (p * kWidth + lane);
    v.part[p] = ((static_cast<std::int32_t>(mask) - IntRegister{}) & own) == own;
#endif
  }
  return v;
}

// --- products of bytes: each lane of 32 bits is a word of four ---

#if defined(CFE_LEVEL_avx512) || defined(CFE_LEVEL_avx2) || defined(CFE_LEVEL_neon)
inline constexpr bool kHasBytes = true;
#else
inline constexpr bool kHasBytes = false;
#endif

// The bytes of one factor, the query, are in [-kLargestCode, kLargestCode] and are stored with kZeroCode added, as the
// instructions of x86 take that factor unsigned. AVX2 adds two products in 16 bits, so it has one bit less: 2 * 127 *
// 127 < 2**15.
#if defined(CFE_LEVEL_avx512)
inline constexpr int kZeroCode = 128, kLargestCode = 127;
#elif defined(CFE_LEVEL_avx2)
inline constexpr int kZeroCode = 64, kLargestCode = 63;
#else
inline constexpr int kZeroCode = 0, kLargestCode = 127;
#endif
inline constexpr int kLargestRowCode = 127;

// The largest code of a query of d bytes, at least 1 for d < kMostBytes, so that sums of products fit into 32 bits.
CFE_INLINE int largest_code(std::size_t d) {
  const auto fits = static_cast<int>(0x7FFFFFFF / (kLargestRowCode * (d < kMostBytes ? d + 1 : kMostBytes)));
  return fits < kLargestCode ? fits : kLargestCode;
}

// total + the sum of the four products of the bytes of a query, as stored, and a row.
CFE_INLINE I32x16 add_products(const I32x16& total, const I32x16& query, const I32x16& row) {
  I32x16 v = total;
  for (int p = 0; p < kParts; ++p) {
#if defined(CFE_LEVEL_avx512)
    v.part[p] = (IntRegister)_mm512_dpbusd_epi32((__m512i)total.part[p], (__m512i)query.part[p], (__m512i)row.part[p]);
#elif defined(CFE_LEVEL_avx2)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)query.part[p], (__m256i)row.part[p]);
    v.part[p] = (IntRegister)_mm256_add_epi32((__m256i)total.part[p], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#elif defined(CFE_LEVEL_neon)
    v.part[p] = (IntRegister)vdotq_s32((int32x4_t)total.part[p], (int8x16_t)query.part[p], (int8x16_t)row.part[p]);
#else
    (void)query, (void)row;
#endif
  }
  return v;
}

// total + the products of 32 numbers of 16 bits and 32 bytes, neighbours added.
CFE_INLINE I32x16 add_products_of_pairs(const I32x16& total, const std::int16_t* query, const std::int8_t* row) {
  I32x16 v = total;
  for (int p = 0; p < kParts; ++p) {
#if defined(CFE_LEVEL_avx512)
    const __m512i wide = _mm512_maskz_cvtepi8_epi16(~0u, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
    v.part[p] = (IntRegister)_mm512_dpwssd_epi32((__m512i)v.part[p], _mm512_loadu_si512(query), wide);
#elif defined(CFE_LEVEL_avx2)
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row) + p));
    const __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(query) + p);
    v.part[p] = (IntRegister)_mm256_add_epi32((__m256i)v.part[p], _mm256_madd_epi16(own, wide));
#else
    for (int lane = 0, i = 2 * p * kWidth; lane < kWidth; ++lane, i += 2)
      v.part[p][lane] += query[i] * row[i] + query[i + 1] * row[i + 1];
#endif
  }
  return v;
}

CFE_INLINE std::int32_t sum(const I32x16& v) {
  WordRegister total = (WordRegister)v.part[0];
  for (int p = 1; p < kParts; ++p) total += (WordRegister)v.part[p];
  const auto four = parts_added<4>(total);
  return static_cast<std::int32_t>((four[0] + four[1]) + (four[2] + four[3]));
}

}  // namespace cfe::CFE_LEVEL
