// k-means, and the class centroids that lists are ranked by.
#include "bindings/bindings.h"
#include "core/class_centroids.h"
#include "core/kmeans.h"

namespace cfe {

namespace {

void check_centroids(const Vectors& X, const Vectors& centroids) {
  check_shape("X", X, X.rows, centroids.columns);
  require(centroids.size() > 0, "there must be a centroid");
}

void nearest_centroids(Vectors X, Vectors centroids, std::span<float> similarities, std::span<std::int32_t> nearest,
                       int threads, bool distances) {
  check_centroids(X, centroids);
  check_length("similarities", similarities.size(), similarities.empty() ? 0 : X.rows);
  check_length("nearest", nearest.size(), X.rows);
  const LongCall call;
  assign(X, centroids, similarities, nearest, threads, call.watch, distances ? Metric::kL2 : Metric::kIp);
}

double move_centroids(Vectors X, Floats weights, Matrix<float> centroids, std::size_t iterations, bool total_wanted,
                      int threads, bool distances) {
  check_centroids(X, centroids);
  check_length("weights", weights.size(), X.rows);
  const LongCall call;
  return lloyd(X, weights, centroids, iterations, total_wanted, threads, call.watch,
               distances ? Metric::kL2 : Metric::kIp);
}

void make_class_centroids(ClassCentroids* place, Vectors means, Flags filled, Labels labels, Ints starts, Ints lists,
                          Vectors class_means, Flags class_filled, Vectors cluster_means, Ints cluster_starts,
                          Ints cluster_lists, int metric, Floats center) {
  new (place) ClassCentroids(
      {means, filled, labels, starts, lists, class_means, class_filled, enum_of<Metric>("metric", metric), center},
      {cluster_means, cluster_starts, cluster_lists});
}

void rank(const ClassCentroids& centroids, Vectors X, Labels labels, Ids found, int threads) {
  check_shape("X", X, X.rows, centroids.d());
  check_length("labels", labels.size(), X.rows);
  check_length("found", found.rows, X.rows);
  require(found.columns <= centroids.size(), "no more lists may be wanted than there are");
  if (found.size() == 0) return;
  const LongCall call;
  centroids.rank(X, labels, found, threads, call.watch);
}

}  // namespace

void bind_coarse(nb::module_& module) {
  module.def("nearest_centroids", nearest_centroids, "X"_a, "centroids"_a, "similarities"_a, "nearest"_a, "threads"_a,
             "distances"_a = false);
  module.def("move_centroids", move_centroids, "X"_a, "weights"_a, "centroids"_a, "iterations"_a, "total_wanted"_a,
             "threads"_a, "distances"_a = false);
  nb::class_<ClassCentroids>(module, "ClassCentroids")
      .def("__init__", make_class_centroids, "means"_a, "filled"_a, "labels"_a, "starts"_a, "lists"_a, "class_means"_a,
           "class_filled"_a, "cluster_means"_a, "cluster_starts"_a, "cluster_lists"_a, "metric"_a, "center"_a,
           without_gil)
      .def("with_changes", &ClassCentroids::with_changes, "rows"_a, "lists"_a, "small_share"_a, without_gil)
      .def_prop_ro("changed", &ClassCentroids::changed)
      .def("rank", rank, "X"_a, "labels"_a, "found"_a, "threads"_a)
      .def("__len__", &ClassCentroids::size);
}

}  // namespace cfe
