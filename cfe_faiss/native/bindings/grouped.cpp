#include "core/grouped.h"

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"

namespace cfe {

namespace {

using Ints = Array1<const std::int64_t>;
using Labels = Array1<const std::int32_t>;

void search(const GroupedSearcher& searcher, const Array2<const float>& X, const Ints& rows, const Labels& labels,
            const Ints& order, const Ints& starts, const Labels& group_labels, const Ints& tasks, std::size_t nprobe,
            const Array2<float>& D, const Array2<std::int64_t>& I, bool deduplicate, int threads,
            const nb::object& progress) {
  const LargeGroups groups{as_matrix(X),          as_span(rows),  as_span(labels), as_span(order), as_span(starts),
                           as_span(group_labels), as_span(tasks), as_matrix(D),    as_matrix(I)};
  const Watch noticed = watch(progress);
  const nb::gil_scoped_release released;
  searcher.search(groups, nprobe, deduplicate, threads, noticed);
}

}  // namespace

void bind_grouped(nb::module_& module) {
  nb::class_<GroupedSearcher>(module, "GroupedSearcher")
      .def(nb::init<const Rows&, const ClassCentroids&, const Blocks&>(), nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::arg("rows"), nb::arg("centroids"), nb::arg("blocks"))
      .def("search", search, as_is("X"), as_is("rows"), as_is("labels"), as_is("order"), as_is("starts"),
           as_is("group_labels"), as_is("tasks"), nb::arg("nprobe"), as_is("D"), as_is("I"), nb::kw_only(),
           nb::arg("deduplicate") = false, nb::arg("threads") = 1, nb::arg("progress") = nb::none());
}

}  // namespace cfe
