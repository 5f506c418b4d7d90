#include <algorithm>
#include <limits>
#include <numeric>
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
  std::vector<std::int64_t> slots(IdTable::size_for(4));
  IdTable held{slots.data(), slots.size(), 0};
  held.fill(I.data(), 4);
  for (int round = 0; round < 3; ++round)
    for (std::int64_t i = 0; i < 3; ++i) best.push_once(static_cast<float>(i), i, held);
  best.sort();
  CHECK((I == std::vector<std::int64_t>{2, 1, 0, -1}));
}

TEST(top_k_holds_each_of_many_ids_once) {
  std::mt19937 generator(2);
  for (const std::size_t k : {1, 3, 40}) {
    std::vector<float> D(k);
    std::vector<std::int64_t> I(k), slots(IdTable::size_for(k));
    const TopK best{D.data(), I.data(), k};
    best.clear();
    IdTable held{slots.data(), slots.size(), 0};
    held.fill(I.data(), k);
    Pairs pushed;
    for (std::int64_t i = 0; i < 500; ++i) {  // more ids than there are slots, the best ones last
      const std::int64_t score = i / 7;
      pushed.emplace_back(static_cast<float>(score), i);
      for (int time = 0; time < 2; ++time) best.push_once(pushed.back().first, i, held);
      const std::size_t other = generator() % pushed.size();
      best.push_once(pushed[other].first, pushed[other].second, held);
    }
    best.sort();
    CHECK(sorted(D, I) == best_of(pushed, k));
  }
}

// A table is filled again, which takes as long as the heap is large, only after a quarter of its slots were taken.
TEST(ids_of_a_large_heap_take_constant_time) {
  for (const std::size_t k : {10, 1000, 10000}) {
    std::vector<std::int64_t> I(k), slots(IdTable::size_for(k));
    std::iota(I.begin(), I.end(), std::int64_t{0});
    IdTable held{slots.data(), slots.size(), 0};
    held.fill(I.data(), k);
    std::size_t fills = 0;
    const std::size_t added = 10 * slots.size();
    for (std::size_t i = 0; i < added; ++i) {
      const std::size_t before = held.used;
      const auto id = static_cast<std::int64_t>(k + i);
      CHECK(held.add(id, I.data(), k));
      I[i % k] = id;
      CHECK(!held.add(id, I.data(), k));
      fills += held.used < before;
    }
    CHECK(slots.size() <= std::max<std::size_t>(64, 8 * k) && fills <= 4 * added / slots.size());
  }
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
