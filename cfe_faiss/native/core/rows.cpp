#include "core/rows.h"

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

std::size_t row_size(Codec codec, std::size_t d) {
  switch (codec) {
    case Codec::kFlat:
      return 4 * d;
    case Codec::kFp16:
      return 2 * d;
    case Codec::kSq8:
      return d;
  }
  throw std::invalid_argument("codec must be 0, 1 or 2");
}

ListLabels in_lists(SharedLabels labels, std::span<const std::int64_t> starts) {
  require(!starts.empty() && starts.front() == 0 && starts.back() == static_cast<std::int64_t>(labels.labels.size()),
          "starts must run from 0 to the number of labels");
  require(std::is_sorted(starts.begin(), starts.end()), "starts must ascend");
  ListLabels result;
  for (const std::int64_t start : starts.first(starts.size() - 1)) result.lists.push_back(labels.labels.data() + start);
  result.all = std::move(labels);
  return result;
}

SharedLabels copy_of(std::span<const std::int32_t> labels) {
  const auto kept = std::make_shared<std::vector<std::int32_t>>(labels.begin(), labels.end());
  return {*kept, kept};
}

template <class Item>
std::vector<const Item*> pointers(std::span<const std::uint64_t> addresses) {
  std::vector<const Item*> result;
  for (const std::uint64_t address : addresses) result.push_back(reinterpret_cast<const Item*>(address));
  return result;
}

}  // namespace

Rows::Rows(const RowsFormat& format, const RowsMemory& memory, ListLabels labels)
    : d_(format.d),
      row_size_(cfe::row_size(format.codec, d_)),
      pq_code_size_(memory.pq_code_size),
      codec_(format.codec),
      metric_(format.metric),
      sorted_(memory.sorted),
      levels_(format.levels.begin(), format.levels.end()),
      starts_(memory.starts.begin(), memory.starts.end()),
      codes_(pointers<std::uint8_t>(memory.codes)),
      pq_codes_(pointers<std::uint8_t>(memory.pq_codes)),
      ids_(pointers<std::int64_t>(memory.ids)),
      labels_(std::move(labels.lists)) {
  check(memory);
  all_labels_->given = std::move(labels.all);
}

Rows::Rows(const RowsFormat& format, const RowsMemory& memory, SharedLabels labels)
    : Rows(format, memory, in_lists(std::move(labels), memory.starts)) {
  check_labels();
}

Rows::Rows(const RowsFormat& format, const RowsMemory& memory, std::span<const std::int32_t> labels)
    : Rows(format, memory, copy_of(labels)) {}

void Rows::check(const RowsMemory& memory) const {
  require(d_ > 0, "d must be at least 1");
  require(!starts_.empty(), "starts must run from 0 to the number of labels");
  const bool untrained = size() == 0 && levels_.empty();
  require(untrained || levels_.size() == (codec_ == Codec::kSq8 ? 2 * d_ : 0),
          "levels must hold 2 * d numbers for 8-bit codes, else 0");
  require(memory.codes.size() == nlist() && memory.ids.size() == nlist() && labels_.size() == nlist(),
          "each list must have codes and ids");
  require(memory.pq_codes.size() == (pq_code_size_ > 0 ? nlist() : 0),
          "each list must have product-quantizer codes, or none");
  for (std::size_t list = 0; list < nlist(); ++list) {
    const bool has_codes = memory.codes[list] != 0 && (pq_code_size_ == 0 || memory.pq_codes[list] != 0);
    require(size_of(list) == 0 || (has_codes && memory.ids[list] != 0), "a list with rows must have memory");
  }
}

void Rows::check_labels() const {
  for (std::size_t list = 0; list < nlist(); ++list) {
    const auto own = labels_of(list);
    require(own.empty() || own.front() >= kUnknown, "labels must be at least -1");
    require(!sorted_ || std::is_sorted(own.begin(), own.end()), "labels must ascend in each list");
  }
}

std::span<const std::int32_t> Rows::labels() const {
  if (all_labels_->given.owner != nullptr) return all_labels_->given.labels;
  const std::vector<std::int32_t>* copied = all_labels_->copied.load();
  if (copied != nullptr) return *copied;
  auto own = std::make_unique<std::vector<std::int32_t>>();
  own->reserve(size());
  for (std::size_t list = 0; list < nlist(); ++list) {
    const auto labels = labels_of(list);
    own->insert(own->end(), labels.begin(), labels.end());
  }
  if (all_labels_->copied.compare_exchange_strong(copied, own.get())) copied = own.release();
  return *copied;
}

void Rows::check_by(std::vector<std::shared_ptr<const ListChecks>> parts, std::span<const std::int64_t> owners) {
  require(owners.size() == nlist(), "owners must have one value for each list");
  for (const std::int64_t owner : owners)
    require(owner >= 0 && static_cast<std::size_t>(owner) < parts.size(), "owners must be numbers of parts");
  owners_.assign(owners.begin(), owners.end());
  parts_ = std::move(parts);
}

void Rows::check_both(std::size_t list) const {
  const ListChecks& checks = *parts_[owners_[list]];
  checks.check_codes(list, code_bytes(list), pq_code_bytes(list));
  checks.check_ids(list, id_bytes(list));
}

void Rows::check_lists(std::span<const std::int64_t> lists) const {
  if (parts_.empty()) return;
  for (const std::int64_t list : lists) {
    if (list >= 0 && static_cast<std::size_t>(list) < nlist()) {
      check_both(static_cast<std::size_t>(list));
    } else if (list >= 0) {
      for (std::size_t other = 0; other < nlist(); ++other) check_both(other);
      return;
    }
  }
}

void Rows::check_ids() const {
  for (std::size_t list = 0; list < owners_.size(); ++list) parts_[owners_[list]]->check_ids(list, id_bytes(list));
}

std::vector<std::uint32_t> Rows::checksums() const {
  std::vector<std::uint32_t> sums;
  for (std::size_t list = 0; list < nlist(); ++list) {
    sums.push_back(crc32(pq_code_bytes(list), crc32(code_bytes(list))));
    sums.push_back(crc32(id_bytes(list)));
  }
  return sums;
}

RowsView Rows::view() const {
  const float* low = levels_.data();
  return {.d = d_,
          .row_size = row_size_,
          .nlist = nlist(),
          .codec = codec_,
          .low = low,
          .spread = levels_.empty() ? low : low + d_,
          .starts = starts_.data(),
          .codes = codes_.data(),
          .ids = ids_.data(),
          .pq_codes = pq_codes_.data(),
          .labels = labels_.data(),
          .sorted = sorted_,
          .metric = metric_};
}

void Rows::gather(std::span<const std::int64_t> wanted, float* X, std::int64_t* ids) const {
  const auto n = static_cast<std::int64_t>(size());
  for (const std::int64_t row : wanted) {
    if (row < 0 || row >= n) throw std::out_of_range("there is no row " + std::to_string(row));
    if (!parts_.empty()) check_both(list_of(row));
  }
  kernels().gather_rows(view(), wanted, X, ids);
}

void Rows::copy_ids(std::span<std::int64_t> ids) const {
  check_ids();
  for (std::size_t list = 0; list < nlist(); ++list) {
    const auto own = ids_of(list);
    std::copy(own.begin(), own.end(), ids.begin() + starts_[list]);
  }
}

}  // namespace cfe
