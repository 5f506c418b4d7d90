// k-means, and the class centroids that lists are ranked by.
#include "bindings/bindings.h"
#include "core/class_centroids.h"
#include "core/kmeans.h"

namespace cfe {

namespace {

void check_centroids(const Vectors& X, std::size_t number, std::size_t d) {
  check_length("a row of X", X.shape(1), d);
  if (number * d == 0) throw nb::value_error("there must be a centroid");
}

void nearest_centroids(const Vectors& X, const Vectors& centroids, const Array1<float>& similarities,
                       const Array1<std::int32_t>& nearest, int threads) {
  check_centroids(X, centroids.shape(0), centroids.shape(1));
  if (similarities.shape(0) != 0) check_length("similarities", similarities.shape(0), X.shape(0));
  check_length("nearest", nearest.shape(0), X.shape(0));
  const LongCall call;
  assign(as_matrix(X), as_matrix(centroids), as_span(similarities), as_span(nearest), threads, call.watch);
}

double move_centroids(const Vectors& X, const Floats& weights, const Array2<float>& centroids, std::size_t iterations,
                      bool total_wanted, int threads) {
  check_centroids(X, centroids.shape(0), centroids.shape(1));
  check_length("weights", weights.shape(0), X.shape(0));
  const LongCall call;
  return lloyd(as_matrix(X), as_span(weights), as_matrix(centroids), iterations, total_wanted, threads, call.watch);
}

void make_class_centroids(ClassCentroids* place, const Vectors& means, const Flags& filled, const Labels& labels,
                          const Ints& starts, const Ints& lists, const Vectors& class_means, const Flags& class_filled,
                          const Vectors& cluster_means, const Ints& cluster_starts, const Ints& cluster_lists) {
  const nb::gil_scoped_release released;
  new (place) ClassCentroids({as_matrix(means), as_span(filled), as_span(labels), as_span(starts), as_span(lists),
                              as_matrix(class_means), as_span(class_filled)},
                             {as_matrix(cluster_means), as_span(cluster_starts), as_span(cluster_lists)});
}

ClassCentroids with_changes(const ClassCentroids& centroids, const Rows& rows, const Ints& lists, double small_share) {
  const nb::gil_scoped_release released;
  return centroids.with_changes(rows, as_span(lists), small_share);
}

using Rank = void (ClassCentroids::*)(const Matrix<const float>&, std::span<const std::int32_t>,
                                      const Matrix<std::int64_t>&, int, const Watch&) const;

template <Rank rank_lists>
void rank(const ClassCentroids& centroids, const Vectors& X, const Labels& labels, const Ids& found, int threads) {
  check_length("a row of X", X.shape(1), centroids.d());
  check_length("labels", labels.shape(0), X.shape(0));
  check_length("found", found.shape(0), X.shape(0));
  if (found.shape(1) > centroids.size()) throw nb::value_error("no more lists may be wanted than there are");
  if (found.size() == 0) return;
  const LongCall call;
  (centroids.*rank_lists)(as_matrix(X), as_span(labels), as_matrix(found), threads, call.watch);
}

}  // namespace

void bind_coarse(nb::module_& module) {
  module.def("nearest_centroids", nearest_centroids, as_is("X"), as_is("centroids"), as_is("similarities"),
             as_is("nearest"), nb::arg("threads"));
  module.def("move_centroids", move_centroids, as_is("X"), as_is("weights"), as_is("centroids"), nb::arg("iterations"),
             nb::arg("total_wanted"), nb::arg("threads"));
  nb::class_<ClassCentroids>(module, "ClassCentroids")
      .def("__init__", make_class_centroids, as_is("means"), as_is("filled"), as_is("labels"), as_is("starts"),
           as_is("lists"), as_is("class_means"), as_is("class_filled"), as_is("cluster_means"), as_is("cluster_starts"),
           as_is("cluster_lists"))
      .def("with_changes", with_changes, nb::arg("rows"), as_is("lists"), nb::arg("small_share"))
      .def_prop_ro("changed", &ClassCentroids::changed)
      .def("rank", rank<&ClassCentroids::rank>, as_is("X"), as_is("labels"), as_is("found"), nb::arg("threads"))
      .def("rank_all", rank<&ClassCentroids::rank_all>, as_is("X"), as_is("labels"), as_is("found"), nb::arg("threads"))
      .def("__len__", &ClassCentroids::size);
}

}  // namespace cfe
