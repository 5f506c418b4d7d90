// Plain view for the kernels of the rows of an index; core/rows.h makes and checks it.
#pragma once

#include "core/common.h"
#include "core/filter.h"
#include "core/metric.h"

namespace cfe {

// Storage format of a vector: float32, float16, or one byte per component (see cfe_faiss/rows/codecs.py).
enum class Codec : int { kFlat = 0, kFp16 = 1, kSq8 = 2 };

// FAISS decodes 8 components at once, with one rounding, if d is a multiple of 8, else with two.
inline constexpr std::size_t kDecodedAtOnce = 8;

struct RowsView {
  std::size_t d, row_size, nlist;
  Codec codec;
  const float *low = nullptr, *spread = nullptr;  // of Codec::kSq8: the range of each component
  const std::int64_t* starts;                     // (nlist + 1,)
  const std::uint8_t* const* codes;               // of each list
  const std::int64_t* const* ids;                 // of each list
  const std::uint8_t* const* pq_codes = nullptr;  // of each list; null for rows without product-quantizer codes
  const std::int32_t* labels;                     // of all rows
  bool sorted = true;                             // whether labels ascend within a list
  Metric metric = Metric::kCosine;

  CFE_INLINE const std::int32_t* labels_of(std::size_t list) const { return labels + starts[list]; }
  // The list of a row: the last non-empty list that starts at or before it.
  CFE_INLINE std::size_t list_of(std::int64_t row) const {
    return first_without(1, nlist, [&](std::size_t list) CFE_LAMBDA { return starts[list] <= row; }) - 1;
  }
  // The same; fast if it is the list of the previous row.
  CFE_INLINE std::size_t list_of(std::int64_t row, std::size_t before) const {
    return starts[before] <= row && row < starts[before + 1] ? before : list_of(row);
  }
};

// Indices of sorted labels that a query of one label may find: first[0]:stop[0] and first[1]:stop[1].
struct EligiblePlaces {
  std::size_t first[2], stop[2];
};

CFE_INLINE std::size_t first_at_least(const std::int32_t* labels, std::int32_t label, std::size_t low,
                                      std::size_t high) {
  return first_without(low, high, [&](std::size_t place) CFE_LAMBDA { return labels[place] < label; });
}

CFE_INLINE EligiblePlaces eligible_places(const std::int32_t* labels, std::size_t n, std::int32_t label,
                                          Policy policy) {
  if (policy == Policy::kAny) return {{0, n}, {n, n}};
  const std::size_t known = first_at_least(labels, kUnknown + 1, 0, n);
  if (label == kUnknown) return {{known, n}, {known, n}};
  const std::size_t own = first_at_least(labels, label, known, n), stop = first_at_least(labels, label + 1, own, n);
  if (policy == Policy::kOwn) return {{own, n}, {stop, n}};
  return {{known, stop}, {own, n}};
}

}  // namespace cfe
