// Uninitialised arrays, aligned to cache lines; large arrays use huge pages.
#pragma once

#include <new>

#include "core/common.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace cfe {

// Aligned to cache lines, so that no register is loaded from two. From 4 MiB on, Linux is asked for huge pages: at
// 500,000 rows of 128 numbers they save a fifth of the time of a query, as fewer addresses are translated.
template <class Number>
struct LineAllocator {
  using value_type = Number;

  LineAllocator() = default;
  template <class Other>
  LineAllocator(const LineAllocator<Other>&) {}

  Number* allocate(std::size_t size) {
    const std::size_t bytes = size * sizeof(Number);
    void* data = ::operator new(bytes, alignment(bytes));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (bytes >= kLarge) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a refusal changes nothing
#endif
    return static_cast<Number*>(data);
  }
  void deallocate(Number* data, std::size_t size) { ::operator delete(data, alignment(size * sizeof(Number))); }
  // Elements without a value stay uninitialised.
  template <class Element>
  void construct(Element* place) {
    ::new (static_cast<void*>(place)) Element;
  }
  template <class Element, class... Values>
  void construct(Element* place, Values&&... values) {
    ::new (static_cast<void*>(place)) Element(std::forward<Values>(values)...);
  }
  bool operator==(const LineAllocator&) const { return true; }

 private:
  static constexpr std::size_t kLine = 64, kHugePage = std::size_t{2} << 20, kLarge = 2 * kHugePage;
  static std::align_val_t alignment(std::size_t bytes) { return std::align_val_t{bytes >= kLarge ? kHugePage : kLine}; }
};

template <class Number>
using AlignedVector = std::vector<Number, LineAllocator<Number>>;

}  // namespace cfe
