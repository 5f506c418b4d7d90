// The selector: the k best of scored rows, the larger score first and of equal scores the smaller id.
//
// A score and an id form one 64-bit key, so that one comparison settles ties, too. Few keys are sorted by counting how
// many are larger than each; more are sorted in parts and merged. No branch depends on a comparison of two scores: such
// branches would be mispredicted half of the time. Before sorting, scores that k others exceed are dropped by halving
// an interval that contains the k-th largest score.
#pragma once

#include "core/block_view.h"
#include "simd/vector.h"

namespace cfe::CFE_LEVEL {

inline constexpr float kInfinite = std::numeric_limits<float>::infinity();
inline constexpr float kLowest = std::numeric_limits<float>::lowest();
inline constexpr int kHalvings = 7;
inline constexpr std::size_t kSortedDirectly = 20;       // scores: to drop some first takes longer
inline constexpr std::size_t kMostCounted = 8 * kWidth;  // keys: to sort more by counting takes longer than merging
inline constexpr std::int64_t kNoKey = std::numeric_limits<std::int64_t>::min();

CFE_INLINE std::size_t count_bits(Mask mask) { return static_cast<std::size_t>(__builtin_popcount(mask)); }

// --- bounds of the k-th largest number ---

// For each of up to 16 rows of numbers, an interval whose lower end at least k of its numbers reach.
struct Brackets {
  float low[kLanes], high[kLanes];
};

// Rows of numbers, `stride` apart. Sizes are multiples of 16; -inf fills them up.
struct NumberRows {
  const float* numbers;
  std::size_t stride;
  std::size_t sizes[kLanes];
};

CFE_INLINE std::size_t count_reaching(const float* numbers, std::size_t size, float bound) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; i += kLanes)
    count += count_bits(at_least(F32x16::load(numbers + i), F32x16::all(bound)));
  return count;
}

// The smallest and the largest of the numbers above -inf; both -inf if there are fewer than k.
CFE_INLINE void bracket(const float* numbers, std::size_t size, std::size_t k, float* low, float* high) {
  F32x16 least = F32x16::all(kInfinite), most = F32x16::all(-kInfinite);
  const F32x16 nothing = most;
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; i += kLanes) {
    const F32x16 some = F32x16::load(numbers + i);
    const I32x16 valid = some > nothing;
    least = smaller(select(valid, some, least), least);
    most = larger(some, most);
    count += count_bits(bits(valid));
  }
  float lows[kLanes], highs[kLanes];
  least.store(lows), most.store(highs);
  *low = lows[0], *high = highs[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    *low = lows[lane] < *low ? lows[lane] : *low;
    *high = highs[lane] > *high ? highs[lane] : *high;
  }
  if (count < k) *low = *high = -kInfinite;
}

// Sets `brackets.low` of each row to a number that at least k of its numbers reach, and few others; -inf if there are
// fewer than k. Rows are halved in turn, so that their latencies overlap.
CFE_OUTLINE void kth_bounds(const NumberRows& rows, std::size_t number, std::size_t k, Brackets& brackets) {
  for (std::size_t r = 0; r < number; ++r)
    bracket(rows.numbers + r * rows.stride, rows.sizes[r], k, brackets.low + r, brackets.high + r);
  for (int halving = 0; halving < kHalvings; ++halving)
    for (std::size_t r = 0; r < number; ++r) {
      const float middle = 0.5f * brackets.low[r] + 0.5f * brackets.high[r];
      const bool enough = count_reaching(rows.numbers + r * rows.stride, rows.sizes[r], middle) >= k;
      brackets.low[r] = enough ? middle : brackets.low[r];
      brackets.high[r] = enough ? brackets.high[r] : middle;
    }
}

CFE_INLINE float kth_bound(const float* numbers, std::size_t size, std::size_t k) {
  Brackets brackets;
  kth_bounds({numbers, size, {size}}, 1, k, brackets);
  return brackets.low[0];
}

// Writes the indices of all scores that may be among the k best, ascending, given bounds of each score. Returns their
// number; a few others may be among them. With fewer than k lower bounds above -inf, all upper bounds above -inf count.
// NaN never does. Sizes of bounds and maxima are multiples of 16, that of `maxima` at least k. `maxima` is scratch: the
// largest lower bounds per lane and row of 16, of which k are as good as k of all.
std::size_t near_best(std::span<const float> lower, std::span<const float> upper, std::size_t k,
                      std::span<float> maxima, std::span<std::int32_t> indices) {
  for (float& largest : maxima) largest = -kInfinite;
  for (std::size_t start = 0, column = 0; start < lower.size(); start += kLanes) {
    float* own = maxima.data() + column;
    larger(F32x16::load(lower.data() + start), F32x16::load(own)).store(own);  // NaN is not larger
    column = column + kLanes < maxima.size() ? column + kLanes : 0;
  }
  const float bound = kth_bound(maxima.data(), maxima.size(), k);
  const F32x16 bounds = F32x16::all(bound > kLowest ? bound : kLowest);
  std::size_t number = 0;
  for (std::size_t start = 0; start < upper.size(); start += kLanes)
    for (Mask mask = at_least(F32x16::load(upper.data() + start), bounds); mask != 0; mask &= mask - 1)
      indices[number++] = static_cast<std::int32_t>(start) + __builtin_ctz(mask);
  return number;
}

// --- keys ---

using Keys = std::int64_t __attribute__((vector_size(4 * kWidth)));
inline constexpr std::size_t kKeys = kWidth / 2;  // in a register

// Ascends with the score and descends with the rank. -0.0 counts as 0.0.
CFE_INLINE std::int64_t key_of(float score, std::uint32_t rank) {
  const float number = score + 0.0f;
  std::int32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  bits ^= (bits >> 31) & 0x7FFFFFFF;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(bits)) << 32 | ~rank);
}
CFE_INLINE float score_of(std::int64_t key) {
  auto bits = static_cast<std::int32_t>(key >> 32);
  bits ^= (bits >> 31) & 0x7FFFFFFF;
  float score;
  std::memcpy(&score, &bits, sizeof score);
  return score;
}
CFE_INLINE std::uint32_t rank_of(std::int64_t key) { return ~static_cast<std::uint32_t>(key); }

// Adds 1 to each count whose own key is less than another one.
CFE_INLINE Keys count_larger(const Keys& count, const Keys& other, const Keys& own) {
#if defined(CFE_LEVEL_avx512)
  const __mmask8 larger = _mm512_cmpgt_epi64_mask((__m512i)other, (__m512i)own);
  return (Keys)_mm512_mask_add_epi64((__m512i)count, larger, (__m512i)count, _mm512_set1_epi64(1));
#else
  return count - (Keys)(other > own);
#endif
}

// Sorts keys, the largest first, by counting; equal keys are kept once. Returns their number. `scratch` has room for
// 2 * kKeys more keys. `distinct`: no two keys are equal.
CFE_INLINE std::size_t sort_by_counting(std::int64_t* keys, std::size_t number, bool distinct, std::int64_t* scratch) {
  const std::size_t end = (number + 2 * kKeys - 1) / (2 * kKeys) * (2 * kKeys);
  std::memcpy(scratch, keys, number * sizeof *keys);
  for (std::size_t i = number; i < end; ++i) scratch[i] = kNoKey;
  for (std::size_t i = 0; !distinct && i < number; ++i) keys[i] = kNoKey;
  for (std::size_t first = 0; first < end; first += 2 * kKeys) {
    Keys own[2], count[2] = {};
    std::memcpy(own, scratch + first, sizeof own);
    for (std::size_t i = 0; i < number; ++i) {
      const Keys other = in_all_lanes<Keys>(scratch[i]);
      for (int half = 0; half < 2; ++half) count[half] = count_larger(count[half], other, own[half]);
    }
    std::int64_t places[2 * kKeys];
    std::memcpy(places, count, sizeof places);
    const std::size_t stop = number - first < 2 * kKeys ? number - first : 2 * kKeys;
    for (std::size_t i = 0; i < stop; ++i) keys[places[i]] = scratch[first + i];
  }
  if (distinct) return number;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < number; ++i) {
    const std::int64_t key = keys[i];
    keys[kept] = key;
    kept += key != kNoKey;
  }
  return kept;
}

// Sorts any number of keys in the same way.
CFE_OUTLINE std::size_t sort_keys(std::int64_t* keys, std::size_t number, bool distinct, std::int64_t* scratch) {
  if (number <= kMostCounted) return sort_by_counting(keys, number, distinct, scratch);
  std::int64_t* right = keys + number / 2;
  const std::size_t lefts = sort_keys(keys, number / 2, distinct, scratch);
  const std::size_t rights = sort_keys(right, number - number / 2, distinct, scratch);
  std::memcpy(scratch, keys, lefts * sizeof *keys);
  std::size_t i = 0, j = 0, kept = 0;
  while (i < lefts && j < rights) {
    const std::int64_t a = scratch[i], b = right[j];
    keys[kept++] = a > b ? a : b;
    i += a >= b;
    j += b >= a;
  }
  while (i < lefts) keys[kept++] = scratch[i++];
  while (j < rights) keys[kept++] = right[j++];
  return kept;
}

// The rank of an id among descending ids: the number of smaller ones.
CFE_INLINE std::uint32_t rank_among(const std::int64_t* ids, std::size_t number, std::int64_t id) {
  const std::size_t larger = first_without(0, number, [&](std::size_t i) CFE_LAMBDA { return ids[i] > id; });
  return static_cast<std::uint32_t>(number - 1 - larger);
}

// Writes the k best scores to D, unless that is null, and their ids to I. Returns their number: fewer than k if there
// are fewer. A row may occur up to `copies` times, with equal scores, and is written once. NaN and -inf are left out.
// `scores` has room for a multiple of 16, `memory` for memory_of_best(number).
CFE_OUTLINE std::size_t best_scores(float* scores, const std::int64_t* ids, std::size_t number, std::size_t k,
                                    std::size_t copies, std::int64_t* memory, float* D, std::int64_t* I) {
  const std::size_t end = padded(number), room = end + kLanes;
  std::int64_t *keys = memory, *scratch = memory + room, *sorted = memory + 2 * room;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < number; ++i) all |= static_cast<std::uint64_t>(ids[i]);
  const bool short_ids = all >> 32 == 0;
  std::size_t distinct = 0;
  if (!short_ids) {  // the rank among these ids replaces the id
    std::memcpy(sorted, ids, number * sizeof *sorted);
    distinct = sort_keys(sorted, number, copies == 1, scratch);
  }
  const auto rank_of_id = [&](std::int64_t id) CFE_LAMBDA {
    return short_ids ? static_cast<std::uint32_t>(id) : rank_among(sorted, distinct, id);
  };
  std::size_t kept = 0;
  if (number <= kSortedDirectly || number <= k * copies) {
    for (std::size_t i = 0; i < number; ++i) {
      keys[kept] = key_of(scores[i], rank_of_id(ids[i]));
      kept += scores[i] >= kLowest ? 1 : 0;
    }
  } else {
    for (std::size_t i = number; i < end; ++i) scores[i] = -kInfinite;
    const float bound = kth_bound(scores, end, k * copies);
    const F32x16 low = F32x16::all(bound > kLowest ? bound : kLowest);
    for (std::size_t start = 0; start < end; start += kLanes) {
      Mask mask = at_least(F32x16::load(scores + start), low);
      if (number - start < kLanes) mask &= (1u << (number - start)) - 1;
      for (; mask != 0; mask &= mask - 1) {
        const std::size_t i = start + static_cast<std::size_t>(__builtin_ctz(mask));
        keys[kept++] = key_of(scores[i], rank_of_id(ids[i]));
      }
    }
  }
  kept = sort_keys(keys, kept, copies == 1, scratch);
  kept = kept < k ? kept : k;
  for (std::size_t i = 0; D != nullptr && i < kept; ++i) D[i] = score_of(keys[i]);
  if (short_ids)
    for (std::size_t i = 0; i < kept; ++i) I[i] = rank_of(keys[i]);
  else
    for (std::size_t i = 0; i < kept; ++i) I[i] = sorted[distinct - 1 - rank_of(keys[i])];
  return kept;
}

}  // namespace cfe::CFE_LEVEL
