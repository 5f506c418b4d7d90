// The rows of an index in FAISS's memory: lists of codes and ids, as one long sequence. Lists of inverted files are
// sorted by label.
#pragma once

#include <atomic>

#include "core/list_checks.h"
#include "core/rows_view.h"

namespace cfe {

// Immutable labels and their owner.
struct SharedLabels {
  std::span<const std::int32_t> labels;
  std::shared_ptr<const void> owner;
};

// Labels of the lists of a table, which ascend in each list, and of all rows if they are consecutive.
struct ListLabels {
  std::vector<const std::int32_t*> lists;
  SharedLabels all;
};

// Storage format of vectors; `levels` are for Codec::kSq8.
struct RowsFormat {
  std::size_t d;
  Codec codec;
  std::span<const float> levels;
  Metric metric = Metric::kCosine;
};

// Offsets of the lists, and the addresses of each list's codes and ids, and of its product-quantizer codes, of
// `pq_code_size` bytes each, or none. `sorted`: labels ascend within each list.
struct RowsMemory {
  std::span<const std::int64_t> starts;
  std::span<const std::uint64_t> codes, ids, pq_codes;
  std::size_t pq_code_size = 0;
  bool sorted = true;
};

// Row r is item r - starts[j] of the list j with starts[j] <= r < starts[j + 1]. FAISS owns codes and ids: they are
// valid while the index lives and until it changes.
class Rows {
 public:
  // Throws std::invalid_argument if the arguments do not fit each other.
  Rows(const RowsFormat& format, const RowsMemory& memory, SharedLabels labels);
  // The same, with labels in separate lists that the caller has checked. They are valid like the codes.
  Rows(const RowsFormat& format, const RowsMemory& memory, ListLabels labels);
  // The same, with a copy of the labels.
  Rows(const RowsFormat& format, const RowsMemory& memory, std::span<const std::int32_t> labels);

  std::size_t d() const { return d_; }
  std::size_t size() const { return static_cast<std::size_t>(starts_.back()); }
  std::size_t nlist() const { return starts_.size() - 1; }
  Codec codec() const { return codec_; }
  Metric metric() const { return metric_; }
  std::size_t row_size() const { return row_size_; }  // bytes of a vector
  // For Codec::kSq8, the minimum and the range of each component, (2, d); else empty.
  std::span<const float> levels() const { return levels_; }
  std::span<const std::int64_t> starts() const { return starts_; }
  // Labels of all rows. They are copied on the first call if the lists are separate, and stay valid with this object.
  std::span<const std::int32_t> labels() const;
  // Throws std::invalid_argument unless labels are valid and ascend in each list.
  void check_labels() const;
  std::span<const std::int32_t> labels_of(std::size_t list) const { return {labels_[list], size_of(list)}; }
  std::span<const std::int64_t> ids_of(std::size_t list) const { return {ids_[list], size_of(list)}; }
  std::size_t pq_code_size() const { return pq_code_size_; }

  // Makes `parts[owners[list]]` check each list when it is read first. Throws std::invalid_argument if the arguments do
  // not fit the lists.
  void check_by(std::vector<std::shared_ptr<const ListChecks>> parts, std::span<const std::int64_t> owners);
  // Each throws std::invalid_argument if the checksum of a list does not match. Readers of codes or ids by `view`,
  // `codes_of`, `ids_of`, `row` or `id` call one of them first. Numbers below 0 are ignored. A number of a list of
  // references stands for all lists, as references may lead to any.
  void check_list(std::size_t list) const {
    if (!parts_.empty()) check_both(list);
  }
  void check_lists(std::span<const std::int64_t> lists) const;
  void check_ids() const;
  // The checksums of codes and of ids, of each list, (nlist, 2).
  std::vector<std::uint32_t> checksums() const;

  // For kernels; valid while this object lives.
  RowsView view() const;
  // Copies vectors, (wanted, d), and ids, (wanted,), of some rows. Throws std::out_of_range if a row does not exist.
  void gather(std::span<const std::int64_t> wanted, float* X, std::int64_t* ids) const;
  // Copies the ids of all rows.
  void copy_ids(std::span<std::int64_t> ids) const;

  const std::uint8_t* codes_of(std::size_t list) const { return codes_[list]; }

  // The list of a row: the last non-empty list that starts at or before it.
  std::size_t list_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin()) - 1;
  }
  const std::uint8_t* row(std::int64_t row) const {
    const std::size_t list = list_of(row);
    return codes_[list] + row_size_ * static_cast<std::size_t>(row - starts_[list]);
  }

 private:
  struct AllLabels : Fixed {
    ~AllLabels() { delete copied.load(); }
    SharedLabels given;
    std::atomic<const std::vector<std::int32_t>*> copied{nullptr};  // by the first of several threads
  };

  void check(const RowsMemory& memory) const;
  void check_both(std::size_t list) const;
  std::size_t size_of(std::size_t list) const { return static_cast<std::size_t>(starts_[list + 1] - starts_[list]); }
  std::span<const std::uint8_t> code_bytes(std::size_t list) const { return {codes_[list], row_size_ * size_of(list)}; }
  std::span<const std::uint8_t> pq_code_bytes(std::size_t list) const {
    if (pq_codes_.empty()) return {};
    return {pq_codes_[list], pq_code_size_ * size_of(list)};
  }
  std::span<const std::uint8_t> id_bytes(std::size_t list) const {
    return {reinterpret_cast<const std::uint8_t*>(ids_[list]), sizeof(std::int64_t) * size_of(list)};
  }

  std::size_t d_, row_size_, pq_code_size_;
  Codec codec_;
  Metric metric_;
  bool sorted_;
  std::vector<float> levels_;
  std::vector<std::int64_t> starts_;
  std::vector<const std::uint8_t*> codes_, pq_codes_;
  std::vector<const std::int64_t*> ids_;
  std::vector<const std::int32_t*> labels_;  // of each list
  std::shared_ptr<AllLabels> all_labels_ = std::make_shared<AllLabels>();
  std::vector<std::shared_ptr<const ListChecks>> parts_;
  std::vector<std::size_t> owners_;
};

}  // namespace cfe
