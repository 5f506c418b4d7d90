// The table of kernels of one instruction set, and which of them is in use.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/matrix.h"
#include "core/propagation.h"

namespace cfe {

struct Kernels {
  // similarity.h
  void (*pair_similarities)(const float* X, const float* Y, std::size_t d, std::span<float> result);

  // normalise.h
  std::ptrdiff_t (*first_not_finite)(const Matrix<const float>& X);
  std::ptrdiff_t (*unit_rows)(const Matrix<const float>& X, const Matrix<float>& unit);
  double (*normalise)(std::span<float> row);

  // propagation.h
  void (*step)(const Nodes& nodes, double alpha, const Step& step, const Sums& sums);
  void (*gather)(const UnitRows& others, const Neighbors& neighbors, std::span<const float> own, const Sums& sums);
  float (*finish)(std::span<const float> own, const Shares& shares, const Sums& sums, const NewRow& row);
};

// The kernels of the level that was chosen when the module was imported.
const Kernels& kernels();

// The level in use: "generic", "avx2", "avx512" or "neon".
const std::string& level();

// The levels that this machine can run, from the plainest to the best.
std::vector<std::string> available_levels();

// Chooses the best level, or the one that the environment variable CFE_SIMD names. Throws std::runtime_error if that is
// none of `available_levels`.
void choose_level();

}  // namespace cfe
