// The k best of the pushed rows: a heap, worst place first.
//
// The order is FAISS's: the larger similarity first, then the smaller id. NaN is never taken. Everything is inlined, so
// that kernels of every instruction set may use it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/inline.h"

namespace cfe {

// FAISS's similarity of a place without an id (inner product).
inline constexpr float kPadding = std::numeric_limits<float>::lowest();
// Id of a place of a heap that is still empty; -1 once the heap is sorted.
inline constexpr std::int64_t kNoId = std::numeric_limits<std::int64_t>::max();

// Whether similarity s with id i comes after similarity t with id j.
CFE_INLINE bool worse(float s, std::int64_t i, float t, std::int64_t j) { return s < t || (s == t && i > j); }

// The ids in a heap of k ids, and ids that it has dropped since. A dropped row is never taken again, as its score is
// the same. The table uses open addressing and is refilled from the heap when it is half full, so that the cost of a
// row does not grow with k.
struct IdTable {
  static constexpr std::int64_t kFree = -1;
  std::int64_t* slots;
  std::size_t size;  // see size_for
  std::size_t used;

  static std::size_t size_for(std::size_t k) {
    std::size_t size = 64;
    while (size < 4 * k) size *= 2;
    return size;
  }
  // Replaces all ids by those of a heap.
  CFE_INLINE void fill(const std::int64_t* I, std::size_t k) {
    for (std::size_t slot = 0; slot < size; ++slot) slots[slot] = kFree;
    used = 0;
    for (std::size_t i = 0; i < k; ++i)
      if (I[i] != kNoId) insert(I[i]);
  }
  // Adds an id that a heap with these k ids is about to take; false if it is in the table.
  CFE_INLINE bool add(std::int64_t id, const std::int64_t* I, std::size_t k) {
    if (2 * used >= size) fill(I, k);
    return insert(id);
  }

 private:
  CFE_INLINE bool insert(std::int64_t id) {
    // The multiplier of Fibonacci hashing; its high bits mix best.
    std::size_t slot = (static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15u) >> 32 & (size - 1);
    while (slots[slot] != kFree && slots[slot] != id) slot = (slot + 1) & (size - 1);
    if (slots[slot] == id) return false;
    slots[slot] = id;
    ++used;
    return true;
  }
};

// A view of one query's k places, k >= 1: similarities and ids.
struct TopK {
  float* D;
  std::int64_t* I;
  std::size_t k;

  CFE_INLINE void clear() const {
    for (std::size_t place = 0; place < k; ++place) D[place] = kPadding, I[place] = kNoId;
  }

  // The least similarity that the heap accepts.
  CFE_INLINE float worst() const {
    assert(k > 0);
    return D[0];
  }
  CFE_INLINE bool takes(float s, std::int64_t i) const { return worse(D[0], I[0], s, i); }

  CFE_INLINE void push(float s, std::int64_t i) const {
    if (takes(s, i)) sift_down(s, i, k);
  }
  // Ignores an id that the heap holds; `held` has its ids.
  CFE_INLINE void push_once(float s, std::int64_t i, IdTable& held) const {
    if (takes(s, i) && held.add(i, I, k)) sift_down(s, i, k);
  }

  // Turns the heap into FAISS's order, in place: best first, then padding with id -1.
  CFE_INLINE void sort() const {
    if (worst_first()) {
      for (std::size_t place = 0; place < k / 2; ++place) swap(place, k - 1 - place);
    } else {
      for (std::size_t size = k - 1; size > 0; --size) {
        const float s = D[size];
        const std::int64_t i = I[size];
        D[size] = D[0], I[size] = I[0];
        sift_down(s, i, size);
      }
    }
    for (std::size_t place = k; place > 0 && I[place - 1] == kNoId; --place) I[place - 1] = -1;
  }

  // Turns sorted results into a heap.
  CFE_INLINE void unsort() const {
    for (std::size_t place = 0; place < k / 2; ++place) swap(place, k - 1 - place);
    for (std::size_t place = 0; place < k && I[place] == -1; ++place) I[place] = kNoId;
  }

 private:
  // Puts (s, i) in place of the worst of the first `size`.
  CFE_INLINE void sift_down(float s, std::int64_t i, std::size_t size) const {
    std::size_t place = 0;
    for (;;) {
      std::size_t child = 2 * place + 1;
      if (child >= size) break;
      if (child + 1 < size && worse(D[child + 1], I[child + 1], D[child], I[child])) ++child;
      if (!worse(D[child], I[child], s, i)) break;
      D[place] = D[child], I[place] = I[child];
      place = child;
    }
    D[place] = s, I[place] = i;
  }
  CFE_INLINE bool worst_first() const {
    std::size_t place = 1;
    while (place < k && !worse(D[place], I[place], D[place - 1], I[place - 1])) ++place;
    return place >= k;
  }
  CFE_INLINE void swap(std::size_t a, std::size_t b) const {
    const float s = D[a];
    const std::int64_t i = I[a];
    D[a] = D[b], I[a] = I[b];
    D[b] = s, I[b] = i;
  }
};

}  // namespace cfe
