#include "core/searcher.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "core/common.h"
#include "core/fork.h"
#include "core/kernels.h"
#include "core/list_scan.h"

namespace cfe {

namespace {

constexpr std::size_t kQueriesOfTask = 16;
constexpr std::size_t kWider = 4;  // factor of nprobe if a row is incomplete
}  // namespace

ClassCounts::ClassCounts(std::span<const std::int32_t> labels, std::span<const bool> allowed) {
  std::map<std::int32_t, std::size_t> counts;
  for (std::size_t first = 0; first < labels.size();) {  // labels form runs
    std::size_t last = first, count = 0;
    for (; last < labels.size() && labels[last] == labels[first]; ++last) count += allowed.empty() || allowed[last];
    if (labels[first] != kUnknown) counts[labels[first]] += count;
    first = last;
  }
  for (const auto& [label, count] : counts) {
    labels_.push_back(label);
    counts_.push_back(count);
    total_ += count;
  }
}

std::size_t ClassCounts::others(std::int32_t label) const {
  const auto place = std::lower_bound(labels_.begin(), labels_.end(), label);
  const bool known = place != labels_.end() && *place == label;
  return total_ - (known ? counts_[static_cast<std::size_t>(place - labels_.begin())] : 0);
}

struct Searcher::Query {
  std::span<const float> x;
  std::int32_t label;
  std::span<const bool> allowed;
  const ClassCounts* counts;  // of the allowed rows; null if all are allowed
};

struct Searcher::Scratch {
  ClassCentroids::Scratch ranking;
  std::vector<std::int64_t> lists, in_blocks, changed;
  std::vector<bool> scanned;
  ScanMemory blocks, rows;
  std::vector<float> unit;
};

Searcher::Searcher(const Rows& rows, std::span<const std::int32_t> references,
                   std::span<const std::int64_t> reference_starts, const ClassCentroids& centroids, double margin,
                   const Blocks* blocks, std::span<const bool> changed)
    : rows_(rows),
      centroids_(centroids),
      references_(references.begin(), references.end()),
      reference_starts_(reference_starts.begin(), reference_starts.end()),
      lists_{rows.view(), references_.data(), reference_starts_.data(),
             reference_starts.empty() ? 0 : reference_starts.size() - 1},
      margin_(margin),
      blocks_(blocks),
      changed_(changed.begin(), changed.end()) {
  require(centroids.d() == rows.d(), "rows and centroids must have the same length");
  require(ascends(reference_starts, references.size()),
          "reference_starts must ascend and run from 0 to the number of references");
  require(blocks == nullptr || (blocks->d() == rows.d() && blocks->lists() == rows.nlist() && references.empty()),
          "blocks must be of all lists of one partition");
  require(changed.empty() || (blocks != nullptr && changed.size() == rows.nlist()),
          "changed must be empty or say something of each list in blocks");
  require(centroids.size() == rows.nlist() + reference_starts.size() - 1, "each list must have a mean");
  require(all_below(references, rows.size()), "references must be rows");
  lists_.copies = copies_of(references, rows.size());
}

bool Searcher::search_single(std::span<const float> x, std::int64_t label, std::size_t nprobe, bool complete,
                             TopK best) const {
  assert(x.size() == d());
  static thread_local Scratch scratch;
  scratch.unit.resize(x.size());
  if (label < 0 || label >= std::numeric_limits<std::int32_t>::max() ||
      kernels().unit_rows({x.data(), 1, d()}, {scratch.unit.data(), 1, d()}) >= 0)
    return false;
  search_unit({scratch.unit, static_cast<std::int32_t>(label), {}, nullptr}, nprobe, complete, scratch, best);
  return true;
}

void Searcher::search(const Matrix<const float>& X, std::span<const std::int32_t> labels, const SearchOptions& options,
                      const Matrix<float>& D, const Matrix<std::int64_t>& I, int threads, const Watch& watch) const {
  assert(X.columns == d() && labels.size() == X.rows && D.rows == X.rows && I.rows == X.rows);
  const std::size_t tasks = (X.rows + kQueriesOfTask - 1) / kQueriesOfTask;
  std::optional<ClassCounts> of_allowed;
  if (options.complete && !options.allowed.empty()) of_allowed.emplace(rows_.labels(), options.allowed);
  const ClassCounts* counts = of_allowed ? &*of_allowed : nullptr;
  parallel_for(
      tasks, threads,
      [&](std::size_t task) {
        static thread_local Scratch scratch;
        for (std::size_t q = task * kQueriesOfTask; q < std::min(X.rows, (task + 1) * kQueriesOfTask); ++q)
          search_unit({X[q], labels[q], options.allowed, counts}, options.nprobe, options.complete, scratch,
                      {D[q].data(), I[q].data(), D.columns});
      },
      watch);
}

void Searcher::search_unit(const Query& query, std::size_t nprobe, bool complete, Scratch& scratch, TopK best) const {
  best.clear();
  for (bool first = true; query.label != kUnknown; nprobe *= kWider, first = false) {
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
    if (everywhere || !complete || holds_all(query, best)) break;
    if (first) scratch.scanned.assign(lists(), false);
    for (const std::int64_t list : scratch.lists)
      if (list >= 0) scratch.scanned[static_cast<std::size_t>(list)] = true;
  }
}

bool Searcher::uses_blocks(const Query& query) const { return blocks_ != nullptr && query.allowed.empty(); }

// Whether all eligible rows were found, or k of them.
bool Searcher::holds_all(const Query& query, TopK best) const {
  const std::size_t found = best.found();
  return found == best.k || found >= (query.counts != nullptr ? *query.counts : counts()).others(query.label);
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

// Compares a query with the rows of some lists.
void Searcher::scan(const Query& query, std::span<const std::int64_t> lists, Scratch& scratch, TopK best) const {
  if (!uses_blocks(query)) return scan_rows(query, lists, scratch, best);
  if (changed_.empty()) return blocks_->search_single(query.x, query.label, lists, true, best, scratch.blocks);
  scratch.in_blocks.clear();
  scratch.changed.clear();
  for (const std::int64_t list : lists)
    if (list >= 0) (changed_[static_cast<std::size_t>(list)] ? scratch.changed : scratch.in_blocks).push_back(list);
  blocks_->search_single(query.x, query.label, scratch.in_blocks, true, best, scratch.blocks);
  if (scratch.changed.empty()) return;
  scan_rows(query, scratch.changed, scratch, best);
}

void Searcher::scan_rows(const Query& query, std::span<const std::int64_t> lists, Scratch& scratch, TopK best) const {
  rows_.check_lists(lists);
  kernels().scan_lists(lists_,
                       {query.x.data(), query.label, lists, query.allowed.empty() ? nullptr : query.allowed.data()},
                       static_cast<float>(margin_), scratch.rows.of(1, {d(), best.k, lists_.copies}), best);
}

}  // namespace cfe
