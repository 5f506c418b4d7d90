// The results of one query, and FAISS's padding.
#pragma once

#include "core/common.h"

namespace cfe {

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
