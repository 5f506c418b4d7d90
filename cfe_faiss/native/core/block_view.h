// What kernels see of blocks of rows (see core/blocks.h) and of a search in them: plain views.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/rows_view.h"

namespace cfe {

inline constexpr std::size_t kBlockRows = 16;
inline constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // of a row: more do not add up in 32 bits

// What the numbers of a block are: float32, or four bytes in a word.
enum class Element : int { kFloat = 0, kByte = 1 };

// Row statistics of blocks of bytes, 16 numbers each.
enum RowStatistic : std::size_t {
  kCorrection,      // int32: the bytes of a row, added up, times the zero code of a query, with the sign changed
  kScale,           // float: times a byte, a component
  kError,           // of the bytes: the distance of the row from what they say
  kNormBound,       // of what the bytes say
  kTailCorrection,  // int32: the part of kCorrection that belongs to the bytes after the prefix
  kTailNorm,        // the length of the row after the prefix
  kRowStatistics
};

// Where the rows of a block lie if they follow each other in one list.
struct RowRun {
  const std::uint8_t* codes;
  const std::int64_t* ids;
};

// What is known of the labels of a block: the smallest and the largest one, and which lanes hold a row.
struct LabelRange {
  std::int32_t smallest, largest;
  std::uint32_t lanes;
};

// Blocks of 16 rows, word-major: word i of all 16, then word i + 1. Each list begins a block of its own.
struct BlocksView {
  RowsView rows;
  Element element;
  std::size_t words, prefix;       // of a row; and how many of them are compared first
  float margin;                    // bounds the rounding of all that is compared with a threshold
  float rotation_error;            // how far a rotated row of length 1 may be from where it should be
  const float* rotation;           // (d, columns), or none
  std::size_t columns;             // d up to a multiple of 16
  const std::int64_t* starts;      // first block of each list, (lists + 1)
  const float* means;              // of each list, (lists, d); bytes only
  const std::int32_t* data;        // (blocks, words, 16)
  const std::int32_t* statistics;  // (blocks, kRowStatistics, 16); bytes only
  const std::int32_t* labels;      // (blocks, 16)
  const LabelRange* ranges;        // (blocks)
  const RowRun* runs;              // (blocks), or none
  const std::int32_t* lane_rows;   // (blocks, 16), where the rows of a block are no run
};

// What packing writes: the arrays of a BlocksView from one list's first block on.
struct ListTarget {
  float* mean;
  std::int32_t* data;
  std::int32_t* statistics;
  std::int32_t* labels;
  LabelRange* ranges;
};

// The rows of a list and their labels.
struct ListRows {
  const std::int32_t* rows;
  const std::int32_t* labels;
  std::size_t size;
};

// Memory for packing.
struct PackMemory {
  float* block;    // (columns, 16)
  float* rotated;  // (columns, 16)
  float* row;      // (d)
};

// A group of queries that probe the same lists, and where their results go.
struct GroupView {
  const float* X;  // (size, d)
  const std::int32_t* labels;
  std::size_t size;
  const std::int64_t* lists;  // (nprobe); -1 for none
  std::size_t nprobe;
  std::size_t k;
  bool deduplicate;           // a row may be in several of the lists
  bool resume;                // D and I hold what was found before
  const std::int64_t* order;  // the row of D and I of each query, (size)
  float* D;                   // (.., k)
  std::int64_t* I;
};

// Query statistics, a number for each query; the first three in units of its scale.
struct QueryStatistics {
  float* norm;
  float* error;
  float* tail;
  float* scale;
  float* inverse_scale;
  float* threshold;  // what the upper bound of a row has to reach for it to be a candidate
  float* along;      // the product with the mean of a list
  float* wanted;     // the threshold, as the products with the centred rows of that list are compared with it
};

// Rows that may be among the results of a query: bounds of their similarities, and their lanes, numbered over all
// blocks. `capacity` is a multiple of 16.
struct CandidateBuffer {
  std::size_t capacity;
  std::size_t enough;   // candidates of a query, more than which are cut or scored
  float* lower;         // (queries, capacity)
  float* upper;         // the same; bytes only
  std::int32_t* lanes;  // the same
  std::size_t* counts;  // (queries)
  std::size_t* found;   // how many results of each query have been scored, (queries)
};

// The first blocks that a group is compared with: without thresholds yet, which they give.
struct WarmUp {
  std::size_t blocks;  // how many; 0 for none
  std::size_t width;   // per-lane maxima of a query, a multiple of 16
  float* upper;        // upper bounds of similarities, -inf for a lane that is not eligible, (queries, blocks, 16)
  float* maxima;       // of lower bounds, (queries, width)
  std::int32_t* kept;  // places of the upper bounds that reach a threshold, (blocks, 16)
  std::int32_t* seen;  // the blocks
};

struct SearchMemory {
  QueryStatistics queries;
  CandidateBuffer candidates;
  WarmUp warm_up;
  float* block;         // queries in blocks of 16, (blocks, columns, 16)
  float* rotated;       // the same
  std::int32_t* words;  // (blocks, words, 16)
  float* row;           // (d)
  double* wide;         // (d)
  std::size_t scored;   // capacity + k, up to a multiple of 16
  float* scores;        // (2, scored)
  std::int64_t* ids;    // the same
};

}  // namespace cfe
