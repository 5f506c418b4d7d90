#include "core/blocks.h"

#include <bit>
#include <cmath>

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kListsAtOnce = 16;
constexpr std::size_t kGroupsAtOnce = 16;        // between two calls of a watch
constexpr std::size_t kBoundedAtOnce = 1 << 12;  // blocks of bits whose bounds are kept at a time
constexpr float kByteMargin = 8;  // roundings: of q·c, of q·x', of the norms, and in the final comparison

// Bounds the error of rotating a vector of length 1 in float32: the classical bound of a product of d terms (Higham,
// Accuracy and Stability of Numerical Algorithms, section 3.5), for d products with float32 columns of length 1.
float rotation_error(std::size_t d) {
  const auto terms = static_cast<double>(d);
  return static_cast<float>((terms + 16) * 0x1p-24 * std::sqrt(terms));
}

// Bounds all errors of comparing a float32 product of unit vectors with a threshold, for d up to kMostDimensions. With
// u = 2^-24, lengths are at most 1 + 3e-7 < 1 + 5.04 u (see kernels/normalise.h), and
//
//   |fl(x·y) - x·y| <= d u / (1 - d u) |x| |y|    at most d roundings of each term, in any order (Higham, section 3.1)
//                   <= d u + 1.003 u              since d^2 u^2 <= u and 10.1 d u^2 <= 0.0025 u
//   |similarity - x·y| <= 1.00001 u               a sum in float64, rounded once
//   rounding of the threshold <= u                since it is below 2
//
// which together is less than (d + 4) u. A bound that k products reach is lowered by twice this margin: once for these
// products and once for the one that is compared.
constexpr std::size_t kMostDimensions = 4096;
float unit_margin(std::size_t d) { return static_cast<float>(d + 4) * 0x1p-24f; }

constexpr std::size_t kBitColumns = 64;              // a multiple of them are the dimensions of a row in bits
constexpr std::uint64_t kSeed = 0x9E3779B97F4A7C15;  // of signs

std::size_t words_of(Element element, std::size_t d) {
  if (element == Element::kBit) return (d + kBitColumns - 1) / kBitColumns * (kBitColumns / 32);
  return element == Element::kByte ? (d + 3) / 4 : d;
}

// Exceeds the relative error of a score and of sums of d terms that bound it; see rows/metric.py, relative_error.
float relative_margin(std::size_t d) { return 1.05f * static_cast<float>(d + 16) * 0x1p-24f; }

}  // namespace

Blocks::Blocks(const Rows& rows, const BlocksOptions& options, const Watch& watch)
    : rows_(rows),
      element_(options.element),
      words_(words_of(options.element, rows.d())),
      prefix_(words_),
      columns_(options.element == Element::kBit ? 32 * words_ : padded(rows.d())),
      margin_(options.rounding_error) {
  require(options.element != Element::kByte || kernels().has_bytes, "bytes are not multiplied by this processor");
  const bool unit = rows.metric() == Metric::kCosine;
  require(options.element != Element::kByte || rows.d() < (unit ? kMostBytes : kMostOfAnyLength),
          "bytes must be fewer than 2**24 in a unit row, and than 2**13 in others");
  require(options.element != Element::kBit || rows.d() <= kMostBits, "bits must be at most 2**12 in a row");
  require(options.allowed.empty() || options.allowed.size() == rows.size(), "allowed must have one value for each row");
  if (options.element != Element::kFloat && !unit)
    margin_ = relative_margin(rows.d());
  else if (options.element == Element::kByte)
    margin_ *= kByteMargin;
  else if (unit && rows.codec() == Codec::kFlat && rows.d() <= kMostDimensions)
    margin_ = std::min(margin_, unit_margin(rows.d()));
  if (options.element == Element::kBit) set_signs();
  set_rotation(options);
  set_center(options);
  lay_out(options);
  allocate();
  const auto pack_some = [&](std::size_t first, std::size_t stop) {
    AlignedVector<float> memory(2 * columns_ * kBlockRows + columns_);
    const PackMemory parts{memory.data(), memory.data() + columns_ * kBlockRows,
                           memory.data() + 2 * columns_ * kBlockRows};
    for (std::size_t list = first; list < stop; ++list) pack(list, options, parts);
  };
  parallel_runs(lists(), kListsAtOnce, options.threads, pack_some, watch);
}

std::size_t Blocks::row_statistics() const {
  constexpr std::size_t numbers[] = {0, kRowStatistics, kEstimateStatistics};
  return numbers[static_cast<std::size_t>(element_)];
}

// Random signs, the same for all blocks of a dimension, divided by the length that a transform gives.
void Blocks::set_signs() {
  prefix_ = std::bit_floor(columns_);
  rotation_ = AlignedVector<float>(kSignRounds * columns_);
  const float scale = 1 / std::sqrt(static_cast<float>(prefix_));
  std::uint64_t random = kSeed;
  for (std::size_t i = 0; i < rotation_.size(); ++i) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;  // xorshift (Marsaglia, 2003)
    const std::size_t round = i / columns_, first = round % 2 == 0 ? 0 : columns_ - prefix_;
    const std::size_t place = i % columns_ - first;
    rotation_[i] = (random >> 63 != 0 ? 1.0f : -1.0f) * (place < prefix_ ? scale : 1.0f);
  }
}

void Blocks::set_rotation(const BlocksOptions& options) {
  const std::size_t d = rows_.d();
  if (options.rotation.rows == 0) return;
  require(element_ == Element::kByte, "only bytes are rotated");
  require(options.rotation.rows == d && options.rotation.columns == d, "rotation must have d rows and columns");
  require(options.prefix % 4 == 0 && options.prefix > 0 && options.prefix <= 4 * words_,
          "prefix must be a multiple of 4, from 4 to d");
  prefix_ = options.prefix / 4;
  rotation_error_ = rotation_error(d);
  rotation_ = AlignedVector<float>(d * columns_);
  for (std::size_t i = 0; i < d; ++i) {
    std::fill_n(rotation_.data() + i * columns_, columns_, 0.0f);
    std::copy_n(options.rotation.data + i * d, d, rotation_.data() + i * columns_);
  }
}

// The centre of a damaged file may be anything.
void Blocks::set_center(const BlocksOptions& options) {
  const bool centred = element_ != Element::kFloat && rows_.metric() == Metric::kL2;
  require(options.center.size() == (centred ? rows_.d() : 0),
          "center must have d numbers for bytes of squared distances, else none");
  const bool sound = kernels().norm(options.center) <= kLongestVector;
  for (const float value : options.center) center_.push_back(sound ? value : 0.0f);
}

// Sets the first block of each list.
void Blocks::lay_out(const BlocksOptions& options) {
  const std::size_t references = options.reference_starts.empty() ? 0 : options.reference_starts.size() - 1;
  const std::size_t number = rows_.nlist() + references;
  require(options.wanted.empty() || options.wanted.size() == number, "wanted must have one value for each list");
  require(references == 0 || ascends(options.reference_starts, options.references.size()),
          "reference_starts must ascend from 0 to the number of references");
  copies_ = rows_.most_copies(options.references);
  runs_follow_ = options.allowed.empty();
  starts_.assign(1, 0);
  for (std::size_t list = 0; list < number; ++list) {
    const std::vector<std::int64_t> rows = rows_of(list, options);
    const auto is_unknown = [&](std::int64_t row) { return row < 0 || rows_.labels()[row] == kUnknown; };
    const auto known = std::ranges::find_if_not(rows, is_unknown) - rows.begin();
    runs_follow_ &= list < rows_.nlist() || rows.empty();
    known_.push_back(starts_.back() + static_cast<std::int64_t>(padded(known) / kBlockRows));
    starts_.push_back(starts_.back() + static_cast<std::int64_t>(padded(rows.size()) / kBlockRows));
  }
  require(starts_.back() < (std::int64_t{1} << 27), "there must be fewer than 2**27 blocks");
}

void Blocks::allocate() {
  const auto blocks = static_cast<std::size_t>(starts_.back());
  data_ = AlignedVector<std::int32_t>(blocks * words_ * kBlockRows);
  labels_ = AlignedVector<std::int32_t>(blocks * kBlockRows);
  ranges_ = AlignedVector<LabelRange>(blocks);
  if (element_ != Element::kFloat) {
    statistics_ = AlignedVector<std::int32_t>(blocks * row_statistics() * kBlockRows);
    means_ = AlignedVector<float>(lists() * mean_numbers());
    longest_ = AlignedVector<float>(lists());
    if (!center_.empty() && element_ == Element::kByte) added_ = AlignedVector<float>(blocks * kBlockRows);
  }
  if (element_ == Element::kBit) {
    codes_ = AlignedVector<std::int8_t>(blocks * kBlockRows * columns_);
    mean_codes_ = AlignedVector<std::int8_t>(lists() * columns_);
  }
  if (runs_follow_)
    runs_ = AlignedVector<RowRun>(blocks);
  else
    lane_rows_ = AlignedVector<std::int64_t>(blocks * kBlockRows);
}

std::vector<std::int64_t> Blocks::rows_of(std::size_t list, const BlocksOptions& options) const {
  std::vector<std::int64_t> rows, unknown;
  if (!options.wanted.empty() && !options.wanted[list]) return rows;
  const auto labels = rows_.labels();
  const auto take = [&](std::int64_t row) {
    if (options.allowed.empty() || options.allowed[row]) (labels[row] == kUnknown ? unknown : rows).push_back(row);
  };
  if (list < rows_.nlist()) {
    for (std::int64_t row = rows_.starts()[list]; row < rows_.starts()[list + 1]; ++row) take(row);
  } else {
    const auto own = options.reference_starts.subspan(list - rows_.nlist(), 2);
    for (std::int64_t place = own[0]; place < own[1]; ++place) take(options.references[place]);
  }
  unknown.resize(padded(unknown.size()), -1);
  rows.insert(rows.begin(), unknown.begin(), unknown.end());
  return rows;
}

void Blocks::pack(std::size_t list, const BlocksOptions& options, const PackMemory& memory) {
  const std::vector<std::int64_t> rows = rows_of(list, options);
  const auto number = static_cast<std::int64_t>(list);
  if (!rows.empty()) rows_.check_lists({&number, 1});
  std::vector<std::int32_t> labels(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) labels[r] = rows[r] < 0 ? kUnknown : rows_.labels()[rows[r]];
  const auto first = static_cast<std::size_t>(starts_[list]);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (!runs_follow_) {
      lane_rows_[first * kBlockRows + r] = rows[r];
    } else if (r % kBlockRows == 0) {
      const auto place = static_cast<std::size_t>(rows[r] - rows_.starts()[list]);
      runs_[first + r / kBlockRows] = {rows_.codes_of(list) + rows_.row_size() * place,
                                       rows_.ids_of(list).data() + place, rows[r]};
    }
  }
  const bool coded = element_ != Element::kFloat, bits = element_ == Element::kBit;
  const ListTarget target{.mean = coded ? means_.data() + list * mean_numbers() : nullptr,
                          .longest = coded ? longest_.data() + list : nullptr,
                          .data = data_.data() + first * words_ * kBlockRows,
                          .statistics = coded ? statistics_.data() + first * row_statistics() * kBlockRows : nullptr,
                          .added = added_.empty() ? nullptr : added_.data() + first * kBlockRows,
                          .labels = labels_.data() + first * kBlockRows,
                          .ranges = ranges_.data() + first,
                          .codes = bits ? codes_.data() + first * kBlockRows * columns_ : nullptr,
                          .mean_code = bits ? mean_codes_.data() + list * columns_ : nullptr};
  const auto pack_rows = bits ? kernels().pack_bits : kernels().pack_list;
  pack_rows(view(), {rows.data(), labels.data(), rows.size()}, target, memory);
}

BlocksView Blocks::view() const {
  return {.rows = rows_.view(),
          .element = element_,
          .words = words_,
          .prefix = prefix_,
          .margin = margin_,
          .rotation_error = rotation_error_,
          .rotation = rotation_.data(),
          .columns = columns_,
          .starts = starts_.data(),
          .known = known_.data(),
          .means = means_.data(),
          .longest = longest_.data(),
          .center = center_.data(),
          .data = data_.data(),
          .statistics = statistics_.data(),
          .added = added_.data(),
          .labels = labels_.data(),
          .ranges = ranges_.data(),
          .codes = codes_.data(),
          .mean_codes = mean_codes_.data(),
          .runs = runs_.data(),
          .lane_rows = lane_rows_.data()};
}

std::size_t Blocks::memory() const {
  const std::size_t numbers = rotation_.size() + means_.size() + longest_.size() + center_.size() + added_.size() +
                              data_.size() + statistics_.size() + labels_.size() +
                              2 * (lane_rows_.size() + starts_.size() + known_.size());
  return 4 * numbers + codes_.size() + mean_codes_.size() + sizeof(LabelRange) * ranges_.size() +
         sizeof(RowRun) * runs_.size();
}

void Blocks::check(const GroupedQueries& queries) const {
  const std::size_t nq = queries.X.rows;
  const auto& starts = queries.starts;
  require(queries.X.columns == rows_.d(), "X must have d columns");
  require(queries.labels.size() == nq && queries.order.size() == nq, "labels and order must have one value a query");
  require(ascends(starts, nq), "starts must ascend from 0 to the number of queries");
  require(queries.lists.rows == starts.size() - 1, "lists must have one row for each group");
  require(queries.D.rows == queries.I.rows && queries.D.columns == queries.I.columns && queries.D.columns > 0,
          "D and I must have one shape, of at least one column");
  const auto number = static_cast<std::int64_t>(lists());
  require(all_below(queries.order, queries.D.rows), "order must hold numbers of rows of D");
  for (std::size_t place = 0; place < queries.lists.size(); ++place)
    require(queries.lists.data[place] >= -1 && queries.lists.data[place] < number,
            "lists must hold numbers of lists, or -1");
}

void Blocks::search(const GroupedQueries& queries, const Watch& watch) const {
  check(queries);
  ScanMemory scratch;
  const auto search_some = [&](std::size_t first, std::size_t last) { search_groups(queries, first, last, scratch); };
  parallel_runs(queries.lists.rows, kGroupsAtOnce, 1, search_some, watch);
}

void Blocks::search_groups(const GroupedQueries& queries, std::size_t first, std::size_t last,
                           ScanMemory& scratch) const {
  const auto& starts = queries.starts;
  for (std::size_t g = first; g < last; ++g) {
    const auto begin = static_cast<std::size_t>(starts[g]), size = static_cast<std::size_t>(starts[g + 1]) - begin;
    const std::size_t at_once = element_ == Element::kBit ? 1 : size;
    for (std::size_t q = begin; q < begin + size; q += at_once)
      search_group({.X = queries.X.data + q * queries.X.columns,
                    .labels = queries.labels.data() + q,
                    .size = at_once,
                    .lists = queries.lists[g].data(),
                    .nprobe = queries.lists.columns,
                    .k = queries.D.columns,
                    .resume = queries.resume,
                    .order = queries.order.data() + q,
                    .D = queries.D.data,
                    .I = queries.I.data,
                    .filter = queries.filter},
                   scratch);
  }
}

void Blocks::search_group(GroupView group, ScanMemory& scratch) const {
  group.copies = copies_;
  const bool bits = element_ == Element::kBit;
  const SearchMemory& memory = scratch.of(group.size, {.d = rows_.d(),
                                                       .k = group.k,
                                                       .copies = copies_,
                                                       .words = bits                         ? columns_ / kBlockRows
                                                                : element_ == Element::kByte ? words_
                                                                                             : 0,
                                                       .rotated = rotated() ? columns_ : 0,
                                                       .centred = center_.size(),
                                                       .bounded = bits ? kBoundedAtOnce : 0,
                                                       .warms_up = true});
  (bits ? kernels().scan_bits : kernels().scan_group)(view(), group, memory);
}

}  // namespace cfe
