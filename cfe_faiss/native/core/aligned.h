// Vectors that begin on a cache line, so that no register's load takes two.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace cfe {

template <class Number>
struct LineAllocator {
  using value_type = Number;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class Other>
  LineAllocator(const LineAllocator<Other>&) {}
  Number* allocate(std::size_t size) { return static_cast<Number*>(::operator new(size * sizeof(Number), kLine)); }
  void deallocate(Number* data, std::size_t) { ::operator delete(data, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};

template <class Number>
using AlignedVector = std::vector<Number, LineAllocator<Number>>;

}  // namespace cfe
