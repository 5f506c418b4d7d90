// Results with the same bits at every level: the results of the first level are kept, and the others compared with
// them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/blocks.h"
#include "core/graph.h"
#include "core/kernels.h"
#include "core/propagation.h"
#include "core/scan_memory.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

using tests::random_numbers;

template <class Number>
bool as_at_the_first_level(const std::string& name, const std::vector<Number>& values) {
  static std::map<std::string, std::vector<Number>> first;
  const auto& expected = first.try_emplace(name, values).first->second;
  return expected.size() == values.size() &&
         std::memcmp(expected.data(), values.data(), values.size() * sizeof(Number)) == 0;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

}  // namespace

TEST(unit_rows_have_the_same_bits) {
  for (const std::size_t d : {1, 15, 16, 18, 100, 128}) {
    const std::vector<float> X = random_numbers(20 * d, 3);
    std::vector<float> unit(X.size());
    CHECK(kernels().unit_rows({X.data(), 20, d}, {unit.data(), 20, d}) == -1);
    CHECK(as_at_the_first_level("unit" + std::to_string(d), unit));
  }
}

TEST(steps_have_the_same_bits_with_weights_that_are_equal_as_without) {
  const std::vector<std::int64_t> indptr{0, 4, 5, 9, 10, 10, 12};
  const std::vector<std::int32_t> indices{1, 2, 3, 5, 0, 0, 3, 4, 5, 2, 0, 2};
  std::vector<float> some = random_numbers(12, 11);
  for (float& weight : some) weight += 1.5F;
  const std::vector<float> equal(12, 0.3F), lengths{1, 0.5F, 0.25F, 2, 0, 3};
  for (const std::size_t d : {1, 15, 16, 18, 40, 64, 65, 128}) {
    const std::size_t n = lengths.size();
    const std::vector<float> x = tests::random_unit_rows(n, d, 12);
    const auto stepped = [&](std::span<const float> weights, std::size_t height) {
      const CsrGraph graph(indptr, indices, weights, {0, n, {}}, 1, nullptr);
      std::vector<float> aggregate(n * d), result(n * d + n);
      const Matrix<float> unit{result.data(), n, d};
      const Matrix<float> sums{aggregate.data(), n, d};
      const auto new_lengths = std::span(result).subspan(n * d);
      const Matrix<const float> old{x.data(), n, d};
      if (height == 0) step(graph, 0.4, old, {lengths, sums, unit, new_lengths}, 1, nullptr);
      for (std::size_t first = 0; first < n && height > 0; first += height) {
        const std::size_t stop = std::min(first + height, n);
        BlockStep block(graph, first, old.part(first, stop), 1);
        for (std::size_t low = 0; low < n; low += 2) block.gather({old.part(low, low + 2), low, lengths}, nullptr);
        block.finish(0.4,
                     {std::span(lengths).subspan(first, stop - first), sums.part(first, stop), unit.part(first, stop),
                      new_lengths.subspan(first, stop - first)},
                     nullptr);
      }
      result.insert(result.end(), aggregate.begin(), aggregate.end());
      return result;
    };
    const std::vector<float> plain = stepped({}, 0), weighted = stepped(some, 0);
    CHECK(as_at_the_first_level("step" + std::to_string(d), plain));
    CHECK(as_at_the_first_level("weighted step" + std::to_string(d), weighted));
    CHECK(same_bits(stepped(equal, 0), plain));
    CHECK(same_bits(stepped(some, 1), weighted));  // by blocks of a row
    CHECK(!same_bits(weighted, plain));
  }
}

TEST(dot_products_have_the_same_bits_alone_and_with_others) {
  for (const std::size_t d : {1, 3, 4, 17, 18, 128})
    for (const std::size_t blocks : {1, 2, 5, 9}) {
      const std::size_t nq = 7, width = 16 * blocks;
      const std::vector<float> X = random_numbers(nq * d, 4), Y = random_numbers(width * d, 5);
      std::vector<float> scores(nq * width), alone(width);
      kernels().dot_blocks({X.data(), nq, d}, Y, {scores.data(), nq, width});
      CHECK(as_at_the_first_level("products" + std::to_string(d) + "x" + std::to_string(blocks), scores));
      for (std::size_t q = 0; q < nq; ++q) {
        kernels().dot_blocks({X.data() + q * d, 1, d}, Y, {alone.data(), 1, width});
        CHECK(same_bits(alone, std::span(scores).subspan(q * width, width)));
      }
    }
}

TEST(searches_by_bits_have_the_same_bits_and_scores_of_rows) {
  for (const Metric metric : {Metric::kCosine, Metric::kIp, Metric::kL2})
    for (const std::size_t d : {1, 17, 64, 100, 200, 450}) {
      tests::Sample sample(d, {200, 3, 0, 90, 16}, 3);
      sample.metric = metric;
      if (metric != Metric::kCosine) sample.change({0.5F, {1, 2, 0.5F, 0}});
      const Rows rows = sample.rows();
      const std::vector<float> center(metric == Metric::kL2 ? d : 0, 0.4F);
      const std::vector<std::int64_t> lists{3, 0, -1, 1, 2, 4};
      const Blocks blocks(rows,
                          {.element = Element::kBit,
                           .rounding_error = 1e-6F,
                           .references = {},
                           .reference_starts = {},
                           .center = center,
                           .wanted = {},
                           .allowed = {},
                           .rotation = {},
                           .prefix = 0,
                           .threads = 2},
                          nullptr);
      for (const std::size_t k : {1, 9, 300}) {
        ScanMemory scratch;
        std::vector<float> scores;
        std::size_t equal = 0, number = 0;
        for (std::size_t q = 0; q < 40; ++q) {
          tests::Found found(k);
          const std::int32_t label = static_cast<std::int32_t>(q % 4);
          blocks.search_group({.X = sample.x(q).data(),
                               .labels = &label,
                               .size = 1,
                               .lists = lists.data(),
                               .nprobe = lists.size(),
                               .k = k,
                               .resume = false,
                               .D = found.D.data(),
                               .I = found.I.data(),
                               .filter = {}},
                              scratch);
          scores.insert(scores.end(), found.D.begin(), found.D.end());
          const tests::Found best = sample.search(sample.x(q), label, lists, k);
          CHECK(found.results().found() == best.I.size() - static_cast<std::size_t>(std::ranges::count(best.I, -1)));
          number += k;
          for (const std::int64_t id : best.I) equal += std::ranges::count(found.I, id) > 0 ? 1 : 0;
        }
        CHECK(d < 64 || 100 * equal >= 98 * number);  // of few dimensions, signs say little
        CHECK(as_at_the_first_level(
            "bits" + std::to_string(static_cast<int>(metric) * 10000 + static_cast<int>(d * 10 + k % 7)), scores));
      }
    }
}

TEST(means_in_bytes_bound_their_products_with_a_query) {
  for (const std::size_t d : {1, 5, 32, 67})
    for (const float length : {1e-20F, 1.0F, 1000.0F}) {
      const std::size_t blocks = 7, width = 16 * blocks, words = (d + 3) / 4, padded = (d + 15) / 16 * 16;
      std::vector<float> x = random_numbers(d, 9), means = random_numbers(width * d, 10), buffer(16 * d);
      for (float& value : means) value = length * (value + 1);
      const std::vector<float> center(d, length);
      std::vector<float> rows(width * d), rest(padded), lower(width), upper(width), exact(width), alone(width);
      std::vector<std::int64_t> numbers(width);
      for (std::size_t row = 0; row < width; ++row) {
        numbers[row] = static_cast<std::int64_t>(row);
        for (std::size_t i = 0; i < d; ++i) rows[row * d + i] = means[(row / 16 * d + i) * 16 + row % 16];
      }
      kernels().dot_blocks({x.data(), 1, d}, means, {exact.data(), 1, width});
      kernels().dot_rows_as_blocks(x.data(), {rows.data(), width, d}, numbers, alone);
      CHECK(same_bits(exact, alone));
      if (!kernels().has_bytes) continue;
      std::vector<std::int32_t> data(blocks * words * 16), statistics(blocks * kMeanStatistics * 16), own(words * 16);
      kernels().encode_means(means.data(), d, center, {d, words, blocks, data.data(), statistics.data()},
                             buffer.data());
      const ByteQuery query = kernels().encode_query(x, center, std::span(rest).first(d), own);
      kernels().bound_means({d, words, blocks, data.data(), statistics.data()}, query, lower.data(), upper.data());
      double wide = 0, norms = 0;
      for (std::size_t row = 0; row < width; ++row) {
        CHECK(lower[row] <= exact[row] && exact[row] <= upper[row]);
        wide += upper[row] - lower[row];
        norms += kernels().norm(std::span(rows).subspan(row * d, d));
      }
      if (length >= 1) CHECK(wide <= 0.1 * norms * kernels().norm(x));  // else they would be of no use
    }
}

TEST(means_of_many_dimensions_in_bytes_bound_their_products) {
  for (const std::size_t d : {131072, 140000, 300000}) {  // products of bytes of 127 each do not fit into 32 bits
    const std::size_t words = (d + 3) / 4, padded = (d + 15) / 16 * 16;
    std::vector<float> x = random_numbers(d, 9), means(16 * d), buffer(16 * d), rest(padded), lower(16), upper(16);
    const float size = 1 / std::sqrt(static_cast<float>(d));
    for (float& value : x) value = value < 0 ? -size : size;
    std::array<double, 16> exact{};
    for (std::size_t i = 0; i < d; ++i)
      for (std::size_t row = 0; row < 16; ++row) {
        means[i * 16 + row] = row < 8 ? x[i] : i * row < d ? -x[i] : x[i];
        exact[row] += static_cast<double>(x[i]) * static_cast<double>(means[i * 16 + row]);
      }
    if (!kernels().has_bytes) continue;
    const std::vector<float> center(d, 0.0F);
    std::vector<std::int32_t> data(words * 16), statistics(kMeanStatistics * 16), own(words * 16);
    kernels().encode_means(means.data(), d, center, {d, words, 1, data.data(), statistics.data()}, buffer.data());
    const ByteQuery query = kernels().encode_query(x, center, std::span(rest).first(d), own);
    kernels().bound_means({d, words, 1, data.data(), statistics.data()}, query, lower.data(), upper.data());
    for (std::size_t row = 0; row < 16; ++row) {
      CHECK(lower[row] <= exact[row] && exact[row] <= upper[row]);
      CHECK(upper[row] - lower[row] < 0.5F);
    }
  }
}

TEST(scans_find_the_same) {
  for (const std::size_t d : {1, 2, 15, 16, 17, 40})
    for (const std::size_t n : {1, 3, 4, 50}) {
      const std::vector<float> x = random_numbers(d, 6), rows = random_numbers(n * d, 7);
      std::vector<std::int64_t> ids(n), I(5);
      for (std::size_t row = 0; row < n; ++row) ids[row] = static_cast<std::int64_t>(n - row);
      std::vector<float> D(5);
      const TopK best{D.data(), I.data(), 5};
      best.clear();
      const std::vector<std::int32_t> labels(n, 1);
      const std::array<std::int64_t, 2> starts{0, static_cast<std::int64_t>(n)};
      const auto* codes = reinterpret_cast<const std::uint8_t*>(rows.data());
      const std::int64_t *own_ids = ids.data(), list = 0;
      ListsView lists{};
      lists.rows = {.d = d,
                    .row_size = 4 * d,
                    .nlist = 1,
                    .codec = Codec::kFlat,
                    .low = nullptr,
                    .spread = nullptr,
                    .starts = starts.data(),
                    .codes = &codes,
                    .ids = &own_ids,
                    .pq_codes = nullptr,
                    .labels = labels.data()};
      ScanMemory memory;
      kernels().scan_lists(lists, {x.data(), 0, {&list, 1}}, 1e-3F, memory.of(1, {d, 5, 1}), best);
      const std::string name = "scan" + std::to_string(d) + "x" + std::to_string(n);
      CHECK(as_at_the_first_level(name, D));
      CHECK(as_at_the_first_level(name, I));
    }
}

TEST(rows_in_any_order_are_scanned_like_sorted_ones) {
  for (const std::size_t n : {1, 63, 65, 5000}) {  // the last exceed the cache
    const std::size_t d = 300;
    const std::vector<float> x = random_numbers(d, 6), rows = random_numbers(n * d, 7);
    std::vector<std::size_t> order(n);
    for (std::size_t row = 0; row < n; ++row) order[row] = row;
    std::vector<std::vector<float>> D;
    std::vector<std::vector<std::int64_t>> I;
    const auto label_of = [](std::size_t row) { return static_cast<std::int32_t>(row * 7919 % 5 % 4) - 1; };
    for (const bool sorted : {false, true}) {
      if (sorted)
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return label_of(a) < label_of(b); });
      std::vector<float> own;
      std::vector<std::int32_t> labels;
      std::vector<std::int64_t> ids;
      for (const std::size_t row : order) {
        own.insert(own.end(), rows.begin() + row * d, rows.begin() + (row + 1) * d);
        labels.push_back(label_of(row));
        ids.push_back(static_cast<std::int64_t>(row));
      }
      const std::array<std::int64_t, 2> starts{0, static_cast<std::int64_t>(n)};
      const auto* codes = reinterpret_cast<const std::uint8_t*>(own.data());
      const std::int64_t *own_ids = ids.data(), list = 0;
      ListsView lists{};
      lists.rows = {.d = d,
                    .row_size = 4 * d,
                    .nlist = 1,
                    .codec = Codec::kFlat,
                    .low = nullptr,
                    .spread = nullptr,
                    .starts = starts.data(),
                    .codes = &codes,
                    .ids = &own_ids,
                    .pq_codes = nullptr,
                    .labels = labels.data(),
                    .sorted = sorted};
      D.emplace_back(5);
      I.emplace_back(5);
      const TopK best{D.back().data(), I.back().data(), 5};
      best.clear();
      ScanMemory memory;
      kernels().scan_lists(lists, {x.data(), 0, {&list, 1}}, 1e-3F, memory.of(1, {d, 5, 1}), best);
    }
    CHECK(D[0] == D[1] && I[0] == I[1]);
  }
}

TEST(near_best_are_found_and_sorted_alike) {
  for (const std::size_t n : {16, 48, 1600})
    for (const std::size_t k : {1, 5, 16}) {
      const std::vector<float> scores = random_numbers(n, 8);
      std::vector<float> maxima(16 * ((k + 15) / 16 + 1));
      std::vector<std::int32_t> places(n);
      const std::size_t found = kernels().near_best(scores, scores, k, maxima, places);
      CHECK(found >= k && found <= n);
      std::vector<float> best(padded(found));
      std::vector<std::int64_t> ids(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(found));
      for (std::size_t place = 0; place < found; ++place) best[place] = scores[places[place]];
      std::vector<std::int64_t> memory(memory_of_best(found)), leading(k);
      CHECK(kernels().best_scores(best.data(), ids.data(), found, k, 1, memory.data(), nullptr, leading.data()) == k);
      CHECK(as_at_the_first_level("leading" + std::to_string(n) + "," + std::to_string(k), leading));
    }
}

// Scores with many ties, of rows that occur up to three times, some of them NaN; ids below and above 2**32.
TEST(best_scores_are_those_of_a_plain_sort) {
  std::mt19937 generator(5);
  for (const std::size_t n : {0, 1, 7, 16, 20, 21, 33, 64, 129, 1000, 5000})
    for (const std::int64_t id_step : {std::int64_t{1}, std::int64_t{1} << 40})
      for (const std::size_t k : {1, 10, 16, 200, 5000})
        for (const std::size_t copies : {1, 3}) {
          std::vector<float> scores;
          std::vector<std::int64_t> ids;
          std::vector<std::pair<float, std::int64_t>> all;
          const std::array<float, 9> values{-1, -0.5F, -0.0F, 0, 0.25F, 0.3F, 0.5F, 1, std::nanf("")};
          for (std::size_t row = 0; ids.size() + copies <= n; ++row) {
            const float score = generator() % 3 == 0 ? static_cast<float>(generator() % 1000) : values[generator() % 9];
            const std::int64_t id = id_step * static_cast<std::int64_t>(row * 7 % 10007);
            if (score == score) all.emplace_back(-score, id);
            for (std::size_t copy = 0; copy <= generator() % copies; ++copy) {
              scores.push_back(score);
              ids.push_back(id);
            }
          }
          std::sort(all.begin(), all.end());
          all.resize(std::min(all.size(), k));
          const std::size_t number = ids.size();
          scores.resize(padded(number));
          std::vector<std::int64_t> memory(memory_of_best(number)), I(k, -2);
          std::vector<float> D(k, -2);
          CHECK(kernels().best_scores(scores.data(), ids.data(), number, k, copies, memory.data(), D.data(),
                                      I.data()) == all.size());
          for (std::size_t i = 0; i < all.size(); ++i) CHECK(D[i] == -all[i].first && I[i] == all[i].second);
        }
}

}  // namespace cfe
