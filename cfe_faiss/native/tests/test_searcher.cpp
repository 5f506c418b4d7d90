// Queries that are searched alone: against plain loops over the lists that they are ranked to.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/blocks.h"
#include "core/kernels.h"
#include "core/searcher.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

using tests::Found;
using tests::Means;
using tests::Sample;

BlocksOptions plain_options(Element element, std::size_t d) {
  return {.element = element,
          .rounding_error = tests::rounding_of(d),
          .references = {},
          .reference_starts = {},
          .center = {},
          .wanted = {},
          .allowed = {},
          .rotation = {nullptr, 0, d},
          .prefix = 0,
          .threads = 1};
}

// The last: blocks of floats, made before some lists changed.
enum class With { kNoBlocks, kFloats, kBytes, kChanged };

// A searcher and all that it refers to.
struct Searched {
  const Sample& sample;
  Rows rows;
  Means means;
  ClassCentroids centroids;
  std::vector<std::uint8_t> changed, unchanged;  // of each list
  std::unique_ptr<Blocks> blocks;
  ListScan lists;
  Searcher searcher;

  Searched(const Sample& own, With with)
      : sample(own),
        rows(own.rows()),
        means(own),
        centroids(means.view(), {}),
        changed(with == With::kChanged ? own.nlist() : 0),
        unchanged(changed.size()),
        blocks(with == With::kNoBlocks ? nullptr : blocks_with(with)),
        lists(rows, own.references, own.reference_starts),
        searcher(lists, centroids, tests::rounding_of(own.d), blocks.get(), flags(changed)) {}

  static std::span<const bool> flags(const std::vector<std::uint8_t>& bytes) {
    return {reinterpret_cast<const bool*>(bytes.data()), bytes.size()};
  }
  // Of lists that have changed, blocks know nothing here.
  std::unique_ptr<Blocks> blocks_with(With with) {
    for (std::size_t list = 0; list < changed.size(); ++list) {
      changed[list] = list % 3 != 1;
      unchanged[list] = !changed[list];
    }
    BlocksOptions options = plain_options(with == With::kBytes ? Element::kByte : Element::kFloat, sample.d);
    options.wanted = flags(unchanged);
    return std::make_unique<Blocks>(rows, options, nullptr);
  }

  // Four times as many lists until there is enough, or all of them.
  Found expected(std::span<const float> x, std::int32_t label, std::size_t k, std::size_t nprobe, bool complete,
                 const std::vector<bool>& allowed = {}) const {
    std::vector<std::int64_t> all(sample.nlist()), lists;
    std::iota(all.begin(), all.end(), 0);
    const Found most = sample.search(x, label, all, sample.n() + 1, allowed);
    const auto eligible =
        static_cast<std::size_t>(std::count_if(most.I.begin(), most.I.end(), [](std::int64_t id) { return id >= 0; }));
    ClassCentroids::Scratch scratch;
    for (;; nprobe *= 4) {
      if (nprobe >= sample.lists()) return sample.search(x, label, all, k, allowed);
      std::vector<std::int64_t> nearest(nprobe);
      centroids.rank(x, label, nearest, scratch);
      lists.insert(lists.end(), nearest.begin(), nearest.end());
      Found found = sample.search(x, label, lists, k, allowed);
      const auto number = std::count_if(found.I.begin(), found.I.end(), [](std::int64_t id) { return id >= 0; });
      if (!complete || static_cast<std::size_t>(number) >= std::min(k, eligible)) return found;
    }
  }
};

std::vector<With> all_ways(const Sample& sample) {
  if (!sample.references.empty()) return {With::kNoBlocks};
  if (!kernels().has_bytes) return {With::kNoBlocks, With::kFloats, With::kChanged};
  return {With::kNoBlocks, With::kFloats, With::kBytes, With::kChanged};
}

const std::vector<std::vector<std::size_t>>& all_sizes() {
  static const std::vector<std::vector<std::size_t>> sizes{{1}, {0, 7, 0, 33, 16, 1}, {20, 31, 5, 48, 0, 2, 17, 64, 3}};
  return sizes;
}

void check_alone(const Searched& searched, std::size_t k, std::size_t nprobe, bool complete) {
  const Sample& sample = searched.sample;
  std::vector<float> X = tests::random_unit_rows(6, sample.d, 9);
  std::copy_n(sample.x(0).begin(), sample.d, X.begin());
  for (std::size_t q = 0; q < 6; ++q) {
    const std::span x = std::span<const float>(X).subspan(q * sample.d, sample.d);
    const auto label = static_cast<std::int32_t>(q % 4);
    Found found(k);
    CHECK(searched.searcher.search_single(x, label, {nprobe, complete}, found.results()));
    CHECK(found == searched.expected(x, label, k, nprobe, complete));
  }
}

}  // namespace

TEST(single_queries_find_what_plain_loops_find) {
  for (const std::size_t d : {1, 5, 16, 34})
    for (const auto& sizes : all_sizes())
      for (const bool further : {false, true}) {
        Sample sample(d, sizes, static_cast<unsigned>(d));
        if (further) sample.add_partition(4, 1);
        for (const With with : all_ways(sample)) {
          const Searched searched(sample, with);
          for (const std::size_t k : {1, 10, 70})
            for (const std::size_t nprobe : {1, 2, 100})
              for (const bool complete : {false, true}) check_alone(searched, k, nprobe, complete);
        }
      }
}

TEST(many_queries_find_the_same_with_a_selection_and_without) {
  const Sample sample(18, {20, 31, 5, 48, 0, 2, 17}, 2);
  const std::size_t nq = 50, k = 4;
  const std::vector<float> X = tests::random_unit_rows(nq, sample.d, 5);
  std::vector<std::int32_t> labels(nq);
  for (std::size_t q = 0; q < nq; ++q) labels[q] = static_cast<std::int32_t>(q % 4) - 1;
  std::vector<std::uint8_t> bytes(sample.n());
  for (std::size_t row = 0; row < bytes.size(); ++row) bytes[row] = row % 3 == 0;
  for (const With with : all_ways(sample))
    for (const bool selected : {false, true}) {
      const Searched searched(sample, with);
      const std::span<const bool> allowed(reinterpret_cast<const bool*>(bytes.data()), selected ? bytes.size() : 0);
      std::vector<float> D(nq * k);
      std::vector<std::int64_t> I(nq * k);
      searched.searcher.search(tests::as_matrix(X, sample.d), labels, {2, true, tests::filter_of(allowed)},
                               {D.data(), nq, k}, {I.data(), nq, k}, nullptr);
      for (std::size_t q = 0; q < nq; ++q) {
        Found found(k), expected(k);
        std::copy_n(D.begin() + static_cast<std::ptrdiff_t>(q * k), k, found.D.begin());
        std::copy_n(I.begin() + static_cast<std::ptrdiff_t>(q * k), k, found.I.begin());
        expected.results().clear();
        std::fill(expected.I.begin(), expected.I.end(), -1);
        if (labels[q] != kUnknown)
          expected = searched.expected(std::span(X).subspan(q * sample.d, sample.d), labels[q], k, 2, true,
                                       std::vector<bool>(allowed.begin(), allowed.end()));
        CHECK(found == expected);
      }
    }
}

TEST(threads_may_search_the_same_index_at_once) {
  const Sample sample(20, {40, 31, 0, 48, 17}, 3);
  for (const With with : all_ways(sample)) {
    const Searched searched(sample, with);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (std::size_t thread = 0; thread < 3; ++thread)
      threads.emplace_back([&, thread] {
        for (std::size_t row = thread; row < sample.n(); row += 2) {
          Found found(3 + thread);
          searched.searcher.search_single(sample.x(row), 0, {2, true}, found.results());
          if (found != searched.expected(sample.x(row), 0, 3 + thread, 2, true)) ++wrong;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

TEST(queries_that_are_no_vectors_or_have_no_label_are_refused) {
  const Sample sample(3, {5, 6}, 1);
  const Searched searched(sample, With::kNoBlocks);
  Found found(2);
  const std::vector<float> fine{1, 0, 0}, endless{1, std::numeric_limits<float>::infinity(), 0},
      none{1, std::numeric_limits<float>::quiet_NaN(), 0};
  const auto taken = [&](const std::vector<float>& x, std::int64_t label) {
    return searched.searcher.search_single(x, label, {1, true}, found.results());
  };
  CHECK(taken(fine, 0) && taken(fine, 1000));
  CHECK(!taken(endless, 0) && !taken(none, 0));
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{1} << 31, std::numeric_limits<std::int64_t>::max()})
    CHECK(!taken(fine, label));
}

TEST(searcher_refuses_what_does_not_fit) {
  const Sample sample(3, {5, 6}, 1), longer(4, {5, 6}, 1), further(3, {5, 6, 1}, 1);
  const Rows rows = sample.rows(), other_rows = longer.rows(), more_rows = further.rows();
  const Means means(sample);
  const ClassCentroids centroids(means.view(), {});
  const Blocks blocks(more_rows, plain_options(Element::kFloat, 3), nullptr);
  const std::vector<std::int32_t> references{0, 1};
  const std::vector<std::int64_t> none{0}, one{0, 2};
  const std::array<bool, 1> changed{true};
  const ListScan lists(rows, {}, none), other_lists(other_rows, {}, none), more_lists(rows, references, one);
  const auto made = [&](const ListScan& of, const Blocks* in, std::span<const bool> marked = {}) {
    return Searcher(of, centroids, 0, in, marked).d();
  };
  CHECK(made(lists, nullptr) == 3);
  CHECK_THROWS(std::invalid_argument, "must have one d", made(other_lists, nullptr));
  CHECK_THROWS(std::invalid_argument, "the same lists", made(more_lists, nullptr));
  CHECK_THROWS(std::invalid_argument, "the same lists", made(lists, &blocks));
  CHECK_THROWS(std::invalid_argument, "changed must", made(lists, nullptr, changed));
}

}  // namespace cfe
