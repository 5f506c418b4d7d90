#include "core/rows.h"

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

constexpr std::size_t kBytes[] = {4, 2, 1};  // of a component in each codec

Rows::Rows(const RowsFormat& format, RowsMemory memory)
    : d_(format.d),
      row_size_(kBytes[static_cast<int>(format.codec)] * d_),
      codec_(format.codec),
      metric_(format.metric),
      levels_(format.levels.begin(), format.levels.end()),
      memory_(std::move(memory)) {
  check();
}

void Rows::check() const {
  require(d_ > 0, "d must be at least 1");
  const bool untrained = size() == 0 && levels_.empty();
  require(untrained || levels_.size() == (codec_ == Codec::kSq8 ? 2 * d_ : 0),
          "levels must hold 2 * d numbers for 8-bit codes, else 0");
  require(labels().size() == size(), "each row must have a label");
  for (std::size_t list = 0; list < nlist(); ++list) {
    const bool has_codes = memory_.codes[list] != nullptr && (!memory_.pq_code_size || memory_.pq_codes[list]);
    require(size_of(list) == 0 || (has_codes && memory_.ids[list] != nullptr), "a list with rows must have memory");
  }
}

void Rows::check_labels() const {
  for (std::size_t list = 0; list < nlist(); ++list) {
    const auto own = labels_of(list);
    require(own.empty() || own.front() >= kUnknown, "labels must be at least -1");
    require(!memory_.sorted || std::is_sorted(own.begin(), own.end()), "labels must ascend in each list");
  }
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
          .starts = memory_.starts.data(),
          .codes = memory_.codes.data(),
          .ids = memory_.ids.data(),
          .pq_codes = memory_.pq_codes.data(),
          .labels = memory_.labels.data(),
          .sorted = memory_.sorted,
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

std::size_t Rows::most_copies(std::span<const std::int32_t> references) const {
  require(all_below(references, size()), "references must be rows");
  std::vector<std::size_t> copies(references.empty() ? 0 : size(), 1);
  std::size_t most = 1;
  for (const std::int32_t row : references) most = std::max(most, ++copies[static_cast<std::size_t>(row)]);
  return most;
}

void Rows::copy_ids(std::span<std::int64_t> ids) const {
  check_ids();
  for (std::size_t list = 0; list < nlist(); ++list) {
    const auto own = ids_of(list);
    std::copy(own.begin(), own.end(), ids.begin() + starts()[list]);
  }
}

}  // namespace cfe
