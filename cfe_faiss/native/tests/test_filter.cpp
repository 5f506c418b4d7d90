// The predicate: its tests of a row, and searches of every scan under all of its rules against plain loops.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "core/blocks.h"
#include "core/kernels.h"
#include "core/list_scan.h"
#include "core/tiles.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

using tests::Found;
using tests::Sample;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Arrays behind a filter of `nq` queries among the rows of a sample.
struct Rules {
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> ids;
  std::vector<std::uint8_t> allowed;
  FilterView filter;

  Rules(const Sample& sample, std::size_t nq, std::mt19937& generator) {
    const auto draws = [&generator](unsigned sides) { return generator() % sides == 0; };
    filter.policy = static_cast<Policy>(generator() % 3);
    if (draws(2)) filter.labels_each = 2;
    if (draws(2)) filter.ids_each = 3;
    for (std::size_t i = 0; i < nq * filter.labels_each; ++i)
      labels.push_back(static_cast<std::int32_t>(generator() % 4) - 1);
    for (std::size_t i = 0; i < nq * filter.ids_each; ++i)
      ids.push_back(draws(4) ? -1 : sample.ids[generator() % sample.n()]);
    for (std::size_t row = 0; draws(2) && row < sample.n(); ++row) allowed.push_back(draws(2) ? 1 : 0);
    allowed.resize(allowed.empty() ? 0 : sample.n());
    filter.excluded_labels = labels.data();
    filter.excluded_ids = ids.data();
    filter.allowed = allowed.empty() ? nullptr : reinterpret_cast<const bool*>(allowed.data());
    if (draws(3)) filter.low = -0.2F;
    if (draws(3)) filter.high = 0.3F;
    filter.finish();
  }

  // Whether query q of a label may find a row with this score.
  bool admit(const Sample& sample, std::size_t q, std::int32_t label, std::size_t row, float score) const {
    const std::int32_t of_row = sample.labels[row];
    if (filter.policy == Policy::kOther && (of_row == label || of_row == kUnknown)) return false;
    if (filter.policy == Policy::kOwn && (of_row != label || of_row == kUnknown)) return false;
    if (!allowed.empty() && allowed[row] == 0) return false;
    for (std::size_t i = 0; i < filter.labels_each; ++i)
      if (of_row != kUnknown && labels[q * filter.labels_each + i] == of_row) return false;
    for (std::size_t i = 0; i < filter.ids_each; ++i)
      if (ids[q * filter.ids_each + i] == sample.ids[row]) return false;
    return filter.low <= score && score <= filter.high;
  }

  Found best(const Sample& sample, std::span<const float> x, std::int32_t label, std::size_t q, std::size_t k) const {
    std::vector<std::pair<float, std::int64_t>> all;
    for (std::size_t row = 0; row < sample.n(); ++row) {
      const float score = tests::plain_score(sample.metric, x.data(), sample.x(row).data(), sample.d);
      if (admit(sample, q, label, row, score)) all.emplace_back(-score, sample.ids[row]);
    }
    std::sort(all.begin(), all.end());
    Found found(k);
    for (std::size_t place = 0; place < k; ++place) {
      found.D[place] = place < all.size() ? -all[place].first : kPadding;
      found.I[place] = place < all.size() ? all[place].second : -1;
    }
    return found;
  }
};

// Queries in one group each of 1, 5 and 16, and their results.
struct Queries {
  std::size_t nq = 22, k;
  std::vector<float> X, D;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> starts{0, 1, 6, 22}, order, lists, I;

  Queries(const Sample& sample, std::size_t results) : k(results), D(nq * k), I(nq * k) {
    X = tests::random_unit_rows(nq, sample.d, 5);
    for (std::size_t q = 0; q < nq; ++q) {
      labels.push_back(static_cast<std::int32_t>(q % 3));
      order.push_back(static_cast<std::int64_t>((q * 5) % nq));
    }
    for (std::size_t place = 0; place < nq * sample.nlist(); ++place)
      lists.push_back(static_cast<std::int64_t>(place % sample.nlist()));
  }
  std::span<const float> x(std::size_t q) const { return std::span(X).subspan(q * X.size() / nq, X.size() / nq); }
  // `place` is the row of D and I of query q, and of its rules.
  void check(const Sample& sample, const Rules& rules, std::size_t q, std::size_t place) const {
    const Found expected = rules.best(sample, x(q), labels[q], place, k);
    CHECK(std::equal(expected.I.begin(), expected.I.end(), I.begin() + static_cast<std::ptrdiff_t>(place * k)));
    CHECK(std::equal(expected.D.begin(), expected.D.end(), D.begin() + static_cast<std::ptrdiff_t>(place * k)));
  }
};

void check_blocks(const Sample& sample, const Blocks& blocks, const Rules& rules, std::size_t k) {
  Queries queries(sample, k);
  const std::size_t nlist = sample.nlist();
  blocks.search({{queries.X.data(), queries.nq, sample.d},
                 queries.labels,
                 queries.starts,
                 {queries.lists.data(), 3, nlist},
                 queries.order,
                 {queries.D.data(), queries.nq, k},
                 {queries.I.data(), queries.nq, k},
                 false,
                 rules.filter},
                nullptr);
  for (std::size_t q = 0; q < queries.nq; ++q)
    queries.check(sample, rules, q, static_cast<std::size_t>(queries.order[q]));
}

void check_lists(const Sample& sample, const ListScan& scan, const Rules& rules, std::size_t k) {
  Queries queries(sample, k);
  scan.scan({{queries.X.data(), queries.nq, sample.d},
             queries.labels,
             {queries.lists.data(), queries.nq, sample.nlist()},
             rules.filter},
            tests::rounding_of(sample.d), {queries.D.data(), queries.nq, k}, {queries.I.data(), queries.nq, k});
  for (std::size_t q = 0; q < queries.nq; ++q) queries.check(sample, rules, q, q);
}

}  // namespace

TEST(a_filter_admits_labels_by_its_policy) {
  const FilterView other, own{.policy = Policy::kOwn}, any{.policy = Policy::kAny};
  CHECK(other.admits(0, 1) && !other.admits(1, 1) && !other.admits(0, kUnknown) && !other.admits(kUnknown, 1));
  CHECK(!own.admits(0, 1) && own.admits(1, 1) && !own.admits(kUnknown, kUnknown));
  CHECK(any.admits(0, 1) && any.admits(1, 1) && any.admits(0, kUnknown) && any.admits(kUnknown, 1));
}

TEST(a_filter_excludes_labels_and_ids_of_each_query) {
  const std::vector<std::int32_t> labels{0, kUnknown, 2, 1};
  const std::vector<std::int64_t> ids{7, -1};
  FilterView filter{.labels_each = 2, .ids_each = 1, .excluded_labels = labels.data(), .excluded_ids = ids.data()};
  filter.finish();
  CHECK(filter.tests && !filter.in_range);
  CHECK(filter.excludes_label(0, 0) && !filter.excludes_label(0, kUnknown) && !filter.excludes_label(0, 1));
  CHECK(filter.excludes_label(1, 1) && filter.from(1).excludes_label(0, 2));
  CHECK(filter.excludes_id(0, 7) && !filter.excludes_id(1, 7) && !filter.from(1).excludes_id(0, 7));
}

TEST(a_filter_compares_the_values_of_a_pair) {
  // One value within limits, one outside, and two codes of which at most one may differ.
  const std::vector<double> limits{0, 2, 1, kInfinity}, queries{5, 3, 1, 1},
      rows{7, 2, 1, 9, 8, 2, 1, 1, 5, 3, 1, 1, 5, 9, 2, 2};
  FilterView filter{.columns = 4,
                    .limited = 2,
                    .most_changed = 1,
                    .query_values = queries.data(),
                    .row_values = rows.data(),
                    .limits = limits.data()};
  filter.finish();
  CHECK(filter.tests);
  CHECK(filter.fits(0, 0));   // 2 and 1 apart, one code differs
  CHECK(!filter.fits(0, 1));  // 3 apart
  CHECK(!filter.fits(0, 2));  // not apart
  CHECK(!filter.fits(0, 3));  // two codes differ
}

TEST(a_filter_holds_scores_within_both_ends) {
  FilterView filter{.low = -1, .high = 0.5F};
  filter.finish();
  CHECK(filter.in_range && filter.tests);
  CHECK(filter.holds(-1) && filter.holds(0.5F) && !filter.holds(0.6F) && !filter.holds(-2));
  FilterView everything;
  everything.finish();
  CHECK(!everything.tests && everything.holds(kInfinity) && everything.holds(-kInfinity));
}

TEST(every_scan_keeps_the_rules_of_a_filter) {
  std::mt19937 generator(1);
  for (const Metric metric : {Metric::kCosine, Metric::kIp, Metric::kL2})
    for (const std::size_t d : {3, 20}) {
      Sample sample(d, {40, 0, 17, 90, 5}, 2);
      sample.metric = metric;
      const Rows rows = sample.rows();
      const ListScan lists(rows, sample.references, sample.reference_starts);
      const std::vector<float> center(d, 0.0F);
      std::vector<std::unique_ptr<Blocks>> blocks;
      for (const Element element : {Element::kFloat, Element::kByte}) {
        if (element == Element::kByte && !kernels().has_bytes) continue;
        const bool centred = element == Element::kByte && metric == Metric::kL2;
        const BlocksOptions options{.element = element,
                                    .rounding_error = 1.05F * tests::rounding_of(d),
                                    .references = sample.references,
                                    .reference_starts = sample.reference_starts,
                                    .center = std::span(center).first(centred ? d : 0),
                                    .wanted = {},
                                    .allowed = {},
                                    .rotation = {nullptr, 0, d},
                                    .prefix = 0,
                                    .threads = 1};
        blocks.push_back(std::make_unique<Blocks>(rows, options, nullptr));
      }
      for (int round = 0; round < 60; ++round) {
        const Rules rules(sample, 22, generator);
        for (const std::size_t k : {1, 4, 40}) {
          check_lists(sample, lists, rules, k);
          for (const auto& of_element : blocks) check_blocks(sample, *of_element, rules, k);
        }
      }
    }
}

TEST(an_infinite_threshold_does_not_reach_excluded_pairs) {
  const std::vector<float> X{1, 0, 0, 1}, S{1, -kInfinity, 0, 1};
  const std::vector<std::int32_t> of_x{0, 0}, of_y{1, 1};
  std::vector<std::int32_t> rows(4), columns(4);
  std::vector<float> scores(4);
  const Tile tile{Metric::kIp, 2, {X.data(), of_x, nullptr}, {X.data(), of_y, nullptr}, S.data(), 0};
  const auto [count, next] = kernels().collect_tile(tile, -kInfinity, 0, {rows, columns, scores});
  CHECK(count == 3 && next == 2);
}

}  // namespace cfe
