#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/graph.h"
#include "tests/check.h"

namespace cfe {

TEST(graph_refuses_what_is_no_graph) {
  const auto refused = [](std::vector<std::int64_t> indptr, std::vector<std::int32_t> indices) {
    CHECK_THROWS(std::invalid_argument, "", CsrGraph(indptr, indices, {}, {0, indptr.size() - 1, {}}, 1, nullptr));
  };
  refused({}, {});
  refused({0, 2}, {1});
  refused({0, 1, 1}, {2});
  refused({0, 1, 1}, {-1});
  refused({0, 2, 1}, {1, 0});
}

TEST(weights_of_a_node_have_a_largest_and_a_total) {
  const std::vector<std::int64_t> indptr{0, 2, 3, 3};
  const std::vector<std::int32_t> indices{1, 2, 0};
  const std::vector<float> weights{0.5f, 2.0f, 3.0f};
  const CsrGraph graph(indptr, indices, weights, {0, 3, {}}, 1, nullptr);
  CHECK(graph.nodes().largest[0] == 2.0f && graph.nodes().totals[0] == 1.25);
  CHECK(graph.nodes().largest[1] == 3.0f && graph.nodes().totals[1] == 1);
  CHECK(graph.nodes().largest[2] == 0 && graph.nodes().totals[2] == 0);
}

TEST(weights_have_to_be_positive_and_finite) {
  const std::vector<std::int64_t> indptr{0, 1, 2};
  const std::vector<std::int32_t> indices{1, 0};
  for (const float wrong : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const std::vector<float> weights{1.0f, wrong};
    CHECK_THROWS(std::invalid_argument, "", CsrGraph(indptr, indices, weights, {0, indptr.size() - 1, {}}, 1, nullptr));
  }
  const std::vector<float> too_few{1.0f};
  CHECK_THROWS(std::invalid_argument, "", CsrGraph(indptr, indices, too_few, {0, indptr.size() - 1, {}}, 1, nullptr));
}

TEST(ranges_of_rows_follow_each_other) {
  for (const std::size_t n : {0, 1, 5, 3000}) {
    std::vector<std::int64_t> indptr{0};
    for (std::size_t v = 0; v < n; ++v) indptr.push_back(indptr.back() + (v % 7 == 0 ? 500 : 0));
    std::size_t next = 0;
    for (const Range& range : balanced_ranges(indptr)) {
      CHECK(range.first == next && range.stop > range.first);
      next = range.stop;
    }
    CHECK(next == n);
  }
}

}  // namespace cfe
