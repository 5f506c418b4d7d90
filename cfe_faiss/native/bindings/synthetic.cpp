#include "core/synthetic.h"

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"

namespace cfe {

namespace {

using Places = Array1<const std::int64_t>;
using Nodes = Array1<const std::int32_t>;

void bind_count_pairs(nb::module_& module) {
  module.def(
      "count_pairs",
      [](const Places& ends, std::uint64_t key, std::uint64_t threshold, const Array1<std::int64_t>& counts,
         int threads) {
        const Watch between = watch();
        const nb::gil_scoped_release released;
        count_pairs({as_span(ends), key, threshold}, as_span(counts), threads, between);
      },
      as_is("ends"), nb::arg("key"), nb::arg("threshold"), as_is("counts"), nb::arg("threads"));
}

void bind_join_pairs(nb::module_& module) {
  module.def(
      "join_pairs",
      [](const Places& ends, std::uint64_t key, std::uint64_t threshold, const Nodes& order, const Places& starts,
         const Array2<std::int32_t>& edges, int threads) {
        const Watch between = watch();
        const nb::gil_scoped_release released;
        join_pairs({as_span(ends), key, threshold}, as_span(order), as_span(starts), as_matrix(edges), threads,
                   between);
      },
      as_is("ends"), nb::arg("key"), nb::arg("threshold"), as_is("order"), as_is("starts"), as_is("edges"),
      nb::arg("threads"));
}

void bind_join_others(nb::module_& module) {
  module.def(
      "join_others",
      [](const Places& bottoms, const Places& tops, const Places& starts, const Array1<const double>& cumulated,
         std::uint64_t key, std::uint64_t stray, const Nodes& order, const Array2<std::int32_t>& edges, int threads) {
        const Watch between = watch();
        const nb::gil_scoped_release released;
        join_others({as_span(bottoms), as_span(tops), as_span(starts), as_span(cumulated), key, stray}, as_span(order),
                    as_matrix(edges), threads, between);
      },
      as_is("bottoms"), as_is("tops"), as_is("starts"), as_is("cumulated"), nb::arg("key"), nb::arg("stray"),
      as_is("order"), as_is("edges"), nb::arg("threads"));
}

void bind_fill_features(nb::module_& module) {
  module.def(
      "fill_features",
      [](const Nodes& community, const Nodes& labels, const Array2<const float>& centres,
         const Array2<const float>& of_class, const Array1<const float>& scale, float own, std::uint64_t key,
         const Array2<float>& x, int threads) {
        const Watch between = watch();
        const nb::gil_scoped_release released;
        fill_features(
            {as_span(community), as_span(labels), as_matrix(centres), as_matrix(of_class), as_span(scale), own, key},
            as_matrix(x), threads, between);
      },
      as_is("community"), as_is("labels"), as_is("centres"), as_is("of_class"), as_is("scale"), nb::arg("own"),
      nb::arg("key"), as_is("x"), nb::arg("threads"));
}

}  // namespace

void bind_synthetic(nb::module_& module) {
  module.def("random_bits", random_bits, nb::arg("key"), nb::arg("counter"));
  bind_count_pairs(module);
  bind_join_pairs(module);
  bind_join_others(module);
  bind_fill_features(module);
}

}  // namespace cfe
