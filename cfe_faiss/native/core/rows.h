// The rows of an index in FAISS's memory: lists of codes and ids, as one long sequence. Lists of inverted files are
// sorted by label.
#pragma once

#include "core/list_checks.h"
#include "core/rows_view.h"

namespace cfe {

// Storage format of vectors; `levels` are for Codec::kSq8.
struct RowsFormat {
  std::size_t d;
  Codec codec;
  std::span<const float> levels;
  Metric metric = Metric::kCosine;
};

// Offsets of the lists, the addresses of each list's codes and ids, and of its product-quantizer codes, of
// `pq_code_size` bytes each, or none, and the labels of all rows.
struct RowsMemory {
  std::vector<std::int64_t> starts;
  std::vector<const std::uint8_t*> codes;
  std::vector<const std::int64_t*> ids;
  std::vector<std::int32_t> labels;
  std::vector<const std::uint8_t*> pq_codes;
  std::size_t pq_code_size = 0;
  bool sorted = true;  // whether labels ascend within each list
};

// Row r is item r - starts[j] of the list j with starts[j] <= r < starts[j + 1]. FAISS owns codes and ids: they are
// valid while the index lives and until it changes.
class Rows {
 public:
  Rows(const RowsFormat& format, RowsMemory memory);

  std::size_t d() const { return d_; }
  std::size_t size() const { return static_cast<std::size_t>(starts().back()); }
  std::size_t nlist() const { return starts().size() - 1; }
  Codec codec() const { return codec_; }
  Metric metric() const { return metric_; }
  std::size_t row_size() const { return row_size_; }  // bytes of a vector
  std::span<const std::int64_t> starts() const { return memory_.starts; }
  std::span<const std::int32_t> labels() const { return memory_.labels; }  // of all rows
  // Throws std::invalid_argument unless labels are valid and ascend in each list.
  void check_labels() const;
  std::span<const std::int32_t> labels_of(std::size_t list) const {
    return labels().subspan(starts()[list], size_of(list));
  }
  std::span<const std::int64_t> ids_of(std::size_t list) const { return {memory_.ids[list], size_of(list)}; }
  const std::uint8_t* codes_of(std::size_t list) const { return memory_.codes[list]; }

  // Makes `parts[owners[list]]` check each list when it is read first.
  void check_by(std::vector<std::shared_ptr<const ListChecks>> parts, std::span<const std::int64_t> owners);
  // Each throws std::invalid_argument if the checksum of a list does not match. Readers of codes or ids by `view`,
  // `codes_of` or `ids_of` call one of them first. Numbers below 0 are ignored. A number of a list of
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
  // The largest number of lists that hold the same row: its own, and those of references.
  std::size_t most_copies(std::span<const std::int32_t> references) const;
  // Copies the ids of all rows.
  void copy_ids(std::span<std::int64_t> ids) const;

  // The list of a row: the last non-empty list that starts at or before it.
  std::size_t list_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::upper_bound(starts().begin(), starts().end(), row) - starts().begin()) - 1;
  }

 private:
  void check() const;
  void check_both(std::size_t list) const;
  std::size_t size_of(std::size_t list) const { return static_cast<std::size_t>(starts()[list + 1] - starts()[list]); }
  std::span<const std::uint8_t> code_bytes(std::size_t list) const {
    return {memory_.codes[list], row_size_ * size_of(list)};
  }
  std::span<const std::uint8_t> pq_code_bytes(std::size_t list) const {
    if (memory_.pq_codes.empty()) return {};
    return {memory_.pq_codes[list], memory_.pq_code_size * size_of(list)};
  }
  std::span<const std::uint8_t> id_bytes(std::size_t list) const {
    return {reinterpret_cast<const std::uint8_t*>(memory_.ids[list]), sizeof(std::int64_t) * size_of(list)};
  }

  std::size_t d_, row_size_;
  Codec codec_;
  Metric metric_;
  std::vector<float> levels_;
  RowsMemory memory_;
  std::vector<std::shared_ptr<const ListChecks>> parts_;
  std::vector<std::size_t> owners_;
};

}  // namespace cfe
