#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <ranges>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/graph.h"
#include "tests/check.h"

namespace cfe {

namespace {

Matrix<const std::int64_t> as_edges(const std::vector<std::int64_t>& ends) { return {ends.data(), 2, ends.size() / 2}; }

}  // namespace

TEST(graph_holds_each_neighbour_once_and_never_itself) {
  std::mt19937 generator(2);
  for (const bool directed : {false, true})
    for (const int threads : {1, 3}) {
      const std::size_t n = 30, m = 400;
      std::vector<std::int64_t> ends(2 * m);
      for (std::int64_t& end : ends) end = static_cast<std::int64_t>(generator() % n);
      GraphBuilder builder(n, directed, false);
      builder.count(as_edges(ends));
      builder.place(as_edges(ends), {});
      const GraphBuilder::Csr csr = builder.finish(threads, nullptr);
      const CsrGraph graph(csr.indptr, csr.indices, {}, {0, csr.indptr.size() - 1, {}}, threads, nullptr);
      std::vector<std::set<std::int32_t>> forward(n), backward(n);
      for (std::size_t e = 0; e < m; ++e) {
        if (ends[e] == ends[m + e]) continue;
        forward[ends[e]].insert(static_cast<std::int32_t>(ends[m + e]));
        backward[ends[m + e]].insert(static_cast<std::int32_t>(ends[e]));
      }
      bool as_forward = true, as_backward = true, as_both = true;
      for (std::size_t v = 0; v < n; ++v) {
        const auto own = graph.neighbors(v);
        const std::set<std::int32_t> found(own.begin(), own.end());
        CHECK(found.size() == own.size());
        std::set<std::int32_t> both = forward[v];
        both.insert(backward[v].begin(), backward[v].end());
        as_forward &= found == forward[v];
        as_backward &= found == backward[v];
        as_both &= found == both;
      }
      CHECK(directed ? as_forward || as_backward : as_both);
    }
}

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

TEST(weights_are_summed_over_repeated_edges_and_averaged_over_directions) {
  std::mt19937 generator(3);
  for (const bool directed : {false, true})
    for (const int threads : {1, 3}) {
      const std::size_t n = 12, m = 300;
      std::vector<std::int64_t> ends(2 * m);
      for (std::int64_t& end : ends) end = static_cast<std::int64_t>(generator() % n);
      std::vector<float> weights(m);
      std::vector<double> into(n * n);  // of target and source; sums of eighths are exact
      for (std::size_t e = 0; e < m; ++e) {
        weights[e] = static_cast<float>(1 + generator() % 64) / 8.0f;
        if (ends[e] != ends[m + e]) into[ends[m + e] * n + ends[e]] += static_cast<double>(weights[e]);
      }
      GraphBuilder builder(n, directed, true);
      builder.count(as_edges(ends));
      builder.place(as_edges(ends), weights);
      const GraphBuilder::Csr csr = builder.finish(threads, nullptr);
      const CsrGraph graph(csr.indptr, csr.indices, csr.weights, {0, csr.indptr.size() - 1, {}}, threads, nullptr);
      for (std::size_t v = 0; v < n; ++v) {
        double total = 0;
        float largest = 0;
        std::size_t edges = 0;
        for (std::size_t u = 0; u < n; ++u) {
          const double in = into[v * n + u], out = directed ? 0 : into[u * n + v];
          const double expected = in > 0 && out > 0 ? (in + out) / 2 : in + out;
          if (expected == 0) continue;
          const std::size_t at = static_cast<std::size_t>(csr.indptr[v]) + edges++;
          CHECK(csr.indices[at] == static_cast<std::int32_t>(u) && csr.weights[at] == static_cast<float>(expected));
          largest = std::max(largest, csr.weights[at]);
        }
        CHECK(graph.neighbors(v).size() == edges && graph.nodes().largest[v] == largest);
        for (std::size_t i = 0; i < edges; ++i)
          total += static_cast<double>(csr.weights[static_cast<std::size_t>(csr.indptr[v]) + i] / largest);
        CHECK(graph.nodes().totals[v] == total);
      }
    }
}

TEST(weights_have_to_be_positive_and_finite) {
  const std::vector<std::int64_t> indptr{0, 1, 2}, edges{0, 1};
  const std::vector<std::int32_t> indices{1, 0};
  for (const float wrong : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const std::vector<float> weights{1.0f, wrong}, of_edge{wrong};
    CHECK_THROWS(std::invalid_argument, "", CsrGraph(indptr, indices, weights, {0, indptr.size() - 1, {}}, 1, nullptr));
    GraphBuilder builder(2, false, true);
    builder.count(as_edges(edges));
    CHECK_THROWS(std::invalid_argument, "", builder.place(as_edges(edges), of_edge));
  }
  const std::vector<float> too_few{1.0f};
  CHECK_THROWS(std::invalid_argument, "", CsrGraph(indptr, indices, too_few, {0, indptr.size() - 1, {}}, 1, nullptr));
}

TEST(builder_refuses_nodes_that_there_are_not_and_edges_that_were_not_counted) {
  const std::vector<std::int64_t> far{0, 3}, negative{-1, 0}, fine{0, 1};
  CHECK_THROWS(std::invalid_argument, "", GraphBuilder(3, false, false).count(as_edges(far)));
  CHECK_THROWS(std::invalid_argument, "", GraphBuilder(3, false, false).count(as_edges(negative)));
  GraphBuilder builder(3, false, false);
  builder.count(as_edges(fine));
  builder.place(as_edges(fine), {});
  CHECK_THROWS(std::invalid_argument, "", builder.place(as_edges(fine), {}));
}

TEST(ranges_of_rows_follow_each_other) {
  for (const std::size_t n : {0, 1, 5, 3000}) {
    std::vector<std::int64_t> counts(n);
    for (std::size_t v = 0; v < n; ++v) counts[v] = static_cast<std::int64_t>(v % 7 == 0 ? 500 : 0);
    std::size_t next = 0;
    for (const Range& range : balanced_ranges(offsets(counts))) {
      CHECK(range.first == next && range.stop > range.first);
      next = range.stop;
    }
    CHECK(next == n);
  }
}

}  // namespace cfe
