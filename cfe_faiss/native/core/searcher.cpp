#include "core/searcher.h"

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
    counts_[labels[first]] += count;
    total_ += count;
    first = last;
  }
}

std::size_t ClassCounts::eligible(std::int32_t label, Policy policy) const {
  const auto count_of = [this](std::int32_t of) { return counts_.contains(of) ? counts_.at(of) : 0; };
  if (policy == Policy::kAny) return total_;
  if (policy == Policy::kOwn) return count_of(label);
  return total_ - count_of(kUnknown) - count_of(label);
}

struct Searcher::Query {
  std::span<const float> x;
  std::int32_t label;
  FilterView filter;                       // of this query
  std::optional<ClassCounts>& of_allowed;  // counted if a mask leaves the query incomplete
  std::span<const std::int64_t> lists;     // nearest first, or empty: not ranked yet
};

struct Searcher::Scratch {
  ClassCentroids::Scratch ranking;
  std::vector<std::int64_t> lists, in_blocks, changed;
  std::vector<bool> scanned;
  ScanMemory blocks, rows;
  std::vector<float> unit;
};

Searcher::Searcher(const ListScan& lists, const ClassCentroids& centroids, double margin, const Blocks* blocks,
                   std::span<const bool> changed)
    : lists_(lists),
      rows_(lists.rows()),
      centroids_(centroids),
      margin_(margin),
      blocks_(blocks),
      changed_(changed.begin(), changed.end()) {
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
  std::optional<ClassCounts> of_allowed;
  search_unit({x, static_cast<std::int32_t>(label), options.filter, of_allowed, {}}, options, scratch, best);
  return true;
}

void Searcher::search(const Matrix<const float>& X, std::span<const std::int32_t> labels, const SearchOptions& options,
                      const Matrix<float>& D, const Matrix<std::int64_t>& I, const Watch& watch) const {
  assert(X.columns == d() && labels.size() == X.rows && D.rows == X.rows && I.rows == X.rows);
  static thread_local Scratch scratch;
  std::optional<ClassCounts> of_allowed;
  // Lists of several queries are ranked together. Queries of one list follow each other, as they read the same rows.
  const std::size_t nprobe = X.rows > 1 && options.nprobe < lists() ? options.nprobe : 0;
  std::vector<std::int64_t> near(X.rows * nprobe);
  std::vector<std::size_t> order(X.rows);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (nprobe > 0) {
    centroids_.rank(X, labels, {near.data(), X.rows, nprobe}, 1, {});
    std::ranges::stable_sort(order, {}, [&](std::size_t q) { return near[q * nprobe]; });
  }
  const auto search_one = [&](std::size_t place) {
    const std::size_t q = order[place];
    const auto ranked = std::span(near).subspan(q * nprobe, nprobe);
    search_unit({X[q], labels[q], options.filter.from(q), of_allowed, ranked}, options, scratch,
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
    else if (first && !query.lists.empty())
      std::ranges::copy(query.lists, scratch.lists.begin());
    else
      centroids_.rank(query.x, query.label, scratch.lists, scratch.ranking);
    if (!first)
      for (std::int64_t& list : scratch.lists)
        if (list >= 0 && scratch.scanned[static_cast<std::size_t>(list)]) list = -1;
    scan(query, scratch.lists, everywhere, scratch, best);
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
  if (query.filter.allowed == nullptr) return found >= counts().eligible(query.label, query.filter.policy);
  if (!query.of_allowed) query.of_allowed.emplace(rows_.labels(), std::span(query.filter.allowed, rows_.size()));
  return found >= query.of_allowed->eligible(query.label, query.filter.policy);
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

// Compares a query with the rows of some lists: in blocks, unless these lists have changed since. `exact`: not in bits.
void Searcher::scan(const Query& query, std::span<const std::int64_t> lists, bool exact, Scratch& scratch,
                    TopK best) const {
  const bool in_blocks = blocks_ != nullptr && !(exact && blocks_->element() == Element::kBit);
  if (!in_blocks || query.filter.allowed != nullptr) return scan_rows(query, lists, scratch, best);
  scratch.changed.clear();
  if (!changed_.empty()) {
    scratch.in_blocks.clear();
    for (const std::int64_t list : lists)
      if (list >= 0) (changed_[static_cast<std::size_t>(list)] ? scratch.changed : scratch.in_blocks).push_back(list);
    lists = scratch.in_blocks;
  }
  blocks_->search_group({.X = query.x.data(),
                         .labels = &query.label,
                         .size = 1,
                         .lists = lists.data(),
                         .nprobe = lists.size(),
                         .k = best.k,
                         .resume = true,
                         .D = best.D,
                         .I = best.I,
                         .filter = query.filter},
                        scratch.blocks);
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
  require(all_below(groups.order, nq), "order must hold numbers of queries");
  require(groups.starts.size() == number + 1 && ascends(groups.starts, groups.order.size()),
          "starts must ascend from 0 to the length of order, one for each label of a group");
  require(ascends(groups.tasks, number), "tasks must ascend from 0 to the number of groups");
}

// Calls take(task, threads, watch) for each task that has queries. The threads share large tasks.
template <class Take>
void Searcher::for_each_task(const LargeGroups& groups, int threads, const Watch& watch, const Take& take) const {
  const auto queries_of = [&](std::size_t task) {
    return groups.starts[groups.tasks[task + 1]] - groups.starts[groups.tasks[task]];
  };
  const auto is_shared = [&](std::size_t task) { return threads > 1 && queries_of(task) > kLargeTask; };
  const std::size_t tasks = groups.tasks.size() - 1;
  std::size_t done = 0;  // shared tasks
  const auto report = [&](std::size_t others) {
    if (watch) watch(std::max(done, others));
  };
  for (std::size_t task = 0; task < tasks; ++task) {
    if (!is_shared(task)) continue;
    take(task, threads, [&](std::size_t) { report(0); });
    ++done;
  }
  const auto take_other = [&](std::size_t task) {
    if (!is_shared(task) && queries_of(task) > 0) take(task, 1, {});
  };
  parallel_for(tasks, threads, take_other, report);
}

// Halves the groups of a task, and ranks lists unless `nprobe` is 0.
Searcher::Routed Searcher::route_task(const LargeGroups& groups, std::size_t task, std::size_t nprobe, int threads,
                                      const Watch& watch) const {
  const auto first = static_cast<std::size_t>(groups.tasks[task]),
             last = static_cast<std::size_t>(groups.tasks[task + 1]);
  const auto begin = static_cast<std::size_t>(groups.starts[first]);
  const std::size_t nq = static_cast<std::size_t>(groups.starts[last]) - begin;
  const auto chosen = groups.order.subspan(begin, nq);
  std::vector<std::int64_t> borders;
  for (std::size_t g = first; g <= last; ++g) borders.push_back(groups.starts[g] - groups.starts[first]);

  AlignedVector<float> queries(nq * d());
  const Matrix<float> X{queries.data(), nq, d()};
  if (groups.rows.empty()) {
    for (std::size_t q = 0; q < nq; ++q) std::ranges::copy(groups.X[static_cast<std::size_t>(chosen[q])], X[q].begin());
  } else {
    std::vector<std::int64_t> rows(nq), ids(nq);
    for (std::size_t q = 0; q < nq; ++q) rows[q] = groups.rows[static_cast<std::size_t>(chosen[q])];
    rows_.gather(rows, X.data, ids.data());
  }

  NearGroups near = halve(X, borders, kLargest, threads, watch);
  Routed routed;
  RoutedGroups& small = routed.groups;
  small.starts = std::move(near.starts);
  small.width = std::min(nprobe, lists());
  const std::size_t number = near.of_group.size();
  for (const std::int64_t group : near.of_group)
    small.labels.push_back(groups.group_labels[first + static_cast<std::size_t>(group)]);
  for (const std::int64_t q : near.order) small.order.push_back(chosen[static_cast<std::size_t>(q)]);
  if (nprobe == 0) return routed;
  routed.X.resize(nq * d());
  small.lists.resize(number * small.width);
  AlignedVector<float> of_groups(number * d());
  const Matrix<float> means{of_groups.data(), number, d()};
  arrange(X, near.order, small.starts, {routed.X.data(), nq, d()}, means, threads, watch, rows_.metric());
  centroids_.rank(means, small.labels, {small.lists.data(), number, small.width}, threads, watch);
  if (nprobe >= lists())  // the lists of the first partition hold every row
    for (std::int64_t& list : small.lists)
      if (list >= static_cast<std::int64_t>(rows_.nlist())) list = -1;
  return routed;
}

RoutedGroups Searcher::route_groups(const LargeGroups& groups, std::size_t nprobe, int threads,
                                    const Watch& watch) const {
  check(groups);
  std::vector<RoutedGroups> parts(groups.tasks.size());
  for_each_task(groups, threads, watch, [&](std::size_t task, int of_task, const Watch& watch_parts) {
    parts[task] = route_task(groups, task, nprobe, of_task, watch_parts).groups;
  });
  RoutedGroups all;
  all.starts = {0};
  all.width = std::min(nprobe, lists());
  for (const RoutedGroups& part : parts) {
    const auto begin = static_cast<std::int64_t>(all.order.size());
    for (std::size_t g = 1; g < part.starts.size(); ++g) all.starts.push_back(begin + part.starts[g]);
    all.order.insert(all.order.end(), part.order.begin(), part.order.end());
    all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
    all.lists.insert(all.lists.end(), part.lists.begin(), part.lists.end());
  }
  return all;
}

void Searcher::search_groups(const LargeGroups& groups, std::size_t nprobe, const Matrix<float>& D,
                             const Matrix<std::int64_t>& I, const FilterView& filter, int threads,
                             const Watch& watch) const {
  require(blocks_ != nullptr, "groups are searched in blocks");
  check(groups);
  require(nprobe > 0, "nprobe must be at least 1");
  require(D.rows == groups.labels.size() && I.rows == D.rows && D.columns == I.columns && D.columns > 0,
          "D and I must have one row for each query, of at least one column");
  for_each_task(groups, threads, watch, [&](std::size_t task, int of_task, const Watch& watch_parts) {
    const Routed routed = route_task(groups, task, nprobe, of_task, watch_parts);
    const RoutedGroups& small = routed.groups;
    const std::size_t number = small.labels.size();
    std::vector<std::int32_t> labels;
    labels.reserve(small.order.size());
    for (const std::int64_t q : small.order) labels.push_back(groups.labels[static_cast<std::size_t>(q)]);
    const GroupedQueries queries{{routed.X.data(), labels.size(), d()},
                                 labels,
                                 small.starts,
                                 {small.lists.data(), number, small.width},
                                 small.order,
                                 D,
                                 I,
                                 false,
                                 filter};
    const auto scan_some = [&](std::size_t first, std::size_t last) {
      ScanMemory scratch;
      blocks_->search_groups(queries, first, last, scratch);
    };
    parallel_runs(number, of_task > 1 ? kGroupsOfPart : number, of_task, scan_some, watch_parts);
  });
}

}  // namespace cfe
