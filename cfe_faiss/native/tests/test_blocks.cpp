// Rows in blocks, of floats and of bytes: against plain loops over the lists of each group.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/blocks.h"
#include "core/kernels.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

using tests::Found;
using tests::Sample;

// A rotation in the plane of each two neighbouring dimensions.
std::vector<float> rotation_of(std::size_t d) {
  std::vector<float> rotation(d * d, 0.0F);
  for (std::size_t i = 0; i < d; ++i) rotation[i * d + i] = 1;
  for (std::size_t i = 0; i + 1 < d; i += 2) {
    rotation[i * d + i] = rotation[(i + 1) * d + i + 1] = 0.6F;
    rotation[i * d + i + 1] = 0.8F;
    rotation[(i + 1) * d + i] = -0.8F;
  }
  return rotation;
}

// Groups of unit queries of which some are rows, and the lists that each group probes.
struct Groups {
  std::size_t k, nprobe;
  std::vector<float> X;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> starts, lists, order, I;
  std::vector<float> D;
  Matrix<const float> queries;

  Groups(const Sample& sample, std::size_t lists_of_all, std::size_t own_k)
      : k(own_k), nprobe(std::min<std::size_t>(4, lists_of_all)), starts{0, 1, 1, 18, 23, 60}, queries{} {
    const std::size_t nq = 60;
    X = tests::random_unit_rows(nq, sample.d, 7);
    for (std::size_t q = 0; q < nq; q += 2)
      if (q < sample.n()) std::copy_n(sample.x(q).begin(), sample.d, X.begin() + q * sample.d);
    queries = {X.data(), nq, sample.d};
    for (std::size_t q = 0; q < nq; ++q) {
      labels.push_back(static_cast<std::int32_t>(q % 5) - 1);
      order.push_back(static_cast<std::int64_t>((q * 7) % nq));
    }
    for (std::size_t place = 0; place < 5 * nprobe; ++place)
      lists.push_back(place % nprobe == 2 ? -1 : static_cast<std::int64_t>((place + place / nprobe) % lists_of_all));
    D.assign(nq * k, 0);
    I.assign(nq * k, 0);
  }
  // Changes the queries that are no rows of the sample.
  void change(const tests::Lengths& lengths) {
    for (std::size_t q = 1; q < order.size(); q += 2)
      lengths.apply(q, std::span(X).subspan(q * queries.columns, queries.columns));
  }
  std::span<const std::int64_t> lists_of(std::size_t group) const {
    return std::span(lists).subspan(group * nprobe, nprobe);
  }
  GroupedQueries view() {
    return {queries,
            labels,
            starts,
            {lists.data(), 5, nprobe},
            order,
            {D.data(), order.size(), k},
            {I.data(), order.size(), k},
            false};
  }
  // Queries of unknown label are never asked for.
  void check(const Sample& sample, const std::vector<bool>& allowed) const {
    for (std::size_t g = 0; g < 5; ++g)
      for (auto q = static_cast<std::size_t>(starts[g]); q < static_cast<std::size_t>(starts[g + 1]); ++q) {
        if (labels[q] == kUnknown) continue;
        const Found expected = sample.search(queries[q], labels[q], lists_of(g), k, allowed);
        const auto at = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(order[q]) * k);
        CHECK(std::equal(expected.I.begin(), expected.I.end(), I.begin() + at));
        CHECK(std::equal(expected.D.begin(), expected.D.end(), D.begin() + at));
      }
  }
};

struct Variant {
  Element element;
  bool rotated;
};

std::vector<Variant> variants() {
  if (!kernels().has_bytes) return {{Element::kFloat, false}};
  return {{Element::kFloat, false}, {Element::kByte, false}, {Element::kByte, true}};
}

BlocksOptions options_of(const Sample& sample, const Variant& variant, const std::vector<float>& rotation) {
  static const std::vector<float> center(64, 0.1F);
  const bool centred = variant.element == Element::kByte && sample.metric == Metric::kL2;
  double longest = 1;
  for (std::size_t row = 0; row < sample.n() && sample.metric == Metric::kIp; ++row)
    longest = std::max(longest, kernels().norm(sample.x(row)));
  return {.element = variant.element,
          .rounding_error = 1.05F * tests::rounding_of(sample.d) * static_cast<float>(longest),
          .references = sample.references,
          .reference_starts = sample.reference_starts,
          .center = std::span(center).first(centred ? sample.d : 0),
          .wanted = {},
          .allowed = {},
          .rotation = {rotation.data(), variant.rotated ? sample.d : 0, sample.d},
          .prefix = variant.rotated ? (sample.d + 7) / 8 * 4 : 0,
          .threads = 2};
}

void check_blocks(const Sample& sample, const Variant& variant, const tests::Lengths& lengths = {}) {
  const Rows rows = sample.rows();
  const std::vector<float> rotation = rotation_of(sample.d);
  std::vector<std::uint8_t> bytes(sample.n());
  for (std::size_t row = 0; row < bytes.size(); ++row) bytes[row] = row % 3 != 0;
  for (const bool selected : {false, true}) {
    BlocksOptions options = options_of(sample, variant, rotation);
    if (selected) options.allowed = {reinterpret_cast<const bool*>(bytes.data()), bytes.size()};
    const Blocks blocks(rows, options, nullptr);
    const std::vector<bool> allowed(options.allowed.begin(), options.allowed.end());
    for (const std::size_t k : {1, 9, 50}) {  // of more than 40 none are looked for in the warm-up
      Groups groups(sample, blocks.lists(), k);
      groups.change(lengths);
      blocks.search(groups.view(), nullptr);
      groups.check(sample, allowed);
    }
  }
}

}  // namespace

TEST(groups_of_queries_find_what_plain_loops_find) {
  for (const std::size_t d : {1, 6, 16, 37})
    for (const std::vector<std::size_t>& sizes :
         {std::vector<std::size_t>{1}, {0, 0}, {16, 0, 15, 17, 1}, {200, 3, 0, 90, 40, 33}})
      for (const bool further : {false, true}) {
        Sample sample(d, sizes, 3);
        if (further) sample.add_partition(3, 4);
        for (const Variant& variant : variants()) check_blocks(sample, variant);
      }
}

TEST(groups_of_queries_of_any_length_find_what_plain_loops_find) {
  for (const Metric metric : {Metric::kIp, Metric::kL2})
    for (const tests::Lengths& lengths : {tests::Lengths{0, {1, 1, 1, 1}},
                                          {0, {1e-3F, 1, 30, 1e4F}},
                                          {1000, {1, 1, 1e-4F, 0}},
                                          {0, {1e13F, 1, 1e13F, 0}},
                                          {0, {1e-20F, 1e-19F, 3e-20F, 0}},
                                          {1e-12F, {1e-13F, 1e-14F, 0, 1e-20F}}})
      for (const std::size_t d : {1, 6, 37})
        for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>{0, 1}, {200, 3, 0, 90, 40, 33}}) {
          Sample sample(d, sizes, 3);
          sample.metric = metric;
          sample.change(lengths);
          if (d == 6) sample.add_partition(3, 4);
          for (const Variant& variant : variants()) check_blocks(sample, variant, lengths);
        }
}

namespace {

// Finds the best rows of some lists for one query. With `resume` the results contain earlier ones.
void search_single(const Blocks& blocks, std::span<const float> x, std::int32_t label,
                   std::span<const std::int64_t> lists, bool resume, TopK best, ScanMemory& scratch) {
  blocks.search_group({.X = x.data(),
                       .labels = &label,
                       .size = 1,
                       .lists = lists.data(),
                       .nprobe = lists.size(),
                       .k = best.k,
                       .resume = resume,
                       .D = best.D,
                       .I = best.I,
                       .filter = {}},
                      scratch);
}

}  // namespace

TEST(what_was_found_before_is_kept_where_it_is_better) {
  const Sample sample(19, {60, 0, 45, 33, 80, 1}, 5);
  const Rows rows = sample.rows();
  const std::vector<float> rotation = rotation_of(sample.d);
  for (const Variant& variant : variants())
    for (const std::size_t k : {3, 60}) {
      const Blocks blocks(rows, options_of(sample, variant, rotation), nullptr);
      ScanMemory scratch;
      for (std::size_t q = 0; q < 30; ++q) {
        const std::vector<std::int64_t> first{4, 1, -1}, later{0, 5, 2};
        const std::vector<std::int64_t> both{4, 1, 0, 5, 2};
        Found found(k);
        search_single(blocks, sample.x(q), 1, first, false, found.results(), scratch);
        CHECK(found == sample.search(sample.x(q), 1, first, k));
        search_single(blocks, sample.x(q), 1, later, true, found.results(), scratch);
        CHECK(found == sample.search(sample.x(q), 1, both, k));
      }
    }
}

TEST(only_wanted_lists_are_in_blocks) {
  const Sample sample(8, {20, 30, 0, 9}, 6);
  const Rows rows = sample.rows();
  const std::array<bool, 4> wanted{true, false, true, true};
  for (const Variant& variant : variants()) {
    BlocksOptions options = options_of(sample, {variant.element, false}, {});
    options.wanted = wanted;
    const Blocks blocks(rows, options, nullptr);
    CHECK(blocks.lists() == 4 && blocks.memory() > 0);
    ScanMemory scratch;
    Found found(5);
    const std::vector<std::int64_t> all{0, 1, 2, 3}, there{0, 3};
    search_single(blocks, sample.x(25), 7, all, false, found.results(), scratch);
    CHECK(found == sample.search(sample.x(25), 7, there, 5));
  }
}

TEST(a_center_that_is_not_finite_changes_nothing) {
  if (!kernels().has_bytes) return;
  Sample sample(6, {50, 16}, 2);
  sample.metric = Metric::kL2;
  const Rows rows = sample.rows();
  const std::vector<float> center(6, std::numeric_limits<float>::quiet_NaN());
  BlocksOptions options = options_of(sample, {Element::kByte, false}, {});
  options.center = center;
  const Blocks blocks(rows, options, nullptr);
  Groups groups(sample, 2, 3);
  blocks.search(groups.view(), nullptr);
  groups.check(sample, {});
}

TEST(blocks_refuse_what_does_not_fit) {
  const Sample sample(6, {5, 6}, 1);
  const Rows rows = sample.rows();
  const std::vector<float> rotation = rotation_of(6);
  const std::array<bool, 3> three{};
  const std::vector<std::int32_t> outside{11};
  const std::vector<std::int64_t> one{0, 1};
  const auto refused = [&](const char* text, auto change) {
    BlocksOptions options = options_of(sample, {Element::kFloat, false}, rotation);
    change(options);
    CHECK_THROWS(std::invalid_argument, text, Blocks(rows, options, nullptr));
  };
  refused("wanted must have", [&](BlocksOptions& options) { options.wanted = three; });
  refused("allowed must have", [&](BlocksOptions& options) { options.allowed = three; });
  refused("only bytes", [&](BlocksOptions& options) { options.rotation.rows = 6; });
  refused("center must", [&](BlocksOptions& options) { options.center = std::span(rotation).first(6); });
  refused("must ascend", [&](BlocksOptions& options) { options.reference_starts = one; });
  refused("must be rows", [&](BlocksOptions& options) {
    options.reference_starts = one;
    options.references = outside;
  });
  const Blocks blocks(rows, options_of(sample, {Element::kFloat, false}, rotation), nullptr);
  Groups groups(sample, 2, 3);
  groups.lists[0] = 2;
  CHECK_THROWS(std::invalid_argument, "numbers of lists", blocks.search(groups.view(), nullptr));
  groups.lists[0] = 1;
  groups.order[3] = 60;
  CHECK_THROWS(std::invalid_argument, "rows of D", blocks.search(groups.view(), nullptr));
}

}  // namespace cfe
