// The list of each id >= 0. Ids can be added and removed without allocating.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cfe {

class IdMap {
 public:
  explicit IdMap(std::size_t expected) { make_room(expected); }

  // Reserves room for `more` ids. Throws std::bad_alloc and changes nothing if there is no memory.
  void make_room(std::size_t more) {
    std::size_t slots = ids_.empty() ? 16 : ids_.size();
    while (slots < 2 * (size_ + more)) slots *= 2;
    if (slots == ids_.size()) return;
    std::vector<std::int64_t> ids(slots, kFree);
    std::vector<std::int32_t> lists(slots);
    ids.swap(ids_);
    lists.swap(lists_);
    for (std::size_t slot = 0; slot < ids.size(); ++slot)
      if (ids[slot] != kFree) put(place_of(ids[slot]), ids[slot], lists[slot]);
  }

  // Adds an id, for which there must be room, if it is new, and returns whether it is.
  bool add(std::int64_t id, std::int32_t list = 0) {
    assert(id >= 0);
    const std::size_t place = place_of(id);
    if (ids_[place] == id) return false;
    put(place, id, list);
    ++size_;
    return true;
  }

  // Removes an id if it is there, and closes the gap.
  void remove(std::int64_t id) {
    std::size_t gap = place_of(id);
    if (ids_[gap] == kFree) return;
    const std::size_t mask = ids_.size() - 1;
    for (std::size_t next = (gap + 1) & mask; ids_[next] != kFree; next = (next + 1) & mask) {
      // An id may move to the gap unless its own chain starts after it.
      if (((next - home_of(ids_[next])) & mask) < ((next - gap) & mask)) continue;
      put(gap, ids_[next], lists_[next]);
      gap = next;
    }
    ids_[gap] = kFree;
    --size_;
  }

  bool holds(std::int64_t id) const { return ids_[place_of(id)] == id; }
  // Returns the list of an id, or -1. Negative ids are not there.
  std::int32_t list_of(std::int64_t id) const {
    const std::size_t place = place_of(id);
    return id >= 0 && ids_[place] == id ? lists_[place] : -1;
  }

 private:
  static constexpr std::int64_t kFree = -1;

  void put(std::size_t place, std::int64_t id, std::int32_t list) {
    ids_[place] = id;
    lists_[place] = list;
  }
  // The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio. Its high bits mix best.
  std::size_t home_of(std::int64_t id) const {
    return (static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15u) >> 20 & (ids_.size() - 1);
  }
  // Slot of an id, or the free slot for it.
  std::size_t place_of(std::int64_t id) const {
    std::size_t place = home_of(id);
    while (ids_[place] != kFree && ids_[place] != id) place = (place + 1) & (ids_.size() - 1);
    return place;
  }

  std::vector<std::int64_t> ids_;
  std::vector<std::int32_t> lists_;
  std::size_t size_ = 0;
};

}  // namespace cfe
