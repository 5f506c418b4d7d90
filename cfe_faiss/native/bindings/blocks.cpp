#include "core/blocks.h"

#include <nanobind/stl/string.h>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/watch.h"
#include "core/kernels.h"

namespace cfe {

namespace {

Element element_named(const std::string& name) {
  if (name == "float") return Element::kFloat;
  if (name == "byte") return Element::kByte;
  throw nb::value_error(("element must be \"float\" or \"byte\", got \"" + name + "\"").c_str());
}

void make(Blocks* blocks, const Rows& rows, const std::string& element, float rounding_error,
          const Array1<const std::int32_t>& references, const Array1<const std::int64_t>& reference_starts,
          const Array1<const bool>& wanted, const Array1<const bool>& allowed, const Array2<const float>& rotation,
          std::size_t prefix, int threads) {
  const BlocksOptions options{element_named(element),    rounding_error,  as_span(references),
                              as_span(reference_starts), as_span(wanted), as_span(allowed),
                              as_matrix(rotation),       prefix,          threads};
  const Watch noticed = watch();
  const nb::gil_scoped_release released;
  new (blocks) Blocks(rows, options, noticed);
}

void search(const Blocks& blocks, const Array2<const float>& X, const Array1<const std::int32_t>& labels,
            const Array1<const std::int64_t>& starts, const Array2<const std::int64_t>& lists,
            const Array1<const std::int64_t>& order, const Array2<float>& D, const Array2<std::int64_t>& I,
            bool deduplicate, bool resume, int threads, const nb::object& progress) {
  const GroupedQueries queries{as_matrix(X),     as_span(labels), as_span(starts),
                               as_matrix(lists), as_span(order),  as_matrix(D),
                               as_matrix(I),     deduplicate,     resume};
  const Watch noticed = watch(progress);
  const nb::gil_scoped_release released;
  blocks.search(queries, threads, noticed);
}

}  // namespace

void bind_blocks(nb::module_& module) {
  module.def("has_bytes", [] { return kernels().has_bytes; });
  nb::class_<Blocks>(module, "Blocks")
      .def("__init__", make, nb::keep_alive<1, 2>(), nb::arg("rows"), nb::arg("element"), nb::arg("rounding_error"),
           as_is("references"), as_is("reference_starts"), as_is("wanted"), as_is("allowed"), as_is("rotation"),
           nb::arg("prefix"), nb::arg("threads"))
      .def("search", search, as_is("X"), as_is("labels"), as_is("starts"), as_is("lists"), as_is("order"), as_is("D"),
           as_is("I"), nb::kw_only(), nb::arg("deduplicate") = false, nb::arg("resume") = false, nb::arg("threads") = 1,
           nb::arg("progress") = nb::none())
      .def("__len__", &Blocks::size)
      .def_prop_ro("lists", &Blocks::lists)
      .def_prop_ro("memory", &Blocks::memory)
      .def_prop_ro("element",
                   [](const Blocks& blocks) { return blocks.element() == Element::kByte ? "byte" : "float"; })
      .def_prop_ro("rotated", &Blocks::rotated);
}

}  // namespace cfe
