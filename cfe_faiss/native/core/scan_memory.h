// Memory of the scans of one thread, reused by the next scan of the same shape.
#pragma once

#include "core/aligned.h"
#include "core/block_view.h"

namespace cfe {

struct ScanShape {
  std::size_t d, k, copies;  // copies: see GroupView
  std::size_t words = 0;     // of a query in bytes, or a part of its tables for bits; 0 for floats
  std::size_t rotated = 0;   // dimensions of a rotated query; 0 without rotation
  std::size_t centred = 0;   // dimensions of a centred query; 0 without a centre
  std::size_t bounded = 0;   // blocks of bits whose bounds are kept at a time
  bool warms_up = false;     // see WarmUp
  bool operator==(const ScanShape&) const = default;
};

class ScanMemory {
 public:
  // Memory for at most `queries` queries at once.
  const SearchMemory& of(std::size_t queries, const ScanShape& shape);

 private:
  template <class Number>
  Number* take(std::size_t size);

  ScanShape shape_{};
  std::size_t queries_ = 0;
  std::vector<AlignedVector<std::byte>> parts_;
  SearchMemory view_{};
};

}  // namespace cfe
