// NumPy arrays as arguments and results, and helpers of all bindings.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <chrono>
#include <optional>
#include <type_traits>

#include "core/common.h"
#include "core/metric.h"
#include "core/parallel.h"

namespace cfe {

namespace nb = nanobind;
using nb::literals::operator""_a;

void bind_changes(nb::module_& module);
void bind_coarse(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_locks(nb::module_& module);
void bind_pairs(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_search(nb::module_& module);
void bind_single_search(nb::module_& module);

class ReadWriteLock;
// Enters for reading, without the GIL while it waits. Throws on Ctrl-C.
void enter_reading(ReadWriteLock& lock);

// C-contiguous arrays in main memory, of exactly this type; see `as_is`.
template <class Number>
using Array1 = nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Array2 = nb::ndarray<Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Views of such arrays, as arguments.
using Vectors = Matrix<const float>;
using Lists = Matrix<const std::int64_t>;
using Floats = std::span<const float>;
using Ints = std::span<const std::int64_t>;
using Labels = std::span<const std::int32_t>;
using Flags = std::span<const bool>;
using Scores = Matrix<float>;      // D
using Ids = Matrix<std::int64_t>;  // I

template <class Number>
std::span<Number> as_span(const Array1<Number>& array) {
  return {array.data(), array.shape(0)};
}
template <class Number>
Matrix<Number> as_matrix(const Array2<Number>& array) {
  return {array.data(), array.shape(0), array.shape(1)};
}

// An argument that is never converted: results written to a copy would be lost. Other types raise TypeError.
constexpr auto as_is(const char* name) { return nb::arg(name).noconvert(); }

// Raises ValueError if two lengths differ.
inline void check_length(const char* name, std::size_t got, std::size_t wanted) {
  if (got != wanted) refuse(name, " must have length ", wanted, ", got ", got);
}

// Raises ValueError if a matrix has another shape.
template <class Number>
void check_shape(const char* name, const Matrix<Number>& array, std::size_t rows, std::size_t columns) {
  check_length(name, array.rows, rows);
  if (array.columns != columns) refuse("a row of ", name, " must have length ", columns, ", got ", array.columns);
}

// The codec, metric or policy with a number. Raises ValueError if there is none.
template <class Enum>
Enum enum_of(const char* name, int number) {
  const int last = std::is_same_v<Enum, Metric> ? 3 : 2;
  if (number < 0 || number > last) refuse(name, " must be 0 to ", last, ", got ", number);
  return static_cast<Enum>(number);
}

// For functions that do not use Python.
inline constexpr nb::call_guard<nb::gil_scoped_release> without_gil;

// Raises ValueError unless D and I have one row for each query and at least one column.
inline void check_results(const Scores& D, const Ids& I, std::size_t nq) {
  check_length("D", D.rows, nq);
  check_shape("I", I, nq, D.columns);
  require(D.columns > 0, "D and I must have at least one column");
}

// A NumPy array of memory that it keeps alive; read-only if the numbers are constant.
template <class Number>
nb::ndarray<nb::numpy, Number, nb::ndim<1>> as_array(Number* data, std::size_t size,
                                                     std::shared_ptr<const void> owner) {
  auto kept = std::make_unique<std::shared_ptr<const void>>(std::move(owner));
  nb::capsule capsule(kept.release(),
                      [](void* held) noexcept { delete static_cast<std::shared_ptr<const void>*>(held); });
  return {data, {size}, capsule};
}

template <class Number>
nb::ndarray<nb::numpy, Number, nb::ndim<1>> as_array(std::vector<Number>&& values) {
  const auto owner = std::make_shared<std::vector<Number>>(std::move(values));
  return as_array(owner->data(), owner->size(), owner);
}

// The result of a function that is called while a guard lives.
template <class Guard, class Function>
auto within(const Function& function) {
  const Guard guard;
  return function();
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

namespace nanobind::detail {

// A span or a matrix as an argument is such an array. None, where it is allowed, is an empty span.
template <class View, class Array>
struct ViewCaster {
  NB_TYPE_CASTER(View, type_caster<Array>::Name)

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    flags &= ~static_cast<std::uint32_t>(cast_flags::convert);
    if (!array_.from_python(source, flags, cleanup)) return false;
    const Array& array = array_.value;
    if (!array.is_valid())
      value = View{};
    else if constexpr (requires { value.rows; })
      value = cfe::as_matrix(array);
    else
      value = cfe::as_span(array);
    return true;
  }

 private:
  type_caster<Array> array_;  // holds the array during the call
};

template <class Number>
struct type_caster<std::span<Number>> : ViewCaster<std::span<Number>, cfe::Array1<Number>> {};
template <class Number>
struct type_caster<cfe::Matrix<Number>> : ViewCaster<cfe::Matrix<Number>, cfe::Array2<Number>> {};

}  // namespace nanobind::detail
