// Arguments of a scan of lists: the lists and the query.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/rows_view.h"
#include "core/topk.h"

namespace cfe {

// The lists of all partitions. List j < rows.nlist is FAISS's list j; list rows.nlist + g is the g-th list of
// references to rows, of the supplementary partitions.
struct ListsView {
  RowsView rows;
  const std::int32_t* references;
  const std::int64_t* reference_starts;  // (reference_lists + 1,)
  std::size_t reference_lists;

  // Whether a row may be reached through several lists.
  CFE_INLINE bool deduplicate() const { return reference_lists > 0; }
};

// A query, the lists that it probes (-1: none), and the rows that may be evidence: (n,), or null for all.
struct ListQuery {
  const float* x;
  std::int32_t label;
  std::span<const std::int64_t> lists;
  const bool* allowed;

  CFE_INLINE bool allows(std::size_t row) const { return allowed == nullptr || allowed[row]; }
};

// Memory for a scan by vectors: (2 * d,), and an IdTable of k ids if rows may be in several lists.
struct ScanMemory {
  float* buffer;
  std::span<std::int64_t> held;
};

// A row that is near according to its product-quantizer code.
struct NearRow {
  float score;
  std::int64_t id;
  const std::uint8_t* codes;
};

// A product quantizer: codewords of each part, component by component, and the centroids of the lists.
struct PqView {
  std::size_t parts, width;  // parts * width == d
  const float* codewords;    // (parts, width, kCodewords)
  const float* centroids;    // (nlist, d)
};
inline constexpr std::size_t kCodewords = 256;

// Memory for a scan by codes: products of a query with codewords, (parts, kCodewords), and with centroids, (nlist,),
// and the best rows by their codes.
struct PqScratch {
  std::span<float> table, to_centroids;
  std::span<NearRow> nearest;
  std::span<std::int64_t> ids, held;  // ids of the rows in `nearest`, and an IdTable of them
};

}  // namespace cfe
