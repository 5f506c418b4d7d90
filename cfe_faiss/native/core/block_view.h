// Plain views for the kernels: blocks of rows (see core/blocks.h) and a search in them.
#pragma once

#include "core/rows_view.h"

namespace cfe {

inline constexpr std::size_t kBlockRows = 16;
// Size of the selector's memory for `scores` scores; see kernels/select.h.
CFE_INLINE std::size_t memory_of_best(std::size_t scores) { return 4 * (padded(scores) + kLanes); }

// Most bytes of a row that is no unit vector; see slack_of_list.
inline constexpr std::size_t kMostOfAnyLength = std::size_t{1} << 13;
inline constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // of a row: products of more do not fit into 32 bits

inline constexpr std::size_t kMostBits = std::size_t{1} << 12;  // of a row: tables of more do not fit into bytes
inline constexpr std::size_t kSignRounds = 4;                   // of a rotation by signs; see kernels/block_bits.h

// Element type of a block: float32, four int8 in a word, or the signs of 32 dimensions in a word, as 16 bytes of the
// first eight, then 16 of the next. Bits are searched by one query at a time.
enum class Element : int { kFloat = 0, kByte = 1, kBit = 2 };

// Row statistics of blocks of bytes, 16 numbers each.
enum RowStatistic : std::size_t {
  kCorrection,      // int32: minus the sum of the bytes of a row times the query's zero code
  kScale,           // float: component per unit of a byte
  kError,           // rounding error: distance of the row from its bytes
  kNormBound,       // bounds the norm of the row given by the bytes
  kTailCorrection,  // int32: the share of the bytes after the prefix in kCorrection
  kTailNorm,        // the length of the row after the prefix
  kRowStatistics
};

// The same of blocks of bits, floats: an estimate is the list's base + kBase + kFactor * product of signs, and by codes
// in bytes the query's base + kRest + kUnit * product of codes.
enum EstimateStatistic : std::size_t { kFactor, kBase, kDeviation, kRest, kUnit, kEstimateStatistics };

// Codes, ids and the first row of a block whose rows are consecutive in one list.
struct RowRun {
  const std::uint8_t* codes;
  const std::int64_t* ids;
  std::int64_t row;
};

// Labels of a block: the smallest, the largest, and the lanes that hold a row.
struct LabelRange {
  std::int32_t smallest, largest;
  std::uint32_t lanes;
};

// Blocks of 16 rows, word-major: word i of all 16, then word i + 1. Each list starts a new block, and so do its rows of
// known label, which follow its rows of unknown label.
struct BlocksView {
  RowsView rows;
  Element element;
  std::size_t words, prefix;       // of a row; words that are compared first, or numbers of a rotation by signs
  float margin;                    // bounds all rounding errors in a comparison with a threshold; see margin_of
  float rotation_error;            // rotation error of a row of length 1
  const float* rotation;           // (d, columns), or none; for bits, (kSignRounds, columns)
  std::size_t columns;             // d, padded to a multiple of 16; for bits, of 64
  const std::int64_t* starts;      // first block of each list, (lists + 1)
  const std::int64_t* known;       // first block of its rows of known label, (lists)
  const float* means;              // of each list, (lists, d); for bits, |c - m|^2 and the unit of its code, (lists, 2)
  const float* longest;            // of each list in bytes: the longest x' and, for kIp, the mean's length
  const float* center;             // m, for kL2 in bytes or bits, else none; see kernels/block_queries.h
  const std::int32_t* data;        // (blocks, words, 16)
  const std::int32_t* statistics;  // (blocks, kRowStatistics or kEstimateStatistics, 16); none for floats
  const float* added;              // a of each row, with m only: (blocks, 16)
  const std::int32_t* labels;      // (blocks, 16)
  const LabelRange* ranges;        // (blocks)
  const std::int8_t* codes;        // of rows in bits, in bytes, (blocks, 16, columns); see kernels/block_bits.h
  const std::int8_t* mean_codes;   // the same of the means of lists, (lists, columns)
  const RowRun* runs;              // (blocks), or none
  const std::int64_t* lane_rows;   // (blocks, 16), if the rows of a block are not consecutive
};

// Output of packing: the arrays of a BlocksView from the first block of a list on.
struct ListTarget {
  float* mean;
  float* longest;
  std::int32_t* data;
  std::int32_t* statistics;
  float* added;
  std::int32_t* labels;
  LabelRange* ranges;
  std::int8_t *codes, *mean_code;
};

// The rows of a list and their labels; -1 for a lane without a row.
struct ListRows {
  const std::int64_t* rows;
  const std::int32_t* labels;
  std::size_t size;
};

// Memory for packing.
struct PackMemory {
  float* block;    // (columns, 16)
  float* rotated;  // (columns, 16)
  float* row;      // (d)
};

// A group of queries that probe the same lists, and its results.
struct GroupView {
  const float* X;  // (size, d)
  const std::int32_t* labels;
  std::size_t size;
  const std::int64_t* lists;  // (nprobe); -1 for none
  std::size_t nprobe;
  std::size_t k;
  std::size_t copies = 1;               // the largest number of lists that hold the same row
  bool resume;                          // D and I contain earlier results
  const std::int64_t* order = nullptr;  // the row of D and I of each query, (size), or null: their own numbers
  float* D;                             // (.., k)
  std::int64_t* I;
  const FilterView& filter;  // of the rows of D; a temporary lives as long as the group
};

// Query statistics, one number per query; the first three in units of its scale, for bits squares of lengths.
struct QueryStatistics {
  float* norm;
  float* error;
  float* tail;
  float* scale;
  float* inverse_scale;  // for bits, the unit of the query's code
  float* threshold;      // upper bounds of candidates reach it
  float* low;            // product with the mean of a list, or minus the squared distance, less all rounding errors
  float* high;           // the same plus these errors
  float* wanted;         // threshold for products with the centred rows of that list
};

// Rows that may be among the results of a query: bounds of their similarities, and their lanes, numbered over all
// blocks. `capacity` is a multiple of 16.
struct CandidateBuffer {
  std::size_t capacity;
  std::size_t enough;   // more candidates of a query than this are dropped or scored
  float* lower;         // (queries, capacity)
  float* upper;         // the same; bytes and bits only
  std::int32_t* lanes;  // the same
  std::size_t* counts;  // (queries)
  std::size_t* found;   // results of each query so far, (queries)
};

// Warm-up: the first blocks of a group are compared without thresholds, to get thresholds.
struct WarmUp {
  std::size_t blocks;  // their number, or 0
  std::size_t width;   // per-lane maxima of a query, a multiple of 16
  float* upper;        // upper bounds of similarities, -inf for a lane that is not eligible, (queries, blocks, 16)
  float* maxima;       // of lower bounds, (queries, width)
  std::int32_t* kept;  // indices of the upper bounds that reach a threshold, (blocks, 16)
  std::int32_t* seen;  // numbers of the blocks
};

struct SearchMemory {
  QueryStatistics queries;
  CandidateBuffer candidates;
  WarmUp warm_up;
  float* block;             // queries in blocks of 16, (blocks, columns, 16)
  float* rotated;           // the same
  float* centred;           // 16 queries less the centre, (d, 16)
  std::int32_t* words;      // (blocks, words, 16)
  float* row;               // (d)
  double* wide;             // (d)
  float* scores;            // (capacity + k), padded to a multiple of 16
  std::int64_t* ids;        // the same
  std::int64_t* selection;  // see memory_of_best
};

}  // namespace cfe
