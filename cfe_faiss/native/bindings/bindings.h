// NumPy arrays as arguments and results, and helpers of all bindings.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/matrix.h"
#include "core/parallel.h"

namespace cfe {

namespace nb = nanobind;

void bind_changes(nb::module_& module);
void bind_coarse(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_locks(nb::module_& module);
void bind_pairs(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_search(nb::module_& module);
void bind_single_search(nb::module_& module);

// C-contiguous arrays in main memory, of exactly this type; see `as_is`.
template <class Number>
using Array1 = nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Array2 = nb::ndarray<Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

using Vectors = Array2<const float>;
using Floats = Array1<const float>;
using Ints = Array1<const std::int64_t>;
using Labels = Array1<const std::int32_t>;
using Flags = Array1<const bool>;
using Scores = Array2<float>;      // D
using Ids = Array2<std::int64_t>;  // I
using Weights = std::optional<Floats>;

template <class Number>
std::span<Number> as_span(const Array1<Number>& array) {
  return {array.data(), array.shape(0)};
}
inline std::span<const float> as_span(const Weights& weights) {
  return weights ? as_span(*weights) : std::span<const float>{};
}
template <class Number>
Matrix<Number> as_matrix(const Array2<Number>& array) {
  return {array.data(), array.shape(0), array.shape(1)};
}

// An argument that is never converted: results written to a copy would be lost. Other types raise TypeError.
constexpr auto as_is(const char* name) { return nb::arg(name).noconvert(); }

// Raises ValueError if two lengths differ.
inline void check_length(const char* name, std::size_t got, std::size_t wanted) {
  if (got != wanted)
    throw nb::value_error(
        (std::string(name) + " must have length " + std::to_string(wanted) + ", got " + std::to_string(got)).c_str());
}

// Raises ValueError unless D and I have one row for each query and at least one column.
inline void check_results(const Scores& D, const Ids& I, std::size_t nq) {
  check_length("D", D.shape(0), nq);
  check_length("I", I.shape(0), nq);
  check_length("a row of I", I.shape(1), D.shape(1));
  if (D.shape(1) == 0) throw nb::value_error("D and I must have at least one column");
}

// A NumPy array that owns the numbers of a vector.
template <class Number>
nb::ndarray<nb::numpy, Number, nb::ndim<1>> as_array(std::vector<Number>&& values) {
  auto owned = std::make_unique<std::vector<Number>>(std::move(values));
  Number* data = owned->data();
  const std::size_t size = owned->size();
  nb::capsule owner(owned.release(), [](void* vector) noexcept { delete static_cast<std::vector<Number>*>(vector); });
  return {data, {size}, owner};
}

// Releases the GIL for a long call. `watch` notices Ctrl-C every 50 ms and calls `progress` with the number of tasks
// done. It calls `release` after each task, to give back the pages of memory maps. Both may be None.
class LongCall {
 public:
  explicit LongCall(nb::object progress = nb::none(), nb::object release = nb::none())
      : watch(watch_of(std::move(progress), std::move(release))) {}

  const Watch watch;

 private:
  static Watch watch_of(nb::object progress, nb::object release) {
    using Clock = std::chrono::steady_clock;
    return
        [progress = std::move(progress), release = std::move(release), last = Clock::now()](std::size_t done) mutable {
          if (!release.is_none()) {
            const nb::gil_scoped_acquire held;
            release();
          }
          const auto now = Clock::now();
          if (now - last < std::chrono::milliseconds(50)) return;
          last = now;
          const nb::gil_scoped_acquire held;
          if (PyErr_CheckSignals() != 0) throw nb::python_error();
          if (!progress.is_none()) progress(done);
        };
  }

  const nb::gil_scoped_release released_;  // ends before `watch` and its Python objects
};

}  // namespace cfe
