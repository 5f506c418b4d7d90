#include <random>
#include <vector>

#include "core/kernels.h"
#include "tests/check.h"

namespace cfe {

namespace {

// The sum of kernels/similarity.h in its written-down order, number by number.
float plain_similarity(const float* x, const float* y, std::size_t d) {
  double lanes[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= d; i += 16)
    for (std::size_t lane = 0; lane < 16; ++lane)
      lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(y[i + lane]);
  for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += lanes[lane + 8];
  for (std::size_t width = 4; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1];
  double total = lanes[0];
  for (; i < d; ++i) total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return static_cast<float>(total);
}

}  // namespace

TEST(pair_similarities_have_the_bits_of_a_plain_loop) {
  std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  for (const std::size_t d : {1, 2, 15, 16, 17, 31, 32, 33, 128, 1433}) {
    const std::size_t n = 5;
    std::vector<float> X(n * d), Y(n * d), result(n);
    for (float& x : X) x = normal(generator);
    for (float& y : Y) y = normal(generator);
    kernels().pair_similarities(X.data(), Y.data(), d, result);
    for (std::size_t row = 0; row < n; ++row)
      CHECK(result[row] == plain_similarity(X.data() + row * d, Y.data() + row * d, d));
  }
}

}  // namespace cfe
