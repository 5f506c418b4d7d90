// The ranking of lists: against plain loops that multiply in the order of kernels/products.h.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/class_centroids.h"
#include "tests/check.h"
#include "tests/sample.h"

namespace cfe {

namespace {

using tests::Means;
using tests::Sample;

float plain_product(const float* x, const float* mean, std::size_t d) {
  float sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= d; i += 4)
    for (std::size_t chain = 0; chain < 4; ++chain) sums[chain] += x[i + chain] * mean[i + chain];
  float total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (; i < d; ++i) total += x[i] * mean[i];
  return total;
}

// The nearest of some lists that may hold something for a label, then -1.
std::vector<std::int64_t> plain_rank(const Means& means, std::span<const float> x, std::int32_t label,
                                     const std::vector<std::int64_t>& of, std::size_t nprobe) {
  std::vector<std::pair<float, std::int64_t>> all;
  for (const std::int64_t list : of)
    if (const float* mean = means.mean_for(static_cast<std::size_t>(list), label); mean != nullptr)
      all.emplace_back(-plain_product(x.data(), mean, means.d), list);
  std::sort(all.begin(), all.end());
  std::vector<std::int64_t> lists(nprobe, -1);
  for (std::size_t place = 0; place < std::min(nprobe, all.size()); ++place) lists[place] = all[place].second;
  return lists;
}

std::vector<std::int64_t> numbers_below(std::size_t end) {
  std::vector<std::int64_t> numbers(end);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Lists of few rows, every seventh empty.
std::vector<std::size_t> many_sizes(std::size_t lists) {
  std::vector<std::size_t> sizes(lists);
  for (std::size_t list = 0; list < lists; ++list) sizes[list] = list * list % 7;
  return sizes;
}

struct Clusters {
  std::vector<float> means;
  std::vector<std::int64_t> starts, lists;
  ListClusters view(std::size_t d) const { return {tests::as_matrix(means, d), starts, lists}; }
};

// Clusters of lists that follow each other; the second one is empty.
Clusters clusters_of(std::size_t lists, std::size_t number, std::size_t d) {
  Clusters made{tests::random_unit_rows(number, d, 8), {0}, numbers_below(lists)};
  std::reverse(made.lists.begin(), made.lists.end());
  for (std::size_t c = 1; c <= number; ++c)
    made.starts.push_back(static_cast<std::int64_t>(c == 2 ? lists / number : lists * c / number));
  return made;
}

// Checks each label, known or not, alone, with others, and in whole.
void check_ranking(const Sample& sample, const Means& means, const ClassCentroids& centroids, std::size_t nprobe) {
  const std::vector<float> X = tests::random_unit_rows(20, sample.d, 12);
  const Matrix<const float> queries = tests::as_matrix(X, sample.d);
  std::vector<std::int32_t> labels(queries.rows);
  for (std::size_t q = 0; q < queries.rows; ++q) labels[q] = static_cast<std::int32_t>(q % 6) - 1;
  std::vector<std::int64_t> lists(queries.rows * nprobe), whole(queries.rows * centroids.size());
  ClassCentroids::Scratch scratch;
  for (const int threads : {1, 3}) {
    centroids.rank(queries, labels, {lists.data(), queries.rows, nprobe}, threads, nullptr);
    centroids.rank(queries, labels, {whole.data(), queries.rows, centroids.size()}, threads, nullptr);
    for (std::size_t q = 0; q < queries.rows; ++q) {
      const auto all = numbers_below(centroids.size());
      const auto expected = plain_rank(means, queries[q], labels[q], all, nprobe);
      std::vector<std::int64_t> alone(nprobe);
      centroids.rank(queries[q], labels[q], alone, scratch);
      CHECK(alone == expected);
      CHECK(std::equal(expected.begin(), expected.end(), lists.begin() + static_cast<std::ptrdiff_t>(q * nprobe)));
      const auto sorted = plain_rank(means, queries[q], labels[q], all, all.size());
      CHECK(std::equal(sorted.begin(), sorted.end(), whole.begin() + static_cast<std::ptrdiff_t>(q * all.size())));
    }
  }
}

}  // namespace

TEST(lists_are_ranked_by_their_members_of_other_classes) {
  for (const std::size_t d : {1, 3, 16, 37})
    for (const std::uint32_t classes : {1, 2, 9}) {
      Sample sample(d, {9, 0, 1, 40, 17, 2}, 1, classes);
      sample.add_partition(5, 2);
      const Means means(sample);
      const ClassCentroids centroids(means.view(), {});
      for (const std::size_t nprobe : {1, 3, 11}) check_ranking(sample, means, centroids, nprobe);
    }
}

TEST(many_lists_are_ranked_by_bytes_first_with_the_same_result) {
  const Sample sample(35, many_sizes(400), 3, 5);
  const Means means(sample);
  const ClassCentroids centroids(means.view(), {});
  for (const std::size_t nprobe : {1, 20, 300}) check_ranking(sample, means, centroids, nprobe);
}

TEST(of_far_clusters_no_list_is_ranked) {
  for (const std::size_t lists : {90, 400}) {
    const std::size_t d = 34, clusters = 9, wanted = 1;  // four clusters, or lists for 64 of one that is wanted
    const Sample sample(d, many_sizes(lists), 4, 5);
    const Means means(sample);
    const Clusters own = clusters_of(lists, clusters, d);
    const ClassCentroids centroids(means.view(), own.view(d));
    const std::vector<float> X = tests::random_unit_rows(30, d, 13);
    ClassCentroids::Scratch scratch;
    for (std::size_t q = 0; q < 30; ++q) {
      const std::span x = std::span(X).subspan(q * d, d);
      auto nearest = numbers_below(clusters);
      std::stable_sort(nearest.begin(), nearest.end(), [&](std::int64_t a, std::int64_t b) {
        const auto to = [&](std::int64_t c) {
          return tests::plain_similarity(x.data(), own.means.data() + static_cast<std::size_t>(c) * d, d);
        };
        return to(a) > to(b);
      });
      std::vector<std::int64_t> near;
      for (std::size_t c = 0; c < clusters && (c < 4 || near.size() < 64 * wanted); ++c) {
        const auto cluster = static_cast<std::size_t>(nearest[c]);
        near.insert(near.end(), own.lists.begin() + own.starts[cluster], own.lists.begin() + own.starts[cluster + 1]);
      }
      const auto label = static_cast<std::int32_t>(q % 6) - 1;
      std::vector<std::int64_t> found(wanted);
      centroids.rank(x, label, found, scratch);
      CHECK(found == plain_rank(means, x, label, near, wanted));
    }
  }
}

TEST(lists_that_changed_are_ranked_by_their_new_members) {
  for (const std::size_t d : {3, 33}) {
    const Sample before(d, many_sizes(300), 3, 5), after(d, many_sizes(300), 6, 5);
    Sample mixed = before;  // some lists of the other
    const std::vector<std::int64_t> changed{0, 5, 6, 120, 299};
    for (const std::int64_t list : changed)
      for (std::int64_t row = before.starts[list]; row < before.starts[list + 1]; ++row) {
        const auto r = static_cast<std::size_t>(row);
        std::copy_n(after.x(r).begin(), d, mixed.X.begin() + r * d);
        mixed.labels[r] = after.labels[r];
      }
    for (std::size_t list = 0; list < 300; ++list)
      mixed.vectors[list].assign(mixed.X.begin() + mixed.starts[list] * static_cast<std::int64_t>(d),
                                 mixed.X.begin() + mixed.starts[list + 1] * static_cast<std::int64_t>(d));
    const Means means_before(before), means(mixed);
    const Rows rows = mixed.rows();
    const ClassCentroids first(means_before.view(), {}), centroids = first.with_changes(rows, changed, 0);
    CHECK(first.changed() == 0 && centroids.changed() == changed.size());
    for (const std::size_t nprobe : {1, 20, 290}) check_ranking(mixed, means, centroids, nprobe);
  }
}

TEST(centroids_refuse_what_does_not_fit) {
  const Sample sample(3, {4, 5}, 1);
  const auto refused = [&](const char* text, auto change) {
    Means means(sample);
    Clusters clusters;
    change(means, clusters);
    CHECK_THROWS(std::invalid_argument, text, ClassCentroids(means.view(), clusters.view(3)));
  };
  refused("filled must have", [](Means& means, Clusters&) { means.filled.pop_back(); });
  refused("starts must run", [](Means& means, Clusters&) { means.starts.back() += 1; });
  refused("labels must ascend", [](Means& means, Clusters&) { std::swap(means.labels[0], means.labels[1]); });
  refused("must be of lists", [](Means& means, Clusters&) { means.of_list[0] = 2; });
  refused("a list and a flag", [](Means& means, Clusters&) { means.class_filled.pop_back(); });
  refused("clusters must hold all", [](Means&, Clusters& clusters) { clusters = {{1, 0, 0}, {0, 1}, {0}}; });
  refused("each list once", [](Means&, Clusters& clusters) { clusters = {{1, 0, 0}, {0, 2}, {1, 1}}; });
}

}  // namespace cfe
