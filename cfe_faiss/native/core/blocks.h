// Rows of lists in blocks of 16, so that several queries are compared with 16 rows in one pass over the dimensions.
#pragma once

#include "core/aligned.h"
#include "core/block_view.h"
#include "core/common.h"
#include "core/parallel.h"
#include "core/rows.h"
#include "core/scan_memory.h"

namespace cfe {

// Contents and type of blocks.
struct BlocksOptions {
  Element element;
  // bounds the error of a float32 score of two rows, or of a row and a unit vector, in any order; see margin_of in
  // kernels/block_candidates.h
  float rounding_error;
  std::span<const std::int32_t> references;        // storage rows of the lists that follow the first partition
  std::span<const std::int64_t> reference_starts;  // offsets of those lists; or empty
  std::span<const float> center;  // near the mean of the rows, (d,): kL2 in bytes or bits only, else empty
  std::span<const bool> wanted;   // lists in blocks; all if empty
  std::span<const bool> allowed;  // rows in blocks; all if empty
  Matrix<const float> rotation;   // (d, d), or (0, d)
  std::size_t prefix;             // dimensions compared first, if rows are rotated
  int threads;
};

// Queries in groups, and their results.
struct GroupedQueries {
  Matrix<const float> X;  // in the order of their groups
  std::span<const std::int32_t> labels;
  std::span<const std::int64_t> starts;  // first query of each group and, last, the number of queries
  Matrix<const std::int64_t> lists;      // of each group; -1 for none
  std::span<const std::int64_t> order;   // the row of D and I of each query
  Matrix<float> D;
  Matrix<std::int64_t> I;
  bool resume;             // D and I contain earlier results
  FilterView filter = {};  // of the rows of D
};

// Blocks of all rows of some lists. Rows must outlive them unchanged. Blocks of bits find the best rows with high
// probability, others always.
class Blocks {
 public:
  Blocks(const Rows& rows, const BlocksOptions& options, const Watch& watch);

  std::size_t lists() const { return starts_.size() - 1; }
  std::size_t d() const { return rows_.d(); }
  std::size_t rows() const { return rows_.size(); }  // of the index
  std::size_t memory() const;                        // bytes
  Element element() const { return element_; }
  bool rotated() const { return !rotation_.empty(); }

  // Writes the best rows of its group's lists for each query.
  void search(const GroupedQueries& queries, const Watch& watch) const;

  // Searches the groups from `first` to `last` - 1 in this thread. Does not check the arguments.
  void search_groups(const GroupedQueries& queries, std::size_t first, std::size_t last, ScanMemory& scratch) const;
  // The same for one group. Sets its `copies`.
  void search_group(GroupView group, ScanMemory& scratch) const;

 private:
  std::size_t row_statistics() const;  // numbers of a row
  std::size_t mean_numbers() const { return element_ == Element::kBit ? 2 : rows_.d(); }
  void set_signs();
  void set_rotation(const BlocksOptions& options);
  void set_center(const BlocksOptions& options);
  void lay_out(const BlocksOptions& options);
  void allocate();
  // The allowed rows of a list, rows of unknown label first; -1 for the empty lanes that follow these.
  std::vector<std::int64_t> rows_of(std::size_t list, const BlocksOptions& options) const;
  void pack(std::size_t list, const BlocksOptions& options, const PackMemory& memory);
  void check(const GroupedQueries& queries) const;
  BlocksView view() const;

  const Rows& rows_;
  Element element_;
  std::size_t words_, prefix_, columns_;
  std::size_t copies_ = 1;  // the largest number of lists that hold the same row
  float margin_, rotation_error_ = 0;
  bool runs_follow_ = false;                  // whether the rows of each block are consecutive in one list
  std::vector<std::int64_t> starts_, known_;  // see BlocksView
  AlignedVector<float> rotation_, means_, longest_, center_, added_;
  AlignedVector<std::int32_t> data_, statistics_, labels_;
  AlignedVector<std::int64_t> lane_rows_;
  AlignedVector<LabelRange> ranges_;
  AlignedVector<std::int8_t> codes_, mean_codes_;
  AlignedVector<RowRun> runs_;
};

}  // namespace cfe
