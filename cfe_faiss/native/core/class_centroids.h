// Coarse ranking: a query probes lists whose rows of other classes are near.
#pragma once

#include "core/aligned.h"
#include "core/byte_means.h"
#include "core/common.h"
#include "core/parallel.h"
#include "core/rows.h"

namespace cfe {

// Means of lists, and of lists without the rows of one class; see Routes in coarse/routes.py. They are unit vectors for
// Metric::kCosine, else have one more number than d, and are means of rows less the center; see core/metric.h.
struct ListMeans {
  Matrix<const float> means;
  std::span<const bool> filled;
  // Class labels[i] has its own mean in the lists lists[starts[i] : starts[i + 1]].
  std::span<const std::int32_t> labels;
  std::span<const std::int64_t> starts, lists;
  Matrix<const float> class_means;
  std::span<const bool> class_filled;
  Metric metric = Metric::kCosine;
  std::span<const float> center;  // (d,)
};

// Clusters of near lists; none if there are few lists.
struct ListClusters {
  Matrix<const float> means;
  std::span<const std::int64_t> starts, lists;  // cluster c holds lists[starts[c] : starts[c + 1]]
};

// Means of a few lists, as rows: of each list the mean of all its rows, then the means without the rows of one class.
class ChangedLists {
 public:
  std::size_t size() const { return lists_.size(); }
  // Index of a list among them, or -1.
  std::ptrdiff_t place_of(std::size_t list) const { return places_.empty() ? -1 : places_[list]; }
  std::int64_t operator[](std::size_t place) const { return lists_[place]; }

  // Returns these lists and further ones, which have changed since. A class whose share of a list exceeds `small_share`
  // gets its own mean there.
  ChangedLists with(const Rows& rows, std::span<const std::int64_t> lists, double small_share,
                    std::span<const float> center) const;

  // Writes the score of each list for a query; -inf for empty lists. `wanted` is scratch.
  void score(std::span<const float> x, std::int32_t label, std::vector<std::int64_t>& wanted,
             std::vector<float>& scores) const;

 private:
  void copy(const ChangedLists& other, std::size_t place, std::size_t length);
  void add(const Rows& rows, std::size_t list, double small_share, std::span<const float> center);

  std::vector<std::int64_t> lists_;   // ascending
  std::vector<std::int32_t> places_;  // of each list of the index
  std::vector<std::size_t> starts_;   // the first mean of each list and, last, their number
  std::vector<std::int32_t> labels_;  // of each mean; kUnknown for the mean of all rows
  std::vector<bool> filled_;          // whether a mean has rows
  std::vector<float> means_;          // (means, ranking_length)
};

// Ranks lists for queries, nearest first and of equals the smallest number. Scores have the same bits at every
// instruction set, and for one query or several; see kernels/products.h.
class ClassCentroids {
 public:
  // Copies its arguments.
  ClassCentroids(const ListMeans& means, const ListClusters& clusters);

  // Returns a copy in which some lists of `rows` have changed. There must be no clusters and one partition. Unchanged
  // blocks are shared.
  ClassCentroids with_changes(const Rows& rows, std::span<const std::int64_t> lists, double small_share) const;

  // Number of lists that changed after the blocks were made.
  std::size_t changed() const { return changed_.size(); }

  // Memory for rankings, reused by the next one; one for each thread.
  struct Scratch {
    std::vector<float> scores, upper, maxima, kept, queries, rest;
    std::vector<std::int32_t> places, words;
    std::vector<std::int64_t> offsets, blocks, clusters, ids, lanes, memory;
    std::vector<float> changed;        // scores of the changed lists
    std::vector<std::int64_t> wanted;  // the mean of each
    bool by_bytes = false;             // whether a query is compared with bytes first
    ByteQuery query;
  };

  std::size_t d() const { return metric_ == Metric::kCosine ? length_ : length_ - 1; }
  std::size_t size() const { return clusters_of_.size(); }  // lists of all partitions

  // Writes the nearest lists of a query, at most size() of them, then -1. Lists of far clusters are left out.
  void rank(std::span<const float> x, std::int32_t label, std::span<std::int64_t> lists, Scratch& scratch) const;

  // The same for each row of X.
  void rank(const Matrix<const float>& X, std::span<const std::int32_t> labels, const Matrix<std::int64_t>& lists,
            int threads, const Watch& watch) const;

 private:
  static constexpr std::size_t kListsOfAll = 6;  // with nprobe above a sixth of all lists, bytes exclude too few

  // Blocks of the lists of one cluster, or of the lists in which one class has its own mean.
  struct Run {
    std::size_t first, number;            // blocks
    std::size_t first_empty, last_empty;  // in empty_
    std::size_t lanes() const { return number * kLanes; }
  };

  // The runs of the lists that queries of a label are compared with, one for each cluster, from `first` on, and the run
  // whose class means replace the means of their lists, or none.
  struct RunsOfLabel {
    std::size_t first;
    const Run* own;
  };

  void check(const ListMeans& means, const ListClusters& clusters) const;
  std::size_t words() const { return (d() + 3) / 4; }  // of a mean in bytes
  void add_run(const ListMeans& means, std::span<const std::int64_t> rows);
  void round_to_bytes();
  ByteMeans bytes_of(const Run& run) const;
  std::span<const float> blocks_of(const Run& run) const;
  RunsOfLabel runs_of(std::int32_t label) const;
  void extend(std::span<const float> x, std::span<float> extended) const;
  bool compares_bytes(std::size_t nprobe) const { return by_bytes_ && nprobe <= size() / kListsOfAll; }
  void set_query(std::span<const float> x, Scratch& scratch) const;
  void clear_empty(const Run& run, float* scores) const;
  void score_run(const Matrix<const float>& X, const Run& run, std::size_t at, std::size_t stride,
                 Scratch& scratch) const;
  void replace(std::int64_t list, float lower, float upper, std::size_t at, Scratch& scratch) const;
  void replace_scores(std::span<const float> x, std::int32_t label, const Run* own, std::size_t at, std::size_t end,
                      Scratch& scratch) const;
  void choose_clusters(std::span<const float> x, std::size_t nprobe, Scratch& scratch) const;
  std::size_t score_clusters(const Matrix<const float>& X, std::size_t first, Scratch& scratch) const;
  void score_lanes(std::span<const float> x, const Run* own, std::size_t number, Scratch& scratch) const;
  void choose(std::span<const float> x, const Run* own, std::size_t at, std::span<std::int64_t> lists,
              Scratch& scratch) const;
  void rank_together(const Matrix<const float>& X, std::span<const std::int32_t> labels,
                     std::span<const std::size_t> queries, const Matrix<std::int64_t>& lists, Scratch& scratch) const;

  // Blocks of means, and with many lists their bytes, and the means as rows, in the order of their lanes.
  struct Means {
    AlignedVector<float> blocks;                    // (blocks, length, 16)
    AlignedVector<std::int32_t> lists;              // of each lane, (blocks, 16); -1 for none
    AlignedVector<std::int32_t> bytes, statistics;  // (blocks, words, 16), and (blocks, kMeanStatistics, 16)
    AlignedVector<float> rows;                      // (16 * blocks, length)
  };

  Metric metric_;
  std::shared_ptr<Means> means_ = std::make_shared<Means>();  // shared by copies
  std::vector<float> origin_;                // the center of the means, (d,), unless they are unit vectors
  std::size_t length_;                       // of a mean
  std::vector<std::int32_t> empty_;          // empty lanes of the runs, counted from the first block
  std::vector<Run> runs_;                    // of the clusters, then of the labels
  std::vector<std::int32_t> labels_;         // ascending
  std::vector<std::size_t> runs_of_label_;   // the first run of each label
  std::vector<bool> whole_;                  // whether a label has runs of all lists, one per cluster
  std::vector<float> cluster_means_;         // (clusters, length)
  std::vector<std::int64_t> cluster_sizes_;  // lists
  std::vector<std::int32_t> clusters_of_;    // the cluster of each list
  std::vector<std::int64_t> lanes_;          // of each list, counted from the first block
  bool by_bytes_ = false;                    // whether queries are first compared with bytes, as there are many lists
  std::vector<float> center_;                // of all means, (d,)

  // Lists that changed after the blocks were made; the fields above do not describe them.
  ChangedLists changed_;
};

}  // namespace cfe
