#include <random>
#include <vector>

#include "core/kernels.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

TEST(row_scores_have_the_bits_of_a_plain_loop) {
  std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  for (const std::size_t d : {1, 2, 15, 16, 17, 31, 32, 33, 128, 1433}) {
    const std::size_t n = 5;
    std::vector<float> X(n * d), Y(n * d), result(n);
    const std::vector<std::int64_t> rows{0, 1, 2, 3, 4};
    for (float& x : X) x = normal(generator);
    for (float& y : Y) y = normal(generator);
    kernels().row_scores(Metric::kIp, tests::as_matrix(X, d), tests::as_matrix(Y, d), rows, rows, result);
    for (std::size_t row = 0; row < n; ++row)
      CHECK(result[row] == tests::plain_similarity(X.data() + row * d, Y.data() + row * d, d));
  }
}

}  // namespace cfe
