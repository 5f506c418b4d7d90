// NumPy arrays at the border: what a function takes, and how it hands out what it made.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/matrix.h"

namespace cfe {

namespace nb = nanobind;

// Arrays that are C-contiguous, in memory, of exactly this type; see `as_is`.
template <class Number>
using Array1 = nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Array2 = nb::ndarray<Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Number>
std::span<Number> as_span(const Array1<Number>& array) {
  return {array.data(), array.shape(0)};
}

// The weights of edges; None where they have none.
using Weights = std::optional<Array1<const float>>;

inline std::span<const float> span_of(const Weights& weights) {
  return weights ? as_span(*weights) : std::span<const float>{};
}

template <class Number>
Matrix<Number> as_matrix(const Array2<Number>& array) {
  return {array.data(), array.shape(0), array.shape(1)};
}

// An argument that is taken as it is or refused (TypeError): a converted copy would be written to in vain.
constexpr auto as_is(const char* name) { return nb::arg(name).noconvert(); }

// Raises ValueError unless two lengths that have to agree do.
inline void check_length(const char* name, std::size_t got, std::size_t wanted) {
  if (got != wanted)
    throw nb::value_error(
        (std::string(name) + " must have length " + std::to_string(wanted) + ", got " + std::to_string(got)).c_str());
}

// A new NumPy array that owns what the vector held.
template <class Number>
nb::ndarray<nb::numpy, Number, nb::ndim<1>> as_array(std::vector<Number>&& values) {
  auto owned = std::make_unique<std::vector<Number>>(std::move(values));
  Number* data = owned->data();
  const std::size_t size = owned->size();
  nb::capsule owner(owned.release(), [](void* vector) noexcept { delete static_cast<std::vector<Number>*>(vector); });
  return {data, {size}, owner};
}

}  // namespace cfe
