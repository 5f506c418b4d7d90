// Random graphs with communities, and their features; see cfe_faiss/datasets/synthetic.py. Every random number is the
// output of a counter, so that nothing depends on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/matrix.h"
#include "core/parallel.h"

namespace cfe {

// 64 random bits: the counter-th output of SplitMix64 (Steele, Lea & Flood 2014) with the seed `key`.
std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter);

// Pairs of nodes of the same community, each of which is joined where its random bits are below the threshold. Nodes
// are known by their places in an order in which communities lie together: ends[i] is where that of place i ends.
struct RandomPairs {
  std::span<const std::int64_t> ends;
  std::uint64_t key, threshold;
};

// Counts the edges of each place to later ones. Throws std::invalid_argument if the spans do not fit each other.
void count_pairs(const RandomPairs& pairs, std::span<std::int64_t> counts, int threads, const Watch& watch);

// Writes these edges, (2, m), of place i at starts[i] and on; order[i] is the node at place i. Throws
// std::invalid_argument if the spans do not fit each other or `starts` what is counted.
void join_pairs(const RandomPairs& pairs, std::span<const std::int32_t> order, std::span<const std::int64_t> starts,
                const Matrix<std::int32_t>& edges, int threads, const Watch& watch);

// Other edges: place i gets starts[i + 1] - starts[i] of them, to nodes that are chosen by demand among places
// bottoms[i]..tops[i]-1, or with the probability stray / 2^64 among all.
struct RandomEnds {
  std::span<const std::int64_t> bottoms, tops, starts;
  std::span<const double> cumulated;  // of the demand, by place, from 0 on
  std::uint64_t key, stray;
};

void join_others(const RandomEnds& ends, std::span<const std::int32_t> order, const Matrix<std::int32_t>& edges,
                 int threads, const Watch& watch);

// Features: scale * (centre of the community + offset of the class + own * a nearly normal number).
struct RandomFeatures {
  std::span<const std::int32_t> community, labels;
  Matrix<const float> centres, of_class;
  std::span<const float> scale;
  float own;
  std::uint64_t key;
};

void fill_features(const RandomFeatures& features, const Matrix<float>& x, int threads, const Watch& watch);

}  // namespace cfe
