// What kernels see of means that are rounded to bytes: in blocks of 16, four bytes in a word, word-major.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cfe {

// With m the centre of all means, c' = c - m and q' = q - b m, where b m is the part of q that lies along m,
//
//   q·c = q·m + b m·c' + q'·c'
//
// and only q' and c', which are short, are rounded to bytes. Of each of 16 means:
enum MeanStatistic : std::size_t {
  kMeanCorrection,  // int32: the bytes of c', added up, times the zero code of a query, with the sign changed
  kMeanScale,       // float: times a byte, a component
  kMeanAlong,       // m·c'
  kMeanError,       // of the bytes
  kMeanNorm,        // bounds that of what the bytes say
  kMeanRounding,    // times the length of q, what is rounded in float32 at all; infinite where a mean is damaged
  kMeanStatistics
};

struct ByteMeans {
  std::size_t words, blocks;       // words of a mean are d / 4, rounded up
  const std::int32_t* data;        // (blocks, words, 16)
  const std::int32_t* statistics;  // (blocks, kMeanStatistics, 16)
};

// Where they are written to.
struct ByteMeansTarget {
  std::size_t words, blocks;
  std::int32_t* data;
  std::int32_t* statistics;
};

// A query, its product with the centre, and q' in bytes.
struct ByteQuery {
  const std::int32_t* words;  // (words, 16), of which the first of each 16 is set
  float along, share, norm;   // q·m, b, |q|
  float scale, error, rest;   // of the bytes of q', and |q'|
};

}  // namespace cfe
