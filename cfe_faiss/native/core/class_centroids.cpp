#include "core/class_centroids.h"

#include <cassert>
#include <cmath>
#include <numeric>

#include "core/block_view.h"
#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kAtOnce = 8;           // queries scored together
constexpr std::size_t kQueriesOfTask = 128;  // of a thread's task
constexpr std::size_t kMaximaForEach = 3;    // per list probed
constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kLargest = 1e6f;  // component of a valid mean
constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::min();

// Minimum of clusters to compare, and lists to compare for each list probed: comparing these takes about as long as
// scanning one list.
constexpr std::size_t kFewestClusters = 4;
constexpr std::int64_t kListsForEach = 64;

// From this number of lists and dimensions on, comparing bytes first is faster than comparing floats only.
constexpr std::size_t kListsForBytes = 256;
constexpr std::size_t kDimensionsForBytes = 32;
constexpr std::size_t kListsOfAll = 6;  // with nprobe above a sixth of all lists, bytes exclude too few

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
  std::vector<float*> class_means;
  for (std::size_t m = first + 1; m < labels_.size(); ++m) class_means.push_back(means_.data() + m * length);
  std::vector<float> x(rows.d()), counts(class_means.size() + 1);
  const ListsView lists{rows.view(), nullptr, nullptr, 0};
  kernels().list_centroids({lists, list, std::span(labels_).subspan(first + 1), center.data(),
                            means_.data() + first * length, class_means.data(), counts.data()},
                           x.data());
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
  kernels().dot_rows_as_blocks(x, {means_.data(), labels_.size(), x.size()}, std::span(wanted).first(size()), scores);
  for (std::size_t c = 0; c < size(); ++c)
    if (!filled_[static_cast<std::size_t>(wanted[c])]) scores[c] = kNothing;
}

// --- blocks ---

std::size_t ClassCentroids::Run::lanes() const { return number * kLanes; }

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
  // The last number of other means is of another size, which bytes do not take.
  by_bytes_ = metric_ == Metric::kCosine && kernels().has_bytes && lists >= kListsForBytes &&
              length_ >= kDimensionsForBytes && length_ < kMostBytes;
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

// Rows below the number of lists are means of lists; the others are class means.
void ClassCentroids::add_run(const ListMeans& of, std::span<const std::int64_t> rows) {
  const std::size_t number = padded(rows.size()) / kLanes, first = lists_.size() / kLanes;
  const std::size_t first_empty = empty_.size();
  blocks_.written().resize(blocks_.size() + number * kLanes * length_, 0.0f);
  lists_.written().resize(lists_.size() + number * kLanes, -1);
  for (std::size_t lane = 0; lane < number * kLanes; ++lane) {
    bool filled = false;
    if (lane < rows.size()) {
      const auto row = static_cast<std::size_t>(rows[lane]), lists = of.means.rows;
      const bool of_class = row >= lists;
      const auto x = of_class ? of.class_means[row - lists] : of.means[row];
      filled = of_class ? of.class_filled[row - lists] : of.filled[row];
      float* column = blocks_.written().data() + (first + lane / kLanes) * length_ * kLanes + lane % kLanes;
      for (std::size_t i = 0; i < length_; ++i) column[i * kLanes] = x[i];
      lists_.written()[first * kLanes + lane] =
          static_cast<std::int32_t>(of_class ? of.lists[row - lists] : rows[lane]);
    }
    if (!filled) empty_.push_back(static_cast<std::int32_t>(lane));
  }
  runs_.push_back({first, number, first_empty, empty_.size()});
}

// The mean of all valid means.
void ClassCentroids::set_center() {
  center_.assign(length_, 0.0f);
  float number = 0;
  for (std::size_t j = 0; j < size(); ++j) {
    const float* column = blocks_.data() + static_cast<std::size_t>(lanes_[j]) / kLanes * length_ * kLanes +
                          static_cast<std::size_t>(lanes_[j]) % kLanes;
    bool sound = true;
    for (std::size_t i = 0; i < length_; ++i) sound &= std::abs(column[i * kLanes]) <= kLargest;
    if (!sound) continue;
    for (std::size_t i = 0; i < length_; ++i) center_[i] += column[i * kLanes];
    ++number;
  }
  for (float& value : center_) value /= std::max(number, 1.0f);
}

void ClassCentroids::round_to_bytes() {
  set_center();
  const std::size_t blocks = lists_.size() / kLanes, words = (length_ + 3) / 4;
  bytes_.written().resize(blocks * words * kLanes);
  statistics_.written().resize(blocks * kMeanStatistics * kLanes);
  rows_.written().resize(lists_.size() * length_);
  std::vector<float> buffer(length_ * kLanes);
  kernels().encode_means(blocks_.data(), center_,
                         {words, blocks, bytes_.written().data(), statistics_.written().data()}, buffer.data());
  for (std::size_t lane = 0; lane < lists_.size(); ++lane)
    for (std::size_t i = 0; i < length_; ++i)
      rows_.written()[lane * length_ + i] = blocks_[(lane / kLanes * length_ + i) * kLanes + lane % kLanes];
}

ByteMeans ClassCentroids::bytes_of(const Run& run) const {
  const std::size_t words = (length_ + 3) / 4;
  return {words, run.number, bytes_.data() + run.first * words * kLanes,
          statistics_.data() + run.first * kMeanStatistics * kLanes};
}

// The index of a label with class means, else -1.
std::ptrdiff_t ClassCentroids::place_of(std::int32_t label) const {
  const auto found = std::lower_bound(labels_.begin(), labels_.end(), label);
  return found != labels_.end() && *found == label ? found - labels_.begin() : -1;
}

std::span<const float> ClassCentroids::blocks_of(const Run& run) const {
  return std::span(blocks_).subspan(run.first * length_ * kLanes, run.number * length_ * kLanes);
}

// Writes the score of each row of X and each lane of a run; -inf for empty lanes.
void ClassCentroids::multiply(const Matrix<const float>& X, const Run& run, const Matrix<float>& scores) const {
  assert(scores.rows >= X.rows && scores.columns >= run.lanes());
  kernels().dot_blocks(X, blocks_of(run), scores);
  for (std::size_t q = 0; q < X.rows; ++q)
    for (std::size_t e = run.first_empty; e < run.last_empty; ++e)
      scores.data[q * scores.columns + static_cast<std::size_t>(empty_[e])] = kNothing;
}

// Finds the nearest clusters with enough lists and returns their number. Offsets of other clusters become kFar.
std::size_t ClassCentroids::nearest_clusters(std::span<const float> x, std::size_t nprobe, Scratch& scratch) const {
  const std::size_t number = cluster_sizes_.size();
  scratch.offsets.assign(number, kFar);
  scratch.clusters.clear();
  at_least(scratch.kept, number);
  for (std::size_t c = 0; c < number; ++c)
    kernels().pair_similarities(x.data(), cluster_means_.data() + c * length_, length_,
                                std::span(scratch.kept).subspan(c, 1));
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
  return scratch.clusters.size();
}

// Replaces scores of lists by scores of their class means.
void ClassCentroids::score_class(std::span<const float> x, std::size_t place, std::span<float> scores,
                                 Scratch& scratch) const {
  const Run& run = runs_[runs_of_label_[place]];
  at_least(scratch.kept, run.lanes());
  multiply({x.data(), 1, length_}, run, {scratch.kept.data(), 1, run.lanes()});
  for (std::size_t lane = 0; lane < run.lanes(); ++lane) {
    const std::int32_t j = lists_[run.first * kLanes + lane];
    if (j < 0) break;
    const auto list = static_cast<std::size_t>(j);
    const std::int64_t offset = scratch.offsets[static_cast<std::size_t>(clusters_of_[list])];
    if (offset != kFar) scores[static_cast<std::size_t>(lanes_[list] + offset)] = scratch.kept[lane];
  }
}

void ClassCentroids::set_query(std::span<const float> x, Scratch& scratch) const {
  scratch.queries.assign(padded(length_), 0.0f);
  scratch.words.resize((length_ + 3) / 4 * kLanes);
  scratch.query = kernels().encode_query(x, center_, std::span(scratch.queries).first(length_), scratch.words);
}

// Writes bounds of the scores of a run's lanes, and the numbers of these lanes, from index `at` on.
void ClassCentroids::bound_run(const Run& run, std::size_t at, Scratch& scratch) const {
  at_least(scratch.scores, at + run.lanes());
  at_least(scratch.upper, at + run.lanes());
  at_least(scratch.lanes, at + run.lanes());
  float *lower = scratch.scores.data() + at, *upper = scratch.upper.data() + at;
  kernels().bound_means(bytes_of(run), scratch.query, lower, upper);
  for (std::size_t e = run.first_empty; e < run.last_empty; ++e) {
    const auto lane = static_cast<std::size_t>(empty_[e]);
    lower[lane] = upper[lane] = kNothing;
  }
  for (std::size_t lane = 0; lane < run.lanes(); ++lane)
    scratch.lanes[at + lane] = static_cast<std::int64_t>(run.first * kLanes + lane);
}

// Like score_class, for bounds. Overwrites everything after the first `width`.
void ClassCentroids::bound_class(std::size_t place, std::size_t width, Scratch& scratch) const {
  const Run& run = runs_[runs_of_label_[place]];
  bound_run(run, width, scratch);
  for (std::size_t lane = 0; lane < run.lanes(); ++lane) {
    const std::int32_t j = lists_[run.first * kLanes + lane];
    if (j < 0) break;
    const auto list = static_cast<std::size_t>(j);
    const std::int64_t offset = scratch.offsets[static_cast<std::size_t>(clusters_of_[list])];
    if (offset == kFar) continue;
    const auto to = static_cast<std::size_t>(lanes_[list] + offset), from = width + lane;
    scratch.scores[to] = scratch.scores[from];
    scratch.upper[to] = scratch.upper[from];
    scratch.lanes[to] = scratch.lanes[from];
  }
}

// Replaces the scores, or bounds, of changed lists in the chosen clusters.
void ClassCentroids::score_changed(std::span<const float> x, std::int32_t label, std::span<float> lower,
                                   std::span<float> upper, Scratch& scratch) const {
  changed_.score(x, label, scratch.wanted, scratch.changed);
  for (std::size_t c = 0; c < changed_.size(); ++c) {
    const auto list = static_cast<std::size_t>(changed_[c]);
    const std::int64_t offset = scratch.offsets[static_cast<std::size_t>(clusters_of_[list])];
    if (offset == kFar) continue;
    const auto lane = static_cast<std::size_t>(lanes_[list] + offset);
    lower[lane] = upper[lane] = scratch.changed[c];
  }
}

// Writes the scores of the lists of some clusters, or their bounds, run by run, and the block number of each of their
// blocks.
void ClassCentroids::score_clusters(std::span<const float> x, std::ptrdiff_t place, std::size_t clusters,
                                    Scratch& scratch) const {
  const bool whole = place >= 0 && whole_[static_cast<std::size_t>(place)];
  const std::size_t first_run = whole ? runs_of_label_[static_cast<std::size_t>(place)] : 0;
  scratch.blocks.clear();
  std::size_t width = 0;
  for (std::size_t i = 0; i < clusters; ++i) {
    const auto c = static_cast<std::size_t>(scratch.clusters[i]);
    const Run& run = runs_[first_run + c];
    if (scratch.by_bytes) {
      bound_run(run, width, scratch);
    } else {
      at_least(scratch.scores, width + run.lanes());
      multiply({x.data(), 1, length_}, run, {scratch.scores.data() + width, 1, run.lanes()});
    }
    scratch.offsets[c] = static_cast<std::int64_t>(width) - static_cast<std::int64_t>(runs_[c].first * kLanes);
    for (std::size_t b = 0; b < run.number; ++b) scratch.blocks.push_back(static_cast<std::int64_t>(run.first + b));
    width += run.lanes();
  }
  if (place < 0 || whole) return;
  if (scratch.by_bytes)
    bound_class(static_cast<std::size_t>(place), width, scratch);
  else
    score_class(x, static_cast<std::size_t>(place), std::span(scratch.scores).first(width), scratch);
}

// Writes the best of some lists, scratch.ids, by their scores, scratch.kept.
void ClassCentroids::write_best(std::size_t number, std::span<std::int64_t> lists, Scratch& scratch) const {
  at_least(scratch.kept, padded(number));
  at_least(scratch.memory, memory_of_best(number));
  const std::size_t written = kernels().best_scores(scratch.kept.data(), scratch.ids.data(), number, lists.size(), 1,
                                                    scratch.memory.data(), nullptr, lists.data());
  std::fill(lists.begin() + static_cast<std::ptrdiff_t>(written), lists.end(), std::int64_t{-1});
}

// Writes the best of the lists in some blocks; `scores` has 16 numbers for each block.
void ClassCentroids::choose(std::span<const float> scores, std::span<const std::int64_t> blocks,
                            std::span<std::int64_t> lists, Scratch& scratch) const {
  scratch.maxima.resize(padded(kMaximaForEach * lists.size()));
  at_least(scratch.places, scores.size());
  const std::size_t number = kernels().near_best(scores, scores, lists.size(), scratch.maxima, scratch.places);
  at_least(scratch.kept, padded(number));
  at_least(scratch.ids, number);
  for (std::size_t c = 0; c < number; ++c) {
    const auto place = static_cast<std::size_t>(scratch.places[c]);
    scratch.kept[c] = scores[place];
    scratch.ids[c] = lists_[static_cast<std::size_t>(blocks[place / kLanes]) * kLanes + place % kLanes];
  }
  write_best(number, lists, scratch);
}

// Writes the best lists, given bounds of their scores.
void ClassCentroids::choose_by_bounds(std::span<const float> x, std::size_t width, std::span<std::int64_t> lists,
                                      Scratch& scratch) const {
  scratch.maxima.resize(padded(kMaximaForEach * lists.size()));
  at_least(scratch.places, width);
  const std::size_t open =
      kernels().near_best(std::span(scratch.scores).first(width), std::span(scratch.upper).first(width), lists.size(),
                          scratch.maxima, scratch.places);
  at_least(scratch.kept, padded(open));
  at_least(scratch.ids, open);
  for (std::size_t c = 0; c < open; ++c) scratch.ids[c] = scratch.lanes[static_cast<std::size_t>(scratch.places[c])];
  kernels().dot_rows_as_blocks(x, {rows_.data(), lists_.size(), length_}, std::span(scratch.ids).first(open),
                               scratch.kept);
  std::size_t number = 0;
  for (std::size_t c = 0; c < open; ++c) {
    const std::int64_t list = lists_[static_cast<std::size_t>(scratch.ids[c])];
    const std::ptrdiff_t changed = changed_.place_of(static_cast<std::size_t>(list));
    const float score = changed >= 0 ? scratch.changed[static_cast<std::size_t>(changed)] : scratch.kept[c];
    if (!(score > kNothing)) continue;  // damaged mean
    scratch.kept[number] = score;
    scratch.ids[number++] = list;
  }
  write_best(number, lists, scratch);
}

// The query with the number that means have in addition, in `memory`, (length,).
std::span<const float> ClassCentroids::extended(std::span<const float> x, std::span<float> memory) const {
  if (metric_ == Metric::kCosine) return x;
  for (std::size_t i = 0; i < x.size(); ++i) memory[i] = x[i] - origin_[i];
  memory[x.size()] = metric_ == Metric::kL2 ? 1.0f : static_cast<float>(kernels().norm(x));
  return memory.first(length_);
}

void ClassCentroids::rank(std::span<const float> x, std::int32_t label, std::span<std::int64_t> lists,
                          Scratch& scratch) const {
  assert(x.size() == d());
  at_least(scratch.extended, length_);
  rank_extended(extended(x, scratch.extended), label, lists, scratch);
}

void ClassCentroids::rank_extended(std::span<const float> x, std::int32_t label, std::span<std::int64_t> lists,
                                   Scratch& scratch) const {
  assert(lists.size() <= size());
  if (size() == 0) return;
  std::size_t clusters = 1;
  if (cluster_means_.empty()) {
    scratch.clusters.assign(1, 0);
    scratch.offsets.assign(1, 0);
  } else {
    clusters = nearest_clusters(x, lists.size(), scratch);
  }
  scratch.by_bytes = by_bytes_ && lists.size() <= size() / kListsOfAll;
  if (scratch.by_bytes) set_query(x, scratch);
  score_clusters(x, place_of(label), clusters, scratch);
  const std::size_t width = kLanes * scratch.blocks.size();
  if (changed_.size() > 0)
    score_changed(x, label, scratch.scores, scratch.by_bytes ? scratch.upper : scratch.scores, scratch);
  if (scratch.by_bytes) return choose_by_bounds(x, width, lists, scratch);
  choose(std::span(scratch.scores).first(width), scratch.blocks, lists, scratch);
}

// --- many queries ---

// Writes the scores of all lists, (queries, lanes), for queries that are compared with the same means.
void ClassCentroids::score_batch(const Matrix<const float>& X, std::span<const std::int32_t> labels,
                                 std::span<const std::size_t> queries, Scratch& scratch) const {
  const std::size_t clusters = cluster_sizes_.size();
  const Run& last = runs_[clusters - 1];
  const std::size_t width = (last.first + last.number) * kLanes;
  const std::ptrdiff_t place = place_of(labels[queries[0]]);
  const bool whole = place >= 0 && whole_[static_cast<std::size_t>(place)];
  const Run& first = runs_[whole ? runs_of_label_[static_cast<std::size_t>(place)] : 0];
  // The runs of all clusters are consecutive.
  const Run all{first.first, width / kLanes, first.first_empty, first.first_empty};
  at_least(scratch.queries, queries.size() * length_);
  const Matrix<float> arranged{scratch.queries.data(), queries.size(), length_};
  for (std::size_t q = 0; q < queries.size(); ++q) {
    const auto x = extended(X[queries[q]], arranged[q]);
    if (x.data() != arranged[q].data()) std::ranges::copy(x, arranged[q].begin());
  }
  at_least(scratch.scores, queries.size() * width);
  const Matrix<float> scores{scratch.scores.data(), queries.size(), width};
  multiply(arranged, all, scores);
  scratch.offsets.assign(clusters, 0);
  for (std::size_t q = 0; q < queries.size(); ++q) {
    const auto own = scores[q];
    for (std::size_t c = 0; c < clusters; ++c) {
      const Run& run = runs_[static_cast<std::size_t>(&first - runs_.data()) + c];
      for (std::size_t e = run.first_empty; e < run.last_empty; ++e)
        own[(run.first - first.first) * kLanes + static_cast<std::size_t>(empty_[e])] = kNothing;
    }
    const std::ptrdiff_t of_label = whole ? -1 : place_of(labels[queries[q]]);
    if (of_label >= 0) score_class(arranged[q], static_cast<std::size_t>(of_label), own, scratch);
    if (changed_.size() > 0) score_changed(arranged[q], labels[queries[q]], own, own, scratch);
  }
}

// Calls take(query, scores, scratch) for each row of X.
template <class Take>
void ClassCentroids::in_batches(const Matrix<const float>& X, std::span<const std::int32_t> labels, int threads,
                                const Watch& watch, const Take& take) const {
  if (size() == 0) return;
  // The first run of each query. Queries of the same run are consecutive in `order`.
  std::vector<std::size_t> order(X.rows), runs(X.rows);
  for (std::size_t q = 0; q < X.rows; ++q) {
    const std::ptrdiff_t place = place_of(labels[q]);
    runs[q] =
        place >= 0 && whole_[static_cast<std::size_t>(place)] ? runs_of_label_[static_cast<std::size_t>(place)] : 0;
  }
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return runs[a] < runs[b]; });
  const std::size_t tasks = (X.rows + kQueriesOfTask - 1) / kQueriesOfTask;
  parallel_for(
      tasks, threads,
      [&](std::size_t task) {
        Scratch scratch;
        const std::size_t stop = std::min((task + 1) * kQueriesOfTask, X.rows);
        for (std::size_t first = task * kQueriesOfTask; first < stop;) {
          std::size_t last = first + 1;
          while (last < stop && last - first < kAtOnce && runs[order[last]] == runs[order[first]]) ++last;
          const auto queries = std::span<const std::size_t>(order).subspan(first, last - first);
          score_batch(X, labels, queries, scratch);
          const std::size_t width =
              (runs_[cluster_sizes_.size() - 1].first + runs_[cluster_sizes_.size() - 1].number) * kLanes;
          for (std::size_t q = 0; q < queries.size(); ++q)
            take(queries[q], std::span(scratch.scores).subspan(q * width, width), scratch);
          first = last;
        }
      },
      watch);
}

void ClassCentroids::rank(const Matrix<const float>& X, std::span<const std::int32_t> labels,
                          const Matrix<std::int64_t>& lists, int threads, const Watch& watch) const {
  assert(X.columns == d() && labels.size() == X.rows && lists.rows == X.rows);
  if (!cluster_means_.empty() || X.rows == 1) {
    const std::size_t tasks = (X.rows + kQueriesOfTask - 1) / kQueriesOfTask;
    parallel_for(
        tasks, threads,
        [&](std::size_t task) {
          Scratch scratch;
          for (std::size_t q = task * kQueriesOfTask; q < std::min((task + 1) * kQueriesOfTask, X.rows); ++q)
            rank(X[q], labels[q], lists[q], scratch);
        },
        watch);
    return;
  }
  std::vector<std::int64_t> blocks(runs_[0].number);
  std::iota(blocks.begin(), blocks.end(), 0);
  in_batches(X, labels, threads, watch, [&](std::size_t q, std::span<const float> scores, Scratch& scratch) {
    choose(scores, blocks, lists[q], scratch);
  });
}

void ClassCentroids::write_all(std::span<const float> scores, std::span<std::int64_t> lists, Scratch& scratch) const {
  scratch.ids.clear();
  for (std::size_t j = 0; j < lists.size(); ++j)
    if (scores[static_cast<std::size_t>(lanes_[j])] > kNothing) scratch.ids.push_back(static_cast<std::int64_t>(j));
  std::stable_sort(scratch.ids.begin(), scratch.ids.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(lanes_[static_cast<std::size_t>(a)])] >
           scores[static_cast<std::size_t>(lanes_[static_cast<std::size_t>(b)])];
  });
  std::fill(std::copy(scratch.ids.begin(), scratch.ids.end(), lists.begin()), lists.end(), std::int64_t{-1});
}

void ClassCentroids::rank_all(const Matrix<const float>& X, std::span<const std::int32_t> labels,
                              const Matrix<std::int64_t>& lists, int threads, const Watch& watch) const {
  assert(X.columns == d() && labels.size() == X.rows && lists.rows == X.rows && lists.columns <= size());
  in_batches(X, labels, threads, watch, [&](std::size_t q, std::span<const float> scores, Scratch& scratch) {
    write_all(scores, lists[q], scratch);
  });
}

}  // namespace cfe
