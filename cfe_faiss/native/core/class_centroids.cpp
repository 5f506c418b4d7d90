#include "core/class_centroids.h"

#include <cassert>
#include <numeric>

#include "core/block_view.h"
#include "core/common.h"
#include "core/kernels.h"
#include "core/list_scan.h"

namespace cfe {

namespace {

constexpr std::size_t kAtOnce = 8;           // queries scored together
constexpr std::size_t kQueriesOfTask = 128;  // of a thread's task
constexpr std::size_t kMaximaForEach = 3;    // per list probed
constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr double kLongestMean = 1e16, kLargestLast = 1e32;  // of sound means: no score overflows
constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::min();

// Minimum of clusters to compare, and lists to compare for each list probed: comparing these takes about as long as
// scanning one list.
constexpr std::size_t kFewestClusters = 4;
constexpr std::int64_t kListsForEach = 64;

// From this number of lists and dimensions on, comparing bytes first is faster than comparing floats only.
constexpr std::size_t kListsForBytes = 256;
constexpr std::size_t kDimensionsForBytes = 32;

// If at least this share of all lists has a class mean, a complete run for the class is faster than replacing scores.
constexpr double kMost = 0.5;

template <class Number>
void at_least(std::vector<Number>& values, std::size_t size) {
  if (values.size() < size) values.resize(size);
}

}  // namespace

// --- changed lists ---

void ChangedLists::copy(const ChangedLists& other, std::size_t place, std::size_t length) {
  lists_.push_back(other.lists_[place]);
  for (std::size_t m = other.starts_[place]; m < other.starts_[place + 1]; ++m) {
    labels_.push_back(other.labels_[m]);
    filled_.push_back(other.filled_[m]);
    means_.insert(means_.end(), other.means_.begin() + static_cast<std::ptrdiff_t>(m * length),
                  other.means_.begin() + static_cast<std::ptrdiff_t>((m + 1) * length));
  }
  starts_.push_back(labels_.size());
}

void ChangedLists::add(const Rows& rows, std::size_t list, double small_share, std::span<const float> center) {
  rows.check_list(list);
  const std::size_t length = ranking_length(rows.metric(), rows.d()), first = labels_.size();
  const auto own = rows.labels_of(list);  // ascending
  const auto known = static_cast<std::size_t>(own.end() - std::upper_bound(own.begin(), own.end(), kUnknown));
  const auto add_mean = [&](std::int32_t label, bool filled) {
    labels_.push_back(label);
    filled_.push_back(filled);
  };
  add_mean(kUnknown, known > 0);
  for (auto run = own.end() - static_cast<std::ptrdiff_t>(known); run != own.end();) {
    const auto stop = std::upper_bound(run, own.end(), *run);
    const auto count = static_cast<std::size_t>(stop - run);
    if (static_cast<double>(count) > small_share * static_cast<double>(known)) add_mean(*run, count < known);
    run = stop;
  }
  means_.resize(labels_.size() * length, 0.0f);
  const Matrix<float> means{means_.data(), labels_.size(), length};
  write_centroids({{rows.view(), nullptr, nullptr, 0},
                   list,
                   std::span(labels_).subspan(first + 1),
                   center,
                   means[first],
                   means.part(first + 1, labels_.size())});
  lists_.push_back(static_cast<std::int64_t>(list));
  starts_.push_back(labels_.size());
}

ChangedLists ChangedLists::with(const Rows& rows, std::span<const std::int64_t> lists, double small_share,
                                std::span<const float> center) const {
  std::vector<bool> fresh(rows.nlist(), false);
  for (const std::int64_t list : lists) {
    require(list >= 0 && static_cast<std::size_t>(list) < rows.nlist(), "there is no such list");
    fresh[static_cast<std::size_t>(list)] = true;
  }
  ChangedLists result;
  result.places_.assign(rows.nlist(), -1);
  result.starts_.assign(1, 0);
  for (std::size_t list = 0; list < rows.nlist(); ++list) {
    const std::ptrdiff_t before = place_of(list);
    if (!fresh[list] && before < 0) continue;
    result.places_[list] = static_cast<std::int32_t>(result.size());
    if (fresh[list])
      result.add(rows, list, small_share, center);
    else
      result.copy(*this, static_cast<std::size_t>(before), ranking_length(rows.metric(), rows.d()));
  }
  return result;
}

void ChangedLists::score(std::span<const float> x, std::int32_t label, std::vector<std::int64_t>& wanted,
                         std::vector<float>& scores) const {
  at_least(wanted, size());
  at_least(scores, size());
  for (std::size_t c = 0; c < size(); ++c) {
    std::size_t mean = starts_[c];
    for (std::size_t m = starts_[c] + 1; m < starts_[c + 1]; ++m)
      if (labels_[m] == label) mean = m;
    wanted[c] = static_cast<std::int64_t>(mean);
  }
  kernels().dot_rows_as_blocks(x.data(), {means_.data(), labels_.size(), x.size()}, std::span(wanted).first(size()),
                               scores);
  for (std::size_t c = 0; c < size(); ++c)
    if (!filled_[static_cast<std::size_t>(wanted[c])]) scores[c] = kNothing;
}

// --- blocks ---

void ClassCentroids::check(const ListMeans& of, const ListClusters& clusters) const {
  const std::size_t lists = of.means.rows, number = of.lists.size();
  require(d() > 0 && length_ > 0, "d must be at least 1");
  require(origin_.size() == (metric_ == Metric::kCosine ? 0 : d()), "center must have d numbers, but none for cosine");
  require(of.filled.size() == lists, "filled must have one flag for each list");
  require(lists < (std::size_t{1} << 27), "there must be fewer than 2**27 lists");
  require(of.starts.size() == of.labels.size() + 1 && ascends(of.starts, number),
          "starts must run from 0 to the number of class means");
  require(std::is_sorted(of.labels.begin(), of.labels.end()), "labels must ascend");
  require(of.class_means.rows == number && of.class_means.columns == length_ && of.class_filled.size() == number,
          "each class mean must have a list and a flag");
  require(all_below(of.lists, lists), "class means must be of lists");
  for (std::size_t i = 0; i < of.labels.size(); ++i)
    require(std::is_sorted(of.lists.begin() + of.starts[i], of.lists.begin() + of.starts[i + 1]),
            "class means must ascend with their lists");
  if (clusters.means.rows == 0) return;
  require(clusters.means.columns == length_ && clusters.starts.size() == clusters.means.rows + 1 &&
              ascends(clusters.starts, lists) && clusters.lists.size() == lists,
          "clusters must hold all lists");
  require(all_below(clusters.lists, lists), "clusters must hold lists");
  std::vector<bool> seen(lists, false);
  for (const std::int64_t j : clusters.lists) seen[static_cast<std::size_t>(j)] = true;
  require(std::find(seen.begin(), seen.end(), false) == seen.end(), "clusters must hold each list once");
}

ClassCentroids::ClassCentroids(const ListMeans& of, const ListClusters& clusters)
    : metric_(of.metric),
      origin_(of.center.begin(), of.center.end()),
      length_(of.means.columns),
      labels_(of.labels.begin(), of.labels.end()) {
  check(of, clusters);
  const std::size_t lists = of.means.rows;
  std::vector<std::int64_t> order(clusters.lists.begin(), clusters.lists.end());
  std::vector<std::int64_t> starts(clusters.starts.begin(), clusters.starts.end());
  if (clusters.means.rows == 0) {
    order.resize(lists);
    std::iota(order.begin(), order.end(), 0);
    starts = {0, static_cast<std::int64_t>(lists)};
  }
  const std::span<const std::int64_t> all(order);
  clusters_of_.resize(lists);
  lanes_.resize(lists);
  for (std::size_t c = 0; c + 1 < starts.size(); ++c) {
    const auto first = static_cast<std::size_t>(starts[c]), number = static_cast<std::size_t>(starts[c + 1]) - first;
    add_run(of, all.subspan(first, number));
    cluster_sizes_.push_back(static_cast<std::int64_t>(number));
    for (std::size_t i = 0; i < number; ++i) {
      const auto j = static_cast<std::size_t>(order[first + i]);
      clusters_of_[j] = static_cast<std::int32_t>(c);
      lanes_[j] = static_cast<std::int64_t>(runs_.back().first * kLanes + i);
    }
  }
  cluster_means_.assign(clusters.means.data, clusters.means.data + clusters.means.size());
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    const auto first = static_cast<std::size_t>(of.starts[i]), last = static_cast<std::size_t>(of.starts[i + 1]);
    std::vector<std::int64_t> rows(last - first);
    std::iota(rows.begin(), rows.end(), static_cast<std::int64_t>(lists + first));
    runs_of_label_.push_back(runs_.size());
    whole_.push_back(static_cast<double>(rows.size()) >= kMost * static_cast<double>(lists));
    if (!whole_.back()) {
      add_run(of, rows);
      continue;
    }
    std::vector<std::int64_t> rows_of_lists(lists);
    std::iota(rows_of_lists.begin(), rows_of_lists.end(), 0);
    for (std::size_t e = first; e < last; ++e) rows_of_lists[static_cast<std::size_t>(of.lists[e])] = rows[e - first];
    for (std::size_t c = 0; c + 1 < starts.size(); ++c) {
      std::vector<std::int64_t> own;
      for (std::int64_t place = starts[c]; place < starts[c + 1]; ++place)
        own.push_back(rows_of_lists[static_cast<std::size_t>(order[static_cast<std::size_t>(place)])]);
      add_run(of, own);
    }
  }
  const std::size_t most = metric_ == Metric::kCosine ? kMostBytes : kMostOfAnyLength;
  by_bytes_ = kernels().has_bytes && lists >= kListsForBytes && d() >= kDimensionsForBytes && d() < most;
  if (by_bytes_) round_to_bytes();
}

ClassCentroids ClassCentroids::with_changes(const Rows& rows, std::span<const std::int64_t> lists,
                                            double small_share) const {
  require(rows.d() == d() && rows.metric() == metric_ && rows.nlist() == size(),
          "rows must be those of the lists, in one partition");
  ClassCentroids result = *this;
  result.changed_ = changed_.with(rows, lists, small_share, origin_);
  return result;
}

// Rows below the number of lists are means of lists; the others are class means. A damaged mean counts as zero, so that
// its list is ranked among the others.
void ClassCentroids::add_run(const ListMeans& of, std::span<const std::int64_t> rows) {
  const std::size_t number = padded(rows.size()) / kLanes, first = means_->lists.size() / kLanes;
  const std::size_t first_empty = empty_.size();
  means_->blocks.resize(means_->blocks.size() + number * kLanes * length_, 0.0f);
  means_->lists.resize(means_->lists.size() + number * kLanes, -1);
  for (std::size_t lane = 0; lane < number * kLanes; ++lane) {
    bool filled = false;
    if (lane < rows.size()) {
      const auto row = static_cast<std::size_t>(rows[lane]), lists = of.means.rows;
      const bool of_class = row >= lists;
      const auto x = of_class ? of.class_means[row - lists] : of.means[row];
      filled = of_class ? of.class_filled[row - lists] : of.filled[row];
      float* column = means_->blocks.data() + (first + lane / kLanes) * length_ * kLanes + lane % kLanes;
      const bool sound = kernels().norm(x.first(d())) <= kLongestMean && kernels().norm(x) <= kLargestLast;
      for (std::size_t i = 0; sound && i < length_; ++i) column[i * kLanes] = x[i];
      means_->lists[first * kLanes + lane] = static_cast<std::int32_t>(of_class ? of.lists[row - lists] : rows[lane]);
    }
    if (!filled) empty_.push_back(static_cast<std::int32_t>(first * kLanes + lane));
  }
  runs_.push_back({first, number, first_empty, empty_.size()});
}

void ClassCentroids::round_to_bytes() {
  const std::size_t blocks = means_->lists.size() / kLanes;
  means_->rows.resize(means_->lists.size() * length_);
  for (std::size_t lane = 0; lane < means_->lists.size(); ++lane)
    for (std::size_t i = 0; i < length_; ++i)
      means_->rows[lane * length_ + i] = means_->blocks[(lane / kLanes * length_ + i) * kLanes + lane % kLanes];
  center_.assign(d(), 0.0f);
  for (const std::int64_t lane : lanes_)
    for (std::size_t i = 0; i < d(); ++i) center_[i] += means_->rows[static_cast<std::size_t>(lane) * length_ + i];
  for (float& value : center_) value /= static_cast<float>(size());
  means_->bytes.resize(blocks * words() * kLanes);
  means_->statistics.resize(blocks * kMeanStatistics * kLanes);
  std::vector<float> buffer(d() * kLanes);
  kernels().encode_means(means_->blocks.data(), length_, center_,
                         {d(), words(), blocks, means_->bytes.data(), means_->statistics.data()}, buffer.data());
}

ByteMeans ClassCentroids::bytes_of(const Run& run) const {
  return {d(), words(), run.number, means_->bytes.data() + run.first * words() * kLanes,
          means_->statistics.data() + run.first * kMeanStatistics * kLanes};
}

void ClassCentroids::set_query(std::span<const float> x, Scratch& scratch) const {
  scratch.rest.assign(padded(d()), 0.0f);
  scratch.words.resize(words() * kLanes);
  scratch.query = kernels().encode_query(x.first(d()), center_, std::span(scratch.rest).first(d()), scratch.words);
  if (length_ > d()) scratch.query.last = x.back();
}

ClassCentroids::RunsOfLabel ClassCentroids::runs_of(std::int32_t label) const {
  const auto found = std::lower_bound(labels_.begin(), labels_.end(), label);
  if (found == labels_.end() || *found != label) return {0, nullptr};
  const auto place = static_cast<std::size_t>(found - labels_.begin());
  if (whole_[place]) return {runs_of_label_[place], nullptr};
  return {0, &runs_[runs_of_label_[place]]};
}

std::span<const float> ClassCentroids::blocks_of(const Run& run) const {
  return std::span(means_->blocks).subspan(run.first * length_ * kLanes, run.number * length_ * kLanes);
}

// --- scores ---

void ClassCentroids::clear_empty(const Run& run, float* scores) const {
  for (std::size_t e = run.first_empty; e < run.last_empty; ++e)
    scores[static_cast<std::size_t>(empty_[e]) - run.first * kLanes] = kNothing;
}

// Writes the scores of a run's lanes for some queries, `stride` apart, from index `at` on; or their bounds, for one
// query. -inf for empty lanes.
void ClassCentroids::score_run(const Matrix<const float>& X, const Run& run, std::size_t at, std::size_t stride,
                               Scratch& scratch) const {
  at_least(scratch.scores, at + (X.rows - 1) * stride + run.lanes());
  float* scores = scratch.scores.data() + at;
  if (scratch.by_bytes) {
    at_least(scratch.upper, at + run.lanes());
    float* upper = scratch.upper.data() + at;
    kernels().bound_means(bytes_of(run), scratch.query, scores, upper);
    clear_empty(run, upper);
  } else {
    kernels().dot_blocks(X, blocks_of(run), {scores, X.rows, stride});
  }
  for (std::size_t q = 0; q < X.rows; ++q) clear_empty(run, scores + q * stride);
}

// Replaces the score of a list in a chosen cluster, or its bounds. The scores of the query start at index `at`.
void ClassCentroids::replace(std::int64_t list, float lower, float upper, std::size_t at, Scratch& scratch) const {
  const auto j = static_cast<std::size_t>(list);
  const std::int64_t offset = scratch.offsets[static_cast<std::size_t>(clusters_of_[j])];
  if (offset == kFar) return;
  const std::size_t place = at + static_cast<std::size_t>(lanes_[j] + offset);
  scratch.scores[place] = lower;
  if (scratch.by_bytes) scratch.upper[place] = upper;
}

// Replaces the scores of lists with class means, `own`, and of changed lists, in the scores of a query from index `at`
// on. Overwrites everything from `end` on.
void ClassCentroids::replace_scores(std::span<const float> x, std::int32_t label, const Run* own, std::size_t at,
                                    std::size_t end, Scratch& scratch) const {
  if (own != nullptr) {
    score_run({x.data(), 1, length_}, *own, end, own->lanes(), scratch);
    const std::int32_t* lists = means_->lists.data() + own->first * kLanes;
    for (std::size_t lane = 0; lane < own->lanes() && lists[lane] >= 0; ++lane)
      replace(lists[lane], scratch.scores[end + lane], scratch.by_bytes ? scratch.upper[end + lane] : 0, at, scratch);
  }
  if (changed_.size() == 0) return;
  changed_.score(x, label, scratch.wanted, scratch.changed);
  for (std::size_t c = 0; c < changed_.size(); ++c)
    replace(changed_[c], scratch.changed[c], scratch.changed[c], at, scratch);
}

// Chooses the nearest clusters with enough lists. Offsets of other clusters become kFar.
void ClassCentroids::choose_clusters(std::span<const float> x, std::size_t nprobe, Scratch& scratch) const {
  const std::size_t number = cluster_sizes_.size();
  scratch.offsets.assign(number, kFar);
  scratch.clusters.clear();
  at_least(scratch.kept, number);
  const Matrix<const float> query{x.data(), 1, length_}, means{cluster_means_.data(), number, length_};
  const std::int64_t only = 0;
  for (std::int64_t c = 0; c < static_cast<std::int64_t>(number) && number > 1; ++c)
    kernels().row_scores(Metric::kIp, query, means, {&only, 1}, {&c, 1},
                         {&scratch.kept[static_cast<std::size_t>(c)], 1});
  const std::int64_t wanted = kListsForEach * static_cast<std::int64_t>(nprobe);
  for (std::int64_t lists = 0;
       scratch.clusters.size() < number && (scratch.clusters.size() < kFewestClusters || lists < wanted);) {
    std::ptrdiff_t nearest = -1;
    for (std::size_t c = 0; c < number; ++c)
      if (scratch.offsets[c] == kFar &&
          (nearest < 0 || scratch.kept[c] > scratch.kept[static_cast<std::size_t>(nearest)]))
        nearest = static_cast<std::ptrdiff_t>(c);
    scratch.offsets[static_cast<std::size_t>(nearest)] = 0;
    scratch.clusters.push_back(nearest);
    lists += cluster_sizes_[static_cast<std::size_t>(nearest)];
  }
}

// Writes the scores of the lists of the chosen clusters for some queries, or their bounds, run by run, and the block
// number of each of their blocks. `first` is the run of the first cluster. Returns the number of scores of a query.
std::size_t ClassCentroids::score_clusters(const Matrix<const float>& X, std::size_t first, Scratch& scratch) const {
  scratch.blocks.clear();
  for (const std::int64_t c : scratch.clusters) {
    const Run& run = runs_[first + static_cast<std::size_t>(c)];
    for (std::size_t b = 0; b < run.number; ++b) scratch.blocks.push_back(static_cast<std::int64_t>(run.first + b));
  }
  const std::size_t width = scratch.blocks.size() * kLanes;
  std::size_t at = 0;
  for (const std::int64_t cluster : scratch.clusters) {
    const auto c = static_cast<std::size_t>(cluster);
    score_run(X, runs_[first + c], at, width, scratch);
    scratch.offsets[c] = static_cast<std::int64_t>(at) - static_cast<std::int64_t>(runs_[c].first * kLanes);
    at += runs_[first + c].lanes();
  }
  return width;
}

// Scores the means behind some lanes, scratch.lanes. The class means of the run `own` and changed lists replace them.
void ClassCentroids::score_lanes(std::span<const float> x, const Run* own, std::size_t number, Scratch& scratch) const {
  // Class means ascend with their lists. Lanes without a list, -1, follow.
  const auto before = [](std::int32_t a, std::int32_t b) {
    return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);
  };
  for (std::size_t c = 0; c < number && own != nullptr; ++c) {
    const std::int32_t *first = means_->lists.data() + own->first * kLanes, *last = first + own->lanes();
    const auto list = static_cast<std::int32_t>(scratch.ids[c]);
    const auto found = std::lower_bound(first, last, list, before);
    if (found != last && *found == list) scratch.lanes[c] = found - means_->lists.data();
  }
  kernels().dot_rows_as_blocks(x.data(), {means_->rows.data(), means_->lists.size(), length_},
                               std::span(scratch.lanes).first(number), scratch.kept);
  for (std::size_t c = 0; c < number && changed_.size() > 0; ++c) {
    const std::ptrdiff_t changed = changed_.place_of(static_cast<std::size_t>(scratch.ids[c]));
    if (changed >= 0) scratch.kept[c] = scratch.changed[static_cast<std::size_t>(changed)];
  }
}

// Writes the best lists, given their scores, or bounds, from index `at` on: 16 for each of scratch.blocks.
void ClassCentroids::choose(std::span<const float> x, const Run* own, std::size_t at, std::span<std::int64_t> lists,
                            Scratch& scratch) const {
  const std::size_t width = scratch.blocks.size() * kLanes;
  const auto lower = std::span<const float>(scratch.scores).subspan(at, width);
  const auto upper = scratch.by_bytes ? std::span<const float>(scratch.upper).subspan(at, width) : lower;
  scratch.maxima.resize(padded(kMaximaForEach * lists.size()));
  at_least(scratch.places, width);
  const std::size_t number = kernels().near_best(lower, upper, lists.size(), scratch.maxima, scratch.places);
  at_least(scratch.kept, padded(number));
  at_least(scratch.ids, number);
  at_least(scratch.lanes, number);
  for (std::size_t c = 0; c < number; ++c) {
    const auto place = static_cast<std::size_t>(scratch.places[c]);
    const std::int64_t lane = scratch.blocks[place / kLanes] * kLanes + static_cast<std::int64_t>(place % kLanes);
    scratch.lanes[c] = lane;
    scratch.ids[c] = means_->lists[static_cast<std::size_t>(lane)];
    scratch.kept[c] = lower[place];
  }
  if (scratch.by_bytes) score_lanes(x, own, number, scratch);
  at_least(scratch.memory, memory_of_best(number));
  const std::size_t written = kernels().best_scores(scratch.kept.data(), scratch.ids.data(), number, lists.size(), 1,
                                                    scratch.memory.data(), nullptr, lists.data());
  std::fill(lists.begin() + static_cast<std::ptrdiff_t>(written), lists.end(), std::int64_t{-1});
}

// Writes the query, and the number that means have in addition.
void ClassCentroids::extend(std::span<const float> x, std::span<float> extended) const {
  std::ranges::copy(x, extended.begin());
  if (metric_ == Metric::kCosine) return;
  for (std::size_t i = 0; i < x.size(); ++i) extended[i] -= origin_[i];
  extended.back() = metric_ == Metric::kL2 ? 1.0f : static_cast<float>(kernels().norm(x));
}

// Ranks lists for some rows of X that are compared with the same means: only one if there are several clusters.
void ClassCentroids::rank_together(const Matrix<const float>& X, std::span<const std::int32_t> labels,
                                   std::span<const std::size_t> queries, const Matrix<std::int64_t>& lists,
                                   Scratch& scratch) const {
  const std::size_t nq = queries.size();
  at_least(scratch.queries, nq * length_);
  const Matrix<float> extended{scratch.queries.data(), nq, length_};
  for (std::size_t q = 0; q < nq; ++q) extend(X[queries[q]], extended[q]);
  choose_clusters(extended[0], lists.columns, scratch);
  scratch.by_bytes = nq == 1 && compares_bytes(lists.columns);
  if (scratch.by_bytes) set_query(extended[0], scratch);
  const std::size_t width = score_clusters(extended, runs_of(labels[queries[0]]).first, scratch);
  for (std::size_t q = 0; q < nq; ++q) {
    const std::int32_t label = labels[queries[q]];
    const Run* own = runs_of(label).own;
    replace_scores(extended[q], label, own, q * width, nq * width, scratch);
    choose(extended[q], own, q * width, lists[queries[q]], scratch);
  }
}

void ClassCentroids::rank(std::span<const float> x, std::int32_t label, std::span<std::int64_t> lists,
                          Scratch& scratch) const {
  assert(x.size() == d() && lists.size() <= size());
  const std::size_t only = 0;
  if (size() > 0)
    rank_together({x.data(), 1, x.size()}, {&label, 1}, {&only, 1}, {lists.data(), 1, lists.size()}, scratch);
}

void ClassCentroids::rank(const Matrix<const float>& X, std::span<const std::int32_t> labels,
                          const Matrix<std::int64_t>& lists, int threads, const Watch& watch) const {
  assert(X.columns == d() && labels.size() == X.rows && lists.rows == X.rows);
  if (size() == 0) return;
  const bool together = cluster_sizes_.size() == 1 && !compares_bytes(lists.columns);
  const std::size_t at_once = together ? kAtOnce : 1;
  // The first run of each query. Queries of the same run are consecutive in `order`.
  std::vector<std::size_t> order(X.rows), runs(X.rows);
  for (std::size_t q = 0; q < X.rows; ++q) runs[q] = runs_of(labels[q]).first;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t q) { return runs[q]; });
  const auto in_batches = [&](std::size_t first, std::size_t stop) {
    Scratch scratch;
    for (std::size_t last; first < stop; first = last) {
      last = first + 1;
      while (last < stop && last - first < at_once && runs[order[last]] == runs[order[first]]) ++last;
      rank_together(X, labels, std::span(order).subspan(first, last - first), lists, scratch);
    }
  };
  parallel_runs(X.rows, kQueriesOfTask, threads, in_batches, watch);
}

}  // namespace cfe
