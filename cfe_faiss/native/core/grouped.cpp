#include "core/grouped.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/common.h"
#include "core/grouping.h"
#include "core/scratch_pool.h"

namespace cfe {

namespace {

constexpr std::size_t kLargest = 16;  // queries of a small group

}  // namespace

struct GroupedSearcher::Scratch {
  std::vector<std::int64_t> rows, ids, borders, order, lists;
  std::vector<std::int32_t> labels, group_labels;
  std::vector<float> queries, arranged, means;
  NearGroups groups;
  HalvingScratch halving;
  ScanMemory blocks;
};

GroupedSearcher::GroupedSearcher(const Rows& rows, const ClassCentroids& centroids, const Blocks& blocks)
    : rows_(rows), centroids_(centroids), blocks_(blocks) {
  require(centroids.d() == rows.d() && blocks.d() == rows.d(), "rows, centroids and blocks must have one d");
  require(blocks.lists() == centroids.size() && rows.nlist() <= blocks.lists(),
          "centroids and blocks must be of the same lists");
}

void GroupedSearcher::check(const LargeGroups& groups) const {
  const std::size_t nq = groups.labels.size(), number = groups.group_labels.size();
  if (groups.rows.empty()) {
    require(groups.X.rows == nq && groups.X.columns == d(), "X must have d columns, and one row for each label");
  } else {
    require(groups.X.rows == 0 && groups.rows.size() == nq, "either X or rows must have one value for each label");
    require(all_below(groups.rows, rows_.size()), "rows must hold numbers of rows");
  }
  require(groups.D.rows == nq && groups.I.rows == nq && groups.D.columns == groups.I.columns && groups.D.columns > 0,
          "D and I must have one row for each query, of at least one column");
  require(all_below(groups.order, nq), "order must hold numbers of queries");
  require(groups.starts.size() == number + 1 && ascends(groups.starts, groups.order.size()),
          "starts must ascend from 0 to the length of order, one for each label of a group");
  require(ascends(groups.tasks, number), "tasks must ascend from 0 to the number of groups");
}

void GroupedSearcher::search(const LargeGroups& groups, std::size_t nprobe, bool deduplicate, int threads,
                             const Watch& watch) const {
  check(groups);
  require(nprobe > 0, "nprobe must be at least 1");
  const std::size_t tasks = groups.tasks.size() - 1;
  ScratchPool<Scratch> pool(std::min<std::size_t>(tasks, static_cast<std::size_t>(std::max(threads, 1))));
  parallel_for(
      tasks, threads,
      [&](std::size_t task) {
        const auto first = static_cast<std::size_t>(groups.tasks[task]);
        const auto last = static_cast<std::size_t>(groups.tasks[task + 1]);
        const ScratchPool<Scratch>::Lease scratch(pool);
        if (groups.starts[first] < groups.starts[last]) search_some(groups, first, last, nprobe, deduplicate, *scratch);
      },
      watch);
}

// Searches the groups from `first` to `last` - 1, which have queries.
void GroupedSearcher::search_some(const LargeGroups& groups, std::size_t first, std::size_t last, std::size_t nprobe,
                                  bool deduplicate, Scratch& scratch) const {
  const auto begin = static_cast<std::size_t>(groups.starts[first]);
  const std::size_t nq = static_cast<std::size_t>(groups.starts[last]) - begin;
  const auto own = groups.order.subspan(begin, nq);
  const auto borders = first_of(scratch.borders, last - first + 1);
  for (std::size_t g = first; g <= last; ++g) borders[g - first] = groups.starts[g] - groups.starts[first];

  const Matrix<float> X{first_of(scratch.queries, nq * d()).data(), nq, d()};
  if (groups.rows.empty()) {
    for (std::size_t q = 0; q < nq; ++q) {
      const auto x = groups.X[static_cast<std::size_t>(own[q])];
      std::copy(x.begin(), x.end(), X[q].begin());
    }
  } else {
    const auto rows = first_of(scratch.rows, nq);
    for (std::size_t q = 0; q < nq; ++q) rows[q] = groups.rows[static_cast<std::size_t>(own[q])];
    rows_.gather(rows, X.data, first_of(scratch.ids, nq).data());
  }

  NearGroups& near = scratch.groups;
  halve(X, borders, kLargest, near, scratch.halving);
  const std::size_t number = near.of_group.size();
  const Matrix<float> arranged{first_of(scratch.arranged, nq * d()).data(), nq, d()};
  const Matrix<float> means{first_of(scratch.means, number * d()).data(), number, d()};
  arrange(X, near.order, near.starts, arranged, means, 1, {});

  const auto group_labels = first_of(scratch.group_labels, number);
  for (std::size_t g = 0; g < number; ++g)
    group_labels[g] = groups.group_labels[first + static_cast<std::size_t>(near.of_group[g])];
  const bool everywhere = nprobe >= lists();
  const std::size_t width = everywhere ? rows_.nlist() : nprobe;
  const Matrix<std::int64_t> found{first_of(scratch.lists, number * width).data(), number, width};
  if (everywhere)
    centroids_.rank_all(means, group_labels, found, 1, {});
  else
    centroids_.rank(means, group_labels, found, 1, {});

  const auto order = first_of(scratch.order, nq);
  const auto labels = first_of(scratch.labels, nq);
  for (std::size_t q = 0; q < nq; ++q) {
    order[q] = own[static_cast<std::size_t>(near.order[q])];
    labels[q] = groups.labels[static_cast<std::size_t>(order[q])];
  }
  blocks_.search_groups({arranged, labels, near.starts, found, order, groups.D, groups.I, deduplicate, false}, 0,
                        number, scratch.blocks);
}

}  // namespace cfe
