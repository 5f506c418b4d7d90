// Plain views for the kernels: means rounded to bytes, in blocks of 16, four bytes in a word, word-major.
#pragma once

#include "core/common.h"

namespace cfe {

// With m the centre of all means, c' = c - m and q' = q - b m, where b m is the part of q along m,
//
//   q·c = q·m + b m·c' + q'·c'
//
// and only q' and c', which are short, are rounded to bytes. The last number of a mean, if it has more than d, stays a
// float; see core/metric.h. Statistics of each of 16 means:
enum MeanStatistic : std::size_t {
  kMeanCorrection,  // int32: minus the sum of the bytes of c' times the query's zero code
  kMeanScale,       // float: component per unit of a byte
  kMeanAlong,       // m·c'
  kMeanError,       // rounding error of the bytes
  kMeanNorm,        // bounds the norm of the mean given by the bytes
  kMeanRounding,    // float32 rounding error per unit of |q|
  kMeanLast,        // the last number
  kMeanStatistics
};

struct ByteMeans {
  std::size_t d, words, blocks;  // words of a mean are d / 4, rounded up
  std::int32_t* data;            // (blocks, words, 16)
  std::int32_t* statistics;      // (blocks, kMeanStatistics, 16)
};

// A query, its product with the centre, and q' in bytes.
struct ByteQuery {
  const std::int32_t* words;  // (words, 16); only the first of each 16 is set
  float along, share, norm;   // q·m, b, |q|
  float scale, error, rest;   // of the bytes of q', and |q'|
  float last;                 // the factor of the last number of a mean
};

}  // namespace cfe
