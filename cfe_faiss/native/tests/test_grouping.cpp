// Groups of near queries, and their search in one call.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/blocks.h"
#include "core/grouping.h"
#include "core/kernels.h"
#include "core/searcher.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

using tests::Found;
using tests::Means;
using tests::Sample;

constexpr std::size_t kLargest = 16;  // as core/searcher.cpp has it

void check_groups(const NearGroups& made, std::span<const std::int64_t> borders, std::size_t largest) {
  std::vector<std::size_t> sizes(borders.size() - 1);
  for (std::size_t g = 0; g + 1 < made.starts.size(); ++g) {
    const auto size = static_cast<std::size_t>(made.starts[g + 1] - made.starts[g]);
    const auto old = static_cast<std::size_t>(made.of_group[g]);
    const auto whole = static_cast<std::size_t>(borders[old + 1] - borders[old]);
    CHECK(size <= largest && size >= std::min(whole, (largest + 1) / 2));
    sizes[old] += size;
    for (auto place = made.starts[g]; place < made.starts[g + 1]; ++place) {
      const std::int64_t row = made.order[static_cast<std::size_t>(place)];
      CHECK(borders[old] <= row && row < borders[old + 1]);
    }
  }
  for (std::size_t g = 0; g < sizes.size(); ++g)
    CHECK(static_cast<std::int64_t>(sizes[g]) == borders[g + 1] - borders[g]);
  std::vector<std::int64_t> sorted = made.order;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t row = 0; row < sorted.size(); ++row) CHECK(sorted[row] == static_cast<std::int64_t>(row));
}

// An index, and stored rows as queries: in groups of one list each.
struct Grouped {
  Sample sample;
  Rows rows;
  Means means;
  ClassCentroids centroids;
  Blocks blocks;
  ListScan lists;
  Searcher searcher;
  std::vector<std::int64_t> order, starts{0}, tasks;
  std::vector<std::int32_t> group_labels;

  Grouped(Sample own, Element element)
      : sample(std::move(own)),
        rows(sample.rows()),
        means(sample),
        centroids(means.view(), {}),
        blocks(rows,
               {.element = element,
                .rounding_error = tests::rounding_of(sample.d),
                .references = sample.references,
                .reference_starts = sample.reference_starts,
                .center = {},
                .wanted = {},
                .allowed = {},
                .rotation = {nullptr, 0, sample.d},
                .prefix = 0,
                .threads = 1},
               nullptr),
        lists(rows, sample.references, sample.reference_starts),
        searcher(lists, centroids, tests::rounding_of(sample.d), &blocks, {}) {
    for (std::size_t list = 0; list < sample.nlist(); ++list) {
      for (const std::size_t row : sample.rows_of(list))
        if (sample.labels[row] != kUnknown) order.push_back(static_cast<std::int64_t>(row));
      starts.push_back(static_cast<std::int64_t>(order.size()));
      group_labels.push_back(static_cast<std::int32_t>(list % 3));
    }
    tasks = {0, static_cast<std::int64_t>(sample.nlist() / 2), static_cast<std::int64_t>(sample.nlist())};
  }

  // Halved and ranked step by step, then searched by plain loops.
  void check(const std::vector<float>& D, const std::vector<std::int64_t>& I, std::size_t k, std::size_t nprobe) const {
    std::vector<float> X;
    for (const std::int64_t row : order) {
      const auto x = sample.x(static_cast<std::size_t>(row));
      X.insert(X.end(), x.begin(), x.end());
    }
    const Matrix<const float> queries = tests::as_matrix(X, sample.d);
    const NearGroups near = halve(queries, starts, kLargest, 1, nullptr);
    const std::size_t number = near.of_group.size();
    std::vector<float> arranged(X.size()), group_means(number * sample.d);
    arrange(queries, near.order, near.starts, {arranged.data(), queries.rows, sample.d},
            {group_means.data(), number, sample.d}, 1, nullptr);
    std::vector<std::int64_t> all(sample.nlist()), lists(nprobe);
    std::iota(all.begin(), all.end(), 0);
    ClassCentroids::Scratch scratch;
    for (std::size_t g = 0; g < number; ++g) {
      const bool everywhere = nprobe >= sample.lists();
      if (!everywhere)
        centroids.rank(std::span(group_means).subspan(g * sample.d, sample.d),
                       group_labels[static_cast<std::size_t>(near.of_group[g])], lists, scratch);
      for (auto place = near.starts[g]; place < near.starts[g + 1]; ++place) {
        const auto row =
            static_cast<std::size_t>(order[static_cast<std::size_t>(near.order[static_cast<std::size_t>(place)])]);
        // Lists that hold nothing for the group's label are left out even where all are asked for.
        if (everywhere && sample.labels[row] != group_labels[static_cast<std::size_t>(near.of_group[g])]) continue;
        const Found expected = sample.search(sample.x(row), sample.labels[row], everywhere ? all : lists, k);
        CHECK(std::equal(expected.I.begin(), expected.I.end(), I.begin() + static_cast<std::ptrdiff_t>(row * k)));
        CHECK(std::equal(expected.D.begin(), expected.D.end(), D.begin() + static_cast<std::ptrdiff_t>(row * k)));
      }
    }
  }
};

std::vector<Element> elements() {
  if (!kernels().has_bytes) return {Element::kFloat};
  return {Element::kFloat, Element::kByte};
}

}  // namespace

TEST(groups_are_halved_until_they_are_small) {
  for (const std::size_t d : {1, 3, 40}) {
    const std::vector<std::int64_t> borders{0, 0, 1, 300, 317, 1500, 1500};
    std::vector<float> X = tests::random_unit_rows(1500, d, 2);
    for (std::size_t row = 320; row < 700; ++row) std::copy_n(X.begin(), d, X.begin() + row * d);  // many are equal
    X[10 * d] = std::numeric_limits<float>::quiet_NaN();
    for (const std::size_t largest : {1, 16, 2000})
      check_groups(halve(tests::as_matrix(X, d), borders, largest, 1, nullptr), borders, largest);
  }
}

TEST(threads_halve_large_groups_as_one_thread_does) {
  const std::vector<std::int64_t> borders{0, 20, 20, 9000, 9005, 30000};
  for (const std::size_t d : {2, 17}) {
    std::vector<float> X = tests::random_unit_rows(30000, d, 3);
    for (std::size_t row = 10000; row < 15000; ++row) std::copy_n(X.begin(), d, X.begin() + row * d);  // many are equal
    const NearGroups expected = halve(tests::as_matrix(X, d), borders, 16, 1, nullptr);
    for (const int threads : {2, 5}) {
      const NearGroups near = halve(tests::as_matrix(X, d), borders, 16, threads, nullptr);
      CHECK(near.order == expected.order && near.starts == expected.starts && near.of_group == expected.of_group);
    }
  }
  const std::vector<std::int64_t> nothing{0};
  CHECK(halve({nullptr, 0, 3}, nothing, 16, 2, nullptr).starts.size() == 1);
}

TEST(halves_are_nearer_to_each_other_than_to_the_rest) {
  std::vector<float> X;
  for (std::size_t row = 0; row < 64; ++row) {  // two bundles, by turns
    const float aside = static_cast<float>(row) / 1000;
    X.insert(X.end(), {row % 2 == 0 ? 1.0F : -1.0F, aside, 0.0F});
  }
  const std::vector<std::int64_t> borders{0, 64};
  const NearGroups made = halve(tests::as_matrix(X, 3), borders, 32, 1, nullptr);
  for (std::size_t place = 1; place < 32; ++place) CHECK((made.order[place] - made.order[0]) % 2 == 0);
}

TEST(means_of_groups_are_normalised_unless_they_cancel_out) {
  const std::vector<float> X{1, 0, -1, 0, 0, 1, 3, 4};
  const std::vector<std::int64_t> order{3, 0, 1, 2}, starts{0, 1, 3, 3, 4};
  std::vector<float> arranged(8), means(8, 7.0F);
  arrange(tests::as_matrix(X, 2), order, starts, {arranged.data(), 4, 2}, {means.data(), 4, 2}, 1, nullptr);
  CHECK((arranged == std::vector<float>{3, 4, 1, 0, -1, 0, 0, 1}));
  CHECK((means == std::vector<float>{0.6F, 0.8F, 0, 0, 0, 0, 0, 1}));
}

TEST(groups_find_what_plain_loops_find_in_the_lists_of_their_means) {
  for (const std::size_t d : {2, 16, 35})
    for (const bool further : {false, true})
      for (const Element element : elements()) {
        Sample sample(d, {70, 0, 1, 33, 18, 90, 5}, 4);
        if (further) sample.add_partition(3, 6);
        const Grouped index(std::move(sample), element);
        const std::size_t n = index.sample.n();
        const std::vector<std::int64_t> all_rows = [n] {
          std::vector<std::int64_t> rows(n);
          std::iota(rows.begin(), rows.end(), 0);
          return rows;
        }();
        for (const std::size_t k : {1, 11})
          for (const std::size_t nprobe : {1, 3, 50})
            for (const bool stored : {false, true})
              for (const int threads : {1, 2}) {
                std::vector<float> D(n * k);
                std::vector<std::int64_t> I(n * k);
                const std::span<const std::int64_t> rows = std::span(all_rows).first(stored ? n : 0);
                index.searcher.search_groups({{index.sample.X.data(), stored ? 0 : n, d},
                                              rows,
                                              index.sample.labels,
                                              index.order,
                                              index.starts,
                                              index.group_labels,
                                              index.tasks},
                                             nprobe, {D.data(), n, k}, {I.data(), n, k}, {}, threads, nullptr);
                index.check(D, I, k, nprobe);
              }
      }
}

TEST(groups_refuse_what_does_not_fit) {
  const Grouped index(Sample(3, {20, 11}, 1), Element::kFloat);
  const std::size_t n = index.sample.n();
  std::vector<float> D(n);
  std::vector<std::int64_t> I(n);
  const LargeGroups fine{{index.sample.X.data(), n, 3},
                         {},
                         index.sample.labels,
                         index.order,
                         index.starts,
                         index.group_labels,
                         index.tasks};
  const Matrix<float> scores{D.data(), n, 1};
  const Matrix<std::int64_t> ids{I.data(), n, 1};
  const std::vector<std::int64_t> few{0, 1}, many{0, 5, 2}, outside{static_cast<std::int64_t>(n)},
      beyond(n, static_cast<std::int64_t>(n));
  const auto refused = [&](const char* text, auto change) {
    LargeGroups groups = fine;
    change(groups);
    CHECK_THROWS(std::invalid_argument, text, index.searcher.search_groups(groups, 1, scores, ids, {}, 1, nullptr));
  };
  refused("X must have d columns", [](LargeGroups& groups) { groups.X.columns = 2; });
  refused("either X or rows", [&](LargeGroups& groups) { groups.rows = few; });
  refused("one row for each label", [&](LargeGroups& groups) { groups.labels = groups.labels.first(3); });
  refused("numbers of rows", [&](LargeGroups& groups) {
    groups.X = {nullptr, 0, 0};
    groups.rows = beyond;
  });
  refused("starts must ascend", [&](LargeGroups& groups) { groups.starts = many; });
  refused("tasks must ascend", [&](LargeGroups& groups) { groups.tasks = few; });
  refused("numbers of queries", [&](LargeGroups& groups) { groups.order = outside; });
  CHECK_THROWS(std::invalid_argument, "D and I",
               index.searcher.search_groups(fine, 1, scores, {I.data(), n, 2}, {}, 1, nullptr));
  CHECK_THROWS(std::invalid_argument, "nprobe", index.searcher.search_groups(fine, 0, scores, ids, {}, 1, nullptr));
}

}  // namespace cfe
