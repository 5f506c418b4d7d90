// Checks and small helpers that several files use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace cfe {

// Throws std::invalid_argument with the message unless the condition holds.
inline void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

// Whether offsets ascend from 0 to `last`.
inline bool ascends(std::span<const std::int64_t> offsets, std::size_t last) {
  return !offsets.empty() && offsets.front() == 0 && offsets.back() == static_cast<std::int64_t>(last) &&
         std::is_sorted(offsets.begin(), offsets.end());
}

// Whether all numbers are in 0 .. end - 1.
template <class Number>
bool all_below(std::span<const Number> numbers, std::size_t end) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [end](Number i) { return i >= 0 && static_cast<std::size_t>(i) < end; });
}

// Cuts groups of rows into runs of at least `rows` rows: the first group of each run and, last, the number of groups.
inline std::vector<std::size_t> cut_groups(std::span<const std::int64_t> starts, std::size_t rows) {
  std::vector<std::size_t> cuts{0};
  for (std::size_t g = 1; g < starts.size(); ++g)
    if (g + 1 == starts.size() || static_cast<std::size_t>(starts[g] - starts[cuts.back()]) >= rows) cuts.push_back(g);
  return cuts;
}

// The first `size` elements of a vector that only grows.
template <class Vector>
auto first_of(Vector& values, std::size_t size) {
  if (values.size() < size) values.resize(size);
  return std::span(values).first(size);
}

}  // namespace cfe
