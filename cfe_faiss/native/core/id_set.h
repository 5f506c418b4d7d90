// A set of ids >= 0, to which ids can be added without allocating.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cfe {

class IdSet {
 public:
  explicit IdSet(std::size_t expected) { make_room(expected); }

  // Reserves room for `more` ids. Throws std::bad_alloc and changes nothing if there is no memory.
  void make_room(std::size_t more) {
    std::size_t slots = slots_.empty() ? 16 : slots_.size();
    while (slots < 2 * (size_ + more)) slots *= 2;
    if (slots == slots_.size()) return;
    std::vector<std::int64_t> larger(slots, kFree);
    larger.swap(slots_);
    for (const std::int64_t id : larger)
      if (id != kFree) slots_[place_of(id)] = id;
  }

  // Adds an id, for which there must be room. Returns whether it is new.
  bool add(std::int64_t id) {
    assert(id >= 0);
    std::int64_t& slot = slots_[place_of(id)];
    if (slot == id) return false;
    slot = id;
    ++size_;
    return true;
  }

  bool holds(std::int64_t id) const { return slots_[place_of(id)] == id; }

 private:
  static constexpr std::int64_t kFree = -1;

  // Slot of an id, or the free slot for it.
  std::size_t place_of(std::int64_t id) const {
    const std::size_t mask = slots_.size() - 1;
    // The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio. Its high bits mix best.
    std::size_t place = (static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15u) >> 20 & mask;
    while (slots_[place] != kFree && slots_[place] != id) place = (place + 1) & mask;
    return place;
  }

  std::vector<std::int64_t> slots_;
  std::size_t size_ = 0;
};

}  // namespace cfe
