#include "core/searcher.h"

#include <array>
#include <cassert>
#include <numeric>
#include <optional>

#include "core/common.h"
#include "core/fork.h"
#include "core/grouping.h"
#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kWider = 4;                           // factor of nprobe if a row is incomplete
constexpr std::size_t kLargest = 16;                        // queries of a small group
constexpr std::int64_t kLargeTask = std::int64_t{1} << 13;  // queries; threads share tasks that have more
constexpr std::size_t kGroupsOfPart = 64;                   // small groups that one thread scans at once

}  // namespace

ClassCounts::ClassCounts(std::span<const std::int32_t> labels, std::span<const bool> allowed) {
  for (std::size_t first = 0; first < labels.size();) {  // labels form runs
    std::size_t last = first, count = 0;
    for (; last < labels.size() && labels[last] == labels[first]; ++last) count += allowed.empty() || allowed[last];
    total_ += count;
    if (labels[first] != kUnknown) {
      counts_[labels[first]] += count;
      known_ += count;
    }
    first = last;
  }
}

std::size_t ClassCounts::eligible(std::int32_t label, Policy policy) const {
  if (policy == Policy::kAny) return total_;
  const auto own_class = counts_.find(label);
  const std::size_t count = own_class == counts_.end() ? 0 : own_class->second;
  return policy == Policy::kOwn ? count : known_ - count;
}

struct Searcher::Query {
  std::span<const float> x;
  std::int32_t label;
  FilterView filter;          // of this query
  const ClassCounts* counts;  // of the allowed rows; null if all are allowed
};

struct Searcher::Scratch {
  ClassCentroids::Scratch ranking;
  std::vector<std::int64_t> lists, in_blocks, changed;
  std::vector<bool> scanned;
  ScanMemory blocks, rows;
  std::vector<float> unit;
};

Searcher::Searcher(const ListScan& lists, const ClassCentroids& centroids, double margin, const Blocks* blocks,
                   std::span<const bool> changed, std::size_t least_lists)
    : lists_(lists),
      rows_(lists.rows()),
      centroids_(centroids),
      margin_(margin),
      blocks_(blocks),
      changed_(changed.begin(), changed.end()),
      least_lists_(least_lists) {
  require(centroids.d() == d() && (blocks == nullptr || blocks->d() == d()),
          "rows, centroids and blocks must have one d");
  require(centroids.size() == lists.size() && (blocks == nullptr || blocks->lists() == lists.size()),
          "centroids and blocks must be of the same lists");
  require(changed.empty() || (blocks != nullptr && changed.size() == lists.size()),
          "changed must be empty or say something of each list in blocks");
}

bool Searcher::search_single(std::span<const float> x, std::int64_t label, const SearchOptions& options,
                             TopK best) const {
  assert(x.size() == d());
  static thread_local Scratch scratch;
  if (label < 0 || label >= std::numeric_limits<std::int32_t>::max()) return false;
  if (rows_.metric() != Metric::kCosine) {
    if (!(kernels().norm(x) <= kLongestVector)) return false;
  } else {
    scratch.unit.resize(x.size());
    if (kernels().unit_rows({x.data(), 1, d()}, {scratch.unit.data(), 1, d()}) >= 0) return false;
    x = scratch.unit;
  }
  search_unit({x, static_cast<std::int32_t>(label), options.filter, nullptr}, options, scratch, best);
  return true;
}

void Searcher::search(const Matrix<const float>& X, std::span<const std::int32_t> labels, const SearchOptions& options,
                      const Matrix<float>& D, const Matrix<std::int64_t>& I, const Watch& watch) const {
  assert(X.columns == d() && labels.size() == X.rows && D.rows == X.rows && I.rows == X.rows);
  static thread_local Scratch scratch;
  std::optional<ClassCounts> of_allowed;
  if (options.complete && options.filter.allowed != nullptr)
    of_allowed.emplace(rows_.labels(), std::span(options.filter.allowed, rows_.size()));
  const ClassCounts* counts = of_allowed ? &*of_allowed : nullptr;
  const auto search_one = [&](std::size_t q) {
    search_unit({X[q], labels[q], options.filter.from(q), counts}, options, scratch,
                {D[q].data(), I[q].data(), D.columns});
  };
  parallel_for(X.rows, 1, search_one, watch);
}

void Searcher::search_unit(const Query& query, const SearchOptions& options, Scratch& scratch, TopK best) const {
  best.clear();
  if (query.label == kUnknown && query.filter.policy != Policy::kAny) return;
  std::size_t nprobe = options.nprobe;
  for (bool first = true;; nprobe *= kWider, first = false) {
    const bool everywhere = nprobe >= lists();
    scratch.lists.resize(everywhere ? rows_.nlist() : nprobe);
    if (everywhere)  // the lists of the first partition hold every row
      std::iota(scratch.lists.begin(), scratch.lists.end(), std::int64_t{0});
    else
      centroids_.rank(query.x, query.label, scratch.lists, scratch.ranking);
    if (!first)
      for (std::int64_t& list : scratch.lists)
        if (list >= 0 && scratch.scanned[static_cast<std::size_t>(list)]) list = -1;
    scan(query, scratch.lists, scratch, best);
    if (everywhere || !options.complete || holds_all(query, best)) break;
    if (first) scratch.scanned.assign(lists(), false);
    for (const std::int64_t list : scratch.lists)
      if (list >= 0) scratch.scanned[static_cast<std::size_t>(list)] = true;
  }
}

// Whether k eligible rows were found, or all of them. Their number is unknown under rules that test each row.
bool Searcher::holds_all(const Query& query, TopK best) const {
  const std::size_t found = best.found();
  if (found == best.k) return true;
  if (query.filter.of_allowed().tests) return false;
  const ClassCounts& of_rows = query.counts != nullptr ? *query.counts : counts();
  return found >= of_rows.eligible(query.label, query.filter.policy);
}

const ClassCounts& Searcher::counts() const {
  if (!counted_.load()) {
    const Unforked section;
    std::call_once(counting_, [this] {
      counts_ = std::make_unique<ClassCounts>(rows_.labels(), std::span<const bool>());
      counted_.store(true);
    });
  }
  return *counts_;
}

// Compares a query with the rows of some lists: in blocks, unless these lists are few or have changed since.
void Searcher::scan(const Query& query, std::span<const std::int64_t> lists, Scratch& scratch, TopK best) const {
  if (blocks_ == nullptr || query.filter.allowed != nullptr || lists.size() < least_lists_)
    return scan_rows(query, lists, scratch, best);
  scratch.changed.clear();
  if (!changed_.empty()) {
    scratch.in_blocks.clear();
    for (const std::int64_t list : lists)
      if (list >= 0) (changed_[static_cast<std::size_t>(list)] ? scratch.changed : scratch.in_blocks).push_back(list);
    lists = scratch.in_blocks;
  }
  const std::array<std::int64_t, 2> starts{0, 1};
  const std::int64_t order = 0;
  blocks_->search_groups({{query.x.data(), 1, d()},
                          {&query.label, 1},
                          starts,
                          {lists.data(), 1, lists.size()},
                          {&order, 1},
                          {best.D, 1, best.k},
                          {best.I, 1, best.k},
                          lists_.copies() > 1,
                          true,
                          query.filter},
                         0, 1, scratch.blocks);
  if (!scratch.changed.empty()) scan_rows(query, scratch.changed, scratch, best);
}

void Searcher::scan_rows(const Query& query, std::span<const std::int64_t> lists, Scratch& scratch, TopK best) const {
  lists_.scan({query.x.data(), query.label, lists, query.filter}, margin_, best, scratch.rows);
}

void Searcher::check(const LargeGroups& groups) const {
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

void Searcher::search_groups(const LargeGroups& groups, std::size_t nprobe, int threads, const Watch& watch) const {
  require(blocks_ != nullptr, "groups are searched in blocks");
  check(groups);
  require(nprobe > 0, "nprobe must be at least 1");
  const auto search_task = [&](std::size_t task, int of_task, const Watch& watch_parts) {
    const auto first = static_cast<std::size_t>(groups.tasks[task]);
    const auto last = static_cast<std::size_t>(groups.tasks[task + 1]);
    if (groups.starts[first] < groups.starts[last]) search_some(groups, first, last, nprobe, of_task, watch_parts);
  };
  std::vector<std::size_t> shared, others;
  for (std::size_t task = 0; task + 1 < groups.tasks.size(); ++task) {
    const auto first = static_cast<std::size_t>(groups.tasks[task]);
    const auto last = static_cast<std::size_t>(groups.tasks[task + 1]);
    (threads > 1 && groups.starts[last] - groups.starts[first] > kLargeTask ? shared : others).push_back(task);
  }
  std::size_t done = 0;
  const auto report = [&](std::size_t) {
    if (watch) watch(done);
  };
  for (; done < shared.size(); report(++done)) search_task(shared[done], threads, report);
  const auto search_other = [&](std::size_t number) { search_task(others[number], 1, {}); };
  const auto report_others = [&](std::size_t finished) {
    if (watch) watch(shared.size() + finished);
  };
  parallel_for(others.size(), threads, search_other, report_others);
}

// Searches the groups from `first` to `last` - 1, which have queries.
void Searcher::search_some(const LargeGroups& groups, std::size_t first, std::size_t last, std::size_t nprobe,
                           int threads, const Watch& watch) const {
  const auto begin = static_cast<std::size_t>(groups.starts[first]);
  const std::size_t nq = static_cast<std::size_t>(groups.starts[last]) - begin;
  const auto own = groups.order.subspan(begin, nq);
  std::vector<std::int64_t> borders;
  for (std::size_t g = first; g <= last; ++g) borders.push_back(groups.starts[g] - groups.starts[first]);

  AlignedVector<float> queries(nq * d());
  const Matrix<float> X{queries.data(), nq, d()};
  if (groups.rows.empty()) {
    for (std::size_t q = 0; q < nq; ++q) std::ranges::copy(groups.X[static_cast<std::size_t>(own[q])], X[q].begin());
  } else {
    std::vector<std::int64_t> rows(nq), ids(nq);
    for (std::size_t q = 0; q < nq; ++q) rows[q] = groups.rows[static_cast<std::size_t>(own[q])];
    rows_.gather(rows, X.data, ids.data());
  }

  const NearGroups near = halve(X, borders, kLargest, threads, watch);
  const std::size_t number = near.of_group.size();
  AlignedVector<float> in_groups(nq * d()), of_groups(number * d());
  const Matrix<float> arranged{in_groups.data(), nq, d()}, means{of_groups.data(), number, d()};
  arrange(X, near.order, near.starts, arranged, means, threads, watch, rows_.metric());

  std::vector<std::int32_t> group_labels, labels;
  for (const std::int64_t group : near.of_group)
    group_labels.push_back(groups.group_labels[first + static_cast<std::size_t>(group)]);
  const bool everywhere = nprobe >= lists();
  const std::size_t width = everywhere ? rows_.nlist() : nprobe;
  std::vector<std::int64_t> lists_of_groups(number * width), order;
  const Matrix<std::int64_t> found{lists_of_groups.data(), number, width};
  if (everywhere)
    centroids_.rank_all(means, group_labels, found, threads, watch);
  else
    centroids_.rank(means, group_labels, found, threads, watch);

  for (const std::int64_t q : near.order) {
    order.push_back(own[static_cast<std::size_t>(q)]);
    labels.push_back(groups.labels[static_cast<std::size_t>(order.back())]);
  }
  const GroupedQueries queries_of_groups{arranged, labels,   near.starts,         found, order,
                                         groups.D, groups.I, lists_.copies() > 1, false, groups.filter};
  const auto scan_some = [&](std::size_t begin_group, std::size_t end_group) {
    ScanMemory scratch;
    blocks_->search_groups(queries_of_groups, begin_group, end_group, scratch);
  };
  parallel_runs(number, threads > 1 ? kGroupsOfPart : number, threads, scan_some, watch);
}

}  // namespace cfe
