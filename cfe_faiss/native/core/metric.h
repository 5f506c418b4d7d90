// How two vectors are compared, and the best results of a query.
#pragma once

#include "core/common.h"

namespace cfe {

// A score is larger for nearer vectors: the inner product, of unit vectors (kCosine) or of any (kIp), minus the squared
// distance (kL2), or the share of the ones of two rows of 0 and 1 that both have (kTanimoto; exact indexes only).
enum class Metric : int { kCosine = 0, kIp = 1, kL2 = 2, kTanimoto = 3 };

// Vectors of the other metrics may have any length up to this one, so that no score overflows.
inline constexpr double kLongestVector = 1e14;

// Lists are ranked by a product of the query with a mean. Except for unit vectors, both have one more number: for kL2,
//
//   -|q - m|^2 - s v  =  2 (q·m - (|m|^2 + s v) / 2) - |q|^2
//
// where v is the variance of the rows behind the mean m; for kIp it stands for the largest product of |q| and a row,
// which grows with their variance. Both shares were chosen by the rows that a recall needs.
constexpr std::size_t ranking_length(Metric metric, std::size_t d) { return metric == Metric::kCosine ? d : d + 1; }
inline constexpr double kVarianceShare = 0.1;

// FAISS's similarity of a place without an id (inner product). The id is -1.
inline constexpr float kPadding = std::numeric_limits<float>::lowest();

// A view of the k results of a query, k >= 1: similarities and ids, the larger similarity first, then the smaller id,
// then padding.
struct TopK {
  float* D;
  std::int64_t* I;
  std::size_t k;

  CFE_INLINE void clear() const {
    for (std::size_t place = 0; place < k; ++place) D[place] = kPadding, I[place] = -1;
  }
  // Number of results so far.
  CFE_INLINE std::size_t found() const {
    if (I[k - 1] >= 0) return k;
    std::size_t number = 0;
    while (I[number] >= 0) ++number;
    return number;
  }
};

}  // namespace cfe
