// The best of many scores, found and put in order by counting: no branch depends on a comparison of two scores.
//
// The scores lie in rows of 16. Of some of them, those in every so many rows and one lane, only the largest is kept.
// What k of these maxima reach is reached by the k-th best of all scores, too, and few others reach it. These few are
// put in order: the rank of each is how many are better.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

inline constexpr float kNothing = -std::numeric_limits<float>::infinity();
inline constexpr int kHalvings = 6;

CFE_INLINE std::size_t count(const I16& where) { return static_cast<std::size_t>(__builtin_popcount(bits(where))); }

CFE_INLINE void raise_maxima(std::span<const float> scores, std::span<float> maxima) {
  for (float& largest : maxima) largest = kNothing;
  for (std::size_t start = 0, column = 0; start < scores.size(); start += kLanes) {
    const F16 row = F16::load(scores.data() + start);
    float* own = maxima.data() + column;
    larger(row, F16::load(own)).store(own);  // NaN is not larger
    column = column + kLanes < maxima.size() ? column + kLanes : 0;
  }
}

CFE_INLINE std::size_t count_above(std::span<const float> numbers, float bound) {
  const F16 bounds = F16::all(bound);
  std::size_t above = 0;
  for (std::size_t start = 0; start < numbers.size(); start += kLanes)
    above += count(F16::load(numbers.data() + start) > bounds);
  return above;
}

// A number that at least k of the maxima reach, and not many more; -inf if there are fewer.
CFE_INLINE float reached_by(std::span<const float> maxima, std::size_t k) {
  if (count_above(maxima, kNothing) < k) return kNothing;
  const F16 nothing = F16::all(kNothing);
  F16 least = F16::all(-kNothing), most = nothing;
  for (std::size_t start = 0; start < maxima.size(); start += kLanes) {
    const F16 row = F16::load(maxima.data() + start);
    least = smaller(select(row > nothing, row, least), least);
    most = larger(row, most);
  }
  float lows[kLanes], highs[kLanes];
  least.store(lows);
  most.store(highs);
  float low = lows[0], high = highs[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    low = lows[lane] < low ? lows[lane] : low;
    high = highs[lane] > high ? highs[lane] : high;
  }
  for (int halving = 0; halving < kHalvings; ++halving) {
    const float middle = 0.5f * (low + high);
    const bool enough = count_above(maxima, middle) >= k;
    low = enough ? middle : low;
    high = enough ? high : middle;
  }
  return low;
}

// Writes the places of all scores, of which bounds are given, that may be among the k best, ascending, and returns how
// many; a few others may be among them. Where fewer than k lower bounds are above -inf, it is all upper bounds that
// are. NaN never is.
//
// Sizes of bounds and maxima are multiples of 16, of maxima at least k; there is room for as many places as bounds.
std::size_t near_best(std::span<const float> lower, std::span<const float> upper, std::size_t k,
                      std::span<float> maxima, std::span<std::int32_t> places) {
  raise_maxima(lower, maxima);
  const float bound = reached_by(maxima, k);
  const float lowest = std::numeric_limits<float>::lowest();
  const F16 bounds = F16::all(bound > lowest ? bound : lowest);
  std::size_t number = 0;
  for (std::size_t start = 0; start < upper.size(); start += kLanes) {
    for (Mask mask = bits(F16::load(upper.data() + start) >= bounds); mask != 0; mask &= mask - 1)
      places[number++] = static_cast<std::int32_t>(start) + __builtin_ctz(mask);
  }
  return number;
}

// Writes the rank of each score, best first and of equals the smallest id. There are as many scores as ids, and room
// for so many, up to a multiple of 16, which are overwritten.
void rank_scores(std::span<float> scores, std::span<const std::int64_t> ids, std::span<std::int32_t> ranks) {
  const std::size_t number = ids.size();
  for (std::size_t c = number; c < scores.size(); ++c) scores[c] = kNothing;
  for (std::size_t c = 0; c < number; ++c) {
    const F16 own = F16::all(scores[c]);
    std::size_t better = 0, equal = 0;
    for (std::size_t start = 0; start < scores.size(); start += kLanes) {
      const F16 row = F16::load(scores.data() + start);
      better += count(row > own);
      equal += count(row == own);
    }
    if (equal > 1)
      for (std::size_t e = 0; e < number; ++e) better += scores[e] == scores[c] && ids[e] < ids[c];
    ranks[c] = static_cast<std::int32_t>(better);
  }
}

}  // namespace cfe::CFE_LEVEL
