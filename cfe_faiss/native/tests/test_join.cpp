// The similarity join: against all pairs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/join.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

// Unit rows whose first 15 components are in the coarse sketch, with the length of the rest; the fine sketch has that
// rest. Some blocks are empty, some of one label.
struct Joined {
  std::size_t n, fine_width;
  std::vector<std::int64_t> starts{0};
  std::vector<std::int32_t> labels, node_labels;
  std::vector<float> coarse, fine, low, high;

  Joined(const std::vector<std::size_t>& sizes, std::size_t rest, unsigned seed) : fine_width(rest) {
    for (const std::size_t size : sizes) starts.push_back(starts.back() + static_cast<std::int64_t>(size));
    n = static_cast<std::size_t>(starts.back());
    const std::size_t d = kSketch - 1 + rest;
    std::vector<float> X = tests::random_numbers(n * d, seed);
    for (std::size_t row = 0; row < n; ++row) {
      const std::span x = std::span(X).subspan(row * d, d);
      for (std::size_t i = 2; i < d; ++i) x[i] /= 8;  // so that boxes tell rows apart
      tests::normalise(x);
      double square = 0;
      for (const float value : x.last(rest)) square += static_cast<double>(value) * value;
      coarse.insert(coarse.end(), x.begin(), x.begin() + kSketch - 1);
      coarse.push_back(static_cast<float>(std::sqrt(square)));
      fine.insert(fine.end(), x.end() - static_cast<std::ptrdiff_t>(rest), x.end());
    }
    for (std::size_t block = 0; block < sizes.size(); ++block)
      for (std::size_t row = 0; row < sizes[block]; ++row)
        labels.push_back(static_cast<std::int32_t>(block % 2 == 0 ? row % 3 : block % 3));
    add_boxes(sizes.size());
  }

  void add_boxes(std::size_t blocks) {
    const std::size_t inner = blocks - 1;
    low.assign((inner + blocks) * kSketch, std::numeric_limits<float>::infinity());
    high.assign((inner + blocks) * kSketch, -std::numeric_limits<float>::infinity());
    node_labels.assign(inner + blocks, kUnknown);
    for (std::size_t block = 0; block < blocks; ++block) {
      const auto own = std::span(labels).subspan(static_cast<std::size_t>(starts[block]),
                                                 static_cast<std::size_t>(starts[block + 1] - starts[block]));
      if (!own.empty() && std::equal(own.begin() + 1, own.end(), own.begin())) node_labels[inner + block] = own[0];
      for (auto row = static_cast<std::size_t>(starts[block]); row < static_cast<std::size_t>(starts[block + 1]); ++row)
        for (std::size_t node = inner + block + 1; node > 0; node /= 2)  // it and all above it
          for (std::size_t i = 0; i < kSketch; ++i) {
            const std::size_t at = (node - 1) * kSketch + i;
            low[at] = std::min(low[at], coarse[row * kSketch + i]);
            high[at] = std::max(high[at], coarse[row * kSketch + i]);
          }
    }
  }
  JoinTree tree() const {
    const std::size_t nodes = node_labels.size();
    return {starts,
            labels,
            {coarse.data(), n, kSketch},
            {fine.data(), n, fine_width},
            {low.data(), nodes, kSketch},
            {high.data(), nodes, kSketch},
            node_labels};
  }
  double product(std::size_t a, const Joined& others, std::size_t b) const {
    double total = 0;
    for (std::size_t i = 0; i + 1 < kSketch; ++i)
      total += static_cast<double>(coarse[a * kSketch + i]) * others.coarse[b * kSketch + i];
    for (std::size_t i = 0; i < fine_width; ++i)
      total += static_cast<double>(fine[a * fine_width + i]) * others.fine[b * fine_width + i];
    return total;
  }
};

using PairSet = std::set<std::pair<std::int64_t, std::int64_t>>;

PairSet plain_pairs(const Joined& joined, const Joined& others, double least) {
  PairSet pairs;
  for (std::size_t a = 0; a < joined.n; ++a)
    for (std::size_t b = &joined == &others ? a + 1 : 0; b < others.n; ++b)
      if (joined.labels[a] != others.labels[b] && joined.product(a, others, b) >= least)
        pairs.emplace(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b));
  return pairs;
}

using PairList = std::vector<std::pair<std::int64_t, std::int64_t>>;

// All pairs that the join finds, with room for `times` as many as it asks for.
PairList joined_pairs(const JoinTree& tree, const JoinTree& others, double least, std::size_t times) {
  PairList all;
  const JoinLimits limits{static_cast<float>(least - 1e-5), 2 - 2 * least + 1e-5};
  for (std::size_t block = 0; block < tree.blocks(); ++block) {
    BlockJoin join(tree, block, others);
    std::vector<std::int64_t> first(times * join.least_room()), second(first.size());
    JoinPairs pairs{first, second};
    while (!join.done()) {
      join.find(limits, pairs);
      CHECK(pairs.count <= first.size());
      for (std::size_t p = 0; p < pairs.count; ++p) all.emplace_back(first[p], second[p]);
    }
    CHECK(join.counts().found >= 0 && join.counts().fine >= join.counts().found);
  }
  return all;
}

}  // namespace

TEST(join_finds_each_pair_that_is_similar_enough_once) {
  for (const std::size_t rest : {1, 16, 21})
    for (const std::vector<std::size_t>& sizes :
         {std::vector<std::size_t>{1}, {30}, {17, 0, 25, 40}, {9, 16, 1, 0, 33, 20, 21, 8}}) {
      const Joined joined(sizes, rest, static_cast<unsigned>(rest));
      const JoinTree tree = joined.tree();
      tree.check();
      for (const double least : {0.2, 0.8, 0.99})
        for (const std::size_t times : {1, 3}) {
          const auto found = joined_pairs(tree, tree, least, times);
          PairSet once;
          for (const auto& [a, b] : found) once.emplace(std::min(a, b), std::max(a, b));
          CHECK(once.size() == found.size());
          const PairSet wanted = plain_pairs(joined, joined, least), most = plain_pairs(joined, joined, least - 1e-4);
          CHECK(std::includes(once.begin(), once.end(), wanted.begin(), wanted.end()));
          CHECK(std::includes(most.begin(), most.end(), once.begin(), once.end()));
        }
    }
}

TEST(join_of_two_trees_finds_each_pair_once) {
  const std::vector<std::size_t> none{0, 0}, few{7}, some{17, 0, 25, 40}, more{9, 16, 1, 0, 33, 20, 21, 8};
  for (const auto* sizes : {&none, &few, &some, &more})
    for (const auto* other_sizes : {&none, &few, &some, &more}) {
      const Joined joined(*sizes, 5, 1), others(*other_sizes, 5, 2);
      const JoinTree tree = joined.tree(), other_tree = others.tree();
      for (const double least : {0.2, 0.9}) {
        const PairList found = joined_pairs(tree, other_tree, least, 2);
        const PairSet once(found.begin(), found.end());
        CHECK(once.size() == found.size());
        const PairSet wanted = plain_pairs(joined, others, least), most = plain_pairs(joined, others, least - 1e-4);
        CHECK(std::includes(once.begin(), once.end(), wanted.begin(), wanted.end()));
        CHECK(std::includes(most.begin(), most.end(), once.begin(), once.end()));
      }
    }
}

TEST(join_refuses_what_does_not_fit) {
  const auto refused = [](const char* text, auto change) {
    Joined joined({5, 6}, 3, 1);
    JoinTree tree = joined.tree();
    change(tree, joined);
    CHECK_THROWS(std::invalid_argument, text, tree.check());
  };
  refused("starts must run", [](JoinTree&, Joined& joined) { joined.starts.back() = 10; });
  refused("starts must ascend", [](JoinTree&, Joined& joined) { joined.starts[1] = 12; });
  refused("coarse must", [](JoinTree& tree, Joined&) { tree.coarse.columns = 15; });
  refused("fine must", [](JoinTree& tree, Joined&) { tree.fine.rows = 10; });
  refused("low and high", [](JoinTree& tree, Joined&) { tree.high.rows = 2; });
  refused("node_labels", [](JoinTree& tree, Joined&) { tree.node_labels = tree.node_labels.first(2); });
  const Joined three({5, 6, 7}, 3, 1), fine({5, 6}, 3, 1);
  CHECK_THROWS(std::invalid_argument, "power of two", three.tree().check());
  const JoinTree tree = fine.tree();
  CHECK_THROWS(std::invalid_argument, "no such block", BlockJoin(tree, 2, tree));
  const Joined shorter({5, 6}, 2, 1);
  const JoinTree shorter_tree = shorter.tree();
  CHECK_THROWS(std::invalid_argument, "sketches of one length", BlockJoin(tree, 0, shorter_tree));
  BlockJoin join(tree, 0, tree);
  std::vector<std::int64_t> little(join.least_room() - 1);
  JoinPairs pairs{little, little};
  CHECK_THROWS(std::invalid_argument, "too little room", join.find({0.5F, 1}, pairs));
}

}  // namespace cfe
