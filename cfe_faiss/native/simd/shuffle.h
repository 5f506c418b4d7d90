// Sums of the lanes of several vectors at a time, in one order at every level.
#pragma once

#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

// The registers x and y, seen as blocks of 2 * half numbers: the lower halves of all blocks added to the upper ones.
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

// The same of two vectors.
template <int half>
CFE_INLINE F16 halves_added(const F16& a, const F16& b) {
  FloatRegister both[2 * kParts];
  for (int p = 0; p < kParts; ++p) {
    both[p] = a.part[p];
    both[kParts + p] = b.part[p];
  }
  F16 v;
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
CFE_INLINE void halve(F16* v, int count) {
  for (int i = 0; i < count / 2; ++i) v[i] = halves_added<half>(v[2 * i], v[2 * i + 1]);
}

// Lane j of the result is the sum of the 16 lanes of v[j], for j < 8: the upper half added to the lower one, four
// times.
CFE_INLINE F16 sums_of_8(F16 (&v)[8]) {
  halve<8>(v, 8);
  halve<4>(v, 4);
  halve<2>(v, 2);
  return halves_added<1>(v[0], v[0]);
}

}  // namespace cfe::CFE_LEVEL
