// Search in given lists of an index: of all partitions, by the vectors or by product-quantizer codes first.
#pragma once

#include "core/common.h"
#include "core/parallel.h"
#include "core/rows.h"
#include "core/scan.h"
#include "core/scan_memory.h"

namespace cfe {

// Queries, (nq, d), for kCosine of length 1, their labels, and the lists that each probes, (nq, any), -1 for none.
struct ListQueries {
  Matrix<const float> X;
  std::span<const std::int32_t> labels;
  Matrix<const std::int64_t> lists;
  FilterView filter = {};
};

// List j has centroids for the classes labels[starts[j]:starts[j + 1]], which are distinct. Means are zero at first.
struct CentroidEntries {
  std::span<const std::int64_t> starts;
  std::span<const std::int32_t> labels;
  Matrix<float> means;            // (lists, ranking_length)
  Matrix<float> class_means;      // (labels, ranking_length)
  std::span<const float> center;  // subtracted from rows, (d,); not for unit vectors
  Policy policy = Policy::kOther;
};

// Writes the centroids of one list.
void write_centroids(const ListCentroids& of);

// The lists of all partitions of an index. Rows, references and starts are held, not copied.
class ListScan {
 public:
  ListScan(const Rows& rows, std::span<const std::int32_t> references, std::span<const std::int64_t> reference_starts);

  std::size_t size() const { return view_.rows.nlist + view_.reference_lists; }
  const Rows& rows() const { return rows_; }
  std::size_t copies() const { return view_.copies; }  // the largest number of lists that hold the same row

  // Adds the best of the eligible rows of a query's lists, which were not scanned before, to its results. `margin`
  // bounds the error of a float32 product of a row and a query, in any order.
  void scan(const ListQuery& query, double margin, TopK best, ScanMemory& memory) const;

  // Writes the best of the eligible rows of each query's lists.
  void scan(const ListQueries& queries, double margin, Matrix<float> D, Matrix<std::int64_t> I) const;
  // The same of the `kept` best of these rows by their product-quantizer codes. Vectors must be float32.
  void scan_codes(const ListQueries& queries, const PqView& pq, std::size_t kept, Matrix<float> D,
                  Matrix<std::int64_t> I) const;

  // Writes the mean of the rows of each list, and that of each (list, class) centroid: of the rows that queries of its
  // label may find by the policy. ClassCentroids ranks lists by them.
  void centroids(const CentroidEntries& of, int threads, const Watch& watch) const;

 private:
  void check(const ListQueries& queries, const Matrix<float>& D, const Matrix<std::int64_t>& I) const;

  const Rows& rows_;
  ListsView view_;
};

}  // namespace cfe
