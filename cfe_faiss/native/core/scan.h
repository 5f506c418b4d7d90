// Arguments of a scan of lists: the lists and the query.
#pragma once

#include "core/rows_view.h"

namespace cfe {

// The lists of all partitions. List j < rows.nlist is FAISS's list j; list rows.nlist + g is the g-th list of
// references to rows, of the supplementary partitions.
struct ListsView {
  RowsView rows;
  const std::int32_t* references;
  const std::int64_t* reference_starts;  // (reference_lists + 1,)
  std::size_t reference_lists;
  std::size_t copies = 1;  // the largest number of lists that hold the same row
};

// A query and the lists that it probes, -1 for none.
struct ListQuery {
  const float* x;
  std::int32_t label;
  std::span<const std::int64_t> lists;
  FilterView filter = {};  // of this query
};

// The centroids of one list: of its rows with a known label, and of those with another known label than each of some;
// for kOwn, of those with this label; for kAny, of rows of unknown label, too.
// The outputs are zero at first, and have ranking_length(metric, d) numbers.
struct ListCentroids {
  ListsView lists;
  std::size_t list;
  std::span<const std::int32_t> labels;  // distinct
  std::span<const float> center;         // subtracted from rows, (d,); not for unit vectors
  std::span<float> mean;
  Matrix<float> class_means;  // for each of the labels
  Policy policy = Policy::kOther;
};

// Memory for them: a row, numbers of rows of each label and of all, and their sums, zero at first.
struct CentroidMemory {
  std::span<float> row;              // (d,)
  std::span<double> counts, totals;  // (labels + 1,), (labels + 1, ranking_length(metric, d))
};

// A product quantizer: codewords of each part, component by component, and the centroids of the lists.
struct PqView {
  std::size_t parts, width;  // parts * width == d
  const float* codewords;    // (parts, width, kCodewords)
  const float* centroids;    // (nlist, d)
};
inline constexpr std::size_t kCodewords = 256;

// Memory for a scan by codes: scores of a query with codewords, (parts, kCodewords), and with centroids, (nlist,), the
// query less a centroid, (d,), and the rows that are best by their codes. `scores` has a multiple of 16 places, more
// than all copies of the rows that are kept. `selection`: see memory_of_best.
struct PqMemory {
  std::span<float> table, to_centroids, rest;
  std::span<float> scores;
  std::span<std::int64_t> ids, selection;
  std::span<const std::uint8_t*> codes;
  TopK kept;  // similarities and ids of the best rows
};

}  // namespace cfe
