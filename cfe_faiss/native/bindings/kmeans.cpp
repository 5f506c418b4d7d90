#include "core/kmeans.h"

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"

namespace cfe {

namespace {

using Floats = Array2<const float>;

void nearest_centroids(const Floats& X, const Floats& centroids, const Array1<float>& similarities,
                       const Array1<std::int32_t>& nearest, int threads) {
  check_length("a row of X", X.shape(1), centroids.shape(1));
  if (similarities.shape(0) != 0) check_length("similarities", similarities.shape(0), X.shape(0));
  check_length("nearest", nearest.shape(0), X.shape(0));
  if (centroids.size() == 0) throw nb::value_error("there must be a centroid");
  const auto noticed = watch();
  const nb::gil_scoped_release released;
  assign(as_matrix(X), as_matrix(centroids), as_span(similarities), as_span(nearest), threads, noticed);
}

double move_centroids(const Floats& X, const Array1<const float>& weights, const Array2<float>& centroids,
                      std::size_t iterations, bool total_wanted, int threads) {
  check_length("a row of X", X.shape(1), centroids.shape(1));
  check_length("weights", weights.shape(0), X.shape(0));
  if (centroids.size() == 0) throw nb::value_error("there must be a centroid");
  const auto noticed = watch();
  const nb::gil_scoped_release released;
  return lloyd(as_matrix(X), as_span(weights), as_matrix(centroids), iterations, total_wanted, threads, noticed);
}

}  // namespace

void bind_kmeans(nb::module_& module) {
  module.def("nearest_centroids", nearest_centroids, as_is("X"), as_is("centroids"), as_is("similarities"),
             as_is("nearest"), nb::arg("threads"));
  module.def("move_centroids", move_centroids, as_is("X"), as_is("weights"), as_is("centroids"), nb::arg("iterations"),
             nb::arg("total_wanted"), nb::arg("threads"));
}

}  // namespace cfe
