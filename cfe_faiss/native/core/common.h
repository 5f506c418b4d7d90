// Common to all files: the standard headers, functions inlined into kernels, matrices, and checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// For functions shared by kernels and other code: each file gets a copy for its instruction set, so that the linker
// cannot exchange them.
#define CFE_INLINE inline __attribute__((always_inline))
// For rarely called functions of kernels.
#define CFE_OUTLINE inline __attribute__((noinline))
// For a lambda, after its parameters.
#define CFE_LAMBDA __attribute__((always_inline))

namespace cfe {

inline constexpr std::size_t kLanes = 16;  // numbers of a vector at every instruction set

// `number`, rounded up to a multiple of 16.
CFE_INLINE std::size_t padded(std::size_t number) { return (number + kLanes - 1) / kLanes * kLanes; }

// The first of low, low + 1, ..., high - 1 for which `holds` is false, or `high`; it is true for all before. The
// functions of the standard library would be compiled once for all instruction sets.
template <class Holds>
CFE_INLINE std::size_t first_without(std::size_t low, std::size_t high, const Holds& holds) {
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (holds(middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Consecutive rows of numbers: a span of spans.
template <class Number>
struct Matrix {
  Number* data;
  std::size_t rows, columns;

  std::span<Number> operator[](std::size_t row) const { return {data + row * columns, columns}; }
  Matrix part(std::size_t first, std::size_t stop) const { return {data + first * columns, stop - first, columns}; }
  std::size_t size() const { return rows * columns; }
  operator Matrix<const Number>() const { return {data, rows, columns}; }
};

// Base of classes that are neither copied nor moved.
struct Fixed {
  Fixed() = default;
  Fixed(const Fixed&) = delete;
  Fixed(Fixed&&) = delete;
  Fixed& operator=(const Fixed&) = delete;
  Fixed& operator=(Fixed&&) = delete;
  ~Fixed() = default;
};

// Functions of core/ and bindings/ that check their arguments throw std::invalid_argument, as a rule: ValueError in
// Python. Kernels check nothing.

// Throws it with a message in parts.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

// Throws it with a message unless the condition holds.
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

// Divides a mean by its norm in float32; a zero mean stays zero.
inline void divide_by_norm(std::span<float> mean, float norm) {
  for (float& value : mean) value /= norm > 0 ? norm : 1.0f;
}

}  // namespace cfe
