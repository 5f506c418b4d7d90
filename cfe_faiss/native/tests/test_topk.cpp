#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/topk.h"
#include "tests/check.h"

namespace cfe {

namespace {

using Pairs = std::vector<std::pair<float, std::int64_t>>;

// The k best of all pairs, sorted; filled up as FAISS does.
Pairs best_of(Pairs all, std::size_t k) {
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return worse(b.first, b.second, a.first, a.second); });
  all.resize(k, {kPadding, -1});
  return all;
}

Pairs sorted(const std::vector<float>& D, const std::vector<std::int64_t>& I) {
  Pairs pairs(D.size());
  for (std::size_t place = 0; place < D.size(); ++place) pairs[place] = {D[place], I[place]};
  return pairs;
}

}  // namespace

TEST(top_k_keeps_the_best_in_order_whatever_comes_first) {
  std::mt19937 generator(1);
  std::uniform_int_distribution<int> score(0, 6);  // so that many are equal
  for (const std::size_t k : {1, 2, 3, 10, 33})
    for (const std::size_t n : {0, 1, 9, 40}) {
      std::vector<float> D(k);
      std::vector<std::int64_t> I(k);
      const TopK best{D.data(), I.data(), k};
      best.clear();
      Pairs pushed;
      for (std::size_t i = 0; i < n; ++i) {
        pushed.emplace_back(static_cast<float>(score(generator)), static_cast<std::int64_t>((7 * i) % n));
        best.push(pushed.back().first, pushed.back().second);
      }
      best.sort();
      CHECK(sorted(D, I) == best_of(pushed, k));
    }
}

TEST(top_k_holds_an_id_once_if_asked_to) {
  std::vector<float> D(4);
  std::vector<std::int64_t> I(4);
  const TopK best{D.data(), I.data(), 4};
  best.clear();
  for (int round = 0; round < 3; ++round)
    for (std::int64_t i = 0; i < 3; ++i) best.push_once(static_cast<float>(i), i);
  best.sort();
  CHECK((I == std::vector<std::int64_t>{2, 1, 0, -1}));
}

TEST(top_k_never_takes_nan) {
  float D[1];
  std::int64_t I[1];
  const TopK best{D, I, 1};
  best.clear();
  best.push(std::numeric_limits<float>::quiet_NaN(), 1);
  best.sort();
  CHECK(I[0] == -1 && D[0] == kPadding);
}

}  // namespace cfe
