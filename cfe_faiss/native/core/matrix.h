// Consecutive rows of numbers: a span of spans.
#pragma once

#include <cstddef>
#include <span>

namespace cfe {

template <class Number>
struct Matrix {
  Number* data;
  std::size_t rows, columns;

  std::span<Number> operator[](std::size_t row) const { return {data + row * columns, columns}; }
  Matrix part(std::size_t first, std::size_t stop) const { return {data + first * columns, stop - first, columns}; }
  std::size_t size() const { return rows * columns; }
  operator Matrix<const Number>() const { return {data, rows, columns}; }
};

}  // namespace cfe
